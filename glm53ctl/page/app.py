"""The routes: the page, what it shows as JSON, the stream, and the metrics."""

from collections.abc import Awaitable, Callable, Collection
from importlib.resources import files

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from glm53ctl.exporter import CONTENT_TYPE, render
from glm53ctl.page.guard import Guard
from glm53ctl.page.stream import Stream

ASSETS = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
EVENTS = "text/event-stream"
RETRY_SECONDS = 5

Endpoint = Callable[[Request], Awaitable[Response]]


def make_app(stream: Stream, hosts: Collection[str]) -> Starlette:
    """Return the application. `hosts` are the names and addresses under which it may be asked."""

    async def view(_: Request) -> Response:
        told = await stream.told()
        status = 503 if told.view is None else 200
        return Response(told.text(), status, media_type="application/json")

    async def metrics(_: Request) -> Response:
        told = await stream.told()
        if told.view is None:
            return PlainTextResponse(f"{told.headline.sentence}\n", 503)
        return Response(render(told.view), media_type=CONTENT_TYPE)

    async def events(request: Request) -> Response:
        if stream.full:
            headers = {"Retry-After": str(RETRY_SECONDS)}
            return PlainTextResponse("Enough pages are open.\n", 503, headers)
        if request.method == "HEAD":
            return Response(media_type=EVENTS)
        return _Events(stream)

    async def healthz(_: Request) -> Response:
        """Say that the page is there; how the pair is stands on it."""
        return PlainTextResponse("ok\n")

    routes = {"/api/view": view, "/events": events, "/metrics": metrics, "/healthz": healthz}
    return Starlette(
        routes=[
            *(Route(path, _asset(*asset)) for path, asset in ASSETS.items()),
            *(Route(path, endpoint) for path, endpoint in routes.items()),
        ],
        middleware=[Middleware(Guard, hosts=hosts)],
    )


class _Events(StreamingResponse):
    """The stream of one browser, which counts from its first byte to its last."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream.events(), media_type=EVENTS)
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it until either side ends it."""
        with self._stream.client():
            await super().__call__(scope, receive, send)


def _asset(name: str, kind: str) -> Endpoint:
    content = files("glm53ctl.page").joinpath("assets", name).read_bytes()

    async def endpoint(_: Request) -> Response:
        return Response(content, media_type=kind)

    return endpoint
