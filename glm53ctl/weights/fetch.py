"""Make a set complete: from the Hub, or on a worker from the head. Never a good byte twice."""

import os
import queue
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from glm53ctl.backoff import doubled
from glm53ctl.errors import UserError
from glm53ctl.findings import Finding, Severity
from glm53ctl.weights.hub import Source
from glm53ctl.weights.layout import INCOMPLETE, WeightSet
from glm53ctl.weights.manifest import (
    Entry,
    Manifest,
    check,
    differences,
    pins,
    read_lock,
    write_lock,
)
from glm53ctl.weights.manifest import with_pins as _with_pins
from glm53ctl.weights.progress import Activity, Meter, Watcher
from glm53ctl.weights.record import RecordBook, change
from glm53ctl.weights.transfer import (
    MAX_SOCKET_SECONDS,
    HttpRefusedError,
    Receiver,
    Throttle,
    TransferError,
    disk_refuses,
    judge_os_error,
)
from glm53ctl.weights.verdicts import (
    PAUSE_JITTER,
    RESERVE_BYTES,
    judge_owner,
    judge_space,
    judge_stall,
    pause_seconds,
)
from glm53ctl.weights.verify import verify_files

T = TypeVar("T")

TICK_SECONDS = 0.5
STALLS_MAX = 3
LISTING_ATTEMPTS = 3
"""For the question what there is: nothing is lost by giving up soon and asking again later."""


@dataclass(frozen=True)
class Rules:
    """How patient and how greedy a transfer is."""

    streams: int = 8
    stall_seconds: float = 120.0
    reserve_bytes: int = RESERVE_BYTES
    rate: float | None = None
    attempts: int = 6
    """Failures in a row, without a byte gained, after which a source is given up."""
    backoff_seconds: float = 1.0
    backoff_max_seconds: float = 60.0


@dataclass
class _SourceError(Exception):
    """One source cannot give the set; the next one may."""

    finding: Finding


def refuse(finding: Finding) -> UserError:
    """Return a finding as the error that ends a command."""
    place = f"{finding.where}: " if finding.where else ""
    return UserError(finding.code, f"{place}{finding.message}", finding.fix, exit_code=1)


# --- the manifest --------------------------------------------------------------------------------


def lock_from(weight_set: WeightSet, source: Source) -> Manifest:
    """Return what a source offers, as the manifest of the set; raise when it is not complete."""
    pin = pins().get(weight_set.revision)
    offered = _with_pins(source.listing(), pin).model_copy(update={"revision": weight_set.revision})
    problems = check(offered, pin)
    if problems:
        raise _SourceError(problems[0])
    return offered


def require_match(locked: Manifest, offered: Manifest) -> None:
    """Refuse a source that has other bytes than the lock says."""
    wrong = differences(locked, offered)
    if wrong:
        raise _SourceError(
            Finding(
                code="FETCH_REPO_DIFFERS",
                severity=Severity.WARN,
                message=f"{offered.repo} is not what is locked: {'; '.join(wrong[:3])}.",
                fix="Another repository with the same bytes is tried: weights.fallback_repo.",
            )
        )


# --- the transfer --------------------------------------------------------------------------------


