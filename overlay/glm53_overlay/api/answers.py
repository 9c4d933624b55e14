"""What becomes of vLLM's answers: error codes that clients know, thoughts under another name.

Nothing is held back: an event of a stream leaves with the chunk that completes it.
"""

import json
import re
from collections.abc import Callable
from typing import Any, Literal

from glm53_overlay.api.window import exceeded

Field = Literal["reasoning", "reasoning_content", "both"]

_WINDOW = re.compile(
    r"maximum context length is \d+ tokens|exceeds model's maximum context length \(\d"
    r"|longer than the maximum model length of \d"
)
"""With their numbers: an error may also quote what the client wrote."""

_KEY = b'"reasoning":'
"""Only a key looks like this: within a text of JSON its quotes would have a backslash."""


def translate_error(path: str, body: bytes, window: int) -> bytes:
    """Return an error of status 400 with the code `context_length_exceeded` if it says so."""
    try:
        error = json.loads(body)["error"]
        said = str(error["message"])
    except (ValueError, LookupError, TypeError):
        return body
    if not _WINDOW.search(said):
        return body
    refusal = exceeded(path, window)
    error |= {"code": refusal.code, "type": "invalid_request_error", "param": refusal.param}
    error["message"] = said
    return json.dumps({"error": error}).encode()


def rename(data: bytes, field: Field) -> bytes:
    """Return a chat answer, or one event of a stream, with its thoughts under the wanted name."""
    if _KEY not in data or field == "reasoning":
        return data
    if field == "reasoning_content":
        return data.replace(_KEY, b'"reasoning_content":')
    try:
        answer = json.loads(data)
        for choice in answer["choices"]:
            _copy(choice.get("message") or choice.get("delta"))
    except (ValueError, LookupError, TypeError, AttributeError):
        return data
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()


def _copy(message: Any) -> None:
    if isinstance(message, dict) and "reasoning" in message:
        message["reasoning_content"] = message["reasoning"]


class Events:
    """The events of a stream, renamed one by one; keeps the piece of a line that is not whole."""

    def __init__(self, change: Callable[[bytes], bytes]) -> None:
        self._change = change
        self._rest = b""

    def feed(self, chunk: bytes, *, last: bool = False) -> bytes:
        """Return what can leave now."""
        whole, newline, rest = (self._rest + chunk).rpartition(b"\n")
        if last:
            whole, newline, rest = whole + newline + rest, b"", b""
        self._rest = rest
        if _KEY not in whole:
            return whole + newline
        return b"\n".join(map(self._line, whole.split(b"\n"))) + newline

    def _line(self, line: bytes) -> bytes:
        if not line.startswith(b"data: ") or _KEY not in line:
            return line
        return b"data: " + self._change(line[6:])
