"""The streams of one transfer: threads that fetch file after file, and the watch over them."""

import os
import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from glm53ctl.findings import Finding, Severity
from glm53ctl.weights.hub import Source
from glm53ctl.weights.layout import INCOMPLETE
from glm53ctl.weights.manifest import Entry
from glm53ctl.weights.patience import Patience, SourceError, refuse
from glm53ctl.weights.progress import Meter
from glm53ctl.weights.record import RecordBook
from glm53ctl.weights.transfer import MAX_SOCKET_SECONDS, Receiver, Throttle, TransferError
from glm53ctl.weights.verdicts import judge_stall

TICK_SECONDS = 0.5
STALLS_MAX = 3


@dataclass
class Streams:
    """One run of them over the missing files of a set."""

    patience: Patience
    source: Source
    missing: Sequence[Entry]
    book: RecordBook
    meter: Meter
    stop: threading.Event
    may_switch: bool
    """Whether another source may be tried when this one stalls."""
    abort: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None
    todo: queue.SimpleQueue[Entry] = field(init=False, default_factory=queue.SimpleQueue)
    receiver: Receiver = field(init=False)

    def __post_init__(self) -> None:
        # Small ones first: a wrong tokenizer is found before 176 GB and not after.
        for entry in sorted(self.missing, key=lambda entry: entry.size):
            self.todo.put(entry)
            # Before the first moment is taken: what an earlier try left is no rate of this one.
            self.meter.at(entry.path, min(self._size(entry.path), entry.size))
        rules = self.patience.rules
        self.receiver = Receiver(
            self.patience.directory,
            self.source.opener,
            self.meter.at,
            self.abort,
            Throttle(rules.rate),
            min(MAX_SOCKET_SECONDS, rules.stall_seconds),
        )

    def run(self) -> None:
        """Fetch everything; raise the first error that ends the run."""
        count = min(self.patience.rules.streams, len(self.missing))
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
            raise SourceError(_stopped())

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

        attempts = self.patience.rules.attempts
        self.patience.until_done(self.source, receive, gained, self.abort, attempts)

    def _size(self, path: str) -> int:
        for name in (path, f"{path}{INCOMPLETE}"):
            try:
                return os.stat(self.patience.directory / name).st_size
            except OSError:
                continue
        return 0

    def _watch(self, threads: Sequence[threading.Thread]) -> None:
        """Show the progress, and judge stalls by the bytes on the disk."""
        samples: list[tuple[float, int]] = []
        stalls = 0
        while any(thread.is_alive() for thread in threads):
            if self.stop.is_set():
                self.abort.set()
            for thread in threads:
                thread.join(TICK_SECONDS / len(threads))
            self.patience.watcher.show(self.meter.progress())
            size = sum(self._size(entry.path) for entry in self.missing)
            if samples and samples[-1][1] != size:
                samples, stalls = [], 0
            if time.monotonic() < self.patience.paused_until:
                samples = []  # the Hub asked for this silence
            samples = [*samples[:1], (time.monotonic(), size)]
            finding = judge_stall(samples, stalls, limit=self.patience.rules.stall_seconds)
            if finding is None or self.abort.is_set():
                continue
            stalls, samples = stalls + 1, []
            if finding.severity is Severity.FAIL:
                raise refuse(finding)
            if stalls == STALLS_MAX - 1 and self.may_switch:
                raise SourceError(finding)
            self.patience.watcher.tell(finding)
        self.patience.watcher.show(self.meter.progress())


def _stopped() -> Finding:
    return Finding(code="FETCH_FAILED", severity=Severity.WARN, message="the fetch was stopped.")
