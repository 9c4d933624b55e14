"""What vLLM's online methods compute, in plain torch: for CPUs, and to hold the kernels to.

Weights are [outputs, inputs]. Both schemes round to the nearest value of their grid.
"""

import torch
from torch import Tensor

FP8_MAX = 448.0
"""Largest number of float8_e4m3fn."""

GROUP = 32
"""Inputs that share one power of two in MXFP4."""

FP4_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""The numbers of float4_e2m1, without their signs."""

_FP4_EXPONENT, _ROUNDED_UP = 2, 1.75
"""A group's maximum is put between 4 and 7: its exponent becomes that of 6, the largest number, and
from a mantissa of 1.75 on the next one."""


def fp8(weight: Tensor) -> Tensor:
    """Return a weight rounded to fp8 with one scale an output; also a batch, one scale a token."""
    wide = weight.float()
    scale = (wide.abs().amax(-1, keepdim=True) / FP8_MAX).clamp_min(torch.finfo(torch.float32).tiny)
    return (wide / scale).to(torch.float8_e4m3fn).float() * scale


def mxfp4(weight: Tensor) -> Tensor:
    """Return a weight rounded to MXFP4: every GROUP inputs have a power of two as their scale.

    Ties go to the even number of the grid; what lies above its largest saturates.
    """
    groups = weight.float().unflatten(-1, (-1, GROUP))
    largest = groups.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny)
    exponent = torch.floor(torch.log2(largest))
    exponent += largest / torch.exp2(exponent) >= _ROUNDED_UP
    scale = torch.exp2(exponent - _FP4_EXPONENT)
    grid = torch.tensor(FP4_VALUES, device=weight.device)
    edges = (grid[1:] + grid[:-1]) / 2
    sizes = (groups / scale).abs()
    found = torch.bucketize(sizes, edges)  # the lower one at a tie
    tie = sizes == edges[found.clamp_max(len(edges) - 1)]
    found += tie & (found % 2 == 1)
    return (grid[found] * groups.sign() * scale).flatten(-2)


def rounded(weight: Tensor, mode: str) -> Tensor:
    """Return a weight as a mode keeps it, fp32."""
    return {"bf16": Tensor.float, "fp8": fp8, "q4": mxfp4}[mode](weight)


def linear(x: Tensor, weight: Tensor, mode: str) -> Tensor:
    """Return x W' as a mode computes it, fp32: fp8 rounds its inputs as well, q4 does not."""
    inputs = fp8(x) if mode == "fp8" else x.float()
    return inputs @ rounded(weight, mode).T
