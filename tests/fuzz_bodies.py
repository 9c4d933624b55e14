"""Random bodies for the API: of the right shape, nearly so, or not at all. The same for a seed."""

import json
import random
from collections.abc import Iterator, Sequence
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
    '{"items": ' * 200,
    "(a{9}){9}",
    "x" * 5000,
    "data:image/png;base64,AAAA",
    "http://127.0.0.1/",
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
    "min_tokens",
    "stop_token_ids",
    "prompt_logprobs",
    "max_output_tokens",
    "vllm_xargs",
    "kv_transfer_params",
    "ec_transfer_params",
)
"""What clients send; a test adds what the server's own document names."""

CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "[" * 3000}}
PARTS = (
    {"type": "text", "text": "hi"},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    {"type": "image_url", "image_url": "https://127.0.0.1/"},
    {"type": "image_url"},
    {"type": "video_url", "video_url": None},
    {"image_url": {"url": {}}},
    {"type": "image", "source": {"type": "base64", "data": 5}},
    {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image", "source": "x"}]},
    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
)
SCHEMAS = (
    {"type": "object"},
    {"type": 5},
    {"$ref": "#/nowhere"},
    "{",
    {"json": {}, "regex": "a"},
    {"kv_transfer_params": "x"},
)


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
        | ({"tool_calls": draw.choice(([CALL], [], [None], "x"))} if draw.random() < 0.1 else {})
        for _ in range(draw.randrange(1, 4))
    ]


def _body(draw: random.Random, model: str, fields: Sequence[str]) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 2,
    }
    if draw.random() < 0.3:
        body = {"model": model, "prompt": "hi", "input": "hi", "tokens": [1], "max_tokens": 2}
    for _ in range(draw.randrange(4)):
        body[draw.choice(fields)] = _value(draw)
    return body


def _cut(draw: random.Random, raw: bytes) -> bytes:
    return raw[: draw.randrange(len(raw))]


def _changed(draw: random.Random, raw: bytes) -> bytes:
    at = draw.randrange(len(raw))
    return raw[:at] + bytes([draw.randrange(256)]) + raw[at + 1 :]


def _deep(draw: random.Random, raw: bytes) -> bytes:
    """Put a nest where some field is; one that a parser may just hold, or not."""
    depth = draw.choice((50, 90, 120, 400, 900, 980, 1100, 50_000))
    opened, closed = draw.choice(((b"[", b"]"), (b'{"content":[', b"]}"), (b'{"items":', b"}")))
    field = draw.choice(("messages", "prompt", "tools", "input", "metadata", "guided_json"))
    nest = opened * depth + b"1" + closed * depth
    return raw[:-1] + b', "%s": ' % field.encode() + nest + b"}"


def _encoded(draw: random.Random, raw: bytes) -> bytes:
    return raw.decode().encode(draw.choice(("utf-16", "utf-16-be", "utf-32", "utf-8-sig")))


def _half_characters(draw: random.Random, raw: bytes) -> bytes:
    return raw.replace(b'"hi"', b'"h\xed\xa0\x80i"')


def _twice(draw: random.Random, raw: bytes) -> bytes:
    return raw[:-1] + b"," + raw[1:]


DAMAGE = (_cut, _changed, _changed, _deep, _encoded, _half_characters, _twice)


def bodies(
    count: int, model: str, seed: int = 0, fields: Sequence[str] = FIELDS
) -> Iterator[bytes]:
    """Yield bodies; one of four is damaged, nested deeply or in another encoding."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    for _ in range(count):
        raw = json.dumps(_body(draw, model, fields)).encode()
        yield draw.choice(DAMAGE)(draw, raw) if draw.random() < 0.25 else raw
