"""What the busiest GPU draws, asked so that a driver that never answers holds up nothing."""

import asyncio
import contextlib
import threading
from collections.abc import Callable

from glm53ctl.facts.nvml import probe_power

ANSWER_SECONDS = 3.0
"""A healthy driver answers within milliseconds, one with a wedged GPU perhaps never."""


class PowerMeter:
    """Asks one question at a time, in a thread that keeps no program from ending."""

    def __init__(self, ask: Callable[[], float | None] = probe_power) -> None:
        self._ask = ask
        self._thread: threading.Thread | None = None

    async def watts(self) -> float | None:
        """Return the answer; None where nobody can tell, or not in time."""
        if self._thread is not None and self._thread.is_alive():
            return None  # it still waits for the last one
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[float | None] = loop.create_future()

        def settle(watts: float | None) -> None:
            if not answer.done():
                answer.set_result(watts)

        def ask() -> None:
            watts = None
            try:
                watts = self._ask()
            finally:
                with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                    loop.call_soon_threadsafe(settle, watts)

        self._thread = threading.Thread(target=ask, daemon=True)
        self._thread.start()
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(answer, ANSWER_SECONDS)
        return None
