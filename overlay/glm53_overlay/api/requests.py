"""The body of a request: refused with the reason, or made into what vLLM honours. Pure.

vLLM accepts any extra field and ignores it with status 200. What clients of the recipes send is
therefore either carried out or refused here, never dropped.
"""

import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

from glm53_overlay.api.refusal import ANTHROPIC, invalid
from glm53_overlay.settings import ApiSettings

Body = dict[str, Any]

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
RESPONSES = "/v1/responses"
MESSAGES = ANTHROPIC
GENERATING = (CHAT, COMPLETIONS, RESPONSES, MESSAGES)
"""Routes that make the engine work; they are admitted, counted and refused as a group."""

READING = (
    "/tokenize",
    "/detokenize",
    "/v1/tokenize",
    "/v1/detokenize",
    "/v1/messages/count_tokens",
)
"""Routes with a body that only need the tokenizer. vLLM has more, in batches, by other names
(`/invocations`, `/inference/v1/generate`) or to steer the engine: no client of the recipes knows
them, and each would be a way around the rules of those above, so they are closed."""

EFFORTS = {
    "none": "none",
    "minimal": "low",
    "low": "low",
    "medium": "high",
    "high": "high",
    "xhigh": "max",
    "max": "max",
}
"""Every effort that OpenAI's clients name, and the nearest that the model was trained on."""

ROLES = ("system", "developer", "user", "assistant", "tool")
"""Whom the template lets speak; what another says would not be in the prompt."""

GUIDED = {
    "guided_json": "json",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
}
"""Legacy fields and the keys of `structured_outputs` that took their place."""

GUIDED_OPTIONS = {
    "guided_whitespace_pattern": "whitespace_pattern",
    "guided_decoding_backend": None,
}
"""Options of a guided field; the backend is the server's choice, so a request's is refused."""

WHOLE = ("n", "max_tokens", "max_completion_tokens", "max_output_tokens")
_CHAT_ONLY = dict.fromkeys(
    (
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "documents",
    )
)
_TOOLS_AND_MEDIA = dict.fromkeys(
    ("media_io_kwargs", "mm_processor_kwargs", "parallel_tool_calls", "include_reasoning")
)
_SAMPLING = dict.fromkeys(
    (
        "add_special_tokens",
        "allowed_token_ids",
        "bad_words",
        "echo",
        "length_penalty",
        "logprob_token_ids",
        "logprobs",
        "min_tokens",
        "n",
        "prompt_logprobs",
        "repetition_detection",
        "thinking_token_budget",
        "truncate_prompt_tokens",
        "truncation_side",
        "use_beam_search",
    )
)
_RESPONSES_ONLY = dict.fromkeys(
    ("background", "max_tool_calls", "previous_input_messages", "previous_response_id", "include"),
    RESPONSES,
)
FOREIGN: dict[str, dict[str, str | None]] = {
    CHAT: {
        **_RESPONSES_ONLY,
        "input": "messages",
        "instructions": "messages",
        "max_output_tokens": "max_tokens",
        "output_config": "reasoning_effort",
        "prompt": "messages",
        "prompt_embeds": COMPLETIONS,
        "reasoning": "reasoning_effort",
        "stop_sequences": "stop",
        "suffix": COMPLETIONS,
        "system": "messages",
        "text": "response_format",
        "thinking": "chat_template_kwargs.enable_thinking",
        "truncation": "truncate_prompt_tokens",
    },
    COMPLETIONS: {
        **_CHAT_ONLY,
        **_TOOLS_AND_MEDIA,
        **_RESPONSES_ONLY,
        "chat_template_kwargs": None,
        "input": "prompt",
        "instructions": "prompt",
        "max_output_tokens": "max_tokens",
        "messages": None,
        "output_config": None,
        "reasoning": None,
        "reasoning_effort": None,
        "stop_sequences": "stop",
        "system": "prompt",
        "text": "response_format",
        "thinking": None,
        "tool_choice": None,
        "tools": None,
        "top_logprobs": "logprobs",
        "truncation": "truncate_prompt_tokens",
    },
    RESPONSES: {
        **_CHAT_ONLY,
        **_SAMPLING,
        "max_completion_tokens": "max_output_tokens",
        "max_tokens": "max_output_tokens",
        "messages": "input",
        "output_config": "reasoning.effort",
        "prompt_embeds": COMPLETIONS,
        "reasoning_effort": "reasoning.effort",
        "response_format": "text.format",
        "stop_sequences": "stop",
        "suffix": COMPLETIONS,
        "system": "instructions",
        "thinking": "reasoning.effort",
    },
    MESSAGES: {
        **_CHAT_ONLY,
        **_TOOLS_AND_MEDIA,
        **_SAMPLING,
        **_RESPONSES_ONLY,
        "frequency_penalty": None,
        "ignore_eos": None,
        "include_stop_str_in_output": None,
        "input": "messages",
        "instructions": "system",
        "logit_bias": None,
        "max_completion_tokens": "max_tokens",
        "max_output_tokens": "max_tokens",
        "min_p": None,
        "presence_penalty": None,
        "prompt": "messages",
        "prompt_embeds": COMPLETIONS,
        "reasoning": "output_config.effort",
        "reasoning_effort": "output_config.effort",
        "repetition_penalty": None,
        "response_format": "output_config.format",
        "seed": None,
        "skip_special_tokens": None,
        "stop": "stop_sequences",
        "stop_token_ids": None,
        "structured_outputs": None,
        "suffix": COMPLETIONS,
        "text": "output_config.format",
        "top_logprobs": None,
        "truncation": None,
    },
}
"""Fields that other routes have and this one not, and their names here: a field, a route, or None
for chat, which has them."""

