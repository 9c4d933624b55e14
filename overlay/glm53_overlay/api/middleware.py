"""The ASGI middleware (`--middleware glm53_overlay.api.middleware.Middleware`).

vLLM puts it outside all others, its own key check included, so the key is checked here first: no
body of a stranger is read. Answers pass through as they come.
"""

import asyncio
import contextlib
import hashlib
import hmac
import json
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from glm53_overlay.api import answers, cors, fetch, media, requests, window
from glm53_overlay.api.load import Load, Place
from glm53_overlay.api.openapi import OPEN_PATHS
from glm53_overlay.api.refusal import RefusedError
from glm53_overlay.settings import MIB, ApiSettings, load

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Aside = Callable[..., Awaitable[Any]]
_Out = TypeVar("_Out")

API_KEY = "VLLM_API_KEY"
ON_LOOP_BYTES = 256 * 1024
"""Bodies up to this size are worked on at once; larger ones in a thread, between whose steps
running streams move on. One step over the largest body, such as parsing it, still holds Python's
lock for some tenths of a second."""

IDLE_SECONDS = 30.0
"""How long a client may pause within its body: it has a place all the while."""

BODY_SECONDS = 120.0
BODY_RATE = 8 * 1024
"""How long a body may take: so many seconds, and one more for so many bytes of it."""

DROP_SECONDS = 5.0
"""How long the rest of a refused body is read, so that its client sees why."""

log = logging.getLogger("vllm.glm53.api")


