"""Loading one layer's experts from a checkpoint: all of every expert, or not at all.

vLLM's own loader answers False for tensors it does not know and then leaves them out in silence;
a model with garbage in it would serve. So each parameter has this loader instead: it checks what
comes, keeps count, and is asked at the end whether everything came.
"""

import torch
from torch import Tensor
from torch.nn import Parameter

from glm53_overlay.errors import OverlayError
from glm53_overlay.exl3.format import MARKED, Spec, marker
from glm53_overlay.exl3.shard import CUT_SIDE, Shard

PROJECTIONS = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}
"""The projections by vLLM's names for them; gate and up share the parameters `w13_*`."""

PARAMETERS = {"w13": ("w1", "w3"), "w2": ("w2",)}
"""Which projections lie in which parameter, in the order of its first dimension."""

UNWANTED = {
    "weight": "is a dense weight, but this checkpoint's routed experts are EXL3",
    "bias": "is a bias, which EXL3 experts here do not have",
    "su": "is of the old form of EXL3, with packed signs",
    "sv": "is of the old form of EXL3, with packed signs",
}
"""Tensors that a checkpoint might hold for an expert and that must not be passed over."""


def unwanted(spec: Spec) -> dict[str, str]:
    """Return the suffixes that are refused for a spec, each with the reason."""
    others = [name for name in MARKED if name != spec.codebook]
    return UNWANTED | {
        name: f"marks the codebook {name}, but the configuration says {spec.codebook}"
        for name in others
    }


class ExpertLoader:
    """The `weight_loader` of every parameter of one layer, for one rank.

    `wholes` are the projections of the checkpoint, uncut, by vLLM's names. Parameters have the
    shape [projections, experts, ...]. Raises OverlayError EXL3_TENSOR for a tensor that is not
    what it must be, naming layer, expert and tensor.
    """

    def __init__(
        self, layer: str, experts: int, wholes: dict[str, Spec], rank: int, ranks: int
    ) -> None:
        self.layer = layer
        self.experts = experts
        self.shards = {
            shard_id: Shard(whole, CUT_SIDE[PROJECTIONS[shard_id]], rank, ranks)
            for shard_id, whole in wholes.items()
        }
        self._loaded: set[tuple[int, str, str]] = set()

    def __call__(
        self,
        param: Parameter,
        loaded_weight: Tensor,
        weight_name: str,
        shard_id: str,
        expert_id: int,
        return_success: bool = False,
    ) -> bool | None:
        """Copy this rank's part of one whole tensor of one expert into its place."""
        suffix = weight_name.rpartition(".")[2].partition("_")[2]
        shard = self.shards[shard_id]
        fault = self._fault(shard.whole, suffix, loaded_weight)
        if (expert_id, shard_id, suffix) in self._loaded:
            fault = "comes a second time"
        if fault:
            where = self._where(expert_id, shard_id, suffix)
            raise OverlayError("EXL3_TENSOR", f"{where} {fault}.")
        if suffix not in MARKED:  # a marker is only looked at
            place = PARAMETERS["w2" if shard_id == "w2" else "w13"].index(shard_id)
            param.data[place, expert_id].copy_(shard.of(suffix, loaded_weight))
        self._loaded.add((expert_id, shard_id, suffix))
        return True if return_success else None

    def close(self) -> None:
        """Raise OverlayError EXL3_MISSING unless every tensor of every expert was loaded."""
        wanted = [
            (expert, shard_id, suffix)
            for expert in range(self.experts)
            for shard_id, shard in self.shards.items()
            for suffix in shard.whole.tensors
        ]
        missing = [tensor for tensor in wanted if tensor not in self._loaded]
        if missing:
            more = f", and so are {len(missing) - 1} more of {len(wanted)}" * (len(missing) > 1)
            raise OverlayError("EXL3_MISSING", f"{self._where(*missing[0])} is missing{more}.")

    def _where(self, expert: int, shard_id: str, suffix: str) -> str:
        return f"{self.layer}: expert {expert}, {PROJECTIONS[shard_id]}.{suffix}"

    @staticmethod
    def _fault(spec: Spec, suffix: str, tensor: Tensor) -> str:
        """Say what is wrong with a tensor; nothing when it is as it must be."""
        if suffix not in spec.tensors:
            return unwanted(spec).get(suffix, "is no tensor of EXL3")
        dtype, shape = spec.tensors[suffix]
        if tensor.dtype != dtype:
            return f"is {_short(tensor.dtype)} and must be {_short(dtype)}"
        # Upstream writes the marker as a scalar, this checkpoint as one element.
        if tensor.shape != shape and not (suffix in MARKED and tensor.dim() == 0):
            return f"has the shape {list(tensor.shape)} and must have {list(shape)}"
        if suffix in MARKED and tensor.item() != marker(suffix):
            return f"holds {tensor.item()} and must hold {marker(suffix)}"
        if dtype.is_floating_point and not torch.isfinite(tensor).all():
            return "holds a NaN or an infinity"
        return ""


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
