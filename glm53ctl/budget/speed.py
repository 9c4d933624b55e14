"""The roofline of a decode step and of a prefill chunk: what bounds each part, and the sum.

Every part is bound by the bytes it moves, the arithmetic it does or the link. `floor` takes what
the machine's maker promises; `expected` what was seen to be reached, by the constants below. Those
marked fitted come from the published figures of the vLLM recipe; docs/plan.md compares the rest.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import log

from glm53ctl.budget.machine import H200, Machine
from glm53ctl.budget.model import (
    CLASSES,
    DRAFT,
    EXPERT_BYTES,
    EXPERTS,
    EXPERTS_PER_TOKEN,
    HIDDEN,
    INDEX_DIM,
    INDEX_HEADS,
    INDEX_POOL,
    INDEX_ROW,
    LAYERS,
    MLA_LAYERS,
    MOE_LAYERS,
    MTP,
    VOCABULARY,
    experts_read,
)
from glm53ctl.budget.settings import Settings

STREAMED = 0.70
"""Share of the bandwidth that products with few rows reach: 45 % of a 94.65 ms step, published."""
COMPUTED = 0.55
"""Share of the peak that long products reach. Estimated."""
ROUTED_ALIKE = 0.80
"""Experts read against independent routing: tokens of one text share some. Fitted."""
STEP_SECONDS = 12e-3
"""Sampling, scheduling and gaps of one step. Fitted."""

TOKENS_A_STEP = {"structured": 7.71, "prose": 3.39}
"""Tokens that one step of DFlash2 yields, as the vLLM recipe reports them."""

KERNEL_US = {1: 62.9, 2: 110.7, 4: 206.3, 8: 370.8, 16: 641.7, 32: 1019, 64: 1675, 128: 2269}
KERNEL_US |= {1024: 5571}
"""Time of one layer's routed experts on an H200, by tokens (docs/exl3.md)."""
KERNEL_EXPERTS = {1: 8, 2: 16, 4: 31, 8: 59, 16: 105, 32: 151, 64: 246, 128: 276, 1024: 288}
UNPACKED_US = 8862 / 4096
"""Above 1024 tokens, where experts are unpacked: one token of one layer."""
_TILE = 16


@dataclass(frozen=True)
class Part:
    """One part of a step. Seconds at the machine's limits, seconds expected, and the limit."""

    name: str
    floor: float
    expected: float
    bound: str


@dataclass(frozen=True)
class Pace:
    """A decode step or a prefill chunk of `tokens` tokens."""

    tokens: int
    parts: tuple[Part, ...]

    @property
    def floor(self) -> float:
        """Seconds that the machine's limits allow at best."""
        return sum(part.floor for part in self.parts)

    @property
    def expected(self) -> float:
        """Seconds to expect."""
        return sum(part.expected for part in self.parts)

    @property
    def bound_by(self) -> str:
        """The limit that most of the expected time goes to."""
        spent: dict[str, float] = {}
        for part in self.parts:
            spent[part.bound] = spent.get(part.bound, 0.0) + part.expected
        return max(spent, key=lambda bound: spent[bound])


def decode(
    settings: Settings, machine: Machine, streams: int, *, depth: int = 0, alike: float = 1.0
) -> Pace:
    """Return one decode step of `streams` requests, each with `depth` tokens in the cache.

    `alike` 1.0 gives independent routing to the floor; `expected` always has ROUTED_ALIKE.
    """
    rows = streams * (settings.drafted + 1)
    read = _read_each_step(settings)
    parts = [
        _streamed("dense layers", read, machine),
        _routed(rows, settings, machine, alike),
        *_drafting(rows, settings, machine),
        _streamed("KV cache", _cache_bytes(streams, rows, depth, machine), machine),
        _rounds(rows, settings, machine),
        Part("sampling, gaps", 0.0, STEP_SECONDS, "overhead"),
    ]
    return Pace(rows, tuple(part for part in parts if part.expected))


def _read_each_step(settings: Settings) -> int:
    """Return the bytes of one rank that every step reads, whatever is routed."""
    dense = settings.dense_of
    return sum(w.on_rank(settings.ranks, dense(w.group)) for w in CLASSES if w.every_step)


def _streamed(name: str, nbytes: float, machine: Machine) -> Part:
    seconds = nbytes / machine.bandwidth
    return Part(name, seconds, seconds / STREAMED, "memory bandwidth")


def _routed(rows: int, settings: Settings, machine: Machine, alike: float) -> Part:
    experts = experts_read(rows) * alike
    moved = MOE_LAYERS * experts * EXPERT_BYTES / settings.ranks / machine.bandwidth
    decoding = _decoding(rows, experts, settings, machine)
    slower = max(moved, decoding)
    share = max(ROUTED_ALIKE / alike, EXPERTS_PER_TOKEN / experts) if rows > 1 else 1.0
    bound = "memory bandwidth" if moved >= decoding else "EXL3 decoding"
    return Part("routed experts", slower, slower * min(share, 1.0), bound)


