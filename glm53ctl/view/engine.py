"""The engine's own counters, and what two readings of them say."""

from collections import deque
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import TypeVar

from glm53ctl.exposition import samples
from glm53ctl.supervise.report import Counters
from glm53ctl.view import histogram
from glm53ctl.view.model import Acceptance, EngineView, Spread

RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
KV_USED = "vllm:kv_cache_usage_perc"
"""A fraction, in spite of its name."""
KV_POOL = "vllm:cache_config_info"
PROMPT = "vllm:prompt_tokens_total"
GENERATED = "vllm:generation_tokens_total"
QUERIES = "vllm:prefix_cache_queries_total"
HITS = "vllm:prefix_cache_hits_total"
PREEMPTIONS = "vllm:num_preemptions_total"
DRAFTS = "vllm:spec_decode_num_drafts_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
ACCEPTED_AT = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
TTFT = "vllm:time_to_first_token_seconds_bucket"
ITL = "vllm:inter_token_latency_seconds_bucket"

_SUMS = (
    RUNNING,
    WAITING,
    KV_USED,
    PROMPT,
    GENERATED,
    QUERIES,
    HITS,
    PREEMPTIONS,
    DRAFTS,
    ACCEPTED,
)
_COUNTERS = (PROMPT, GENERATED, QUERIES, DRAFTS)
READ = (*_SUMS, KV_POOL, ACCEPTED_AT, TTFT, ITL)
"""Every sample of vLLM that this program's page stands on."""
_LINES = tuple(f"{name}{end}" for name in READ for end in ("{", " "))

Key = TypeVar("Key")

RATE_SECONDS = 4.0
"""A rate is taken over at least this long where there are readings that old."""
WINDOW_SECONDS = 300.0
"""How far back percentiles, reuse and acceptance reach."""


@dataclass(frozen=True)
class Reading:
    """What the engine had counted at monotonic `at`: sums by sample name, and the rest by key."""

    at: float
    sums: Mapping[str, float]
    pool_tokens: int | None
    accepted_at: Mapping[int, float]
    ttft: histogram.Buckets
    itl: histogram.Buckets

    def counts(self, name: str) -> float:
        """Return a sum; 0 for what is not counted."""
        return self.sums.get(name, 0.0)


def read(text: str, at: float) -> Reading:
    """Read an exposition of vLLM's. Raises ValueError for what is none."""
    sums: dict[str, float] = {}
    places: dict[int, float] = {}
    buckets: dict[str, dict[float, float]] = {TTFT: {}, ITL: {}}
    pool = None
    for sample in samples(text, _LINES):
        if sample.name in buckets:
            _add(buckets[sample.name], float(sample.labels["le"]), sample.value)
        elif sample.name == ACCEPTED_AT:
            _add(places, int(sample.labels["position"]), sample.value)
        elif sample.name == KV_POOL:
            tokens = sample.labels.get("kv_cache_size_tokens", "")
            pool = int(tokens) if tokens.isdigit() else None
        else:
            _add(sums, sample.name, sample.value)
    return Reading(at, sums, pool, places, buckets[TTFT], buckets[ITL])


def _add(totals: MutableMapping[Key, float], key: Key, value: float) -> None:
    totals[key] = totals.get(key, 0.0) + value


@dataclass
class History:
    """The readings of one engine within the window, oldest first."""

    readings: deque[Reading] = field(default_factory=deque)

    def add(self, reading: Reading) -> None:
        """Take a newer reading. One that counts less is another engine's: the past is forgotten."""
        if self.readings and any(
            reading.counts(name) < self.readings[-1].counts(name) for name in _COUNTERS
        ):
            self.readings.clear()
        self.readings.append(reading)
        while reading.at - self.readings[0].at > WINDOW_SECONDS:
            self.readings.popleft()

    def forget(self) -> None:
        """Begin anew: there is no engine."""
        self.readings.clear()

    def view(self, draft: str) -> EngineView:
        """Return what the readings say; `draft` is what drafts, "none" where nothing does."""
        now, first = self.readings[-1], self.readings[0]
        earlier = [one for one in self.readings if now.at - one.at >= RATE_SECONDS]
        before = earlier[-1] if earlier else first
        used = now.sums.get(KV_USED)
        return EngineView(
            running=int(now.counts(RUNNING)),
            waiting=int(now.counts(WAITING)),
            kv_pool_tokens=now.pool_tokens,
            kv_pool_used=used,
            generation_tokens_per_s=rate(before, now, GENERATED),
            prompt_tokens_per_s=rate(before, now, PROMPT),
            ttft_s=spread(first.ttft, now.ttft),
            itl_s=spread(first.itl, now.itl),
            prefix_hit_rate=ratio(first, now, HITS, QUERIES),
            acceptance=acceptance(first, now, draft),
            preemptions=int(now.counts(PREEMPTIONS)) if PREEMPTIONS in now.sums else None,
            window_seconds=now.at - first.at,
        )


def rate(before: Reading, now: Reading, name: str) -> float | None:
    """Return what is counted a second; None with one reading only."""
    seconds = now.at - before.at
    return (now.counts(name) - before.counts(name)) / seconds if seconds > 0 else None


def ratio(before: Reading, now: Reading, part: str, whole: str) -> float | None:
    """Return the share of a part in what came between; None when nothing came."""
    of = now.counts(whole) - before.counts(whole)
    return (now.counts(part) - before.counts(part)) / of if of > 0 else None


def spread(before: histogram.Buckets, now: histogram.Buckets) -> Spread | None:
    """Return median and 95th percentile of what came between; None when nothing came."""
    between = histogram.difference(before, now)
    p50, p95 = histogram.quantile(between, 0.5), histogram.quantile(between, 0.95)
    return None if p50 is None or p95 is None else Spread(p50=p50, p95=p95)


def acceptance(before: Reading, now: Reading, draft: str) -> Acceptance | None:
    """Return how many of the drafts between two readings were accepted; None without drafts."""
    drafts = now.counts(DRAFTS) - before.counts(DRAFTS)
    if drafts <= 0:
        return None
    taken = [
        now.accepted_at[place] - before.accepted_at.get(place, 0.0)
        for place in sorted(now.accepted_at)
    ]
    return Acceptance(
        draft=draft,
        length=1 + (now.counts(ACCEPTED) - before.counts(ACCEPTED)) / drafts,
        by_position=tuple(count / drafts for count in taken),
    )


def heard(counters: Counters) -> EngineView:
    """Return what the head's supervisor says of its engine to the others."""
    return EngineView(
        running=counters.running, waiting=counters.waiting, kv_pool_used=counters.kv_usage
    )
