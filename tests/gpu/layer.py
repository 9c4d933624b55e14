"""Random experts, random routing and the raw kernels, without anything of ours around them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glm53_overlay.exl3.experts import Experts, Projection
from glm53_overlay.exl3.kernels import addresses

HIDDEN, INTERMEDIATE, COUNT, TOP_K, LIMIT = 4096, 1024, 288, 8, 10.0
"""GLM-5.3-Flash's routed experts on one of two ranks."""


def signs(rows: int, width: int, scale: float) -> Tensor:
    """Return fp16 [rows, width] like suh and svh: a sign, times about `scale`."""
    sign = torch.randint(0, 2, (rows, width), device="cuda") * 2 - 1
    return (sign * (1 + 0.1 * torch.randn(rows, width, device="cuda")) * scale).half()


def projection(count: int, k: int, n: int, bits: int, scale: float) -> Projection:
    """Return random weights: every pattern of bits is a valid trellis."""
    size = (count, k // 16, n // 16, 16 * bits)
    return Projection(
        torch.randint(-(1 << 15), 1 << 15, size, dtype=torch.int16, device="cuda"),
        signs(count, k, 1.0),
        signs(count, n, scale),
    )


def random_experts(
    count: int = COUNT, inner: int = INTERMEDIATE, bits: int = 4, codebook: str = "mcg"
) -> Experts:
    """Return experts whose outputs have about the size of their inputs."""
    return Experts(
        projection(count, HIDDEN, inner, bits, 0.03),
        projection(count, HIDDEN, inner, bits, 0.03),
        projection(count, inner, HIDDEN, bits, 0.03),
        bits,
        codebook,
        LIMIT,
    )


def batch(tokens: int, count: int = COUNT, dtype: Any = torch.bfloat16) -> tuple[Tensor, ...]:
    """Return x, ids (distinct in each row, uniform) and weights of a random batch."""
    x = torch.randn(tokens, HIDDEN, device="cuda").to(dtype)
    ids = torch.rand(tokens, count, device="cuda").topk(TOP_K).indices.int()
    return x, ids, torch.rand(tokens, TOP_K, device="cuda") + 0.1


@dataclass(frozen=True)
class Raw:
    """The kernels of exllamav3_ext as they come: inputs cast, sorted and counted beforehand."""

    ext: Any
    experts: Experts

    def _tables(self) -> tuple[Tensor, ...]:
        e = self.experts
        return tuple(t for p in (e.gate, e.up, e.down) for t in addresses(p))

    def moe(self, x: Tensor, ids: Tensor, weights: Tensor) -> Callable[[], Tensor]:
        """Return a call of `exl3_moe`, the atomic way that is its default elsewhere."""
        e, tables, flat = self.experts, self._tables(), ids.flatten().long()
        order = flat.argsort(stable=True)
        counts = torch.bincount(flat, minlength=e.count + 1)
        rows = max(16, int(counts.max()))
        groups = self.ext.exl3_moe_max_concurrency(0)
        temps = [
            torch.empty(groups, rows, width, dtype=torch.float16, device="cuda")
            for width in (e.hidden, e.hidden, e.intermediate, e.intermediate)
        ]
        out = torch.zeros(len(x), e.hidden, device="cuda")
        flags = (e.codebook == "mcg", e.codebook == "mul1") * 3
        arguments = (
            x.half(), out, counts, order // ids.shape[1], weights.flatten()[order].half(), *temps,
            0, *(e.bits,) * 3, *tables, *flags, e.swiglu_limit, -1, None, None, 1, rows, 16,
        )  # fmt: skip

        def call() -> Tensor:
            self.ext.exl3_moe(*arguments)
            return out

        return call

    def coop(
        self, x: Tensor, ids: Tensor, weights: Tensor, slots: int = 0, inner: Any = torch.float16
    ) -> Callable[[], Tensor]:
        """Return a call of `exl3_moe_coop`."""
        e = self.experts
        slots = slots or ids.numel()
        widths = (e.hidden, e.hidden, e.intermediate, e.intermediate, e.intermediate)
        dtypes = (torch.float16, torch.float16, inner, inner, torch.float16)
        temps = [
            torch.empty(slots, width, dtype=dtype, device="cuda")
            for width, dtype in zip(widths, dtypes, strict=True)
        ]
        down = torch.empty(slots, e.hidden, device="cuda")
        length = slots * (e.intermediate // 128) + len(x) * (e.hidden // 128) + 2 * slots + 3
        counters = torch.zeros(length, dtype=torch.int32, device="cuda")
        out = torch.empty(len(x), e.hidden, device="cuda")
        arguments = (
            x.half(), ids.long(), weights.half(), 0, e.count, e.hidden, *self._tables(),
            None, None, None, *(e.bits,) * 3, e.codebook == "mcg", e.codebook == "mul1", 0,
            e.swiglu_limit, True, *temps, down, counters, out, None, None,
        )  # fmt: skip

        def call() -> Tensor:
            self.ext.exl3_moe_coop(*arguments)
            return out

        return call
