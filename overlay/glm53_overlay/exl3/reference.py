"""The reference backend: correct and slow, for CPUs and as what the kernels are held to."""

import torch
from torch import Tensor

from glm53_overlay.exl3.experts import Experts, Projection
from glm53_overlay.exl3.format import linear, swiglu


class TorchBackend:
    """Computes the routed experts expert by expert, in fp32, with the packed weights as they are.

    It decodes an expert each time a batch reaches it: nothing unpacked is kept.
    """

    def __init__(self, experts: Experts) -> None:
        self.experts = experts

    def run(self, x: Tensor, topk_ids: Tensor, topk_weights: Tensor) -> Tensor:
        """Return this rank's partial sum [T, H] in the dtype of `x`; see `Backend`."""
        experts = self.experts
        out = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
        for expert in range(experts.count):
            token, slot = (topk_ids == expert).nonzero(as_tuple=True)
            if token.numel() == 0:
                continue
            inputs = x[token].float()
            inner = swiglu(
                self._linear(experts.gate, expert, inputs),
                self._linear(experts.up, expert, inputs),
                experts.swiglu_limit,
            )
            outputs = self._linear(experts.down, expert, inner)
            weights = topk_weights[token, slot].float().unsqueeze(1)
            out.index_add_(0, token, outputs * weights)
        return out.to(x.dtype)

    def _linear(self, projection: Projection, expert: int, x: Tensor) -> Tensor:
        return linear(
            x,
            projection.trellis[expert],
            projection.suh[expert],
            projection.svh[expert],
            self.experts.codebook,
        )
