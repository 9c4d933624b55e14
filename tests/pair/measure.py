"""One fault on one side, measured: noticed, engines gone, right answers again."""

import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
from waiting import wait_for

from .faults import Fault, nothing
from .serving import ServingPair
from .side import CLIENT_SECONDS, START_SECONDS, Side

MEND_SECONDS = 20.0
"""When the world mends a fault that the side has not dealt with by then."""
WATCH_SECONDS = 45.0
"""How long a fault that the world does not mend is watched for what the side does."""
SERVE_SECONDS = 120.0
"""How long after the fault, or its mending, a side may take to serve; later counts as never."""
CALM_SECONDS = 10.0
"""How long a pair that ought not to be touched by a fault is watched."""


@dataclass(frozen=True)
class Measurement:
    """Seconds; None where it did not happen within the limits.

    `detect_s`: until the side says that something is wrong. `stopped_s`: until the last process of
    both engines is gone, on hosts that are alive. Both from the fault on. `serving_s`: until a
    client gets the right answer: from the fault on, or where the world mends something, from then;
    0 where no request failed at all.
    `silence_s`: the longest that a client waited without answer or error. `left`: processes of the
    old engines that are still there at the end.
    """

    detect_s: float | None
    stopped_s: float | None
    serving_s: float | None
    silence_s: float
    left: int
    said: str

    def as_json(self) -> dict[str, object]:
        """Return the fields, rounded to what the method can tell."""
        return {k: round(v, 2) if isinstance(v, float) else v for k, v in asdict(self).items()}


class Client:
    """A client that asks for a token each second, and notes how long it was kept waiting."""

    def __init__(self, side: Side) -> None:
        self.longest = 0.0
        self.failures = 0
        self._side = side
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._live)

    def __enter__(self) -> "Client":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _live(self) -> None:
        while not self._over.wait(1.0):
            asked = time.monotonic()
            try:
                self._side.post(1, CLIENT_SECONDS).raise_for_status()
            except httpx.HTTPError:
                self.failures += 1
            self.longest = max(self.longest, time.monotonic() - asked)


def measure(side: Side, fault: Fault, serve_seconds: float = SERVE_SECONDS) -> Measurement:
    """Hurt a serving pair once; it is whole again afterwards, by hand if not by itself."""
    side.until_serving()
    fault.prepare(side)
    # The right answer comes a little before the last rank knows of it.
    wait_for(lambda: not side.trouble((0, 1)), f"{side.name} to be at ease", START_SECONDS)
    engines = {pid for rank in fault.survivors for pid in side.engine(rank)}
    with Client(side) as client:
        at, unix = time.monotonic(), time.time()
        fault.hurt(side)
        begun = time.monotonic()  # the hurting may have taken longer than the watch
        detect, stopped, said = _watch(side, fault, engines, at, begun)
        if fault.follows == "refuse" and isinstance(side, ServingPair):
            said = _refusal(side, fault, unix) or said
        fault.mend(side)
        since = at if fault.mend is nothing else time.monotonic()
        serving = _serving(side, since + serve_seconds - time.monotonic(), since)
        if serving is not None and not client.failures:
            serving = 0.0  # the look came after the watch; it served all the while
    if fault.follows != "refuse":
        said = side.said(unix)
    left = 0
    if stopped is None and fault.follows != "serve":
        left = sum(Path(f"/proc/{pid}").exists() for pid in engines)
    if serving is None and isinstance(side, ServingPair):
        print(side.evidence(), file=sys.stderr)  # to be explained: the plain side's is known
    if serving is None or (left and fault.mend is nothing):
        # What was hurt would be hurt in the next fault, too, which is to be measured alone.
        side.start_anew()
        side.until_serving(START_SECONDS)
    return Measurement(detect, stopped, serving, client.longest, left, said)


def _watch(
    side: Side, fault: Fault, engines: set[int], at: float, begun: float
) -> tuple[float | None, float | None, str]:
    """Return when it was noticed and when the engines were gone, and what was said first."""
    if not fault.survivors:
        return None, None, ""
    if fault.follows == "serve":
        limit = begun + CALM_SECONDS
    else:
        limit = begun + (WATCH_SECONDS if fault.mend is nothing else MEND_SECONDS)
    detect = stopped = None
    said = ""
    while True:
        if detect is None and (trouble := side.trouble(fault.survivors)):
            detect, said = time.monotonic() - at, trouble
        if stopped is None and not any(Path(f"/proc/{pid}").exists() for pid in engines):
            stopped = time.monotonic() - at
        if time.monotonic() >= limit or (detect is not None and stopped is not None):
            return detect, stopped, said
        time.sleep(0.02)


def _refusal(side: Side, fault: Fault, since: float) -> str | None:
    """Wait for the reason that a pair which must not serve gives."""
    try:
        return wait_for(
            lambda: said if fault.says in (said := side.said(since)) else None,
            f"{fault.says} in the status",
            START_SECONDS,
        )
    except AssertionError:
        return None


def _serving(side: Side, limit: float, since: float) -> float | None:
    """Wait for the right answer; None at the limit, or once the side can no longer give it."""
    try:
        outcome = wait_for(
            lambda: "serves" if side.serves() else "over" if side.given_up() else None,
            "service",
            limit,
        )
    except AssertionError:
        return None
    return time.monotonic() - since if outcome == "serves" else None
