"""One streamed request, timed: arrivals are noted as bytes and read when the stream is over.

Nothing is parsed while tokens arrive, so that the client is not what is measured; how fast it is
itself is measured against a fast fake server in tests/unit/bench.
"""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

import httpx

from glm53ctl.api import authorization
from glm53ctl.errors import EXIT_NOT_READY, UserError

CONNECT_SECONDS = 10.0
READ_SECONDS = 1800.0
"""Between two pieces of an answer: a prefill of a million tokens says nothing for 20 minutes."""


@dataclass(frozen=True)
class Server:
    """Where to ask and as whom. `url` is without /v1; `think` is sent to a chat template."""

    url: str
    model: str
    key: str | None = None
    think: bool = False

    def client(self) -> "Client":
        """Return a client for any number of requests at once."""
        return Client(self)


class Client:
    """Connections to one server, each in a pool of its own that is used again.

    One pool for all would look through all of them for each request: with 200 it is that which
    would be measured.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self._idle: list[httpx.AsyncClient] = []
        self._open = AsyncExitStack()
        self._trust = ssl.create_default_context() if server.url.startswith("https:") else False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    @asynccontextmanager
    async def lane(self) -> AsyncIterator[httpx.AsyncClient]:
        """Yield a connection that nobody else uses meanwhile."""
        lane = self._idle.pop() if self._idle else await self._open.enter_async_context(self._new())
        try:
            yield lane
        finally:
            self._idle.append(lane)

    def _new(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=self.server.url,
            headers=authorization(self.server.key),
            timeout=httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS),
            verify=self._trust,
            trust_env=False,
        )


@dataclass(frozen=True)
class Answer:
    """One answer. `began` and `arrivals` are monotonic seconds; an arrival is an event with text.

    Under speculation one event carries several tokens, so tokens are the server's own count.
    """

    text: str
    began: float
    arrivals: tuple[float, ...]
    tokens: int
    prompt_tokens: int
    cached_tokens: int
    finish: str

    @property
    def ttft(self) -> float:
        """Seconds to the first token."""
        return self.arrivals[0] - self.began

    @property
    def decode_seconds(self) -> float:
        """Seconds from the first event with text to the last."""
        return self.arrivals[-1] - self.arrivals[0]

    @property
    def rate(self) -> float:
        """Tokens/s after the first event; 0 when there was one event only."""
        return (self.tokens - 1) / self.decode_seconds if self.decode_seconds else 0.0

    @property
    def gaps(self) -> tuple[float, ...]:
        """Seconds between two events with text."""
        return tuple(b - a for a, b in zip(self.arrivals, self.arrivals[1:], strict=False))


async def ask(
    client: Client, prompt: str, max_tokens: int, writing: asyncio.Event | None = None
) -> Answer:
    """Ask one question at temperature 0 and wait for the whole answer.

    `writing` is set when the answer has begun (the first piece only says whose turn it is), or is
    over. Raises UserError when the server refuses it, is not reached or ends without a token.
    """
    server = client.server
    body: dict[str, object] = {
        "model": server.model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "chat_template_kwargs": {"enable_thinking": server.think},
    }
    pieces: list[tuple[float, bytes]] = []
    began = time.monotonic()
    try:
        async with (
            client.lane() as lane,
            lane.stream("POST", "/v1/chat/completions", json=body) as answer,
        ):
            if answer.is_error:
                await answer.aread()
                raise _refused(answer)
            async for piece in answer.aiter_raw():
                pieces.append((time.monotonic(), piece))
                if writing is not None and len(pieces) > 1:
                    writing.set()
    except httpx.HTTPError as error:
        raise UserError(
            "BENCH_UNREACHABLE",
            f"{server.url} gives no answer ({error or type(error).__name__}).",
            "Start the pair, or name its address with --url.",
            EXIT_NOT_READY,
        ) from error
    finally:
        if writing is not None:
            writing.set()
    return read_answer(server.url, began, pieces)


def read_answer(url: str, began: float, pieces: list[tuple[float, bytes]]) -> Answer:
    """Read a stream, each piece with the time at which it came. Raises UserError."""
    try:
        return _read(began, pieces)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise UserError(
            "BENCH_REFUSED",
            f"{url} streams no chat completion as OpenAI's API has it ({error!r})."[:500],
            "Name an OpenAI-compatible server with --url.",
            EXIT_NOT_READY,
        ) from error


def _read(began: float, pieces: list[tuple[float, bytes]]) -> Answer:
    text, arrivals, finish = [], [], ""
    usage: dict[str, Any] = {}
    for when, event in _events(pieces):
        usage = event.get("usage") or usage
        for choice in event.get("choices") or ():
            finish = choice.get("finish_reason") or finish
            delta = choice.get("delta") or {}
            said = delta.get("content") or delta.get("reasoning") or delta.get("reasoning_content")
            if said:
                text.append(said)
                arrivals.append(when)
    if not arrivals or not usage:
        raise UserError(
            "BENCH_NO_TOKENS",
            "an answer ended without " + ("a token." if not arrivals else "a count of tokens."),
            "`glm53ctl status` says whether the pair serves.",
            EXIT_NOT_READY,
        )
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return Answer(
        "".join(text),
        began,
        tuple(arrivals),
        usage["completion_tokens"],
        usage["prompt_tokens"],
        cached,
        finish,
    )


def _events(pieces: list[tuple[float, bytes]]) -> list[tuple[float, dict[str, Any]]]:
    """Return each event with the time at which its end arrived."""
    found, rest = [], b""
    for when, piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            data = line.removeprefix(b"data:").strip()
            if line.startswith(b"data:") and data != b"[DONE]":
                event = json.loads(data)
                if event.get("error"):
                    message = f"the server broke off: {event['error']}"
                    raise UserError("BENCH_REFUSED", message[:500], exit_code=EXIT_NOT_READY)
                found.append((when, event))
    return found


def _refused(answer: httpx.Response) -> UserError:
    said = " ".join(answer.text.split())[:300]
    message = f"the server answers {answer.status_code}: {said}"
    return UserError("BENCH_REFUSED", message, "Does the request fit its context?")
