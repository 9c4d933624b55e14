"""vLLM's own 4-bit Marlin MoE at the same shape, from vLLM 0.33.0's compiled library alone."""

from collections.abc import Callable
from pathlib import Path

import torch
import triton
import triton.language as tl
from torch import Tensor

UINT4B8 = 1125899907892224
"""vLLM's number for symmetric 4-bit integers (GPTQ)."""

GROUP = 128


@triton.jit
def _silu_and_mul(both, out, width: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * block + tl.arange(0, block)
    gate = tl.load(both + row * 2 * width + at).to(tl.float32)
    up = tl.load(both + row * 2 * width + width + at).to(tl.float32)
    tl.store(out + row * width + at, gate * tl.sigmoid(gate) * up)


class Marlin:
    """Random 4-bit weights of `count` experts, group size 128; any pattern of bits is valid."""

    def __init__(self, library: Path, count: int, hidden: int, inner: int) -> None:
        torch.ops.load_library(str(library))
        self.count, self.hidden, self.inner = count, hidden, inner
        self.w13 = self._packed(count, hidden // 16, 2 * inner * 2)
        self.w2 = self._packed(count, inner // 16, hidden * 2)
        self.s13 = self._scales(count, hidden // GROUP, 2 * inner)
        self.s2 = self._scales(count, inner // GROUP, hidden)
        sms = torch.cuda.get_device_properties(0).multi_processor_count
        self.locks = torch.zeros(sms * 4, dtype=torch.int32, device="cuda")

    @staticmethod
    def _packed(*size: int) -> Tensor:
        return torch.randint(-(1 << 31), 1 << 31, size, dtype=torch.int32, device="cuda")

    @staticmethod
    def _scales(*size: int) -> Tensor:
        return (torch.rand(size, device="cuda") * 0.01).bfloat16()

    def call(self, x: Tensor, ids: Tensor, weights: Tensor) -> Callable[[], Tensor]:
        """Return a call of the whole layer, in the order of vLLM's fused_marlin_moe."""
        tokens, top_k = ids.shape
        rows, like = tokens * top_k, {"dtype": x.dtype, "device": "cuda"}
        block = next(
            (b for b in (8, 16, 32, 48, 64) if rows / self.count / b < 0.9), 64
        )  # vLLM's choice
        padded = rows + self.count * (block - 1)
        if rows < self.count:
            padded = min(rows * block, padded)
        index = {"dtype": torch.int32, "device": "cuda"}
        sorted_ids, post = torch.empty(padded, **index), torch.empty(1, **index)
        blocks = torch.empty(-(-padded // block), **index)
        both = torch.empty(rows, 2 * self.inner, **like)
        inner = torch.empty(rows, self.inner, **like)
        wide = torch.empty(rows, self.hidden, **like)
        out = torch.empty_like(x)

        def gemm(a: Tensor, c: Tensor, w: Tensor, s: Tensor, choices: int, *size: int) -> None:
            torch.ops._moe_C.moe_wna16_marlin_gemm(
                a, c, w, None, s, None, None, None, self.locks, sorted_ids, blocks, post, weights,
                block, choices, choices == 1, UINT4B8, *size, False, True, False, -1, -1, -1,
            )  # fmt: skip

        def call() -> Tensor:
            torch.ops._moe_C.moe_align_block_size(
                ids, self.count, block, sorted_ids, blocks, post, None, None
            )
            gemm(x, both, self.w13, self.s13, top_k, tokens, 2 * self.inner, self.hidden)
            _silu_and_mul[(rows, self.inner // 1024)](both, inner, self.inner, block=1024)
            gemm(inner, wide, self.w2, self.s2, 1, rows, self.hidden, self.inner)
            return torch.sum(wide.view(tokens, top_k, -1), dim=1, out=out)

        return call