class Middleware:
    """Admits, checks and rewrites requests; translates answers."""

    def __init__(
        self,
        app: App,
        settings: ApiSettings | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.app = app
        self.settings = load(environ).api if settings is None else settings
        key = environ.get(API_KEY)
        self._key = _digest(key.encode()) if key else None
        # One thread each: a large image takes hundreds of MB while it is scaled, and seconds.
        self._bodies = ThreadPoolExecutor(1, "glm53-bodies")
        self._images = ThreadPoolExecutor(1, "glm53-images")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "lifespan":
            _load_of(scope)  # ends the start when the endpoint plugin is not there
        elif scope["type"] == "websocket" and not self._knows(scope):
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        elif scope["type"] == "http":
            await self._guarded(scope, receive, send)
            return
        await self.app(scope, receive, send)

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        coming = _Coming(receive)
        try:
            await self._http(scope, coming, send)
        except RefusedError as refusal:
            await cors.readable(partial(self._refuse, refusal), scope)(scope, coming, send)
        except _GoneError:
            log.debug("a client left before its request was complete")

    async def _refuse(
        self, refusal: RefusedError, scope: Scope, coming: "_Coming", send: Send
    ) -> None:
        content = refusal.body(_path(scope))
        headers = refusal.headers(len(content))
        await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
        body = {"type": "http.response.body", "body": content}
        if coming.ended or refusal.status in (401, 408) or _waits_for_leave(scope):
            await send(body)
            return
        await send({**body, "more_body": True})
        await coming.drop(int(self.settings.body_mib * MIB))
        await send({"type": "http.response.body", "body": b""})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = _path(scope)
        if path not in OPEN_PATHS and not _is_preflight(scope) and not self._knows(scope):
            raise RefusedError(
                401, "invalid_api_key", "The API key is missing or wrong: Authorization: Bearer."
            )
        if scope["method"] != "POST":  # no route takes a body by another method
            await self.app(scope, receive, send)
            return
        with Place(_load_of(scope)) as place:
            if path in requests.GENERATING:
                place.admit()
                raw = await self._generating(path, scope, receive, place)
                if path != requests.MESSAGES:
                    send = _Answer(path, self.settings, send)
            elif path in requests.READING:
                raw = await self._reading(scope, receive, place)
            else:
                raise RefusedError(404, "not_found", f"POST {path[:80]} is not served.")
            await self.app(_carrying(raw, scope), _replayed(raw, receive), send)

    async def _generating(self, path: str, scope: Scope, receive: Receive, place: Place) -> bytes:
        """Return the body that vLLM is to get. Raises RefusedError."""
        raw = await self._read(scope, receive, place)
        aside = partial(self._aside, place)
        body = await aside(requests.parse, raw)
        requests.require_whole_numbers(body)
        place.admit(requests.sequences(path, body))
        made = await aside(requests.adapt, path, body, self.settings)
        tokens = await self._media(made, place)
        bare = await aside(media.without, made)
        measure, tokenize = partial(aside, window.at_most), partial(self._tokenize, scope, aside)
        await window.require_room(path, bare, self.settings.window, tokens, measure, tokenize)
        made = await aside(requests.finish, path, made, self.settings)
        return await aside(requests.dump, made)

    async def _reading(self, scope: Scope, receive: Receive, place: Place) -> bytes:
        raw = await self._read(scope, receive, place)
        aside = partial(self._aside, place)
        body = await aside(requests.parse, raw)
        await aside(requests.require_sayable, body)
        await self._media(body, place)
        return await aside(requests.dump, body)

    async def _media(self, body: dict[str, Any], place: Place) -> int:
        """Check and scale the request's media in place; return their tokens, videos apart."""
        limits = self.settings.media
        found = list(media.items(body))
        if not found:
            return 0

        async def fetched(url: str, most: int) -> tuple[str, bytes]:
            kind, content = await fetch.fetch(url, most, limits.domains)
            place.hold(len(content) * 4 // 3)  # as base64 it goes into the body
            return kind, content

        await media.prepare(found, limits, fetched)

        def weighed_and_fitted() -> int:
            media.weigh(found, limits)
            return media.fit(found, limits)

        return await _in_thread(self._images, weighed_and_fitted)

    async def _aside(self, place: Place, work: Callable[..., _Out], *args: Any) -> _Out:
        """Do the work at once, or in the thread if the request, with what it fetched, is large."""
        if place.held <= ON_LOOP_BYTES:
            return work(*args)
        return await _in_thread(self._bodies, work, *args)

    def _knows(self, scope: Scope) -> bool:
        if self._key is None:
            return True
        for name, value in scope["headers"]:
            if name == b"authorization":
                scheme, _, key = value.partition(b" ")
                right = hmac.compare_digest(_digest(key), self._key)
                return bool(scheme.lower() == b"bearer" and right)
        return False

    async def _read(self, scope: Scope, receive: Receive, place: Place) -> bytes:
        """Return the whole body. Raises RefusedError before more than allowed is held."""
        most = int(self.settings.body_mib * MIB)
        too_large = RefusedError(
            413, "body_too_large", f"The body is larger than {self.settings.body_mib:g} MiB."
        )
        for name, value in scope["headers"]:
            # Twenty digits are more than any limit, and thousands more than int() takes.
            if name == b"content-length" and value.isdigit() and int(value[:20]) > most:
                raise too_large
        pieces, size = [], 0
        now = asyncio.get_running_loop().time
        begun = now()
        while True:
            latest = begun + BODY_SECONDS + size / BODY_RATE
            try:
                async with asyncio.timeout_at(min(latest, now() + IDLE_SECONDS)):
                    message = await receive()
            except TimeoutError:
                text = f"The body paused for more than {IDLE_SECONDS:g} s, or came too slowly."
                raise RefusedError(408, "body_too_slow", text) from None
            if message["type"] == "http.disconnect":
                raise _GoneError
            piece = message.get("body", b"")
            size += len(piece)
            if size > most:
                raise too_large
            place.hold(len(piece))
            pieces.append(piece)
            if not message.get("more_body", False):
                return b"".join(pieces)

    async def _tokenize(self, scope: Scope, aside: Aside, body: dict[str, Any]) -> int | None:
        """Ask the server's own /tokenize how many tokens a prompt has."""
        raw = await aside(requests.dump, body)
        collected: list[bytes] = []
        status = 0

        async def take(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            collected.append(message.get("body", b""))

        path = scope.get("root_path", "") + "/tokenize"
        inner = {**scope, "path": path, "raw_path": path.encode()}
        await self.app(_carrying(raw, inner), _replayed(raw, _forever), take)
        if status != 200:
            return None  # the request itself will be refused for the same reason
        count = json.loads(b"".join(collected))["count"]
        return int(count)


class _Coming:
    """What a client sends, read to its end also when it is refused.

    A server that closes while bytes come in takes its answer back with it: the client sees a reset
    and neither reason nor Retry-After.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.ended = False

    async def __call__(self) -> Message:
        message = await self._receive()
        self.ended = not message.get("more_body", False)
        return message

    async def drop(self, most: int) -> None:
        """Read to the end of the body, but no more than `most` bytes and DROP_SECONDS."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DROP_SECONDS):
                while not self.ended and most > 0:
                    most -= len((await self()).get("body", b""))


class _GoneError(Exception):
    """The client hung up before its request was complete."""


class _Answer:
    """Passes an answer on: errors translated, thoughts renamed, everything else untouched."""

    def __init__(self, path: str, settings: ApiSettings, send: Send) -> None:
        self._send = send
        self._path = path
        self._window = settings.window
        self._renames = path == requests.CHAT and settings.reasoning_field != "reasoning"
        self._rename = partial(answers.rename, field=settings.reasoning_field)
        self._events: answers.Events | None = None
        self._start: Message | None = None
        self._held: list[bytes] = []

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif message["type"] == "http.response.body":
            await self._body(message)
        else:
            await self._send(message)

    async def _begin(self, message: Message) -> None:
        failed = message["status"] >= 400
        streams = any(
            name == b"content-type" and value.startswith(b"text/event-stream")
            for name, value in message["headers"]
        )
        if failed or (self._renames and not streams):
            self._start = message  # its length is not known yet
            return
        if self._renames:
            self._events = answers.Events(self._rename)
        await self._send(message)

    async def _body(self, message: Message) -> None:
        last = not message.get("more_body", False)
        body = message.get("body", b"")
        if self._start is not None:
            self._held.append(body)
            if last:
                await self._send_whole(self._start, b"".join(self._held))
            return
        if self._events is not None:
            message = {**message, "body": self._events.feed(body, last=last)}
        await self._send(message)

    async def _send_whole(self, start: Message, body: bytes) -> None:
        if start["status"] >= 400:
            body = answers.translate_error(self._path, body, self._window)
        else:
            body = self._rename(body)
        await self._send({**start, "headers": _headers(start["headers"], len(body))})
        await self._send({"type": "http.response.body", "body": body})


async def _in_thread(thread: ThreadPoolExecutor, work: Callable[..., _Out], *args: Any) -> _Out:
    return await asyncio.get_running_loop().run_in_executor(thread, work, *args)


def _path(scope: Scope) -> str:
    return str(scope["path"].removeprefix(scope.get("root_path", "")))


def _waits_for_leave(scope: Scope) -> bool:
    """Say whether the client sends its body only when it is asked for (`Expect: 100-continue`)."""
    return any(name == b"expect" for name, _ in scope["headers"])


def _load_of(scope: Scope) -> Load:
    counted = getattr(getattr(scope.get("app"), "state", None), "glm53_load", None)
    if not isinstance(counted, Load):
        # vLLM only logs a plugin that failed to load, and would serve without its routes.
        raise RuntimeError("The endpoint plugin glm53_api is not loaded: see the log above.")
    return counted


def _is_preflight(scope: Scope) -> bool:
    """Say whether this is a browser's question whether it may ask; it comes without a key.

    CORS answers it. Any other OPTIONS reaches the routes, and /metrics answers every method.
    """
    names = {name for name, _ in scope["headers"]}
    return scope["method"] == "OPTIONS" and {b"origin", b"access-control-request-method"} <= names


def _carrying(raw: bytes, scope: Scope) -> Scope:
    return {**scope, "headers": _headers(scope["headers"], len(raw))}


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _headers(headers: Any, length: int) -> list[tuple[bytes, bytes]]:
    dropped = (b"content-length", b"transfer-encoding")
    kept = [(name, value) for name, value in headers if name.lower() not in dropped]
    return [*kept, (b"content-length", str(length).encode())]


def _replayed(raw: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body once, then whatever comes: the client's leaving."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": raw, "more_body": False}

    return replay


async def _forever() -> Message:
    await asyncio.Event().wait()
    raise AssertionError
