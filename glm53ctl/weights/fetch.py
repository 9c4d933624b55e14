"""Make a set complete: from the Hub, or on a worker from the head. Never a good byte twice."""

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

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
    with_pins,
    write_lock,
)
from glm53ctl.weights.patience import Patience, Rules, SourceError, refuse
from glm53ctl.weights.progress import Activity, Meter, Watcher
from glm53ctl.weights.record import RecordBook, change
from glm53ctl.weights.streams import Streams
from glm53ctl.weights.transfer import disk_refuses, judge_os_error
from glm53ctl.weights.verdicts import judge_owner, judge_space
from glm53ctl.weights.verify import verify_files

LISTING_ATTEMPTS = 3
"""For the question what there is: nothing is lost by giving up soon and asking again later."""


# --- the manifest --------------------------------------------------------------------------------


def lock_from(weight_set: WeightSet, source: Source) -> Manifest:
    """Return what a source offers, as the manifest of the set; raise when it is not complete."""
    pin = pins().get(weight_set.revision)
    offered = with_pins(source.listing(), pin).model_copy(update={"revision": weight_set.revision})
    problems = check(offered, pin)
    if problems:
        raise SourceError(problems[0])
    return offered


def require_match(locked: Manifest, offered: Manifest) -> None:
    """Refuse a source that has other bytes than the lock says."""
    wrong = differences(locked, offered)
    if wrong:
        raise SourceError(
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
    """Trust no record: ask the source even when everything is here, and hash it."""
    patience: Patience = field(init=False)

    def __post_init__(self) -> None:
        self.patience = Patience(self.rules, self.weight_set.directory, self.watcher)

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
            except SourceError as error:
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
        return not missing and not _wrong(self.weight_set, unsure, book, self.watcher, self.stop)

    def _complete(self, source: Source, locked: Manifest | None, last: bool) -> Manifest:
        offered = self._listing(source)
        # An earlier source may have been locked in this run, and then broke.
        locked = locked or read_lock(self.weight_set.lock_file, self.weight_set.revision)
        if locked is None:
            locked = offered
            write_lock(self.weight_set.lock_file, locked)
        require_match(locked, offered)
        if self.refresh:  # now that somebody can give what is wrong; once, also for two sources
            self.weight_set.record_file.unlink(missing_ok=True)
            self.refresh = False
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
        return self.patience.until_done(source, ask, lambda: False, self.stop, attempts)

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
        Streams(self.patience, source, missing, book, meter, self.stop, may_switch).run()

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


def missing_files(
    weight_set: WeightSet,
    manifest: Manifest,
    book: RecordBook,
    watcher: Watcher,
    stop: threading.Event | None = None,
) -> list[Entry]:
    """Return what is not here or not right.

    Files that were not verified yet, such as those that somebody copied here, are hashed and kept
    when they are right; wrong ones are removed. Raises UserError, and removes nothing, when one
    may not be read.
    """
    missing, unsure = _unverified(weight_set, manifest, book)
    if unsure:
        for finding in _wrong(weight_set, unsure, book, watcher, stop):
            watcher.tell(finding)
        good = book.files
        for entry in unsure:
            if stop is not None and stop.is_set():
                break  # not looked at is not wrong
            if entry.path not in good:
                (weight_set.directory / entry.path).unlink(missing_ok=True)
                missing.append(entry)
    return missing


def _wrong(
    weight_set: WeightSet,
    unsure: Sequence[Entry],
    book: RecordBook,
    watcher: Watcher,
    stop: threading.Event | None,
) -> list[Finding]:
    """Verify files; raise when one may not be read, as it may be as right as the others."""
    found = verify_files(weight_set, unsure, book, watcher, stop)
    closed = next((f for f in found if f.code == "WEIGHTS_UNREADABLE"), None)
    if closed is not None:
        raise refuse(closed)
    return found


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


def disk_finding(error: OSError, directory: Path) -> Finding:
    """Say what an error means that only the disk can have made."""
    return judge_os_error(error, str(directory)) or disk_refuses(error, str(directory))