INDIFFERENT = frozenset(
    (
        "enable_response_messages",
        "metadata",
        "priority",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "request_id",
        "return_prompt_text",
        "return_token_ids",
        "return_token_offsets",
        "return_tokens_as_token_ids",
        "return_weight_versions",
        "routed_experts_prompt_start",
        "safety_identifier",
        "service_tier",
        "session_id",
        "spaces_between_special_tokens",
        "store",
        "stream_interval",
        "stream_options",
        "user",
    )
)
"""Fields that change nothing of what is generated: where a route has them not, they are dropped,
since clients' libraries send them everywhere."""

EXTENSIONS = ("vllm_xargs", "kv_transfer_params", "ec_transfer_params")
"""Fields for KV connectors and other extensions of vLLM, which does not look what they hold."""

TOOL_OPENER = "<tool_call>"
MAX_DEPTH = 100
"""Of objects and lists in each other. Python's own limit depends on where its stack stands, so a
body that one step can still read may end the next one."""

SEEDED = (CHAT, COMPLETIONS, RESPONSES)
"""Routes with a field for a seed."""

PROMPT = ("messages", "prompt", "input", "instructions", "tools")
"""Fields that hold a prompt, of all these routes."""

_DIGITS = bytes(ord("1") if byte in b"0123456789" else ord(" ") for byte in range(256))
"""Every digit to a 1: to look for 19 of them so takes a tenth of the time of a regular expression,
which holds Python's lock for seconds in the largest body."""

_LONG_NUMBER = b"1" * 19
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
SEED_BITS = 63


def parse(raw: bytes) -> Body:
    """Read a body. Raises RefusedError for all but a JSON object that can be encoded."""
    try:
        # Left to itself, json.loads also takes UTF-16 and half characters.
        text = raw.decode("utf-8-sig")
        # Rarely called for: a function in Python for every number is slow with long token lists.
        whole = _whole_number if _LONG_NUMBER in raw.translate(_DIGITS) else None
        body = json.loads(text, parse_constant=_no_number, parse_int=whole)
        # A lone surrogate survives parsing and fails in the tokenizer, as a fault of the server.
        if _SURROGATE.search(text):
            json.dumps(body, ensure_ascii=False).encode()
        if not isinstance(body, dict):
            raise invalid("invalid_json", "The body must be a JSON object.")
        _require_shallow([body])
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise invalid("invalid_json", f"The body is no JSON: {reason[:200]}.") from None
    return body


def _require_shallow(level: list[Any]) -> None:
    for _ in range(MAX_DEPTH):
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise RecursionError


def require_whole_numbers(body: Body) -> None:
    """Make lengths and `n` whole numbers, by which a request is admitted. Raises RefusedError.

    vLLM also takes them as text or with a fraction of zero, and would do more than was counted.
    """
    for name in WHOLE:
        value = body.get(name)
        if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 63:
            body[name] = int(value)
        elif value is not None and type(value) is not int:
            raise invalid("invalid_type", f"{name} must be a whole number.", name)


def sequences(path: str, body: Body) -> int:
    """Return how many replies a request asks for: prompts, times `n`."""
    prompt = body["prompt"] if path == COMPLETIONS and isinstance(body.get("prompt"), list) else []
    n = body.get("n")
    # A list of numbers is one prompt, as tokens.
    prompts = len(prompt) if prompt and not isinstance(prompt[0], int) else 1
    return prompts * max(1, n) if isinstance(n, int) else prompts


