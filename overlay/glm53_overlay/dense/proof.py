"""Holds a device's kernels to what a mode is, on the weights that are served.

Which kernel vLLM takes for a projection depends on the GPU and on the shape, and no test of ours
reaches every GPU. So the first projection of each shape is computed three ways while the model
loads: from the BF16 weights, by `reference`, and by the kernel. A kernel may err as the mode does.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from glm53_overlay.dense import reference

TOKENS = (1, 16, 256)
"""Batches that are tried: kernels take other ways for a few tokens than for many."""

MARGIN = 1.5
"""How many times the reference's error a kernel's may be. It rounds the same weights, but adds up
in another order, and ranks share the scales of what they cut; a wrong product errs by 1 or more,
where fp8 errs by 0.037 and q4 by 0.11."""

_ROWS = 1024
"""Outputs at a time: that keeps the copies in fp32 below 0.4 GB."""


@dataclass(frozen=True)
class Errors:
    """Relative errors (Frobenius) of one projection's products against those of BF16 weights."""

    kernel: float
    expected: float
    """The reference's."""

    @property
    def right(self) -> bool:
        """Say whether the kernel computes what the mode is; an error that is no number does not."""
        return self.kernel <= MARGIN * self.expected


def measure(weight: Tensor, mode: str, kernel: Callable[[Tensor], Tensor]) -> Iterator[Errors]:
    """Yield the errors for each of TOKENS. `weight` is [outputs, inputs], before it was quantised.

    `kernel` maps activations [tokens, inputs] to [tokens, outputs], all in the weight's type.
    """
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(max(TOKENS), weight.shape[1], generator=generator).to(weight)
    blocks = weight.split(_ROWS)
    wanted = torch.cat([reference.linear(x, block, "bf16") for block in blocks], 1)
    rounded = torch.cat([reference.linear(x, block, mode) for block in blocks], 1)
    for tokens in TOKENS:
        found = kernel(x[:tokens].contiguous()).float()
        size = wanted[:tokens].norm().clamp_min(torch.finfo(torch.float32).tiny)
        errors = ((each - wanted[:tokens]).norm() / size for each in (found, rounded[:tokens]))
        yield Errors(*(float(error) for error in errors))
