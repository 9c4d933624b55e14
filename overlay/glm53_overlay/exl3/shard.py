"""How tensor parallelism cuts an EXL3 projection.

Gate and up are cut by outputs, down by inputs; the ranks' outputs of down are then summed. A cut
inside a Hadamard block would mix what belongs together, so it lies at a multiple of 128.
"""

from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from glm53_overlay.errors import OverlayError
from glm53_overlay.exl3.format import BLOCK, TILE, Spec

Side = Literal["k", "n"]

CUT_SIDE: dict[str, Side] = {"gate_proj": "n", "up_proj": "n", "down_proj": "k"}
"""Which side of a projection is cut: its inputs k or its outputs n."""

_DIMENSIONS = {("trellis", "k"): 0, ("trellis", "n"): 1, ("suh", "k"): 0, ("svh", "n"): 0}


@dataclass(frozen=True)
class Shard:
    """One rank's part of a projection whose whole is `whole`."""

    whole: Spec
    side: Side
    rank: int
    ranks: int

    def __post_init__(self) -> None:
        size = getattr(self.whole, self.side)
        if not 0 <= self.rank < self.ranks:
            raise OverlayError("EXL3_SHARD", f"there is no rank {self.rank} of {self.ranks}.")
        if size % (BLOCK * self.ranks):
            raise OverlayError(
                "EXL3_SHARD",
                f"{size} channels cannot be cut for {self.ranks} ranks: "
                f"each part must be a multiple of {BLOCK}, a Hadamard block.",
            )

    @property
    def part(self) -> Spec:
        """What this rank's tensors must look like."""
        return replace(self.whole, **{self.side: getattr(self.whole, self.side) // self.ranks})

    def of(self, suffix: str, tensor: Tensor) -> Tensor:
        """Return this rank's part of a whole tensor, as a view; all of it where no cut goes."""
        dimension = _DIMENSIONS.get((suffix, self.side))
        if dimension is None:
            return tensor
        length = getattr(self.part, self.side) // (TILE if suffix == "trellis" else 1)
        return tensor.narrow(dimension, self.rank * length, length)
