"""A request that is not served: the status, and the error object that OpenAI's clients read."""

import json
from dataclasses import dataclass


@dataclass(eq=False)
class RefusedError(Exception):
    """One sentence for the client, with the code that its programs can tell apart."""

    status: int
    code: str
    message: str
    param: str | None = None
    retry_after: int | None = None

    @property
    def body(self) -> bytes:
        """The error as JSON, in the form of the OpenAI API."""
        kind = {401: "authentication_error", 429: "rate_limit_error", 503: "server_error"}
        error = {
            "message": self.message,
            "type": kind.get(self.status, "invalid_request_error"),
            "param": self.param,
            "code": self.code,
        }
        return json.dumps({"error": error}).encode()

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The headers beside it."""
        made = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(self.body)).encode()),
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