def dump(body: Body) -> bytes:
    """Return a body as JSON. Raises RefusedError for a number beyond what a float can hold."""
    try:
        return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
    except ValueError as error:
        raise invalid("invalid_json", f"The body is no JSON: {error}.") from None


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _whole_number(text: str) -> int:
    """Return a number that can travel to the engine: its messages know 64 bits."""
    if not -(1 << 63) <= (number := int(text)) < 1 << 63:
        raise ValueError(f"{text[:24]} is too large")
    return number


def adapt(path: str, body: Body, settings: ApiSettings) -> Body:
    """Return the body as vLLM is to get it. Raises RefusedError."""
    _no_extra_body(body)
    made = dict(body)
    if path not in (CHAT, COMPLETIONS):
        _no_guided(made, path)
    _no_foreign(made, path)
    _no_extensions(made)
    _switch(made)
    for step in _STEPS[path]:
        step(made)
    return made


def finish(path: str, body: Body, settings: ApiSettings) -> Body:
    """Return the body with what the client left open: reply length and seed."""
    made = dict(body)
    if settings.default_max_tokens is not None:
        names = {RESPONSES: ("max_output_tokens",)}.get(
            path, ("max_tokens", "max_completion_tokens")
        )
        if path != MESSAGES and all(made.get(name) is None for name in names):
            made[names[0]] = settings.default_max_tokens
    if settings.deterministic and path in SEEDED and made.get("seed") is None:
        made["seed"] = seed_of(made)
    return made


def seed_of(body: Body) -> int:
    """Return a seed that is the same for the same prompt, whatever else a request says."""
    prompt = {name: body[name] for name in PROMPT if name in body}
    text = json.dumps(prompt, sort_keys=True, separators=(",", ":"))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> (64 - SEED_BITS)


def _no_extra_body(body: Body) -> None:
    if "extra_body" not in body:
        return
    inner = body["extra_body"]
    names = ", ".join(map(str, inner)) if isinstance(inner, dict) and inner else "its fields"
    raise invalid(
        "REQ_EXTRA_BODY",
        "extra_body is an option of the OpenAI Python client, not a field of the API; sent as it "
        f"is, all it holds would be ignored. Move {names[:200]} to the top level of the body.",
        "extra_body",
    )


def _guided(body: Body) -> None:
    """Translate the legacy fields. Raises RefusedError where that would lose something."""
    given = {name: body.pop(name) for name in (*GUIDED, *GUIDED_OPTIONS) if name in body}
    given = {name: value for name, value in given.items() if value is not None}
    if not given:
        return
    kinds = [name for name in given if name in GUIDED]
    first = next(iter(given))
    if len(kinds) != 1:
        found = " and ".join(kinds) or f"only {first}"
        raise invalid("REQ_GUIDED", f"One guided field is needed; there is {found}.", first)
    for other in ("structured_outputs", "response_format"):
        if body.get(other) is not None:
            raise invalid("REQ_GUIDED", f"{first} and {other} say two things; keep {other}.", first)
    outputs = {}
    for name, value in given.items():
        key = GUIDED.get(name) or GUIDED_OPTIONS[name]
        if key is None:
            raise invalid(
                "REQ_GUIDED", f"{name} cannot be chosen by a request; leave it out.", name
            )
        _check_guided(name, value)
        outputs[key] = value
    body["structured_outputs"] = outputs


def _no_guided(body: Body, path: str) -> None:
    for name in (*GUIDED, *GUIDED_OPTIONS):
        if body.get(name) is not None:
            raise invalid("REQ_GUIDED", f"{name} is not served on {path}; use {CHAT}.", name)


def _no_foreign(body: Body, path: str) -> None:
    for name, here in FOREIGN[path].items():
        if body.get(name) is not None:
            instead = f"use {here}" if here else f"use {CHAT}"
            raise invalid("REQ_FOREIGN", f"{name} is not served on {path}; {instead}.", name)


def _no_extensions(body: Body) -> None:
    for name in EXTENSIONS:
        if body.get(name) is not None:
            text = f"{name} is for extensions of vLLM that this server has not; leave it out."
            raise invalid("REQ_EXTENSION", text, name)


def _one_length(body: Body) -> None:
    """Give completions the name of a length that they know; the other would count as none."""
    most = body.pop("max_completion_tokens", None)
    if most is not None and body.get("max_tokens") is None:
        body["max_tokens"] = most


def _constraint(body: Body) -> None:
    # vLLM asks it for its keys before it looks at its type, which ends in a 500.
    outputs = body.get("structured_outputs")
    if not isinstance(outputs, dict | None):
        text = "structured_outputs must be an object."
        raise invalid("REQ_GUIDED", text, "structured_outputs")
    if outputs:
        _shallow_text(outputs.get("json"), "structured_outputs")


