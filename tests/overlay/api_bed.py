"""The middleware before a stand-in for vLLM's server, asked in this process over ASGI.

The stand-in is one small ASGI app: it keeps the bodies it gets and answers what a test tells it.
What vLLM itself makes of these bodies is shown by tests/engine/test_api_contract.py.
"""

import asyncio
import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import httpx

from glm53_overlay.api.load import Load
from glm53_overlay.api.middleware import Middleware
from glm53_overlay.settings import ApiSettings

CHAT = "/v1/chat/completions"
KEY = "opensesame"


@dataclass
class Server:
    """The stand-in. `answers` by path: (status, JSON body) or a list of chunks of a stream."""

    answers: dict[str, Any] = field(default_factory=dict)
    bodies: list[tuple[str, Any]] = field(default_factory=list)
    gate: asyncio.Event | None = None
    state: SimpleNamespace = field(default_factory=SimpleNamespace)
    sent: int = 0

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http":
            return
        raw = b""
        if scope["method"] == "POST":
            message = await receive()
            raw = message["body"]
            lengths = [v for n, v in scope["headers"] if n == b"content-length"]
            assert lengths == [str(len(raw)).encode()]
        self.bodies.append((scope["path"], _read(raw)))
        if self.gate is not None and scope["path"] == CHAT:
            await self.gate.wait()
        answer = self.answers.get(scope["path"], (200, {}))
        if isinstance(answer, list):
            await self._stream(answer, send)
            return
        status, body = answer
        data = json.dumps(body).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(data)).encode()),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": data})

    async def _stream(self, chunks, send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            self.sent += 1
        await send({"type": "http.response.body", "body": b""})

    @property
    def got(self) -> Any:
        """The body of the last request that reached it."""
        return self.bodies[-1][1]


def _read(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return raw


@dataclass
class Bed:
    """Middleware and stand-in."""

    server: Server
    middleware: Middleware
    key: str | None

    async def app(self, scope, receive, send) -> None:
        """What a server would serve."""
        await self.middleware({**scope, "app": self.server}, receive, send)

    async def asked(self, *requests: httpx.Request) -> list[httpx.Response]:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app), base_url="http://bed"
        ) as client:
            return list(await asyncio.gather(*map(client.send, requests)))

    def request(self, method: str, path: str, **more: Any) -> httpx.Request:
        headers = {**({"Authorization": f"Bearer {self.key}"} if self.key else {})}
        headers |= more.pop("headers", {})
        return httpx.Request(method, f"http://bed{path}", headers=headers, **more)

    def post(self, path: str = CHAT, body: Any = None, **more: Any) -> httpx.Response:
        """Send one request; `body` is JSON, `content` in `more` are bytes."""
        if "content" not in more:
            more["json"] = body
        return asyncio.run(self.asked(self.request("POST", path, **more)))[0]

    def get(self, path: str, **more: Any) -> httpx.Response:
        return asyncio.run(self.asked(self.request("GET", path, **more)))[0]


def make(key: str | None = None, load: Load | None = None, **settings: Any) -> Bed:
    server = Server()
    server.state.glm53_load = load or Load(settings.get("max_active", 0))
    environ = {"VLLM_API_KEY": key} if key else {}
    middleware = Middleware(server, ApiSettings(**settings), environ)
    return Bed(server, middleware, key)


def chat(**more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "hi"}], **more}


def error(answer: httpx.Response, status: int) -> dict[str, Any]:
    """The error object of an answer, which must have this status and the form of its route."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    anthropic = answer.request.url.path.startswith("/v1/messages")
    assert body.get("type") == ("error" if anthropic else None)
    found = body["error"]
    assert set(found) == {"message", "type", "param", "code"}
    assert found["message"].endswith(".")
    return found
