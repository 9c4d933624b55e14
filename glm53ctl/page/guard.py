"""Who may ask, and what a browser may do with the answer."""

from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self'",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Guard:
    """Refuses names that are not this host's, and pages of other sites; sets the headers.

    A name that somebody else may point at this address (DNS rebinding) would let their page read
    this one as if it were theirs. An address as the host is nobody's name, but only those count on
    which the page is served.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = hosts  # read anew with every request: addresses come and go

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""
        if scope["type"] != "http":
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = self._refusal(Headers(scope=scope))
        await (refusal or self._app)(scope, receive, guarded)

    def _refusal(self, headers: Headers) -> PlainTextResponse | None:
        if _name(headers.get("host", "")) not in self._hosts:
            text = "Not a name of this host. page.names lists further ones.\n"
            return PlainTextResponse(text, 421)
        site, mode = headers.get("sec-fetch-site"), headers.get("sec-fetch-mode")
        if site in ("cross-site", "same-site") and mode != "navigate":
            return PlainTextResponse("Not for pages of other sites.\n", 403)
        return None


def _name(host: str) -> str:
    """Return the name of a Host header without its port, in small letters."""
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdigit() else host.lower()