_CHECKS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "guided_json": ("a JSON schema", lambda value: isinstance(value, dict | str)),
    "guided_choice": (
        "a list of texts",
        lambda value: isinstance(value, list) and bool(value) and all(map(_is_text, value)),
    ),
}


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _check_guided(name: str, value: object) -> None:
    what, holds = _CHECKS.get(name, ("a text", _is_text))
    if not holds(value):
        raise invalid("REQ_GUIDED", f"{name} must be {what}.", name)


def _switch(body: Body) -> None:
    """Let `thinking` do what `enable_thinking` does, where a request has only that.

    vLLM's parser knows both names, and one that is on is enough for it: the `enable_thinking` of
    `thinking.default_effort` would outweigh a request's `thinking: false`.
    """
    kwargs = body.get("chat_template_kwargs")
    if not isinstance(kwargs, dict) or kwargs.get("thinking") is None:
        return
    if kwargs.get("enable_thinking") is None:
        body["chat_template_kwargs"] = {**kwargs, "enable_thinking": kwargs["thinking"]}


def _efforts(body: Body) -> None:
    """Bring both places of an effort to one that the template knows. Raises RefusedError."""
    kwargs = body.get("chat_template_kwargs")
    if kwargs is not None and not isinstance(kwargs, dict):
        raise invalid(
            "REQ_KWARGS_NOT_OBJECT",
            'chat_template_kwargs must be an object, without quotes: {"enable_thinking": false}.',
            "chat_template_kwargs",
        )
    if body.get("reasoning_effort") is not None:
        body["reasoning_effort"] = _effort(body["reasoning_effort"])
    if kwargs and kwargs.get("reasoning_effort") is not None:
        effort = _effort(kwargs["reasoning_effort"])
        # The engine derives this from the field of the body only.
        body["chat_template_kwargs"] = {
            "enable_thinking": effort != "none",
            **kwargs,
            "reasoning_effort": effort,
        }


def _effort(value: object) -> str:
    if not isinstance(value, str) or value not in EFFORTS:
        known = ", ".join(name for name, meant in EFFORTS.items() if name == meant)
        raise invalid(
            "REQ_EFFORT",
            f"reasoning_effort {str(value)[:40]!r} is not known; use one of {known}.",
            "reasoning_effort",
        )
    return EFFORTS[value]


def require_sayable(body: Body) -> None:
    """Refuse what the template would leave out or fail over. Raises RefusedError."""
    _roles(body)
    _shallow_arguments(body)


def _roles(body: Body) -> None:
    for name in ("messages", "input"):
        said = body.get(name)
        for message in said if isinstance(said, list) else ():
            if not isinstance(message, dict):
                continue
            role = message.get("role")
            if role is None and name == "input":
                continue  # a call, or its result
            if role not in ROLES:
                text = f"The role {str(role)[:40]!r} is not known; use one of {', '.join(ROLES)}."
                raise invalid("REQ_ROLE", text, name)


def _shallow_arguments(body: Body) -> None:
    """Look into the JSON of earlier calls, which vLLM parses for the template."""
    said = body.get("input")
    for item in said if isinstance(said, list) else ():
        if isinstance(item, dict):
            _shallow_text(item.get("arguments"), "input")
    messages = body.get("messages")
    for message in messages if isinstance(messages, list) else ():
        calls = message.get("tool_calls") if isinstance(message, dict) else None
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict):
                _shallow_text(function.get("arguments"), "messages")


def _shallow_text(value: object, param: str) -> None:
    """Refuse JSON in a text whose depth ends a parser, or makes a grammar take minutes."""
    if not isinstance(value, str) or value.count("[") + value.count("{") <= MAX_DEPTH:
        return
    try:
        _require_shallow([json.loads(value)])
    except RecursionError:
        raise invalid("invalid_json", f"JSON in {param} is nested too deeply.", param) from None
    except ValueError:
        return  # vLLM says what it makes of it


def _no_tools(body: Body) -> None:
    """Make `tool_choice: "none"` hold while decoding: the opening token of a call is banned."""
    if body.get("tool_choice") != "none" or not body.get("tools"):
        return
    words = body.get("bad_words") or []
    if isinstance(words, list) and TOOL_OPENER not in words:
        body["bad_words"] = [*words, TOOL_OPENER]


_EVERY = (require_sayable, _constraint, _efforts)
_STEPS = {
    CHAT: (_guided, _no_tools, *_EVERY),
    COMPLETIONS: (_one_length, _guided, _constraint),
    RESPONSES: _EVERY,
    MESSAGES: _EVERY,
}
