"""The entry point `glm53_api` of the group `vllm.endpoint_plugins`: routes, and the template.

vLLM calls `attach_router` after its own routes are there and before it reads the chat template;
a route with the same path and method takes the place of the old one.
"""

import logging
from argparse import Namespace
from pathlib import Path
from typing import Any

from glm53_overlay import template
from glm53_overlay.api.load import Load
from glm53_overlay.settings import load

ALIASES = ("/tokenize", "/detokenize")
"""Routes that are served under /v1 as well."""

log = logging.getLogger("vllm.glm53.api")


class EndpointPlugin:
    """What vLLM asks of an endpoint plugin (plugins/endpoint_plugins/interface.py)."""

    name = "glm53_api"
    required_tasks = None

    def attach_router(self, app: Any) -> None:
        """Add our routes, the count of requests, and the chat template. Raises OverlayError."""
        from fastapi import Request
        from fastapi.responses import JSONResponse

        from glm53_overlay.api import health

        settings = load().api
        report = settings.watchdog_report
        app.state.glm53_load = Load(settings.max_active, Path(report) if report else None)
        for route in [one for one in app.routes if getattr(one, "path", "") in ALIASES]:
            app.add_api_route(
                f"/v1{route.path}",
                route.endpoint,
                methods=list(route.methods),
                dependencies=route.dependencies,
                responses=route.responses,
            )

        async def health_of(request: Request) -> JSONResponse:
            status, body = await health.look(request.app.state)
            return JSONResponse(body, status_code=status)

        app.add_api_route("/health", health_of, methods=["GET"])
        if settings.template == "appliance" and app.state.args.chat_template is None:
            app.state.args.chat_template = str(template.PATH)
            log.info("chat template: the appliance's own")

    async def init_state(self, engine_client: Any, state: Any, args: Namespace) -> None:
        """Keep nothing: the routes find the engine in the server's own state."""