def _decoding(rows: int, experts: float, settings: Settings, machine: Machine) -> float:
    """Return the seconds that the EXL3 kernels take in all layers, scaled by multiprocessors.

    Measured for one rank of two; the clock of the machine is not looked at.
    """
    scale = MOE_LAYERS * 1e-6 * (2 / settings.ranks) * H200.multiprocessors
    scale /= machine.multiprocessors
    largest = max(KERNEL_US)
    if rows > largest:
        if machine.unpacks:
            return scale * max(UNPACKED_US * rows, KERNEL_US[largest])
        return scale * KERNEL_US[largest] * _passes(rows) / _passes(largest)
    return scale * _between(KERNEL_US, rows) * experts / _between(KERNEL_EXPERTS, rows)


def _passes(rows: int) -> float:
    """Return how often an expert is decoded: once for every 16 of its rows, the last not full."""
    return rows * EXPERTS_PER_TOKEN / EXPERTS / _TILE + 0.5


def _between(table: dict[int, float] | dict[int, int], rows: int) -> float:
    """Interpolate a table of tokens, straight in the logarithm of both."""
    for low, high in pairwise(table):
        if rows <= high:
            share = (log(rows) - log(low)) / (log(high) - log(low))
            ends = float(table[low]), float(table[high])
            return float(ends[0] * (ends[1] / ends[0]) ** share)
    raise ValueError(f"{rows} rows are outside the table")


def _drafting(rows: int, settings: Settings, machine: Machine) -> Iterator[Part]:
    head = next(w for w in CLASSES if w.name == "lm_head").on_rank(settings.ranks)
    if settings.method == "dflash":  # one pass drafts all
        nbytes = DRAFT.on_rank(settings.draft_ranks or settings.ranks) + head
        yield _streamed("draft", nbytes, machine)
    elif settings.method == "mtp":  # a pass for each drafted token
        rest = sum(w.on_rank(settings.ranks) for w in MTP if w.every_step)
        streams = rows // (settings.drafted + 1)
        experts = experts_read(streams) * EXPERT_BYTES / settings.ranks
        yield _streamed("draft", settings.drafted * (rest + experts + head), machine)


def _cache_bytes(streams: int, rows: int, depth: int, machine: Machine) -> float:
    """Return what attention reads: the whole indexer, and at most 2048 rows a query of MLA."""
    indexer = streams * depth / INDEX_POOL * INDEX_ROW
    return MLA_LAYERS * (indexer + rows * min(depth, 2048) * machine.kv_row)


def _rounds(rows: int, settings: Settings, machine: Machine) -> Part:
    """Return the all-reduces: two a layer, of one hidden state a row."""
    if settings.ranks == 1:
        return Part("link", 0.0, 0.0, "link")
    moved = 2 * LAYERS * rows * HIDDEN * 2 / machine.link
    waited = 2 * LAYERS * machine.round_seconds
    return Part("link", moved, moved + waited, "link")


def prefill(settings: Settings, machine: Machine, *, depth: int = 0) -> Pace:
    """Return one chunk of a prefill, with `depth` tokens before it."""
    rows = settings.batch
    read = _read_each_step(settings)
    parameters = sum(w.on_rank(settings.ranks) / 2 for w in CLASSES if w.every_step)
    parameters -= VOCABULARY * HIDDEN / settings.ranks  # only the last token needs logits
    dense = _longer("dense layers", read, 2 * rows * parameters, machine)
    moved = MOE_LAYERS * EXPERTS * EXPERT_BYTES / settings.ranks / machine.bandwidth
    decoding = _decoding(rows, EXPERTS, settings, machine)
    slower = max(moved, decoding)
    bound = "memory bandwidth" if moved >= decoding else "EXL3 decoding"
    pooled = (depth + rows / 2) / INDEX_POOL
    scores = 2 * MLA_LAYERS * rows * pooled * INDEX_HEADS * INDEX_DIM
    indexer = _longer("indexer", MLA_LAYERS * pooled * INDEX_ROW, scores, machine)
    chosen = min(depth + rows / 2, 2048)
    attention = 2 * 2 * MLA_LAYERS * rows * chosen * 512 * 64 / settings.ranks
    sparse = _longer("sparse attention", 0.0, attention, machine)
    routed = Part("routed experts", slower, slower, bound)
    parts = (dense, routed, indexer, sparse, _rounds(rows, settings, machine))
    return Pace(rows, tuple(part for part in parts if part.expected))


def _longer(name: str, nbytes: float, flops: float, machine: Machine) -> Part:
    """Return a part that moves bytes and computes at the same time."""
    moved, computed = nbytes / machine.bandwidth, flops / machine.flops
    bound = "memory bandwidth" if moved / STREAMED >= computed / COMPUTED else "compute"
    return Part(name, max(moved, computed), max(moved / STREAMED, computed / COMPUTED), bound)


def prefill_rate(settings: Settings, machine: Machine, tokens: int) -> float:
    """Return the expected tokens/s of a prompt: the pace at its middle depth holds on average."""
    pace = prefill(settings, machine, depth=tokens // 2)
    return pace.tokens / pace.expected
