"""The parent of the engine: small, single-threaded, and gone only after the engine is.

A supervisor killed with SIGKILL cannot clean up, and neither can an engine whose main process
was. So the engine is started by this process, which holds a pipe to the supervisor: when the pipe
closes, or the engine's main process ends, it kills all that is left below it. Should this process
itself be killed, the kernel kills the engine's main process (PDEATHSIG) and hands the rest to the
supervisor, which adopts orphans too. A test kills each of the three.

Protocol, one message a line. In, on standard input: `term`, `kill`. Out, on the descriptor that
the first argument names: `started PID`, `exit CODE`, `left PID...`.
"""

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

from glm53ctl.supervise.proctree import (
    adopt_orphans,
    descendants,
    die_with_parent,
    kill_descendants,
    reap,
    shared_memory,
    watch_shared_memory,
)

KILL_DEADLINE_SECONDS = 10.0
LOOK_SECONDS = 5.0
"""How often the engine's shared memory is noted at least: who dies takes its list along."""
MAPPED_SECONDS = 0.05
"""What is new in /dev/shm is mapped by then. A longer one leaves more behind, see LOOK_SECONDS."""
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The supervisor alone decides when the engine ends, and says so through the pipe."""
OOM_SCORE = Path("/proc/self/oom_score_adj")
OOM_FIRST = "1000"
"""Out of memory, the engine dies first: it has the memory, and the supervisor can say so."""


def _report(channel: int, *words: object) -> None:
    with contextlib.suppress(OSError):  # the supervisor may be gone; the work goes on
        os.write(channel, (" ".join(map(str, words)) + "\n").encode())


def _in_engine() -> None:
    """Prepare the forked child: signals as usual, death together with this guard or before it."""
    for ignored in IGNORED:
        signal.signal(ignored, signal.SIG_DFL)  # an ignored signal would stay ignored after exec
    die_with_parent()
    with contextlib.suppress(OSError):
        OOM_SCORE.write_text(OOM_FIRST)


def _start(argv: list[str]) -> subprocess.Popen[bytes]:
    """Start the engine. Dropped, the object would collect one that has ended by then: unseen."""
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_in_engine,  # safe: this program has one thread
    )


class _Wakeups:
    """What can happen: a child ended, the supervisor wrote or went away, there is new memory."""

    def __init__(self) -> None:
        child_end, self._signal_write = os.pipe()
        os.set_blocking(child_end, False)
        os.set_blocking(self._signal_write, False)
        signal.set_wakeup_fd(self._signal_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector = selectors.DefaultSelector()
        self._selector.register(child_end, selectors.EVENT_READ, "child")
        self._selector.register(sys.stdin.fileno(), selectors.EVENT_READ, "supervisor")
        with contextlib.suppress(OSError):  # too many watches: it is looked every LOOK_SECONDS
            self._selector.register(watch_shared_memory(), selectors.EVENT_READ, "memory")

    def wait(self, seconds: float) -> set[str]:
        """Block until something happens, or for `seconds`; return what."""
        happened = set()
        for key, _ in self._selector.select(seconds):
            if key.data == "child":
                os.read(key.fd, 4096)
            elif key.data == "memory":
                time.sleep(MAPPED_SECONDS)  # also the least between two looks
                os.read(key.fd, 65536)
            happened.add(str(key.data))
        return happened


def main(channel: int, argv: list[str]) -> NoReturn:
    """Start the engine in `argv`, watch it, and leave nothing of it behind."""
    os.set_inheritable(channel, False)
    for ignored in IGNORED:
        signal.signal(ignored, signal.SIG_IGN)
    adopt_orphans()
    wakeups = _Wakeups()
    try:
        engine = _start(argv)
    except OSError as error:
        _report(channel, "exit", 127, error.strerror or error)
        sys.exit(0)
    _report(channel, "started", engine.pid)
    segments = _watch(engine.pid, wakeups, channel)
    _report(channel, "left", *kill_descendants(KILL_DEADLINE_SECONDS, segments))
    sys.exit(0)


def _watch(engine: int, wakeups: _Wakeups, channel: int) -> set[int]:
    """Return when the engine has ended or must be killed, with the shared memory it used."""
    segments: set[int] = set()
    while True:
        happened = wakeups.wait(LOOK_SECONDS)
        segments |= shared_memory(descendants())
        if "child" in happened:
            ended = reap()
            if engine in ended:
                _report(channel, "exit", ended[engine])
                return segments
        if "supervisor" in happened:
            order = os.read(sys.stdin.fileno(), 4096).decode()
            if order == "" or "kill" in order:
                return segments
            if "term" in order:
                _terminate(engine)


def _terminate(engine: int) -> None:
    """Ask the main process alone: it tells its children itself, in the right order."""
    if any(p.pid == engine for p in descendants()):
        os.kill(engine, signal.SIGTERM)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