@dataclass
class Fetch:
    """One run that makes a set complete."""

    weight_set: WeightSet
    sources: Sequence[Source]
    watcher: Watcher
    rules: Rules = field(default_factory=Rules)
    activity: Activity = "fetch"
    stop: threading.Event = field(default_factory=threading.Event)
    refresh: bool = False
    """Ask the source even when everything is here."""
    paused_until: float = 0.0

    def run(self) -> Manifest:
        """Bring what is missing and return the manifest of the complete set.

        Raises UserError: what the operator must mend, or what has been tried for long enough.
        """
        try:
            self._prepare()
            locked = read_lock(self.weight_set.lock_file, self.weight_set.revision)
            if locked is not None and not self.refresh and self._is_here(locked):
                return locked
            return self._first(lambda source, last: self._complete(source, locked, last))
        except OSError as error:
            raise refuse(disk_finding(error, self.weight_set.directory)) from error

    def ask(self) -> Manifest:
        """Return the manifest that the first complete source offers. Raises UserError."""
        return self._first(lambda source, _: self._listing(source))

    def _first(self, action: Callable[[Source, bool], Manifest]) -> Manifest:
        """Try the sources in their order; the action also learns whether it is the last one's."""
        for number, source in enumerate(self.sources, 1):
            try:
                return action(source, number == len(self.sources))
            except _SourceError as error:
                if number == len(self.sources) or self.stop.is_set():
                    raise refuse(error.finding) from None
                self.watcher.tell(error.finding)
        raise AssertionError("a set has a source")

    def _is_here(self, locked: Manifest) -> bool:
        """Verify what was not yet, when every file is here: that needs no source to answer.

        Nothing is removed: what is wrong stays until a source has said that it can give it.
        """
        book = RecordBook(self.weight_set.record_file, locked)
        missing, unsure = _unverified(self.weight_set, locked, book)
        return not missing and not verify_files(
            self.weight_set, unsure, book, self.watcher, self.stop
        )

    def _complete(self, source: Source, locked: Manifest | None, last: bool) -> Manifest:
        offered = self._listing(source)
        # An earlier source may have been locked in this run, and then broke.
        locked = locked or read_lock(self.weight_set.lock_file, self.weight_set.revision)
        if locked is None:
            locked = offered
            write_lock(self.weight_set.lock_file, locked)
        require_match(locked, offered)
        self._bring(source, locked, may_switch=not last)
        return locked

    def _prepare(self) -> None:
        """Make the directories; find what the service cannot write to before the first byte."""
        directory = self.weight_set.directory
        self.weight_set.adopt()
        directory.mkdir(parents=True, exist_ok=True)
        found = [self.weight_set.home, directory, *sorted(directory.glob(f"*{INCOMPLETE}"))]
        # The kernel knows of further groups and of access lists; the owner explains a refusal.
        closed = [p for p in found if not os.access(p, os.W_OK, effective_ids=True)]
        entries = [(str(p), s.st_mode, s.st_uid, s.st_gid) for p in closed for s in (p.stat(),)]
        problem = judge_owner(entries, os.geteuid(), os.getegid())
        if problem is not None:
            raise refuse(problem)
        with tempfile.TemporaryFile(dir=directory):  # without a name: a kill here leaves nothing
            pass

    def _listing(self, source: Source) -> Manifest:
        def ask() -> Manifest:
            return lock_from(self.weight_set, source)

        attempts = min(self.rules.attempts, LISTING_ATTEMPTS)
        return self.patiently(source, ask, lambda: False, self.stop, attempts)

    def _bring(self, source: Source, manifest: Manifest, *, may_switch: bool) -> None:
        """Fetch every file that is not here and right."""
        book = RecordBook(self.weight_set.record_file, manifest)
        missing = missing_files(self.weight_set, manifest, book, self.watcher, self.stop)
        self._require_space(manifest, missing)
        size, count = manifest.total_bytes, len(manifest.files)
        meter = Meter(self.activity, self.weight_set.role, size, count)
        for entry in manifest.files:
            if entry not in missing:
                meter.at(entry.path, entry.size)
                meter.finish_file()
        _Streams(self, source, missing, book, meter, may_switch).run()

    def _require_space(self, manifest: Manifest, missing: Sequence[Entry]) -> None:
        directory = self.weight_set.directory
        parts = {f"{entry.path}{INCOMPLETE}": entry for entry in missing}
        here, orphans = 0, {}
        for file in directory.glob(f"*{INCOMPLETE}"):
            if file.name in parts:
                here += min(file.stat().st_size, parts[file.name].size)
            else:
                orphans[file.name] = file.stat().st_size
        problem = judge_space(
            sum(entry.size for entry in missing) - here,
            shutil.disk_usage(directory).free,
            str(directory),
            orphans,
            reserve_bytes=self.rules.reserve_bytes,
        )
        if problem is not None:
            raise refuse(problem)

    def patiently(
        self,
        source: Source,
        action: Callable[[], T],
        gained: Callable[[], bool],
        halt: threading.Event,
        attempts: int,
    ) -> T:
        """Do it until it works; what is not worth another try is raised.

        `halt` ends every pause. `gained` says whether bytes arrived since it was last asked:
        attempts count only when none did, so that a bad line that moves at all gets there.
        """
        failures = 0
        while True:
            wait = 0.0
            try:
                return action()
            except HttpRefusedError as error:
                finding = source.judge(error.status, error.headers)
                if error.redirected and finding.code != "FETCH_RATE_LIMITED":
                    finding = _storage(source, error.status)  # a signed address that ran out
                if finding.code == "FETCH_RATE_LIMITED":
                    self.watcher.tell(finding)
                    jitter = random.uniform(1.0, PAUSE_JITTER)  # noqa: S311
                    wait = pause_seconds(error.headers) * jitter
                    self.paused_until = max(self.paused_until, time.monotonic() + wait)
                    if halt.wait(wait):
                        raise _SourceError(finding) from None
                    continue
                if finding.severity is Severity.FAIL:
                    raise refuse(finding) from None
                if finding.code == "FETCH_BAD_TOKEN" and source.drop_token():
                    self.watcher.tell(finding)
                    continue
                if finding.code != "FETCH_FAILED":
                    raise _SourceError(finding) from None
                if error.status == 503:
                    wait = pause_seconds(error.headers, default=0.0)
            except TransferError as error:
                finding = error.finding
            except TimeoutError as error:
                finding = _network(source, error)
                failures -= 1  # the stall clock judges silence, over all streams
            except OSError as error:
                finding = judge_os_error(error, str(self.weight_set.directory)) or _network(
                    source, error
                )
                if finding.severity is Severity.FAIL:
                    raise refuse(finding) from None
            failures = 0 if gained() else failures + 1
            if halt.is_set() or failures >= attempts:
                raise _SourceError(finding)
            if finding.code == "FETCH_WRONG_BYTES" and failures > 1:
                raise _SourceError(finding)
            halt.wait(max(wait, self._backoff(failures)))

    def _backoff(self, failures: int) -> float:
        rules = self.rules  # after a gain as well there is a pause
        return doubled(rules.backoff_seconds, rules.backoff_max_seconds, max(failures, 1))


