"""GLM-5.3-Flash in numbers: layers, and the bytes of its weights by class.

From config.json and the checkpoint's census (overlay/glm53_overlay/exl3/census.py); the sums are
compared with the published bytes of the checkpoint in tests/unit/budget.
"""

from dataclasses import dataclass

from glm53ctl.budget.settings import Dense, Group, Method

HIDDEN = 4096
VOCABULARY = 154_880
KDA_LAYERS, MLA_LAYERS = 34, 11
LAYERS = KDA_LAYERS + MLA_LAYERS
MOE_LAYERS, DENSE_LAYERS = 42, 3
EXPERTS, EXPERTS_PER_TOKEN = 288, 8
EXPERT_WIDTH = 2048
HEADS, HEAD_DIM = 64, 128
CONV_KERNEL = 4
INDEX_POOL = 4
"""Tokens that share one row of the indexer's cache."""
INDEX_HEADS, INDEX_DIM = 32, 128
INDEX_ROW = INDEX_DIM + 4
"""Bytes of one indexer row: fp8 and one fp32 scale."""
WINDOW = 2048
"""Sliding window of DFlash2's attention layers."""
DRAFT_LAYERS, DRAFT_KV_HEADS = 5, 8
DRAFT_BYTES = 2_342_169_800

EXPERT_BYTES = 3 * (HIDDEN * EXPERT_WIDTH // 2 + 2 * (HIDDEN + EXPERT_WIDTH) + 4)
"""One routed expert at 4 bits: three trellises, their signs and the codebook's marker."""

_BF16 = 2
_KDA = 4 * HIDDEN * HEADS * HEAD_DIM + HIDDEN * HEADS  # q, k, v, o and beta
_KDA_LOW = 2 * HIDDEN * HEAD_DIM  # the first halves of two gates of low rank
_KDA_KEPT = 2 * HEAD_DIM * HEADS * HEAD_DIM + 3 * HEADS * HEAD_DIM * CONV_KERNEL
_MLA = 1536 * HEADS * 256 + HEADS * 256 * HIDDEN  # q up, o
_MLA_LOW = HIDDEN * (1536 + 512)  # q down, kv down
_MLA_KEPT = 512 * HEADS * 512  # kv up
_INDEXER = 1536 * INDEX_HEADS * INDEX_DIM + HIDDEN * INDEX_DIM + HIDDEN * INDEX_HEADS
_SHARED = 3 * HIDDEN * EXPERT_WIDTH
_ROUTER = EXPERTS * HIDDEN


@dataclass(frozen=True)
class Weights:
    """One class of weights: its bytes in the checkpoint, and how a rank holds them.

    `split`: tensor parallelism divides it. `group`: whose dense mode applies to it. `every_step`:
    each decode step reads all of it.
    """

    name: str
    nbytes: int
    split: bool = True
    group: Group | None = None
    every_step: bool = True

    def on_rank(self, ranks: int, dense: Dense = "bf16") -> int:
        """Return the bytes one rank holds."""
        return round(self.nbytes * DENSE_FACTOR[dense] / (ranks if self.split else 1))


DENSE_FACTOR: dict[Dense, float] = {"bf16": 1.0, "fp8": 0.5, "q4": 4.25 / 16}
"""Bytes of a projection against BF16; q4 has a scale of 8 bits for 32 weights. fp8 has one for each
output, which is less than a thousandth."""

ROUTED = Weights("routed experts", MOE_LAYERS * EXPERTS * EXPERT_BYTES, every_step=False)
CLASSES = (
    Weights("KDA projections", KDA_LAYERS * _KDA * _BF16, group="kda"),
    Weights("KDA low rank", KDA_LAYERS * _KDA_LOW * _BF16, split=False, group="kda"),
    Weights("KDA gates", KDA_LAYERS * _KDA_KEPT * _BF16),
    Weights("MLA projections", MLA_LAYERS * _MLA * _BF16, group="mla"),
    Weights("MLA low rank", MLA_LAYERS * _MLA_LOW * _BF16, split=False, group="mla"),
    Weights("MLA kv_b", MLA_LAYERS * _MLA_KEPT * _BF16),
    Weights("indexers", MLA_LAYERS * _INDEXER * _BF16, split=False),
    Weights("shared experts", MOE_LAYERS * _SHARED * _BF16, group="shared"),
    Weights("dense MLPs", DENSE_LAYERS * 3 * HIDDEN * 12288 * _BF16, group="mlp"),
    Weights("routers", MOE_LAYERS * _ROUTER * _BF16, split=False),
    Weights("lm_head", VOCABULARY * HIDDEN * _BF16),
    Weights("embeddings", VOCABULARY * HIDDEN * _BF16, every_step=False),
)
"""The text model but for its routed experts. What is not split, vLLM's glm5next/common has whole on
each rank."""
VISION = Weights("vision tower", 1_127_428_915, every_step=False)  # 1.05 GiB, published
DRAFT = Weights("DFlash2 draft", DRAFT_BYTES)
MTP = (
    Weights("MTP experts", EXPERTS * EXPERT_BYTES, every_step=False),
    Weights("MTP projections", (_MLA + _MLA_KEPT + _SHARED) * _BF16),
    Weights("MTP rest", (_MLA_LOW + _INDEXER + _ROUTER + 2 * HIDDEN**2) * _BF16, split=False),
)


def loaded(method: Method, *, vision: bool) -> tuple[Weights, ...]:
    """Return the classes a rank loads; vLLM skips the MTP layer unless it drafts with it."""
    extra: tuple[Weights, ...] = {"dflash": (DRAFT,), "mtp": MTP, "none": ()}[method]
    return (ROUTED, *CLASSES, *extra, *((VISION,) if vision else ()))


def experts_read(tokens: int) -> float:
    """Return how many of a layer's experts `tokens` tokens hit, routed independently."""
    return EXPERTS * (1 - (1 - EXPERTS_PER_TOKEN / EXPERTS) ** tokens)
