"""One look for all who watch: views are made once a second at most, however many browsers ask.

There is no queue. A browser that reads slowly gets the newest view when it is ready for one, and
misses those in between.
"""

import asyncio
import contextlib
import json
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field

from glm53ctl.errors import UserError
from glm53ctl.page.progress import Starts
from glm53ctl.page.told import Point, Told, tell, tell_trouble
from glm53ctl.view.model import PairView

log = logging.getLogger("glm53ctl")

LOOK_SECONDS = 1.0
IDLE_SECONDS = 20.0
"""Pause between two looks while nobody watches: whoever comes finds the last minutes drawn."""
HISTORY_SECONDS = 600.0
_MOST_POINTS = round(HISTORY_SECONDS / LOOK_SECONDS)
HEARTBEAT_SECONDS = 15.0
"""A browser gets a sign of life this often, however long a look takes."""
MAX_CLIENTS = 16


@dataclass
class Stream:
    """Makes views from a blocking `source` and tells them to browsers; of one event loop."""

    source: Callable[[], PairView]
    history: deque[Point] = field(default_factory=lambda: deque(maxlen=_MOST_POINTS))
    starts: Starts = field(default_factory=Starts)
    clients: int = 0
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    _look: asyncio.Task[Told] | None = None
    _looked: float = 0.0
    _said: str = ""

    @property
    def full(self) -> bool:
        """Whether as many browsers watch as may."""
        return self.clients >= MAX_CLIENTS

    @contextlib.contextmanager
    def client(self) -> Iterator[None]:
        """Count a browser as long as it is served."""
        self.clients += 1
        try:
            yield
        finally:
            self.clients -= 1

    async def told(self) -> Told:
        """Return the newest view, a second old at most. Never raises."""
        return await asyncio.shield(self._newest())

    def _newest(self) -> asyncio.Task[Told]:
        if self._look is None or (
            self._look.done() and time.monotonic() - self._looked >= LOOK_SECONDS
        ):
            self._look = asyncio.create_task(self._tell())
        return self._look

    async def _tell(self) -> Told:
        try:
            view = await asyncio.to_thread(self.source)
            told = tell(view, self.starts.feed(view))
        except UserError as error:
            told = self._trouble(str(error))
        except Exception as error:  # whatever it is: the page says so and lives on
            log.debug("no view", exc_info=True)
            told = self._trouble(f"This node cannot be looked at ({type(error).__name__}).")
        else:
            self._said = ""
            self._keep(told.point, view.at)
        self._looked = time.monotonic()
        return told

    def _trouble(self, sentence: str) -> Told:
        if sentence != self._said:
            log.warning("page: %s", sentence)
            self._said = sentence
        return tell_trouble(sentence)

    def _keep(self, point: Point, now: float) -> None:
        """Keep a point with those of the last minutes, not with those of a clock that was ahead."""
        while self.history and not 0 <= now - (self.history[0]["at"] or 0.0) <= HISTORY_SECONDS:
            self.history.popleft()
        self.history.append(point)

    async def watch(self) -> None:
        """Look now and then until closed, also while nobody does."""
        while not self.closed.is_set():
            await self.told()
            await self._pause(IDLE_SECONDS)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.closed.wait(), seconds)

    def close(self) -> None:
        """End all streams."""
        self.closed.set()

    # --- the stream of one browser --------------------------------------------------------------

    async def events(self) -> AsyncIterator[str]:
        """Yield server-sent events: first what was, then each new view."""
        yield event("history", json.dumps(list(self.history)))
        seen: Told | None = None
        while not self.closed.is_set():
            look = self._newest()
            done, _ = await asyncio.wait({look}, timeout=HEARTBEAT_SECONDS)
            if not done:
                yield ": still looking\n\n"
                continue
            if look.result() is not seen:
                seen = look.result()
                yield event("view", seen.text())
            await self._pause(LOOK_SECONDS)


def event(name: str, data: str) -> str:
    """Return one server-sent event with data of one line."""
    return f"event: {name}\ndata: {data}\n\n"