class _Streams:
    """The threads that fetch, and the watch over them."""

    def __init__(
        self,
        fetch: Fetch,
        source: Source,
        missing: Sequence[Entry],
        book: RecordBook,
        meter: Meter,
        may_switch: bool,
    ) -> None:
        self.fetch, self.source, self.book, self.meter = fetch, source, book, meter
        self.may_switch = may_switch
        self.directory = fetch.weight_set.directory
        self.todo: queue.SimpleQueue[Entry] = queue.SimpleQueue()
        # Small ones first: a wrong tokenizer is found before 176 GB and not after.
        for entry in sorted(missing, key=lambda entry: entry.size):
            self.todo.put(entry)
        self.names = [entry.path for entry in missing]
        self.abort = threading.Event()
        self.error: BaseException | None = None
        self.receiver = Receiver(
            self.directory,
            source.opener,
            meter.at,
            self.abort,
            Throttle(fetch.rules.rate),
            min(MAX_SOCKET_SECONDS, fetch.rules.stall_seconds),
        )

    def run(self) -> None:
        """Fetch everything; raise the first error that ends the run."""
        count = min(self.fetch.rules.streams, len(self.names))
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        try:
            self._watch(threads)
        except BaseException as error:
            self._end(error)
            raise
        finally:
            self.abort.set()
            for thread in threads:
                thread.join()
        if self.error is not None:
            raise self.error
        if not self.todo.empty():  # every thread was between two files when the stop came
            raise _SourceError(_stopped())

    def _end(self, error: BaseException) -> None:
        self.error = self.error or error
        self.abort.set()

    def _work(self) -> None:
        try:
            while not self.abort.is_set():
                try:
                    entry = self.todo.get_nowait()
                except queue.Empty:
                    return
                self._one(entry)
        except BaseException as error:  # handed to the watching thread, which raises it
            self._end(error)

    def _one(self, entry: Entry) -> None:
        before = self._size(entry.path)

        def gained() -> bool:
            nonlocal before
            now = self._size(entry.path)
            more, before = now > before, now
            return more

        def receive() -> None:
            if self.abort.is_set():
                raise TransferError(_stopped())
            state = self.receiver.receive(entry, self.source.request(entry.path))
            self.book.add(entry.path, state)
            self.meter.at(entry.path, entry.size)
            self.meter.finish_file()

        self.fetch.patiently(self.source, receive, gained, self.abort, self.fetch.rules.attempts)

    def _size(self, path: str) -> int:
        for name in (path, f"{path}{INCOMPLETE}"):
            try:
                return os.stat(self.directory / name).st_size
            except OSError:
                continue
        return 0

    def _watch(self, threads: Sequence[threading.Thread]) -> None:
        """Show the progress, and judge stalls by the bytes on the disk."""
        samples: list[tuple[float, int]] = []
        stalls = 0
        while any(thread.is_alive() for thread in threads):
            if self.fetch.stop.is_set():
                self.abort.set()
            for thread in threads:
                thread.join(TICK_SECONDS / len(threads))
            self.fetch.watcher.show(self.meter.progress())
            size = sum(map(self._size, self.names))
            if samples and samples[-1][1] != size:
                samples, stalls = [], 0
            if time.monotonic() < self.fetch.paused_until:
                samples = []  # the Hub asked for this silence
            samples = [*samples[:1], (time.monotonic(), size)]
            finding = judge_stall(samples, stalls, limit=self.fetch.rules.stall_seconds)
            if finding is None or self.abort.is_set():
                continue
            stalls, samples = stalls + 1, []
            if finding.severity is Severity.FAIL:
                raise refuse(finding)
            if stalls == STALLS_MAX - 1 and self.may_switch:
                raise _SourceError(finding)
            self.fetch.watcher.tell(finding)
        self.fetch.watcher.show(self.meter.progress())


