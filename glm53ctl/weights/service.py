"""The unit: on the head fetch, verify and serve to workers; on a worker pull and verify."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

from glm53ctl.config.schema import Config
from glm53ctl.errors import EXIT_BAD_INPUT, UserError
from glm53ctl.facts.here import rank_here, require_rank
from glm53ctl.findings import Finding
from glm53ctl.supervise.notify import Notifier
from glm53ctl.supervise.secrets import pair_token
from glm53ctl.weights.fetch import disk_finding
from glm53ctl.weights.layout import WeightSet, weight_sets
from glm53ctl.weights.patience import refuse
from glm53ctl.weights.progress import STALE_SECONDS, Progress, clear_progress, write_progress
from glm53ctl.weights.serve import WeightServer
from glm53ctl.weights.state import judge_set
from glm53ctl.weights.verdicts import LONGEST_PAUSE_SECONDS
from glm53ctl.weights.work import (
    fetch_set,
    require_licence,
    sync_set,
    verify_set,
)

PAUSE_SECONDS = 5.0
PAUSE_MAX_SECONDS = 300.0

FOR_THE_OPERATOR = {
    "FETCH_GATED",
    "FETCH_REVISION_MISSING",
    "LICENSE_NOT_ACCEPTED",
    "WEIGHTS_LOCKED",
    "WEIGHTS_MANIFEST",
    "WEIGHTS_REVISION",
}
"""What trying again does not mend. Everything else may: a disk is emptied, a line comes back."""


class UnitWatcher:
    """Tells systemd, the journal and `glm53ctl status`."""

    def __init__(self, config: Config, notifier: Notifier) -> None:
        self._run_dir = Path(config.paths.run_dir)
        self._patience = config.weights.stall_seconds
        self._notifier = notifier
        self._done = -1

    def show(self, progress: Progress) -> None:
        """Pass a moment on. More time is asked for while bytes move: a stall ends in a verdict."""
        self._notifier.status(progress.sentence())
        write_progress(self._run_dir, progress)
        if progress.done_bytes != self._done:
            self._done = progress.done_bytes
            self._notifier.extend(self._patience)

    def tell(self, finding: Finding) -> None:
        """Write a verdict to the journal; ask for the time until the next one.

        What follows is at most a pause that a server asks for (with its jitter) and then a stall,
        and both end in a verdict: without this, systemd would end a fetch that changes its source.
        """
        print(finding.sentence(), file=sys.stderr, flush=True)
        self._notifier.extend(LONGEST_PAUSE_SECONDS + self._patience)

    def wait(self, error: UserError, pause: float, stop: threading.Event) -> None:
        """Say why nothing happens, and until when; wait so long."""
        print(str(error), file=sys.stderr, flush=True)
        note = f"{error.code}: {error.message} Again in {pause:.0f} s."
        self._notifier.status(note)
        self._notifier.extend(pause + self._patience)
        until = time.monotonic() + pause
        while (left := until - time.monotonic()) > 0:
            write_progress(self._run_dir, _waiting(note))
            if stop.wait(min(left, STALE_SECONDS / 3)):
                return

    def clear(self) -> None:
        """Nothing is under way any more."""
        clear_progress(self._run_dir)


def _waiting(note: str) -> Progress:
    return Progress(
        activity="wait",
        role="",
        done_bytes=0,
        total_bytes=0,
        done_files=0,
        total_files=0,
        note=note,
    )


class WeightsUnit:
    """One run of the unit."""

    def __init__(self, config: Config, rank: int | None) -> None:
        self.config, self._rank = config, rank
        self.stop = threading.Event()
        self.notifier = Notifier()
        self.watcher = UnitWatcher(config, self.notifier)
        self.server: WeightServer | None = None

    def run(self) -> None:
        """Reach READY with everything verified; on the head, go on serving it.

        Raises UserError for what only the operator can mend.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop.set())
        sets = weight_sets(self.config)
        self._until_verified(sets)
        self.watcher.clear()
        if self.stop.is_set():
            return
        self.notifier.ready()
        what = ", ".join(f"{each.role} {each.revision[:8]}" for each in sets) or "local weights"
        self.notifier.status(f"verified: {what}")
        if self.config.world_size > 1 and sets:
            self._serve(what)
        self.notifier.stopping()

    def _until_verified(self, sets: tuple[WeightSet, ...]) -> None:
        pause = PAUSE_SECONDS
        while not self.stop.is_set():
            try:
                for each in sets:
                    self._verified(each)
            except (UserError, OSError) as raised:
                if self.stop.is_set():
                    return
                error = self._as_user_error(raised)
                if error.code in FOR_THE_OPERATOR:
                    raise UserError(
                        error.code, error.message, error.fix, exit_code=EXIT_BAD_INPUT
                    ) from error
                self.watcher.wait(error, pause, self.stop)
                pause = min(pause * 2, PAUSE_MAX_SECONDS)
            else:
                return

    def _as_user_error(self, error: UserError | OSError) -> UserError:
        if isinstance(error, UserError):
            return error
        return refuse(disk_finding(error, Path(self.config.weights.model_dir)))

    def _verified(self, each: WeightSet) -> None:
        """Make one set verified; without network or delay when it is."""
        if not list(judge_set(each)):
            damaged = verify_set(each, self.watcher, self.stop, quick=True)
            if not damaged:
                return
            for finding in damaged:
                self.watcher.tell(finding)
        if require_rank(self.config, self._rank) == 0:
            fetch_set(self.config, each, self.watcher, self.stop)
        else:
            require_licence(self.config, each)
            sync_set(self.config, each, self.watcher, self.stop)

    def _serve(self, what: str) -> None:
        """On the head, serve until the stop; a worker is done."""
        while not self.stop.is_set():
            rank = self._rank if self._rank is not None else rank_here(self.config)
            if rank is None:
                self.stop.wait(PAUSE_SECONDS)
                continue
            if rank > 0:
                return
            address = str(self.config.head.address), self.config.weights.sync_port
            try:
                token = pair_token(self.config, os.environ)
                self.server = WeightServer(address, token, lambda: weight_sets(self.config))
            except (UserError, OSError) as error:
                self.notifier.status(f"verified: {what}; cannot serve workers: {error}")
                self.stop.wait(PAUSE_SECONDS)
                continue
            self.server.start()
            self.notifier.status(
                f"verified: {what}; workers pull from {address[0]}:{self.server.server_port}"
            )
            self.stop.wait()
            self.server.shutdown()
            self.server.server_close()
