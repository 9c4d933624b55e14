"""Whether prompt and reply fit the window together. vLLM shortens the reply without a word.

Counting tokens takes a pass of template and tokenizer, so it is left out where the size alone
shows that both fit: a byte is at least as much as a token.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from glm53_overlay.api.refusal import RefusedError
from glm53_overlay.api.requests import CHAT, COMPLETIONS, RESPONSES

TEMPLATE_TOKENS = 512
"""More than a chat template adds around the messages, whose JSON is longer than its tokens."""

Measure = Callable[[Mapping[str, Any]], Awaitable[int]]
"""Is `at_most`, wherever it is computed."""

Tokenize = Callable[[dict[str, Any]], Awaitable[int | None]]
"""Sends a body to /tokenize and returns the count, None when it was refused."""

RENDERED = (
    "messages",
    "prompt",
    "tools",
    "chat_template_kwargs",
    "add_generation_prompt",
    "continue_final_message",
    "add_special_tokens",
    "model",
)
"""Fields that decide the prompt, as /tokenize takes them."""


PROMPTS = {COMPLETIONS: "prompt", RESPONSES: "input"}
"""The field of the prompt; elsewhere `messages`."""


def exceeded(
    path: str, window: int, prompt: int | None = None, reply: int | None = None
) -> RefusedError:
    """Return the refusal that OpenAI's clients know; `prompt` and `reply` as far as counted."""
    asked = ""
    if prompt is not None and reply is not None:
        asked = f" You asked for {prompt + reply}: {prompt} in the prompt, {reply} for the reply."
    elif reply is not None:
        asked = f" You asked for a reply of {reply} tokens."
    return RefusedError(
        400,
        "context_length_exceeded",
        f"This model's maximum context length is {window} tokens.{asked} "
        "Shorten the prompt or lower max_tokens.",
        PROMPTS.get(path, "messages"),
    )


def reply_tokens(path: str, body: Mapping[str, Any]) -> int | None:
    """Return how long a reply the client asks for, None if it does not say (or not in numbers)."""
    names = ("max_output_tokens",) if path == RESPONSES else ("max_completion_tokens", "max_tokens")
    for name in names:
        value = body.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


async def require_room(
    path: str,
    body: Mapping[str, Any],
    window: int,
    media_tokens: int,
    measure: Measure,
    tokenize: Tokenize,
) -> None:
    """Raise RefusedError when the prompt and the wanted reply exceed the window."""
    reply = reply_tokens(path, body)
    if not window or reply is None or reply < 1:
        return
    if reply >= window:
        raise exceeded(path, window, reply=reply)
    # The other two say in their answers that a reply was cut; /tokenize does not take their bodies.
    if path not in (CHAT, COMPLETIONS) or body.get("truncate_prompt_tokens") is not None:
        return
    if await measure(body) + media_tokens + reply <= window:
        return
    prompt = await count(path, body, tokenize)
    if prompt is not None and prompt + media_tokens + reply > window:
        raise exceeded(path, window, prompt + media_tokens, reply)


def at_most(body: Mapping[str, Any]) -> int:
    """Return an upper bound of the prompt's tokens."""
    rendered = {name: body[name] for name in RENDERED if name in body}
    return TEMPLATE_TOKENS + len(json.dumps(rendered, ensure_ascii=False, default=str).encode())


async def count(path: str, body: Mapping[str, Any], tokenize: Tokenize) -> int | None:
    """Return the tokens of the (longest) prompt; None when it cannot be told."""
    other = "messages" if path == COMPLETIONS else "prompt"
    prompt = body.get("prompt") if path == COMPLETIONS else None
    if isinstance(prompt, list) and prompt:
        if all(isinstance(token, int) for token in prompt):
            return len(prompt)
        counts = [await count(path, {**body, "prompt": one}, tokenize) for one in prompt]
        return max((n for n in counts if n is not None), default=None)
    asked = {name: body[name] for name in RENDERED if name != other and body.get(name) is not None}
    if effort := body.get("reasoning_effort"):
        # /tokenize knows no effort; these are the arguments that a chat request's becomes.
        made = {"reasoning_effort": effort, "enable_thinking": effort != "none"}
        asked["chat_template_kwargs"] = {**made, **asked.get("chat_template_kwargs", {})}
    return await tokenize(asked)
