"""How many requests are at work, and whether a new one may join. One for each API server."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from glm53_overlay.api.refusal import RefusedError

FULL_RETRY_SECONDS = 5
REPORT_FRESH_SECONDS = 90.0
"""As glm53ctl's watchdog/report.py: what a dead watchdog last said keeps nobody out."""
LOOK_SECONDS = 1.0


@dataclass
class Load:
    """Requests that make the engine work, from their first byte to the last of their answer."""

    most: int = 0
    report: Path | None = None
    active: int = 0
    now: Callable[[], float] = time.monotonic
    _looked: float = field(default=-LOOK_SECONDS, repr=False)
    _refusal: RefusedError | None = field(default=None, repr=False)

    def admit(self) -> None:
        """Count a request in; `leave` must follow. Raises RefusedError when there is no room."""
        if refusal := self.refusal():
            raise refusal
        if self.most and self.active >= self.most:
            raise RefusedError(
                429,
                "server_full",
                f"{self.active} requests are running or waiting, which is all this server takes. "
                "Try again in a few seconds.",
                retry_after=FULL_RETRY_SECONDS,
            )
        self.active += 1

    def leave(self) -> None:
        """Count a request out."""
        self.active -= 1

    def refusal(self) -> RefusedError | None:
        """Return why the host takes no new work, as its watchdog says; looked up once a second."""
        now = self.now()
        if now - self._looked >= LOOK_SECONDS:
            self._looked, self._refusal = now, _read(self.report, now)
        return self._refusal


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
    return RefusedError(
        503, "server_refuses", f"The server takes no new work now: {reason}.", retry_after=seconds
    )
