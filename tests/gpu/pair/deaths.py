"""What is done to a pair, and what is measured then: the death matrix under NCCL.

Bare, nothing restarts what died, so only a client's view and the end of both ranks are measured;
under the supervisors also the return of the service.
"""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, Protocol

import psutil

Part = Literal["worker", "main"]
When = Literal["idle", "serving"]
KILL, STOP = signal.SIGKILL, signal.SIGSTOP
LIMIT_SECONDS, BARE_SECONDS = 150.0, 60.0
"""What takes longer is called never: vLLM's own limits for a step are minutes. Of a bare pair
nothing comes back, so it is not waited for that long."""


@dataclass(frozen=True)
class Fault:
    """One signal to one process of one rank."""

    part: Part
    rank: int
    signum: signal.Signals
    when: When

    @property
    def name(self) -> str:
        """How it is called in the result."""
        what = {KILL: "kill", STOP: "freeze"}[self.signum]
        return f"{what} {self.part} of rank {self.rank}, {self.when}"


def faults() -> Iterator[Fault]:
    """Yield all of them: workers killed and frozen, engine mains killed, idle and in a request."""
    for when in ("idle", "serving"):
        for rank in (0, 1):
            yield Fault("worker", rank, KILL, when)
            yield Fault("worker", rank, STOP, when)
            yield Fault("main", rank, KILL, when)


@dataclass
class Outcome:
    """Seconds after the fault until something was so; None: not within the limit."""

    fault: str
    client_knows: float | None = None
    both_gone: float | None = None
    back: float | None = None
    said: str = ""

    def row(self) -> dict[str, object]:
        """Return it for the result, rounded."""
        return {
            name: round(value, 1) if isinstance(value, float) else value
            for name, value in asdict(self).items()
        }


class Client(Protocol):
    """Somebody with a request: `begin` sends one, `failed` says whether it ended badly."""

    def begin(self) -> None: ...

    def failed(self) -> bool: ...


@dataclass(frozen=True)
class Pair:
    """A serving pair as the measurement sees it; `is_back` is None for a bare one.

    `client` makes somebody with a request that is being served when the fault comes, or one who
    comes after it.
    """

    processes: Callable[[int], Sequence[psutil.Process]]
    client: Callable[[When], Client]
    is_back: Callable[[], bool] | None = None
    said: Callable[[], str] = lambda: ""


def victim(processes: Sequence[psutil.Process], part: Part) -> psutil.Process:
    """Return the process of a rank that is meant: its worker by title, or the oldest of it."""
    if part == "main":
        return min(processes, key=lambda process: process.create_time())
    workers = [p for p in processes if "worker" in " ".join(p.cmdline()).lower()]
    if not workers:
        raise LookupError(f"no worker among {[p.cmdline()[:1] for p in processes]}")
    return workers[0]


def is_gone(process: psutil.Process) -> bool:
    """Say whether a process has ended; a zombie has."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE) or not process.is_running()
    except psutil.NoSuchProcess:
        return True


def suffer(fault: Fault, pair: Pair, limit: float = LIMIT_SECONDS) -> Outcome:
    """Do it, and watch. A frozen process is let go at the end, so that it can be ended."""
    everybody = [*pair.processes(0), *pair.processes(1)]
    hit = victim(pair.processes(fault.rank), fault.part)
    client = pair.client(fault.when)
    if fault.when == "serving":
        client.begin()
    hit.send_signal(fault.signum)
    began = time.monotonic()
    if fault.when == "idle":  # the next client that comes
        client.begin()
    outcome = Outcome(fault.name)
    # A frozen process cannot end by itself; that the others have is what counts.
    rest = [p for p in everybody if p.pid != hit.pid] if fault.signum is STOP else everybody
    watched: dict[str, Callable[[], bool]] = {
        "client_knows": client.failed,
        "both_gone": lambda: all(map(is_gone, rest)),
    }
    if pair.is_back is not None:
        watched["back"] = pair.is_back
    while watched and time.monotonic() - began < limit:
        for name in [name for name, happened in watched.items() if happened()]:
            setattr(outcome, name, time.monotonic() - began)
            del watched[name]
        time.sleep(0.05)
    if fault.signum is STOP and not is_gone(hit):
        hit.send_signal(signal.SIGCONT)
    outcome.said = pair.said()
    return outcome
