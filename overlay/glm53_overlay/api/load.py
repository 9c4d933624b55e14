"""What is at work, in replies and in bytes, and whether more may join. One for each API server."""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from glm53_overlay.api.refusal import RefusedError, invalid

FULL_RETRY_SECONDS = 5
BODIES = 4
"""Bodies of the largest size that are held at once: each costs several times its size."""
REPORT_FRESH_SECONDS = 90.0
"""As glm53ctl's watchdog/report.py: what a dead watchdog last said keeps nobody out."""
LOOK_SECONDS = 1.0
DRAIN_LOOK_SECONDS = 0.02


@dataclass
class Load:
    """All requests, from their first byte to the last of their answer. A limit of 0 is none."""

    most: int = 0  # replies at work or waiting
    most_bytes: int = 0  # of bodies
    report: Path | None = None
    active: int = 0
    held: int = 0
    stopping: bool = False
    now: Callable[[], float] = time.monotonic
    _looked: float = field(default=-LOOK_SECONDS, repr=False)
    _refusal: RefusedError | None = field(default=None, repr=False)

    def refusal(self) -> RefusedError | None:
        """Return why no new work is taken: the engine drains, or the watchdog says so.

        The watchdog's report is looked up once a second.
        """
        if self.stopping:
            return _refusing("it is being stopped", FULL_RETRY_SECONDS)
        now = self.now()
        if now - self._looked >= LOOK_SECONDS:
            self._looked, self._refusal = now, _read(self.report, now)
        return self._refusal

    async def drain(self, seconds: float) -> float:
        """Wait for the replies at work, once nothing more joins; return the seconds left."""
        deadline = self.now() + seconds
        while self.active and self.now() < deadline:
            await asyncio.sleep(DRAIN_LOOK_SECONDS)
        return max(0.0, deadline - self.now())


def _read(path: Path | None, now: float) -> RefusedError | None:
    if path is None:
        return None
    try:
        report = json.loads(path.read_bytes())
        refuses = report["refuses"]
        if refuses is None or not 0 <= now - report["beat"] <= REPORT_FRESH_SECONDS:
            return None
        reason, seconds = str(refuses["reason"]), int(refuses["retry_after_seconds"])
    except (OSError, ValueError, LookupError, TypeError):
        return None  # no watchdog, or not a report: nothing to go by
    return _refusing(reason, seconds)


def _refusing(reason: str, seconds: int) -> RefusedError:
    return RefusedError(
        503, "server_refuses", f"The server takes no new work now: {reason}.", retry_after=seconds
    )


def _full(what: str) -> RefusedError:
    text = f"{what}, which is all this server takes. Try again in a few seconds."
    return RefusedError(429, "server_full", text, retry_after=FULL_RETRY_SECONDS)


class Place:
    """What one request has of the load; given back when it is left."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._replies = 0
        self.held = 0
        """Bytes of the request."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._load.active -= self._replies
        self._load.held -= self.held

    def admit(self, replies: int = 1) -> None:
        """Count the request as one that asks for so many replies. Raises RefusedError."""
        load, more = self._load, replies - self._replies
        if not self._replies and (refusal := load.refusal()):
            raise refusal
        if load.most and replies > load.most:
            raise invalid(
                "too_many_replies",
                f"The request asks for {replies} replies, counting its prompts and n; this server "
                f"has room for {load.most}.",
                "n",
            )
        if load.most and load.active + more > load.most:
            raise _full(f"{load.active} replies are running or waiting")
        load.active += more
        self._replies = replies

    def hold(self, size: int) -> None:
        """Count bytes that stay in memory as long as the request. Raises RefusedError."""
        load = self._load
        if load.most_bytes and load.held + size > load.most_bytes:
            raise _full(f"Requests hold {load.held >> 20} MiB")
        load.held += size
        self.held += size
