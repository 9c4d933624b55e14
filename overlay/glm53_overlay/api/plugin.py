"""The entry point `glm53_api` of the group `vllm.endpoint_plugins`: routes, and the template.

vLLM calls `attach_router` after its own routes are there and before it reads the chat template;
a route with the same path and method takes the place of the old one.
"""

import asyncio
import logging
import os
import threading
from argparse import Namespace
from pathlib import Path
from typing import Any

from glm53_overlay import template
from glm53_overlay.api.load import BODIES, Load
from glm53_overlay.api.middleware import API_KEY
from glm53_overlay.settings import MIB, load

ENGINE_SECONDS = 5.0
"""What the engine has to end its workers, also after a client that held the stop up to its limit;
at 0 it is killed."""

log = logging.getLogger("vllm.glm53.api")


class EndpointPlugin:
    """What vLLM asks of an endpoint plugin (plugins/endpoint_plugins/interface.py)."""

    name = "glm53_api"
    required_tasks = None

    def attach_router(self, app: Any) -> None:
        """Add our routes, the count of requests, and the chat template. Raises OverlayError."""
        settings = load().api
        report = settings.watchdog_report
        app.state.glm53_load = Load(
            most=settings.max_active,
            most_bytes=int(BODIES * settings.body_mib * MIB),
            report=Path(report) if report else None,
        )
        _add_routes(app)
        _describe(app)
        if settings.template == "appliance" and app.state.args.chat_template is None:
            app.state.args.chat_template = str(template.PATH)
            log.info("chat template: the appliance's own")

    async def init_state(self, engine_client: Any, state: Any, args: Namespace) -> None:
        """Let what was admitted end before vLLM stops the engine.

        A stopped engine drains too, but what reaches it meanwhile, admitted a moment before, it
        answers with status 200 and an empty reply.
        """
        shutdown = engine_client.shutdown
        loop, here = asyncio.get_running_loop(), threading.get_ident()

        def drain_and_shutdown(timeout: float | None = None) -> None:
            # Called in a thread on a stop, and once more on the loop when the server has ended.
            state.glm53_load.stopping = True
            if timeout and threading.get_ident() != here:
                drained = asyncio.run_coroutine_threadsafe(state.glm53_load.drain(timeout), loop)
                timeout = max(drained.result(), ENGINE_SECONDS)
            shutdown(timeout=timeout)

        engine_client.shutdown = drain_and_shutdown


def _add_routes(app: Any) -> None:
    from fastapi import Request
    from fastapi.responses import JSONResponse
    from vllm.entrypoints.serve.tokenize.protocol import DetokenizeResponse, TokenizeResponse

    from glm53_overlay.api import health

    aliased = {"/tokenize": TokenizeResponse, "/detokenize": DetokenizeResponse}
    for route in [one for one in app.routes if getattr(one, "path", "") in aliased]:
        for path in (route.path, f"/v1{route.path}"):
            app.add_api_route(
                path,
                route.endpoint,
                methods=list(route.methods),
                dependencies=route.dependencies,
                responses={**route.responses, 200: {"model": aliased[route.path]}},
            )

    async def health_of(request: Request) -> JSONResponse:
        """Say whether the engine lives, and how much it has to do."""
        status, body = await health.look(request.app.state)
        return JSONResponse(body.model_dump(), status_code=status)

    app.add_api_route(
        "/health",
        health_of,
        methods=["GET"],
        responses={200: {"model": health.Health}, 503: {"model": health.Dead}},
    )


def _describe(app: Any) -> None:
    from glm53_overlay.api import openapi

    described = app.openapi
    made: list[openapi.Document] = []

    def corrected() -> openapi.Document:
        if not made:
            made.append(openapi.corrected(described(), keyed=bool(os.environ.get(API_KEY))))
        return made[0]

    app.openapi = corrected
