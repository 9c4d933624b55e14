"""The EXL3 tensor format: what the packed bits mean. Pure torch, no vLLM, any device.

One linear layer y = x @ W with W of shape [k, n] is kept as three tensors and a marker:

- `trellis`, int16 [k/16, n/16, 16*bits]: tiles of 16x16 weights, `bits` per weight (1..8);
- `suh`, fp16 [k], and `svh`, fp16 [n]: signs and scales of inputs and outputs;
- `mcg` or `mul1`, int32, the codebook's multiplier; with neither, the codebook is 3INST.

W = diag(suh) H W' H diag(svh), where W' are the decoded tiles and H is block-diagonal with the
orthonormal 128x128 Hadamard matrix; so k and n are multiples of 128.

Source: exllamav3 1.6.5 (codebook.cuh, exl3_dq.cuh, pack.cu, quantize.py), read for the layout and
written anew; the formulas are compared with its kernels on a GPU (tests/gpu).
"""

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from glm53_overlay.errors import OverlayError

BLOCK = 128
"""Weights per side of a Hadamard block: k, n and every cut are multiples of it."""

TILE = 16
"""Weights per side of a tile."""

STATES = 1 << 16
"""A weight is decoded from a window of 16 bits."""

MULTIPLIER = {"3inst": 89226354, "mcg": 0xCBAC1FED, "mul1": 0x83DCD12D}
"""The codebooks, with the factor each multiplies a window by (modulo 2^32)."""

MARKED = ("mcg", "mul1")
"""Codebooks that a checkpoint names by a tensor, which holds the multiplier as int32."""

_3INST_ADDEND = 64248484
_KEPT_BITS, _SET_BITS = 0x8FFF8FFF, 0x3B603B60
_MUL1_SCALE, _MUL1_OFFSET = 0x1EEE, 0xC931  # fp16 bits of 1/147.7 and -510/147.7


def marker(codebook: str) -> int:
    """Return what the marker tensor of a codebook holds: its multiplier as a signed 32-bit int."""
    value = MULTIPLIER[codebook]
    return value - (1 << 32) if value >= 1 << 31 else value


