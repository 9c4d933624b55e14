"""Lets a browser read why it is refused: the middleware stands outside vLLM's own for CORS."""

from typing import Any


def readable(app: Any, scope: Any) -> Any:
    """Return the app that answers a refusal, behind CORS as vLLM was told to have it.

    Only for requests with an Origin, which browsers send.
    """
    args = getattr(scope["app"].state, "args", None)
    if args is None or not any(name == b"origin" for name, _ in scope["headers"]):
        return app
    from fastapi.middleware.cors import CORSMiddleware

    return CORSMiddleware(
        app,
        allow_origins=args.allowed_origins,
        allow_credentials=args.allow_credentials,
        allow_methods=args.allowed_methods,
        allow_headers=args.allowed_headers,
        expose_headers=["Retry-After"],
    )
