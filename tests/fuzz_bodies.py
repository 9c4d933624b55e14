"""Random bodies for the API: of the right shape, nearly so, or not at all. The same for a seed."""

import json
import random
from collections.abc import Iterator
from typing import Any

WORDS = (
    "",
    "hi",
    "none",
    "max",
    "\x00",
    "\ud800",
    "ü" * 40,
    "<|user|>",
    "</think>",
    "auto",
    "[" * 50,
)
NUMBERS = (0, -1, 1, 2, 0.5, 1e308, -0.0, 2**31, 2**63, 10**40, True, False, None)
FIELDS = (
    "model",
    "messages",
    "prompt",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "n",
    "stop",
    "stream",
    "stream_options",
    "tools",
    "tool_choice",
    "reasoning_effort",
    "chat_template_kwargs",
    "extra_body",
    "response_format",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "guided_decoding_backend",
    "guided_whitespace_pattern",
    "logit_bias",
    "bad_words",
    "logprobs",
    "top_logprobs",
    "truncate_prompt_tokens",
    "add_generation_prompt",
    "continue_final_message",
    "input",
    "tokens",
    "echo",
    "suffix",
)
PARTS = (
    {"type": "text", "text": "hi"},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    {"type": "image_url", "image_url": "https://127.0.0.1/"},
    {"type": "image_url"},
    {"type": "video_url", "video_url": None},
    {"image_url": {"url": {}}},
    {"type": "image", "source": {"type": "base64", "data": 5}},
    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
)
SCHEMAS = ({"type": "object"}, {"type": 5}, {"$ref": "#/nowhere"}, "{", {"json": {}, "regex": "a"})


def _value(draw: random.Random, depth: int = 0) -> Any:
    kind = draw.randrange(8 if depth < 4 else 3)
    if kind == 0:
        return draw.choice(NUMBERS)
    if kind <= 2:
        return draw.choice(WORDS)
    if kind == 3:
        return [_value(draw, depth + 1) for _ in range(draw.randrange(4))]
    if kind == 4:
        return {draw.choice(WORDS): _value(draw, depth + 1) for _ in range(draw.randrange(4))}
    if kind == 5:
        return draw.choice(SCHEMAS)
    if kind == 6:
        return _messages(draw)
    return draw.choice(PARTS)


def _messages(draw: random.Random) -> list[Any]:
    roles = ("user", "assistant", "system", "tool", "developer", "nobody", None)
    contents = ("hi", None, [draw.choice(PARTS)], [draw.choice(PARTS), "x"], 5, {}, [[]])
    return [
        {"role": draw.choice(roles), "content": draw.choice(contents)}
        for _ in range(draw.randrange(1, 4))
    ]


def _body(draw: random.Random, model: str) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 2,
    }
    if draw.random() < 0.3:
        body = {"model": model, "prompt": "hi", "max_tokens": 2}
    for _ in range(draw.randrange(4)):
        body[draw.choice(FIELDS)] = _value(draw)
    return body


def bodies(count: int, model: str, seed: int = 0) -> Iterator[bytes]:
    """Yield bodies; one of ten is cut or has a byte changed, so that it is no JSON."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    for _ in range(count):
        raw = bytearray(json.dumps(_body(draw, model)).encode())
        if draw.random() < 0.1:
            raw = raw[: draw.randrange(len(raw))]
        elif draw.random() < 0.1:
            raw[draw.randrange(len(raw))] = draw.randrange(256)
        yield bytes(raw)