@dataclass(frozen=True)
class Spec:
    """What the tensors of one projection must look like: k inputs, n outputs, bits a weight."""

    k: int
    n: int
    bits: int
    codebook: str

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 8:
            raise OverlayError("EXL3_SPEC", f"bits must be 1 to 8 and are {self.bits}.")
        if self.codebook not in MULTIPLIER:
            known = ", ".join(MULTIPLIER)
            raise OverlayError("EXL3_SPEC", f"codebook {self.codebook!r} is none of {known}.")
        for name, size in (("inputs", self.k), ("outputs", self.n)):
            if size <= 0 or size % BLOCK:
                raise OverlayError(
                    "EXL3_SPEC", f"{size} {name} are not a multiple of {BLOCK}, a Hadamard block."
                )

    @property
    def tensors(self) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
        """Return the dtype and shape of each tensor by its suffix; the marker comes last."""
        shapes: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {
            "trellis": (torch.int16, (self.k // TILE, self.n // TILE, TILE * self.bits)),
            "suh": (torch.float16, (self.k,)),
            "svh": (torch.float16, (self.n,)),
        }
        if self.codebook in MARKED:
            shapes[self.codebook] = (torch.int32, (1,))
        return shapes


@cache
def codebook_table(codebook: str) -> Tensor:
    """Return the fp16 value of every 16-bit window, [65536].

    3INST and MCG: the product's two halves, masked to the shape of small fp16 numbers, are added
    as fp16. MUL1: the sum of the product's four bytes, scaled and shifted by one fused fp16 step.
    """
    window = torch.arange(STATES, dtype=torch.int64)
    addend = _3INST_ADDEND if codebook == "3inst" else 0
    x = (window * MULTIPLIER[codebook] + addend) & 0xFFFFFFFF
    if codebook == "mul1":
        total = sum((x >> shift) & 0xFF for shift in (0, 8, 16, 24))
        # In double precision product and sum are exact, so this rounds once, as an fma does.
        scaled = (1024 + total).double() * _half(_MUL1_SCALE).double()
        return (scaled + _half(_MUL1_OFFSET).double()).half()
    x = (x & _KEPT_BITS) ^ _SET_BITS
    return _half(x & 0xFFFF) + _half(x >> 16)


def _half(bits: Tensor | int) -> Tensor:
    """Read integers in [0, 65536) as the bits of fp16 numbers."""
    return _int16(torch.as_tensor(bits)).view(torch.float16)


def _int16(unsigned: Tensor) -> Tensor:
    """Return the int16 with the same bits as each integer in [0, 65536)."""
    return torch.where(unsigned >= 1 << 15, unsigned - (1 << 16), unsigned).to(torch.int16)


@cache
def tile_permutation() -> Tensor:
    """Return where the t-th weight of the bit stream lies in its tile: 16*row + column, [256].

    The order is that of the B fragment of the tensor-core instruction m16n8k16: 32 lanes hold
    eight weights each.
    """
    t = torch.arange(TILE * TILE)
    lane, j = t // 8, t % 8
    row = (lane % 4) * 2 + (j & 1) + 8 * ((j >> 1) & 1)
    column = lane // 4 + 8 * (j >> 2)
    return row * TILE + column


def bits_of(trellis: Tensor) -> int:
    """Return the bits per weight of a trellis [..., 16*bits]."""
    bits, rest = divmod(trellis.shape[-1], TILE)
    if rest or not 1 <= bits <= 8:
        raise OverlayError("EXL3_SPEC", f"{trellis.shape[-1]} words a tile are not 16 * 1..8.")
    return bits


def windows(trellis: Tensor) -> Tensor:
    """Return the 256 windows of each tile: int16 [..., 16*bits] -> int32 [..., 256].

    The 256*bits bits of a tile are a ring, read from little-endian 32-bit words, high bit first.
    Window t is the 16 bits that end with bit (t+1)*bits: neighbours share 16-bits of them.
    """
    bits = bits_of(trellis)
    words = _swap_pairs(trellis.to(torch.int32) & 0xFFFF)
    first = ((torch.arange(TILE * TILE, device=trellis.device) + 1) * bits - 16) % (256 * bits)
    word, offset = first // 16, first % 16
    here = words.index_select(-1, word)
    following = words.index_select(-1, (word + 1) % (TILE * bits))
    return (((here << 16) | following) >> (16 - offset)) & 0xFFFF


def pack(states: Tensor, bits: int) -> Tensor:
    """Return the trellis of a chain of windows: integers [..., 256] -> int16 [..., 16*bits].

    Only the low `bits` of each window are kept; the rest is repeated in its predecessors. The
    inverse of `windows` for chains whose neighbours overlap, first and last included.
    """
    kept = states.to(torch.int64) & ((1 << bits) - 1)
    stream = (kept.unsqueeze(-1) >> torch.arange(bits - 1, -1, -1, device=states.device)) & 1
    stream = stream.reshape(*states.shape[:-1], TILE * bits, 16)
    words = (stream << torch.arange(15, -1, -1, device=states.device)).sum(-1)
    return _int16(_swap_pairs(words))


def _swap_pairs(words: Tensor) -> Tensor:
    """Swap the 16-bit halves of each 32-bit word."""
    return words.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)


def decode(trellis: Tensor, codebook: str) -> Tensor:
    """Return W', the decoded tiles: int16 [k/16, n/16, 16*bits] -> fp16 [k, n].

    This is what the kernel `reconstruct` writes, bit for bit.
    """
    rows, columns, _ = trellis.shape
    table = codebook_table(codebook).to(trellis.device)
    values = table[windows(trellis)]
    tiles = torch.empty_like(values)
    tiles[..., tile_permutation().to(trellis.device)] = values
    return tiles.view(rows, columns, TILE, TILE).transpose(1, 2).reshape(rows * TILE, -1)


def encode_order(weights: Tensor) -> Tensor:
    """Return the weights of each tile in the order of the bit stream: [k, n] -> [k/16, n/16, 256].

    The inverse of what `decode` does after looking the windows up.
    """
    tiles = weights.unflatten(0, (-1, TILE)).unflatten(2, (-1, TILE)).transpose(1, 2)
    return tiles.flatten(-2)[..., tile_permutation().to(weights.device)]


@cache
def _hadamard_matrix() -> Tensor:
    """Sylvester's Hadamard matrix in natural order, orthonormal, fp32 [128, 128]."""
    h = torch.ones(1, 1)
    while h.shape[0] < BLOCK:
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])
    return h / math.sqrt(BLOCK)


def hadamard(x: Tensor) -> Tensor:
    """Multiply every block of 128 along the last dimension by H. Its own inverse; dtype kept."""
    h = _hadamard_matrix().to(dtype=x.dtype, device=x.device)
    return (x.unflatten(-1, (-1, BLOCK)) @ h).flatten(-2)


def dequantize(
    trellis: Tensor, suh: Tensor, svh: Tensor, codebook: str, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Return W [k, n] such that y = x @ W, computed in `dtype`."""
    w = decode(trellis, codebook).to(dtype)
    w = hadamard(hadamard(w).T.contiguous()).T
    return suh.to(dtype).unsqueeze(1) * w * svh.to(dtype)


def linear(x: Tensor, trellis: Tensor, suh: Tensor, svh: Tensor, codebook: str) -> Tensor:
    """Return x @ W without forming W: [t, k] -> [t, n], in the dtype of `x`.

    y = hadamard(hadamard(x * suh) @ W') * svh, the order in which the kernels compute.
    """
    rotated = hadamard(x * suh.to(x.dtype))
    return hadamard(rotated @ decode(trellis, codebook).to(x.dtype)) * svh.to(x.dtype)


def swiglu(gate: Tensor, up: Tensor, limit: float) -> Tensor:
    """Return silu(gate) * up, with gate clamped from above and up on both sides; 0 = no clamp.

    The order of vLLM and transformers; the kernels clamp silu(gate) instead, which differs by
    less than 5e-4 at GLM's limit of 10.
    """
    if limit:
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return torch.nn.functional.silu(gate) * up