def missing_files(
    weight_set: WeightSet,
    manifest: Manifest,
    book: RecordBook,
    watcher: Watcher,
    stop: threading.Event | None = None,
) -> list[Entry]:
    """Return what is not here or not right.

    Files that were not verified yet, such as those that somebody copied here, are hashed and kept
    when they are right; wrong ones are removed.
    """
    missing, unsure = _unverified(weight_set, manifest, book)
    if unsure:
        for finding in verify_files(weight_set, unsure, book, watcher, stop):
            watcher.tell(finding)
        good = book.files
        for entry in unsure:
            if stop is not None and stop.is_set():
                break  # not looked at is not wrong
            if entry.path not in good:
                (weight_set.directory / entry.path).unlink(missing_ok=True)
                missing.append(entry)
    return missing


def _unverified(
    weight_set: WeightSet, manifest: Manifest, book: RecordBook
) -> tuple[list[Entry], list[Entry]]:
    """Return the files that are not here, and those that are and may or may not be right."""
    known = book.files
    missing: list[Entry] = []
    unsure: list[Entry] = []
    for entry in manifest.files:
        path, state = weight_set.directory / entry.path, known.get(entry.path)
        if state is not None and change(path, state) is None:
            continue
        book.drop(entry.path)
        (unsure if path.exists() else missing).append(entry)
    return missing, unsure


def _storage(source: Source, status: int) -> Finding:
    return Finding(
        code="FETCH_FAILED",
        severity=Severity.WARN,
        message=f"the storage behind {source.name} answered {status}.",
        fix="The fetch asks the Hub for a new address.",
    )


def _network(source: Source, error: OSError) -> Finding:
    return Finding(
        code="FETCH_FAILED",
        severity=Severity.WARN,
        message=f"{source.name}: {error or type(error).__name__}.",
        fix="Look at the network; the fetch tries again and goes on where it stopped.",
    )


def _stopped() -> Finding:
    return Finding(code="FETCH_FAILED", severity=Severity.WARN, message="the fetch was stopped.")


def disk_finding(error: OSError, directory: Path) -> Finding:
    """Say what an error means that only the disk can have made."""
    return judge_os_error(error, str(directory)) or disk_refuses(error, str(directory))
