"""The packed experts of one layer on one rank, and what computes with them.

This is the seam between the quantisation method (which loads) and the backends (which compute).
"""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class Projection:
    """One projection of all E experts, k inputs to n outputs, as this rank holds it."""

    trellis: Tensor  # int16 [E, k/16, n/16, 16*bits], the bits of the 16x16 tiles
    suh: Tensor  # fp16 [E, k], applied before the input Hadamard
    svh: Tensor  # fp16 [E, n], applied after the output Hadamard


@dataclass(frozen=True)
class Experts:
    """The routed experts of one layer: gate and up map hidden to intermediate, down back."""

    gate: Projection
    up: Projection
    down: Projection
    bits: int  # per weight, 1..8
    codebook: str  # "3inst", "mcg" or "mul1"
    swiglu_limit: float  # clamp of gate (above) and up (both sides); 0 = none

    @property
    def count(self) -> int:
        """Number of experts, E."""
        return self.gate.trellis.shape[0]

    @property
    def hidden(self) -> int:
        """Inputs of gate and up, outputs of down."""
        return self.gate.suh.shape[1]

    @property
    def intermediate(self) -> int:
        """Outputs of gate and up on this rank, inputs of down."""
        return self.gate.svh.shape[1]


class Backend(Protocol):
    """Computes one layer's routed experts."""

    def run(self, x: Tensor, topk_ids: Tensor, topk_weights: Tensor) -> Tensor:
        """Return this rank's partial sum [T, H] in the dtype of `x`; not reduced over ranks.

        `x` is [T, H], `topk_ids` and `topk_weights` are [T, k]. Ids outside [0, E) contribute
        nothing.
        """
        ...
