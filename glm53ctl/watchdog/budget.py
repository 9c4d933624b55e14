"""How often the watchdog may interfere: with growing pauses, and with an end."""

import logging
from pathlib import Path

from pydantic import BaseModel, ValidationError

from glm53ctl.backoff import doubled
from glm53ctl.config.schema import Watchdog
from glm53ctl.files import replace_text

log = logging.getLogger("glm53ctl")

LONGEST_PAUSE_SECONDS = 3600.0


class Spent(BaseModel):
    """What was spent since the pair last served for long; `last` in Unix seconds."""

    attempts: int = 0
    last: float = 0.0


class Budget:
    """Attempts since the pair last served for long, kept in `file` across restarts.

    The first is free; each next one waits twice as long. After `restart_limit` there is none until
    the pair has served again, by whatever hand.
    """

    def __init__(self, settings: Watchdog, file: Path, now: float, wall: float) -> None:
        """`now` is monotonic, `wall` the Unix time of the same moment."""
        self._settings, self._file = settings, file
        self._spent = self._read()
        pause = self._pause()
        # Bounded on both sides: the clock may have been set meanwhile.
        self._next_at = now + min(pause, max(0.0, self._spent.last + pause - wall))

    def _read(self) -> Spent:
        try:
            return Spent.model_validate_json(self._file.read_text())
        except (OSError, ValidationError):
            return Spent()

    def _keep(self, spent: Spent) -> None:
        self._spent = spent
        try:
            replace_text(self._file, spent.model_dump_json())
        except OSError as error:  # a full disk costs the memory of a restart, not the watch
            log.warning("%s cannot be written: %s", self._file, error.strerror)

    def _pause(self) -> float:
        return doubled(self._settings.backoff_seconds, LONGEST_PAUSE_SECONDS, self._spent.attempts)

    @property
    def exhausted(self) -> bool:
        """Whether the watchdog has given up."""
        return self._spent.attempts >= self._settings.restart_limit

    @property
    def attempts(self) -> int:
        """Attempts since the pair last served for long."""
        return self._spent.attempts

    def allows(self, now: float) -> bool:
        """Say whether an attempt may be made at monotonic `now`."""
        return not self.exhausted and now >= self._next_at

    def spend(self, now: float, wall: float) -> None:
        """Count an attempt."""
        self._keep(Spent(attempts=self._spent.attempts + 1, last=wall))
        self._next_at = now + self._pause()

    def settle(self) -> None:
        """Forget all attempts: the pair has served for long."""
        if self._spent.attempts:
            self._keep(Spent())
            self._next_at = 0.0
