"""The KV pool, by the arithmetic of vLLM 0.33.0's planner for hybrid models.

All layers draw blocks of one size from one pool. A block holds as many tokens of the sparse MLA
layers as make their page no smaller than a KDA state; layers are gathered into groups so that each
group's layers fit one block, and a request takes blocks for each group: one a block of tokens for
MLA and its indexer, `3 + drafted` states a KDA group (one is the checkpoint inside a prefill that
FlashKDA can export), one for the ring of keys that the indexer still compresses, and DFlash2's
window plus the tokens in flight.

vLLM prints `blocks / blocks of a full request * context` as "KV cache size: N tokens". That is no
number of tokens that fit: a short request takes the same states as a long one.

Source: vllm/v1/core/kv_cache_planning.py (groups, bytes of a block), kv_cache_interface.py (blocks
of a request), platforms/interface.py (_align_hybrid_block_size). tests/unit/budget compares with
what the planner itself said.
"""

from dataclasses import dataclass
from math import ceil

from glm53ctl.budget.machine import Machine
from glm53ctl.budget.model import (
    CONV_KERNEL,
    DRAFT_KV_HEADS,
    DRAFT_LAYERS,
    HEAD_DIM,
    HEADS,
    INDEX_POOL,
    INDEX_ROW,
    KDA_LAYERS,
    MLA_LAYERS,
    WINDOW,
)
from glm53ctl.budget.settings import Settings

ALIGNMENT = 256
"""Tokens: the indexer's pages of 64 rows, each of four tokens."""
IN_FLIGHT = 2
"""Batches that are scheduled at the same time; asynchronous scheduling overlaps two."""
_ELEMENT = 2


@dataclass(frozen=True)
class Pool:
    """A rank's KV pool. `tokens` is the engine's figure: `concurrency` times the context."""

    block_tokens: int
    block_bytes: int
    blocks: int
    request_blocks: int
    context: int

    @property
    def concurrency(self) -> float:
        """Requests of full length that fit."""
        return self.blocks / self.request_blocks

    @property
    def tokens(self) -> int:
        """What the engine logs as its KV cache size."""
        return int(self.concurrency * self.context)

    @property
    def nbytes(self) -> int:
        """Bytes of the pool on one rank."""
        return self.blocks * self.block_bytes

    @property
    def request_bytes(self) -> int:
        """Bytes that one request of full length takes."""
        return self.request_blocks * self.block_bytes


def state_bytes(ranks: int, drafted: int) -> int:
    """Return the bytes of one KDA state: convolution in BF16, recurrence in fp32."""
    convolution = 3 * HEADS * HEAD_DIM // ranks * (CONV_KERNEL - 1 + drafted) * _ELEMENT
    return convolution + HEADS // ranks * HEAD_DIM * HEAD_DIM * 4


def block_tokens(ranks: int, drafted: int, row: int) -> int:
    """Return the tokens of a block: the fewest whose MLA page holds a KDA state."""
    return ALIGNMENT * ceil(state_bytes(ranks, drafted) / (ALIGNMENT * row))


def kda_groups(layers: int, attention_layers: int, states_in_block: int, draft_layers: int) -> int:
    """Return into how many groups KDA layers are split.

    Layers of all kinds are cut into groups of one size: the one that pads least, never below the
    attention layers, which stay whole. A group takes no more states than a block holds anyway.
    """
    counts = (layers, attention_layers, attention_layers, draft_layers)

    def padding(size: int) -> int:
        return sum(-count % size for count in counts)

    sizes = range(attention_layers, max(counts) + 1)
    size = min(sizes, key=lambda size: (padding(size), -size))
    return max(ceil(layers / size), ceil(layers / states_in_block))


def _draft_bytes(settings: Settings, block: int) -> int:
    if settings.method != "dflash":
        return 0
    heads = ceil(DRAFT_KV_HEADS / settings.ranks)
    return DRAFT_LAYERS * 2 * heads * HEAD_DIM * _ELEMENT * block


def pool(
    settings: Settings,
    machine: Machine,
    nbytes: int,
    *,
    kda_layers: int = KDA_LAYERS,
    mla_layers: int | None = None,
) -> Pool:
    """Return the pool that `nbytes` of one rank's memory make.

    The MTP layer is one more sparse MLA layer. Layer counts can be given for other checkpoints.
    """
    if mla_layers is None:
        mla_layers = MLA_LAYERS + (settings.method == "mtp")
    tokens = block_tokens(settings.ranks, settings.drafted, machine.kv_row)
    page = tokens * machine.kv_row
    index = tokens // INDEX_POOL * INDEX_ROW
    draft_block = settings.draft_block or tokens
    block = max(mla_layers * (page + index), _draft_bytes(settings, draft_block))
    states = block // state_bytes(settings.ranks, settings.drafted)
    draft_layers = DRAFT_LAYERS if settings.method == "dflash" else 0
    groups = kda_groups(kda_layers, mla_layers, states, draft_layers)
    held_states = 2 + settings.drafted + settings.prefill_checkpoint
    request = ceil(settings.context / tokens) + groups * held_states + 1
    if settings.method == "dflash":
        held = min(WINDOW - 1 + IN_FLIGHT * settings.batch, settings.context)
        request += ceil(held / draft_block) + 1
    return Pool(tokens, block, nbytes // block, request, settings.context)
