"""The question before READY: the pair must generate, correctly, under its own name.

A server that answers /health can still produce "!!!!" or nothing. So one completion with a known
answer is asked for at temperature 0, and with speculation at least one draft must be accepted.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import httpx

from glm53ctl.api import engine_client
from glm53ctl.config.schema import Canary
from glm53ctl.supervise.pulse import read_counters

SPEC_ROUNDS = 8
"""Completions asked for at most until enough tokens were drafted."""
PUT_OFF = (429, 503)
"""Answers that say to come back, if they say when."""
PUT_OFF_SECONDS = 5.0
_SHOWN_CHARACTERS = 120
_NOT_THE_API = (ValueError, LookupError, TypeError)
"""What an answer in any other form than the API's ends in; also a key that no header can carry."""


@dataclass(eq=False)  # not frozen: an exception is given its traceback
class CanaryError(Exception):
    """The pair answered wrong or not at all; `code` names the kind."""

    code: str
    message: str


@dataclass(frozen=True)
class Target:
    """Where and what is asked; `headers` carry the API key if there is one."""

    base_url: str
    model: str
    headers: Mapping[str, str]
    speculates: bool


async def ask_canary(
    target: Target, canary: Canary, timeout_seconds: float, *, patient: bool = False
) -> str:
    """Run the checks in order and return the answer; CanaryError at the first that fails.

    `timeout_seconds` is for each answer. A patient one comes back when it is put off, as often as
    that happens, and for seconds where nobody listens yet.
    """
    try:
        async with engine_client(
            target.base_url, target.headers, timeout_seconds, starting=patient
        ) as client:
            await _serves(client, target.model)

            async def complete() -> str:
                return await _complete(client, target.model, canary, patient=patient)

            answer = await complete()
            _judge(answer, canary)
            if target.speculates:
                await _accepts(client, complete, canary.min_drafted)
    except httpx.HTTPStatusError as error:
        message = f"{error.request.url.path} answered the canary {error.response.status_code}"
        raise CanaryError("CANARY_NO_ANSWER", message) from error
    except (httpx.HTTPError, *_NOT_THE_API) as error:
        message = f"the canary got no answer ({type(error).__name__})"
        raise CanaryError("CANARY_NO_ANSWER", message) from error
    return answer


async def _serves(client: httpx.AsyncClient, model: str) -> None:
    (await client.get("/health")).raise_for_status()
    answer = await client.get("/v1/models")
    answer.raise_for_status()
    names = [entry["id"] for entry in answer.json()["data"]]
    if model not in names:
        raise CanaryError("CANARY_MODEL", f"the server offers {names}, not {model!r}")


async def _complete(client: httpx.AsyncClient, model: str, canary: Canary, *, patient: bool) -> str:
    question = {
        "model": model,
        "messages": [{"role": "user", "content": canary.prompt}],
        "temperature": 0,
        "max_tokens": canary.max_tokens,
        "chat_template_kwargs": {"enable_thinking": False},
    }
    answer = await client.post("/v1/chat/completions", json=question)
    # Full of clients already, or told by the watchdog to let nothing in: no fault of the engine's.
    while patient and answer.status_code in PUT_OFF and "Retry-After" in answer.headers:
        await asyncio.sleep(min(float(answer.headers["Retry-After"]), PUT_OFF_SECONDS))
        answer = await client.post("/v1/chat/completions", json=question)
    answer.raise_for_status()
    return str(answer.json()["choices"][0]["message"]["content"] or "")


def _judge(answer: str, canary: Canary) -> None:
    good = answer == canary.expect if canary.match == "exact" else canary.expect in answer
    if not good:
        raise CanaryError(
            "OUTPUT_DEGENERATE",
            f"the canary answered {answer[:_SHOWN_CHARACTERS]!r}, "
            f"expected {canary.expect[:_SHOWN_CHARACTERS]!r} ({canary.match})",
        )


async def _accepts(
    client: httpx.AsyncClient, complete: Callable[[], Awaitable[str]], min_drafted: int
) -> None:
    for _ in range(SPEC_ROUNDS):
        counters = await read_counters(client)
        if counters is not None and counters.drafted_tokens >= min_drafted:
            if counters.accepted_tokens > 0:
                return
            raise CanaryError(
                "SPEC_ACCEPT_COLLAPSE",
                f"none of {counters.drafted_tokens} drafted tokens was accepted",
            )
        await complete()
    # Too few drafts to judge is no fault: short answers draft little.
