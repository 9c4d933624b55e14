"""The page's server: a thread with an event loop of its own, beside whoever starts it.

What goes wrong in it is said once and tried again; it never reaches the thread that started it.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from glm53ctl.config.schema import Config
from glm53ctl.page.addresses import addresses, as_host, listen, names
from glm53ctl.page.app import make_app
from glm53ctl.page.stream import Stream
from glm53ctl.view.model import PairView

log = logging.getLogger("glm53ctl")

AGAIN_SECONDS = 15.0
"""Pause between two looks at the addresses: at boot the LAN comes later than this program, and an
address may change."""
MAX_CONNECTIONS = 64
REQUEST_SECONDS = 10.0
"""A connection that has not sent a whole request for this long is closed: places are few."""
STOP_SECONDS = 5.0
TICK_SECONDS = 1.0


class Connection(H11Protocol):
    """Uvicorn's, closed when a request takes too long to come. It limits only the pause between."""

    _limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take what comes, and wait on while it is no whole request."""
        super().data_received(data)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._no_limit()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._no_limit()
        elif self._limit is None:
            self._limit = self.loop.call_later(REQUEST_SECONDS, self.transport.close)

    def _no_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None


class Server(uvicorn.Server):
    """Uvicorn's, looking once a second for what to do, not ten times: a host at rest sleeps."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._over = asyncio.Event()

    def end(self) -> None:
        """Take nothing new, and let `serve` return once what is under way is answered."""
        self.should_exit = True
        self._over.set()

    async def main_loop(self) -> None:
        """Renew the Date header each second, as uvicorn's does, until `end`."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), TICK_SECONDS)


@dataclass
class PageServer:
    """Serves the page on every address of `page.host` that this host has, from `start` to `stop`.

    `source` is called in threads and may block for seconds.
    """

    config: Config
    source: Callable[[], PairView]
    urls: dict[str, str] = field(default_factory=dict)
    """Where it is served now, by address."""
    bound: threading.Event = field(default_factory=threading.Event)
    """Set once it was tried to bind every address."""
    ended: threading.Event = field(default_factory=threading.Event)
    wrong: str = ""
    """Why it is not served on an address; empty when all is well."""
    _hosts: set[str] = field(default_factory=set)
    _servers: dict[str, tuple[Server, asyncio.Task[None]]] = field(default_factory=dict)
    _stop: Callable[[], object] | None = None
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread = threading.Thread(target=self._run, name="page", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End; waits a moment for open answers."""
        if self._stop is not None:
            with contextlib.suppress(RuntimeError):  # its loop has ended by itself
                self._stop()
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:
            self.wrong = f"{type(error).__name__}: {error}"
            log.exception("the page has ended")
        finally:
            self.bound.set()
            self.ended.set()

    async def _serve(self) -> None:
        stream = Stream(self.source)
        loop = asyncio.get_running_loop()
        self._stop = lambda: loop.call_soon_threadsafe(stream.close)
        watching = asyncio.create_task(stream.watch())
        while not stream.closed.is_set():
            self._follow(stream)
            self.bound.set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stream.closed.wait(), AGAIN_SECONDS)
        for server, _ in self._servers.values():
            server.end()
        await asyncio.gather(watching, *(task for _, task in self._servers.values()))

    def _follow(self, stream: Stream) -> None:
        """Serve on the addresses that are there now, and on no others."""
        wrong = []
        try:
            wanted = addresses(self.config.page.host)
        except OSError as error:
            wanted, wrong = set(self._servers), [f"addresses cannot be listed ({error.strerror})"]
        for address in self._servers.keys() - wanted:
            self._servers.pop(address)[0].end()
            self.urls.pop(address, None)
        for address, (_, task) in list(self._servers.items()):
            if task.done():
                self._servers.pop(address)
        for address in sorted(wanted - self._servers.keys()):
            try:
                self._begin(stream, address)
            except OSError as error:
                wrong.append(f"{address}, port {self.config.page.port}: {error.strerror}")
        if not wanted:
            wrong.append(f"no address on {', '.join(self.config.page.host)}")
        self._hosts.clear()
        self._hosts |= names(self.config) | {as_host(address) for address in self._servers}
        said, self.wrong = self.wrong, "; ".join(wrong)
        if self.wrong and self.wrong != said:
            log.warning("the page is not served everywhere: %s", self.wrong)

    def _begin(self, stream: Stream, address: str) -> None:
        made = listen(address, self.config.page.port)
        server = Server(
            uvicorn.Config(
                make_app(stream, self._hosts),
                lifespan="off",
                ws="none",
                http=Connection,
                loop="none",
                log_config=None,
                log_level="critical",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=MAX_CONNECTIONS,
                timeout_graceful_shutdown=1,
            )
        )
        self._servers[address] = server, asyncio.create_task(server.serve(sockets=[made]))
        self.urls[address] = f"http://{as_host(address)}:{made.getsockname()[1]}/"
        log.info("the page is at %s", self.urls[address])
