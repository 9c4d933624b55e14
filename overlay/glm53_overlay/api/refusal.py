"""A request that is not served: the status, and the error object that its clients read."""

import json
from dataclasses import dataclass

ANTHROPIC = "/v1/messages"
_OPENAI_TYPES = {401: "authentication_error", 429: "rate_limit_error", 503: "server_error"}
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
"""As vLLM says them on these routes (entrypoints/anthropic/protocol.py)."""


def is_anthropic(path: str) -> bool:
    """Say whether a route speaks Anthropic's API; the others speak OpenAI's."""
    return f"{path}/".startswith(f"{ANTHROPIC}/")


@dataclass(eq=False)
class RefusedError(Exception):
    """One sentence for the client, with the code that its programs can tell apart."""

    status: int
    code: str
    message: str
    param: str | None = None
    retry_after: int | None = None

    def body(self, path: str) -> bytes:
        """Return the error as JSON, in the form of the API that the path belongs to."""
        error = {
            "message": self.message,
            "type": _OPENAI_TYPES.get(self.status, "invalid_request_error"),
            "param": self.param,
            "code": self.code,
        }
        if not is_anthropic(path):
            return json.dumps({"error": error}).encode()
        error["type"] = _ANTHROPIC_TYPES.get(self.status, "invalid_request_error")
        return json.dumps({"type": "error", "error": error}).encode()

    def headers(self, length: int) -> list[tuple[bytes, bytes]]:
        """Return the headers beside a body of so many bytes."""
        made = [
            (b"content-type", b"application/json"),
            (b"content-length", str(length).encode()),
        ]
        if self.retry_after is not None:
            made.append((b"retry-after", str(self.retry_after).encode()))
        if self.status == 401:
            made.append((b"www-authenticate", b"Bearer"))
        if self.status in (408, 413):
            # The rest of the body is not read.
            made.append((b"connection", b"close"))
        return made


def invalid(code: str, message: str, param: str | None = None) -> RefusedError:
    """Return the refusal of a request that is wrong in itself."""
    return RefusedError(400, code, message, param)
