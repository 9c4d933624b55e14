"""One real question to a pair that says ready."""

import os
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx

from glm53ctl.api import authorization
from glm53ctl.config.schema import Config
from glm53ctl.errors import UserError
from glm53ctl.plan import plan_rank, read_secrets
from glm53ctl.plan.ranks import API_KEY
from glm53ctl.supervise.canary import CanaryError, Target, ask_canary
from glm53ctl.supervise.report import RankReport
from glm53ctl.watchdog.rules import Probe


@dataclass(frozen=True)
class Probed:
    """What the probe showed, and why if it is not good."""

    verdict: Probe
    error: str = ""
    timed_out: bool = False


async def probe(config: Config, report: RankReport) -> Probed:
    """Ask the canary's question where the head's report says that it serves; judge the answer.

    A refusal of the question itself (4xx: another key, another model name) says nothing about the
    engine, and neither does a secret that cannot be read.
    """
    config = _served(config, report)
    plan = plan_rank(config, 0)
    try:
        key = read_secrets(plan, os.environ).get(API_KEY)
    except UserError as error:
        return Probed(Probe.UNCLEAR, str(error))
    target = Target(
        base_url=plan.base_url or "",
        model=config.serve.model_name,
        headers=authorization(key),
        speculates=False,  # its acceptance is not for every minute
    )
    try:
        await ask_canary(target, config.canary, config.watchdog.probe_deadline_seconds)
    except CanaryError as error:
        cause = error.__cause__
        refused = isinstance(cause, httpx.HTTPStatusError) and (
            # With Retry-After it is the overlay that refuses, at the watchdog's own word.
            cause.response.is_client_error or "retry-after" in cause.response.headers
        )
        verdict = Probe.UNCLEAR if refused else Probe.BAD
        return Probed(verdict, error.message, isinstance(cause, httpx.TimeoutException))
    return Probed(Probe.GOOD)


def _served(config: Config, report: RankReport) -> Config:
    """Return the configuration with the address and the name that are in use.

    The file may say others by now: supervisors take them up at the next `restart` only.
    """
    url = urlsplit(report.endpoint or config.api.endpoint)
    api = config.api.model_copy(update={"host": url.hostname, "port": url.port})
    name = report.model or config.serve.model_name
    serve = config.serve.model_copy(update={"model_name": name})
    return config.model_copy(update={"api": api, "serve": serve})
