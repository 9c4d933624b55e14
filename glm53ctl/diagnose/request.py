"""Requests: whose fault it is when an answer is not what was hoped for.

Pure, without dependencies and fast: the API's middleware asks it on every refused request. The
body is that of POST /v1/chat/completions or /v1/completions, parsed from JSON.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeGuard

from glm53ctl.findings import Finding, Severity
from glm53ctl.redact import without_secrets

TEMPLATE_EFFORTS = ("low", "high", "max")
"""Values of `reasoning_effort` that the model's template knows; it takes any other for max."""
EFFORTS = ("none", *TEMPLATE_EFFORTS)
"""Values that a request may name at its top level, where the server rewrites `none`."""
LOOKS_REPEATED = 16
"""Characters from which one and the same character is no text."""

_LONGEST = 2000
"""Characters of an error's message that are looked at."""
_IGNORED = ("guided_json", "guided_regex", "guided_choice", "guided_grammar")
_MARKUP = re.compile(r"<tool_call>|<arg_key>|<arg_value>")
_STRAY = re.compile(r"</?\w+>")
_CYCLE = re.compile(r"(.{1,4}?)\1{15,}", re.DOTALL)
_WINDOW = re.compile(r"maximum context length is (\d+)|max_model_len[^\d]{1,20}(\d+)")
_MEDIA = re.compile(r"At most (\d+) (\w+)\(s\) may be provided")


class Side(StrEnum):
    """Where the fault lies."""

    NONE = "none"
    CLIENT = "client"
    SERVER = "server"


@dataclass(frozen=True)
class Answer:
    """What came back: the HTTP status and the parsed body (None when it is no JSON)."""

    status: int
    body: Any = None


_SERVER = frozenset({"API_SERVER_ERROR", "API_BUSY", "CFG_TOOL_PARSER", "OUTPUT_DEGENERATE"})
_NOBODY = frozenset({"REQ_OK", "TOOL_NAME_STRAY_TOKEN"})


def side_of(code: str) -> Side:
    """Return the side that a code of this module blames."""
    if code in _NOBODY:
        return Side.NONE
    return Side.SERVER if code in _SERVER else Side.CLIENT


def _say(code: str, severity: Severity, message: str, fix: str = "") -> Finding:
    return Finding(code=code, severity=severity, message=message, fix=fix, where="request")


def lint_request(body: object) -> list[Finding]:
    """Return what is wrong with a request's body; one `REQ_OK` when nothing is."""
    return list(_faults(body)) or [_say("REQ_OK", Severity.OK, "the request is well formed.")]


def _faults(body: object) -> Iterator[Finding]:
    if not isinstance(body, Mapping):
        yield _say("REQ_SHAPE", Severity.FAIL, "the body is no JSON object.", "Send one.")
        return
    if "messages" not in body and "prompt" not in body and "input" not in body:
        yield _say("REQ_SHAPE", Severity.FAIL, "it has neither messages nor a prompt.", "Add one.")
    if "extra_body" in body:
        inner = body["extra_body"]
        names = ", ".join(inner) if isinstance(inner, Mapping) else "its fields"
        yield _say(
            "REQ_EXTRA_BODY",
            Severity.FAIL,
            f"extra_body is an option of the OpenAI Python client; sent as it is, the server "
            f"ignores it with all it holds ({names}).",
            f"Move {names} to the top level of the body.",
        )
    kwargs = body.get("chat_template_kwargs")
    if kwargs is not None and not isinstance(kwargs, Mapping):
        yield _say(
            "REQ_KWARGS_NOT_OBJECT",
            Severity.FAIL,
            f"chat_template_kwargs must be an object, and is a {_kind(kwargs)}.",
            'Write it without quotes: {"enable_thinking": false}.',
        )
    within = _object(kwargs)
    for effort, known in (
        (body.get("reasoning_effort"), EFFORTS),
        (within.get("reasoning_effort"), TEMPLATE_EFFORTS),
    ):
        if effort is not None and effort not in known:
            yield _say(
                "REQ_EFFORT_COERCED",
                Severity.FAIL,
                f"reasoning_effort {effort!r} is not known to the model's template, which thinks "
                "as for max unless the server rewrites it.",
                f"Use one of {', '.join(known)}.",
            )
    if ignored := [name for name in _IGNORED if body.get(name) is not None]:
        yield _say(
            "REQ_GUIDED_IGNORED",
            Severity.FAIL,
            f"{', '.join(ignored)} is accepted and ignored by this vLLM.",
            "Use response_format, or structured_outputs.",
        )


