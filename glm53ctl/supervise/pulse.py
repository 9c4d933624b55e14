"""Whether a serving engine moves: its counters, and the rule that tells a wedge from work."""

import math
from dataclasses import dataclass

import httpx

from glm53ctl.exposition import samples
from glm53ctl.supervise.report import Counters

_COUNTERS = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:prompt_tokens_total": "prompt_tokens",
    "vllm:generation_tokens_total": "generated_tokens",
    "vllm:kv_cache_usage_perc": "kv_usage",
    "vllm:spec_decode_num_draft_tokens_total": "drafted_tokens",
    "vllm:spec_decode_num_accepted_tokens_total": "accepted_tokens",
    "vllm:spec_decode_num_drafts_total": "drafts",
}
"""Sample name in vLLM's /metrics and the counter it feeds (summed over its labels)."""
_BY_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"


def parse_counters(text: str) -> Counters:
    """Read the counters from a Prometheus exposition; what is missing or no number stays 0.

    Raises ValueError or KeyError for what is no exposition of vLLM's.
    """
    values: dict[str, float] = {}
    accepted: dict[int, int] = {}
    for sample in samples(text, (*_COUNTERS, _BY_POSITION)):
        if not math.isfinite(sample.value):
            continue
        if name := _COUNTERS.get(sample.name):
            values[name] = values.get(name, 0.0) + sample.value
        elif sample.name == _BY_POSITION:
            place = int(sample.labels["position"])
            accepted[place] = accepted.get(place, 0) + int(sample.value)
    whole = {name: value if name == "kv_usage" else int(value) for name, value in values.items()}
    by_position = tuple(accepted[place] for place in sorted(accepted))
    return Counters.model_validate({**whole, "accepted_at": by_position})


async def read_counters(client: httpx.AsyncClient) -> Counters | None:
    """Fetch `/metrics` and `/load` from the client's base URL; None while they do not answer."""
    try:
        metrics = (await client.get("/metrics")).raise_for_status()
        load = (await client.get("/load")).raise_for_status()
        in_flight = int(load.json()["server_load"])
        return parse_counters(metrics.text).model_copy(update={"in_flight": in_flight})
    except (httpx.HTTPError, ValueError, LookupError, TypeError):
        return None  # also of one that answers in another form


@dataclass
class ProgressWatch:
    """The wedge rule: requests are in flight and no counter has moved for `limit` seconds.

    A long prefill is work, not a wedge: no token is counted until it ends, but every chunk takes
    further KV blocks, so the usage gauge moves with each engine step. A request that arrives at an
    engine already stuck never shows in the engine's own gauges; it shows in the API server's load.
    """

    limit: float
    _seen: Counters | None = None
    _moved: float = 0.0

    def feed(self, counters: Counters | None, now: float) -> bool:
        """Take a reading (None: no answer) at monotonic `now`; say whether the engine is wedged.

        An engine that does not answer is judged like one whose counters stand still.
        """
        if counters is not None and (counters.idle or self._differs(counters)):
            self._seen, self._moved = counters, now
        elif self._seen is None:
            self._seen, self._moved = Counters(), now
        return now - self._moved > self.limit

    def _differs(self, counters: Counters) -> bool:
        # The load is the API server's: it moves without the engine.
        return self._seen is None or counters != self._seen.model_copy(
            update={"in_flight": counters.in_flight}
        )
