"""The OpenAPI document, as this server really answers: what vLLM's own says, put right.

vLLM lists routes that are closed here, an error 422 that it turns into 400, and neither the key nor
the middleware's refusals. Clients are generated from the document, and tests too.
"""

from typing import Any

from glm53_overlay.api import requests
from glm53_overlay.api.refusal import is_anthropic

Document = dict[str, Any]

OPEN_PATHS = ("/health",)
"""Served without a key, to whoever balances load or watches."""

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_TEXT = {"type": "string"}
_ERROR: Document = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": _TEXT,
                "type": _TEXT,
                "param": {"type": ["string", "null"]},
                "code": {
                    "type": ["string", "integer", "null"],
                    "description": "A word if it is a rule of this appliance, else the status.",
                },
            },
        }
    },
}
_MESSAGES_ERROR = {
    "type": "object",
    "required": ["type", "error"],
    "properties": {"type": {"const": "error"}, **_ERROR["properties"]},
}
_RETRY = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."}}
_ANY_BODY = {
    "400": "The request is wrong in itself; nothing of it was done.",
    "408": "The body paused for too long, or came too slowly.",
    "413": "The body or its media are larger than is served.",
    "429": "As much is running, waiting or held as this server takes.",
}
_REFUSES = {"503": "The host takes no new work now."}


def corrected(document: Document, *, keyed: bool) -> Document:
    """Return the document with what the middleware adds and closes. `keyed`: a key is set."""
    parts = document.setdefault("components", {})
    schemas = {"Refusal": _ERROR, "MessagesRefusal": _MESSAGES_ERROR}
    parts.setdefault("schemas", {}).update(schemas)
    if keyed:
        parts["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    paths = {path: _methods(path, item, keyed) for path, item in document["paths"].items()}
    return {**document, "paths": {path: item for path, item in paths.items() if item}}


def _methods(path: str, item: dict[str, Any], keyed: bool) -> dict[str, Any]:
    served = (*requests.GENERATING, *requests.READING)
    return {
        name: _operation(path, name, value, keyed) if name in _METHODS else value
        for name, value in item.items()
        if name != "post" or path in served
    }


def _operation(path: str, method: str, found: dict[str, Any], keyed: bool) -> dict[str, Any]:
    answers = {code: one for code, one in found["responses"].items() if code != "422"}
    if method == "post":
        answers |= _refusals(path, _ANY_BODY)
    if path in requests.GENERATING:
        answers |= _refusals(path, _REFUSES)
    if not keyed or path in OPEN_PATHS:
        return {**found, "responses": answers}
    answers |= _refusals(path, {"401": "The key is missing or wrong."})
    return {**found, "responses": answers, "security": [{"key": []}]}


def _refusals(path: str, said: dict[str, str]) -> dict[str, Any]:
    name = "MessagesRefusal" if is_anthropic(path) else "Refusal"
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
    return {
        code: {"description": text, "content": content}
        | ({"headers": _RETRY} if code in ("429", "503") else {})
        for code, text in said.items()
    }
