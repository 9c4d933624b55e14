"""Requests of many shapes before READY, so that no client waits while a kernel is compiled.

The engine compiles kernels when a shape first comes, in the middle of a step that both ranks take
part in: a client would wait for minutes. So prompts of several lengths are sent, one at a time and
several together, and one reply under a grammar. What goes wrong is a finding and keeps nobody from
READY: whether the pair answers rightly is for the canary to say.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from glm53ctl.api import engine_client
from glm53ctl.config.schema import Config
from glm53ctl.findings import Finding, Severity
from glm53ctl.supervise.canary import Target

WORDS_A_TOKEN = 0.9
"""Numbers a token in the prompts, low enough that one is not longer than was asked for."""
SLACK_TOKENS = 64
"""What the chat template adds to a prompt, at most."""
REQUEST_SHARE = 0.9
"""How much of the stage's limit one request may take: it fails before the stage counts as stuck."""
_SHOWN = 3

Report = Callable[[int, int], None]
"""Takes how many requests are done, and of how many."""


@dataclass(frozen=True)
class Shape:
    """Requests that are sent at the same time: their number, and the length of their prompts."""

    prompt_tokens: int
    together: int
    grammar: bool = False

    def __str__(self) -> str:
        kind = " under a grammar" if self.grammar else ""
        return f"{self.together} x {self.prompt_tokens} tokens{kind}"


def shapes(config: Config) -> tuple[Shape, ...]:
    """Return what a configuration wants to be warmed up, within its window and its batch."""
    wanted, serve = config.warmup, config.serve
    room = serve.max_model_len - wanted.max_tokens - SLACK_TOKENS
    lengths = [length for length in wanted.prompt_tokens if length <= room]
    numbers = sorted({min(number, serve.max_num_seqs) for number in wanted.together})
    made = [Shape(length, number) for length in lengths for number in numbers]
    return (*made, *(Shape(length, 1, grammar=True) for length in lengths[:1]))


def questions(shape: Shape, model: str, max_tokens: int) -> Iterator[dict[str, Any]]:
    """Yield the requests of a shape; each begins otherwise, so that none is found in the cache."""
    for number in range(shape.together):
        start = f"{shape.prompt_tokens}.{shape.together}.{number}:"
        words = " ".join("7" for _ in range(int(shape.prompt_tokens * WORDS_A_TOKEN)))
        asked: dict[str, Any] = {
            "model": model,
            "messages": [{"role": "user", "content": f"{start} {words}"}],
            "temperature": 0,
            "max_tokens": max_tokens,
            "chat_template_kwargs": {"enable_thinking": False},
        }
        if shape.grammar:
            asked["response_format"] = {"type": "json_object"}
        yield asked


async def warm_up(
    target: Target, config: Config, report: Report = lambda done, of: None
) -> tuple[Finding, ...]:
    """Send all shapes, one after the other; return what went wrong, if anything did."""
    left, failed = list(shapes(config)), list[str]()
    try:
        async with asyncio.timeout(config.warmup.limit_seconds):
            await _send(target, config, left, failed, report)
    except TimeoutError:
        pass  # what is left says it
    except ValueError as error:  # an address or a key that no request can carry
        failed.append(type(error).__name__)
        left.clear()
    return tuple(_findings(left, failed, config.warmup.limit_seconds))


async def _send(
    target: Target, config: Config, left: list[Shape], failed: list[str], report: Report
) -> None:
    """Send what is left, and take it from there; note what failed."""
    of, done = sum(shape.together for shape in left), 0
    patience = config.supervise.limits.warmup * REQUEST_SHARE
    async with engine_client(target.base_url, target.headers, patience, starting=True) as client:
        while left:
            asked = questions(left[0], target.model, config.warmup.max_tokens)
            answers = await asyncio.gather(*(_ask(client, each) for each in asked))
            failed += [f"{left[0]}: {answer}" for answer in answers if answer]
            done += left.pop(0).together
            report(done, of)


async def _ask(client: httpx.AsyncClient, question: dict[str, Any]) -> str:
    """Return why a request failed; nothing when it did not."""
    try:
        answer = await client.post("/v1/chat/completions", json=question)
    except httpx.HTTPError as error:
        return type(error).__name__
    return "" if answer.is_success else f"status {answer.status_code}"


def _findings(left: list[Shape], failed: list[str], limit: float) -> Iterator[Finding]:
    if failed:
        shown = "; ".join(failed[:_SHOWN])
        more = f" and {len(failed) - _SHOWN} more" * (len(failed) > _SHOWN)
        yield _finding("WARMUP_FAILED", f"requests of the warm-up failed: {shown}{more}.")
    if left:
        missing = ", ".join(map(str, left))
        yield _finding("WARMUP_LATE", f"the warm-up took {limit:.0f} s and is without {missing}.")


def _finding(code: str, message: str) -> Finding:
    return Finding(
        code=code,
        severity=Severity.WARN,
        message=message,
        fix="The first clients may wait for kernels; the engine's log says what it did instead.",
    )
