"""The pair's own API, as a client sees it."""

import json
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from glm53ctl.errors import EXIT_BAD_INPUT, EXIT_NOT_READY, UserError

CONNECT_SECONDS = 5.0
LISTEN_TRIES = 5
"""Tries to connect again where the server may be about to listen; the pauses double from 0.5 s."""
READ_SECONDS = 600.0
"""Between two pieces of an answer: a long prefill says nothing for minutes."""
_SHOWN_CHARACTERS = 500


@dataclass(frozen=True)
class Piece:
    """A piece of a streamed answer: thinking or the answer itself."""

    text: str
    thinking: bool


@dataclass(frozen=True)
class Question:
    """One user message and how it is to be answered."""

    text: str
    max_tokens: int
    temperature: float | None = None
    think: bool = True


def authorization(key: str | None) -> dict[str, str]:
    """Return the header that carries the API key; none without a key."""
    return {"Authorization": f"Bearer {key}"} if key else {}


def engine_client(
    base_url: str, headers: Mapping[str, str], seconds: float, *, starting: bool = False
) -> httpx.AsyncClient:
    """Return a client of the pair's own engine, which answers within so many seconds.

    It speaks plain HTTP without a proxy, whatever the environment says. So no certificates are
    loaded: that takes longer than to ask, and the supervisor's loop would wait for it. To one that
    is `starting` it connects again: vLLM says that its start is complete, then it listens.
    """
    transport = httpx.AsyncHTTPTransport(
        verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        trust_env=False,
        retries=LISTEN_TRIES if starting else 0,
    )
    return httpx.AsyncClient(
        base_url=base_url, headers=headers, timeout=seconds, trust_env=False, transport=transport
    )


def stream_answer(
    base_url: str, model: str, headers: Mapping[str, str], question: Question
) -> Iterator[Piece]:
    """Ask and yield the answer as it comes. Raises UserError when the server does not serve it."""
    body: dict[str, object] = {
        "model": model,
        "messages": [{"role": "user", "content": question.text}],
        "max_tokens": question.max_tokens,
        "stream": True,
        "chat_template_kwargs": {"enable_thinking": question.think},
    }
    if question.temperature is not None:
        body["temperature"] = question.temperature
    limits = httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
    url = f"{base_url}/v1/chat/completions"
    try:
        with (
            httpx.Client(headers=headers, timeout=limits, trust_env=False) as client,
            client.stream("POST", url, json=body) as answer,
        ):
            if answer.is_error:
                answer.read()
                raise _refused(answer)
            yield from _pieces(answer)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UserError(
            "API_UNREACHABLE",
            f"{base_url} gives no answer ({error or type(error).__name__}).",
            "`glm53ctl status` says why.",
            EXIT_NOT_READY,
        ) from error
    except UnicodeEncodeError as error:  # its text would show the key
        what = "API key" if error.encoding == "ascii" else "question"
        raise UserError(
            "API_NOT_TEXT", f"the {what} holds characters that cannot be sent."
        ) from None


def _pieces(answer: httpx.Response) -> Iterator[Piece]:
    for line in answer.iter_lines():
        name, _, data = line.partition(":")
        if name != "data":
            continue
        if data.strip() == "[DONE]":
            return
        for choice in _event(data).get("choices") or ():
            delta = choice.get("delta") or {}
            if thought := delta.get("reasoning") or delta.get("reasoning_content"):
                yield Piece(thought, thinking=True)
            if text := delta.get("content"):
                yield Piece(text, thinking=False)
    raise UserError(
        "API_ERROR",
        "the answer broke off, or this is not the pair's server.",
        "`glm53ctl status` says whether the pair serves.",
        EXIT_NOT_READY,
    )


def _event(data: str) -> dict[str, Any]:
    try:
        event = json.loads(data)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        message = f"the server sends what is no answer: {_one_line(data)}"
        raise UserError("API_ERROR", message, exit_code=EXIT_NOT_READY)
    if error := event.get("error"):
        message = error.get("message", error) if isinstance(error, dict) else error
        status = error.get("code") if isinstance(error, dict) else None
        raise UserError("API_ERROR", _one_line(str(message)), exit_code=_exit_code(status))
    return event


def _refused(answer: httpx.Response) -> UserError:
    try:
        reason = str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        reason = answer.text
    status = answer.status_code
    return UserError(
        "API_REFUSED",
        f"the server answers {status}: {_one_line(reason)}",
        exit_code=_exit_code(status),
    )


def _exit_code(status: object) -> int:
    """Say whose fault an HTTP status is: a 4xx is the question's, all else the server's."""
    caller = isinstance(status, int) and 400 <= status < 500
    return EXIT_BAD_INPUT if caller else EXIT_NOT_READY


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_SHOWN_CHARACTERS]
