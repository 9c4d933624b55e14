"""Acceptance of drafts and reuse of prefixes, from what the engine counted before and after."""

import time

import httpx

from glm53ctl.bench.client import Client
from glm53ctl.bench.result import Acceptance
from glm53ctl.view import engine
from glm53ctl.view.engine import Reading


async def read(client: Client) -> Reading | None:
    """Fetch the engine's counters; None where there are none to fetch."""
    try:
        async with client.lane() as lane:
            text = (await lane.get("/metrics")).raise_for_status().text
        return engine.read(text, time.monotonic())
    except (httpx.HTTPError, ValueError):
        return None


def acceptance(before: Reading | None, after: Reading | None) -> Acceptance | None:
    """Return what was accepted between two readings; None without drafts."""
    if before is None or after is None:
        return None
    found = engine.acceptance(before, after, draft="")
    if found is None:
        return None
    drafts = round(after.counts(engine.DRAFTS) - before.counts(engine.DRAFTS))
    return Acceptance(drafts=drafts, length=found.length, by_position=found.by_position)


def reused(before: Reading | None, after: Reading | None, said: int) -> int:
    """Return the tokens that came from the cache between two readings.

    `said` is what the answer's usage says, which vLLM leaves out unless it was told to say it; it
    is all there is where no counters are.
    """
    if before is None or after is None:
        return said
    return max(round(after.counts(engine.HITS) - before.counts(engine.HITS)), said)
