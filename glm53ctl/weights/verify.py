"""Is every file what the manifest says? All cores hash at once, past the page cache."""

import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from glm53ctl.findings import Finding, Severity
from glm53ctl.weights.hashing import Digests, absorb, broken_extents, sample
from glm53ctl.weights.layout import WeightSet
from glm53ctl.weights.manifest import Entry, Manifest
from glm53ctl.weights.progress import Meter, Watcher
from glm53ctl.weights.record import FileState, RecordBook, change, seen
from glm53ctl.weights.transfer import mismatch
from glm53ctl.weights.verdicts import UNREADABLE_FIX

MAX_THREADS = 16
"""More than any disk can feed; at two buffers of 2 MiB each also the bound of the memory."""
TICK_SECONDS = 0.5
SAVE_SECONDS = 5.0
"""How often the record is written meanwhile: what a kill costs is read again, not fetched."""

_FETCH = (
    "Run `glm53ctl weights fetch` (on a worker `weights sync`): only what is wrong is brought anew."
)


def hashing_threads() -> int:
    """Return how many threads hash: four a core, so that cores and disk never wait together."""
    return min(4 * (len(os.sched_getaffinity(0)) or 1), MAX_THREADS)


def verify_files(
    weight_set: WeightSet,
    entries: Sequence[Entry],
    book: RecordBook,
    watcher: Watcher,
    stop: threading.Event | None = None,
) -> list[Finding]:
    """Hash files and note the right ones in the book; return a finding for each wrong one."""
    meter = Meter("verify", weight_set.role, sum(e.size for e in entries), len(entries))
    ended = stop or threading.Event()

    def one(entry: Entry) -> Finding | None:
        if ended.is_set():
            return None
        finding = verify_file(weight_set.directory, entry, book, meter)
        meter.finish_file()
        return finding

    findings, saved = [], time.monotonic()
    with ThreadPoolExecutor(hashing_threads(), thread_name_prefix="hash") as pool:
        # The largest first, or the last one is hashed alone.
        ordered = sorted(entries, key=lambda entry: -entry.size)
        left: set[Future[Finding | None]] = {pool.submit(one, entry) for entry in ordered}
        try:
            while left:
                done, left = wait(left, TICK_SECONDS, FIRST_COMPLETED)
                watcher.show(meter.progress())
                if time.monotonic() - saved > SAVE_SECONDS:
                    book.save()
                    saved = time.monotonic()
                findings += [f for f in (future.result() for future in done) if f is not None]
        except BaseException:
            ended.set()
            raise
        finally:
            book.save()
    return sorted(findings, key=lambda finding: finding.where)


def verify_file(
    directory: Path, entry: Entry, book: RecordBook, meter: Meter | None = None
) -> Finding | None:
    """Hash one file. The book has it afterwards, or does not."""
    path = directory / entry.path
    try:
        size = path.stat().st_size
        wrong = f"it has {size} bytes, the manifest says {entry.size}"
        code = "CACHE_TRUNCATED"
        if size == entry.size:
            digests = Digests(entry.size, git=entry.git_sha1 is not None)
            note = (lambda done: meter.at(entry.path, done)) if meter else (lambda _: None)
            before = path.stat().st_mtime_ns
            absorb(digests, path, entry.size, note)
            wrong, code = mismatch(entry, digests) or broken_extents(path) or "", "WEIGHTS_DAMAGED"
            if not wrong and path.stat().st_mtime_ns == before:
                book.add(entry.path, seen(path, digests.sha256), save=False)
                return None
            wrong = wrong or "it was written to while it was read"
    except FileNotFoundError:
        code, wrong = (
            ("CACHE_DANGLING", "it is a link to nothing")
            if path.is_symlink()
            else (
                "WEIGHTS_MISSING",
                "it is missing",
            )
        )
    except OSError as error:
        code, wrong = _unread(error)
    book.drop(entry.path)
    return damaged(code, path, wrong)


def verify_quickly(directory: Path, manifest: Manifest, book: RecordBook) -> list[Finding]:
    """Compare size, time of change and sampled blocks with what was verified.

    Reads half a mebibyte of each file. A file that was never verified is a finding as well.
    """
    known = book.files
    findings = []
    for entry in manifest.files:
        path, state = directory / entry.path, known.get(entry.path)
        if state is None:
            findings.append(damaged("WEIGHTS_UNVERIFIED", path, "it was never verified here"))
            continue
        wrong = change(path, state)
        if wrong is None:
            wrong = _other_content(path, state)
        if wrong is not None:
            findings.append(damaged(wrong[0], path, wrong[1]))
            book.drop(entry.path)
    return findings


def _other_content(path: Path, state: FileState) -> tuple[str, str] | None:
    try:
        if sample(path) == state.sample:
            return None
    except OSError as error:
        return _unread(error)
    return "WEIGHTS_DAMAGED", "its content is not what it was"


def _unread(error: OSError) -> tuple[str, str]:
    """Tell bytes that nobody may look at, and that may be right, from those that are gone."""
    closed = isinstance(error, PermissionError)
    code = "WEIGHTS_UNREADABLE" if closed else "WEIGHTS_DAMAGED"
    return code, f"it cannot be read ({error.strerror})"


def damaged(code: str, path: Path, wrong: str) -> Finding:
    """Return the finding for one file."""
    return Finding(
        code=code,
        severity=Severity.FAIL,
        where=str(path),
        message=f"{wrong}.",
        fix=UNREADABLE_FIX if code == "WEIGHTS_UNREADABLE" else _FETCH,
    )
