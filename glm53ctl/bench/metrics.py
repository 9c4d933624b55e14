"""Acceptance of drafts and reuse of prefixes, from what the engine counted before and after."""

from dataclasses import dataclass

import httpx
from prometheus_client.parser import text_string_to_metric_families

from glm53ctl.bench.client import Client
from glm53ctl.bench.result import Acceptance

_DRAFTS = "vllm:spec_decode_num_drafts_total"
_ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
_HITS = "vllm:prefix_cache_hits_total"
_BY_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"


@dataclass(frozen=True)
class Counted:
    """The engine's counters: drafts, accepted tokens, and tokens found in the prefix cache."""

    drafts: float
    accepted: float
    by_position: tuple[float, ...]
    hits: float


def parse(text: str) -> Counted:
    """Read the counters from an exposition; what is missing is 0."""
    drafts = accepted = hits = 0.0
    positions: dict[int, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == _DRAFTS:
                drafts += sample.value
            elif sample.name == _ACCEPTED:
                accepted += sample.value
            elif sample.name == _HITS:
                hits += sample.value
            elif sample.name == _BY_POSITION:
                place = int(sample.labels["position"])
                positions[place] = positions.get(place, 0.0) + sample.value
    by_position = tuple(positions[place] for place in sorted(positions))
    return Counted(drafts, accepted, by_position, hits)


async def read(client: Client) -> Counted | None:
    """Fetch the counters; None where there are none to fetch."""
    try:
        async with client.lane() as lane:
            return parse((await lane.get("/metrics")).raise_for_status().text)
    except (httpx.HTTPError, ValueError):
        return None


def acceptance(before: Counted | None, after: Counted | None) -> Acceptance | None:
    """Return what was accepted between two readings; None without drafts."""
    if before is None or after is None or after.drafts <= before.drafts:
        return None
    drafts = after.drafts - before.drafts
    earlier = before.by_position or (0.0,) * len(after.by_position)
    rates = ((new - old) / drafts for old, new in zip(earlier, after.by_position, strict=True))
    return Acceptance(
        drafts=round(drafts),
        length=1 + (after.accepted - before.accepted) / drafts,
        by_position=tuple(rates),
    )


def reused(before: Counted | None, after: Counted | None, said: int) -> int:
    """Return the tokens that came from the cache between two readings.

    `said` is what the answer's usage says, which vLLM leaves out unless it was told to say it; it
    is all there is where no counters are.
    """
    return said if before is None or after is None else max(round(after.hits - before.hits), said)
