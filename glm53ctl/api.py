"""The pair's own API, as a client sees it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import httpx

from glm53ctl.errors import EXIT_NOT_READY, UserError

CONNECT_SECONDS = 5.0
READ_SECONDS = 600.0
"""Between two pieces of an answer: a long prefill says nothing for minutes."""


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
    except httpx.HTTPError as error:
        raise UserError(
            "API_UNREACHABLE",
            f"{base_url} gives no answer ({error or type(error).__name__}).",
            "`glm53ctl status` says why.",
            EXIT_NOT_READY,
        ) from error


def _pieces(answer: httpx.Response) -> Iterator[Piece]:
    for line in answer.iter_lines():
        if not line.startswith("data: ") or line == "data: [DONE]":
            continue
        event = json.loads(line.removeprefix("data: "))
        if "error" in event:
            raise UserError("API_ERROR", str(event["error"].get("message", event["error"])))
        for choice in event.get("choices", ()):
            delta = choice.get("delta", {})
            if thought := delta.get("reasoning") or delta.get("reasoning_content"):
                yield Piece(thought, thinking=True)
            if text := delta.get("content"):
                yield Piece(text, thinking=False)


def _refused(answer: httpx.Response) -> UserError:
    try:
        reason = answer.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):
        reason = answer.text[:200]
    return UserError("API_REFUSED", f"the server answers {answer.status_code}: {reason}")