def _object(value: object) -> Mapping[str, Any]:
    """Return a JSON object, an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def _kind(value: object) -> str:
    names = {str: "text", list: "list", bool: "switch", int: "number", float: "number"}
    return names.get(type(value), type(value).__name__)


def judge_answer(answer: Answer, body: object = None) -> list[Finding]:
    """Return what an answer says about request and server; `body` is the request, if known."""
    if answer.status >= 400:
        return [_refusal(answer)]
    if not isinstance(answer.body, Mapping) or not isinstance(answer.body.get("choices"), list):
        return []
    request = _object(body)
    return [
        finding
        for choice in answer.body["choices"]
        if isinstance(choice, Mapping)
        for finding in _choice(choice, request, _object(answer.body.get("usage")))
    ]


def _refusal(answer: Answer) -> Finding:
    text, status = without_secrets(_message(answer.body)[:_LONGEST]), answer.status
    if found := _WINDOW.search(text):
        window = found[1] or found[2]
        return _say(
            "REQ_CONTEXT",
            Severity.OK,
            f"the prompt does not fit the window of {window} tokens; the server is well.",
            "Shorten the prompt, or start a new conversation.",
        )
    if found := _MEDIA.search(text):
        return _say(
            "REQ_MM_LIMIT",
            Severity.OK,
            f"the prompt holds more than {found[1]} {found[2]}s; the server is well.",
            "Send fewer: the images of earlier turns count again in every request.",
        )
    if status in (401, 403):
        fix = "Send the key as Authorization: Bearer."
        return _say("REQ_KEY", Severity.OK, f"the server wants another API key ({status}).", fix)
    if status == 404:
        fix = "GET /v1/models lists what is served."
        return _say("REQ_MODEL", Severity.OK, f"no such model or path: {text[:200]}", fix)
    if status in (429, 503):
        fix = "Send it again after a while; `glm53ctl status` says whether the pair serves."
        return _say("API_BUSY", Severity.WARN, f"the server takes no more now ({status}).", fix)
    if status < 500:
        return _say("REQ_REFUSED", Severity.OK, f"the request was refused ({status}): {text[:200]}")
    fix = "`glm53ctl status` and `glm53ctl explain` say what happened."
    return _say(
        "API_SERVER_ERROR", Severity.FAIL, f"the server failed ({status}): {text[:200]}", fix
    )


def _message(body: object) -> str:
    if isinstance(body, Mapping):
        error = body.get("error", body)
        inner = error.get("message") if isinstance(error, Mapping) else error
        return str(inner or body.get("detail") or "")
    return str(body or "")


def _choice(
    choice: Mapping[str, Any], request: Mapping[str, Any], usage: Mapping[str, Any]
) -> Iterator[Finding]:
    message = _object(choice.get("message"))
    content = message.get("content") or choice.get("text") or ""
    field = next((name for name in ("reasoning", "reasoning_content") if message.get(name)), "")
    repeats = [one for one in (content, message.get(field)) if _degenerate(one)]
    calls = message.get("tool_calls") or []
    ended = choice.get("finish_reason")
    if repeats:
        yield _say(
            "OUTPUT_DEGENERATE",
            Severity.FAIL,
            f"the answer repeats {repeats[0].strip()[:4]!r} instead of text.",
            "Start the pair again; if it comes back, verify the weights on both nodes.",
        )
    elif not content and field and ended == "length":
        budget = request.get("max_tokens") or request.get("max_completion_tokens")
        spent = budget or usage.get("completion_tokens") or "all"
        yield _say(
            "REQ_BUDGET_SPENT",
            Severity.WARN,
            f"thinking used max_tokens ({spent}) before an answer began: the text is in {field} "
            "(reasoning), content is empty.",
            "Raise max_tokens, or set chat_template_kwargs.enable_thinking to false.",
        )
    elif not content and not field and not calls and ended == "stop" and message:
        yield _say(
            "OUTPUT_DEGENERATE",
            Severity.FAIL,
            "the answer is empty although nothing cut it short.",
            "Start the pair again; if it comes back, verify the weights on both nodes.",
        )
    if isinstance(content, str) and not calls and (found := _MARKUP.search(content)):
        yield _say(
            "CFG_TOOL_PARSER",
            Severity.FAIL,
            f"{found[0]} stands in content: the server's tool parser did not read the model's "
            "call.",
            "Serve with tool parser glm47, reasoning parser glm45 and auto tool choice.",
        )
    for call in calls if isinstance(calls, list) else []:
        name = str(_object(_object(call).get("function")).get("name") or "")
        if _STRAY.search(name):
            yield _say(
                "TOOL_NAME_STRAY_TOKEN",
                Severity.WARN,
                f"the model closed a tool's name with markup: {_STRAY.sub('', name)} came as "
                f"{name}.",
                "Cut it off, or ask again: a few percent of sampled calls are malformed.",
            )


def _degenerate(text: object) -> TypeGuard[str]:
    """Say whether a text is one short piece over and over."""
    bare = text.strip() if isinstance(text, str) else ""
    found = _CYCLE.match(bare)
    return bool(found and found.end() >= max(LOOKS_REPEATED, len(bare) - 4))
