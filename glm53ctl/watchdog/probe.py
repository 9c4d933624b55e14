"""One real question to a pair that says ready."""

import os
from dataclasses import dataclass

import httpx

from glm53ctl.api import authorization
from glm53ctl.config.schema import Config
from glm53ctl.errors import UserError
from glm53ctl.plan import plan_rank, read_secrets
from glm53ctl.plan.ranks import API_KEY
from glm53ctl.supervise.canary import CanaryError, Target, ask_canary
from glm53ctl.watchdog.rules import Probe


@dataclass(frozen=True)
class Probed:
    """What the probe showed, and why if it is not good."""

    verdict: Probe
    error: str = ""
    timed_out: bool = False


async def probe(config: Config) -> Probed:
    """Ask the canary's question and judge the answer.

    A refusal of the question itself (4xx: another key, another model name) says nothing about the
    engine, and neither does a secret that cannot be read.
    """
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
