"""What the kernels and our backend compute, held to the reference decoder and to themselves."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import layer
import torch
from torch import Tensor

from glm53_overlay.exl3 import format as exl3
from glm53_overlay.exl3.experts import Experts, Projection
from glm53_overlay.exl3.kernels import ExtBackend
from glm53_overlay.exl3.reference import TorchBackend

TOLERANCE = 5e-3
"""Relative error (Frobenius): fp16 between the kernels' steps makes 1e-3, a bf16 result 2e-3."""

TOKENS = (1, 2, 3, 5, 8, 16, 31, 32, 33, 64, 96, 128, 129, 192, 256, 512, 1024, 1025, 2048, 4096)
CODEBOOKS = ("3inst", "mcg", "mul1")
DEVICE = torch.device("cuda", 0)


@dataclass(frozen=True)
class Result:
    """One comparison."""

    name: str
    ok: bool
    detail: str


def exact(ext: Any, golden: dict[str, dict[str, dict[str, str]]]) -> Iterator[Result]:
    """Compare decoding and packing bit by bit, all codebooks and widths; keep a tile of each."""
    for codebook in CODEBOOKS:
        for bits in range(1, 9):
            made = layer.projection(1, 256, 384, bits, 1.0).trellis[0]
            weights = torch.empty(256, 384, dtype=torch.float16, device=DEVICE)
            ext.reconstruct(weights, made, bits, codebook == "mcg", codebook == "mul1")
            same = torch.equal(weights, exl3.decode(made, codebook))
            yield Result(f"decode {codebook} {bits} bits", same, "bitwise")
            golden.setdefault(codebook, {})[str(bits)] = {
                "trellis": _hex(made[0, 0]),
                "weights": _hex(weights[:16, :16].contiguous().view(torch.int16)),
            }
    for bits in range(1, 9):
        states = torch.randint(0, 1 << 16, (2, 8, 256), device=DEVICE)
        packed = torch.empty(2, 8, 16 * bits, dtype=torch.int16, device=DEVICE)
        ext.pack_trellis(packed, (states - (states >> 15 << 16)).to(torch.int16), bits)
        yield Result(f"pack {bits} bits", torch.equal(packed, exl3.pack(states, bits)), "bitwise")


def _hex(words: Tensor) -> str:
    """Return int16 words as hexadecimal digits, four each, in their order."""
    return "".join(f"{word & 0xFFFF:04x}" for word in words.flatten().tolist())


def backend(experts: Experts) -> Iterator[Result]:
    """Compare every way of the backend with the reference, with ids outside the experts."""
    ours, reference = ExtBackend(experts, DEVICE, max(TOKENS), layer.TOP_K), TorchBackend(experts)
    for tokens in TOKENS:
        x, ids, weights = layer.batch(tokens, experts.count)
        ids[torch.rand(ids.shape, device=DEVICE) < 0.1] = -1
        ids[torch.rand(ids.shape, device=DEVICE) < 0.05] = experts.count
        if tokens > 1:
            ids[tokens // 2] = 1 << 20  # a token of which nothing is ours
        wanted = reference.run(x.float(), ids, weights)
        for name, dtype, id_dtype in (
            ("bf16", torch.bfloat16, torch.int32),
            ("fp16", torch.float16, torch.int64),
        ):
            arguments = (x.to(dtype), ids.to(id_dtype), weights)
            first = _poisoned(ours, arguments)
            yield _close(f"{experts.codebook} {tokens} tokens {name}", first, wanted)
            again = torch.equal(first, _poisoned(ours, arguments))
            yield Result(f"{experts.codebook} {tokens} tokens {name} again", again, "bitwise")
        yield _replayed(f"{experts.codebook} {tokens} tokens in a graph", ours, (x, ids, weights))


def _poisoned(ours: ExtBackend, arguments: tuple[Tensor, ...]) -> Tensor:
    """Run with NaN wherever results are put, so that what nobody writes is seen."""
    ours.workspace.rows.fill_(float("nan"))
    ours.workspace.direct_out.fill_(float("nan"))
    return ours.run(*arguments).clone()


def _replayed(name: str, ours: ExtBackend, arguments: tuple[Tensor, ...]) -> Result:
    """Record a run, give its inputs other values, and replay."""
    held = tuple(part.clone() for part in arguments)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = ours.run(*held)
    other = layer.batch(len(held[0]), ours.experts.count)
    for part, value in zip(held, other, strict=True):
        part.copy_(value)
    graph.replay()
    same = torch.equal(out, ours.run(*other))
    graph.reset()
    return Result(name, same, "bitwise as without")


def _close(name: str, found: Tensor, wanted: Tensor) -> Result:
    error = float((found.float() - wanted).norm() / wanted.norm())
    return Result(name, error <= TOLERANCE, f"{error:.1e}")


def crowded(experts: Experts) -> Iterator[Result]:
    """Send every token to the same few experts: as many rows for one as there can be."""
    ours, reference = ExtBackend(experts, DEVICE, max(TOKENS), layer.TOP_K), TorchBackend(experts)
    for tokens in (32, 128, 1024, 4096):
        x, _, weights = layer.batch(tokens, experts.count)
        ids = torch.randperm(experts.count, device=DEVICE)[: layer.TOP_K].int()
        ids = ids.expand(tokens, -1).contiguous()
        wanted = reference.run(x.float(), ids, weights)
        yield _close(f"{tokens} tokens at the same experts", ours.run(x, ids, weights), wanted)


def shards(count: int = 24) -> Iterator[Result]:
    """Sum two ranks' halves and compare with the whole."""
    whole = layer.random_experts(count, 2 * layer.INTERMEDIATE)
    half = layer.INTERMEDIATE
    for tokens in (8, 96, 640, 2048):
        x, ids, weights = layer.batch(tokens, count)
        total = torch.zeros(tokens, layer.HIDDEN, device=DEVICE)
        for rank in range(2):
            channels = slice(rank * half, (rank + 1) * half)
            tiles = slice(rank * half // 16, (rank + 1) * half // 16)
            part = Experts(
                *(_columns(p, tiles, channels) for p in (whole.gate, whole.up)),
                Projection(
                    whole.down.trellis[:, tiles].contiguous(),
                    whole.down.suh[:, channels].contiguous(),
                    whole.down.svh,
                ),
                whole.bits,
                whole.codebook,
                whole.swiglu_limit,
            )
            ours = ExtBackend(part, DEVICE, max(TOKENS), layer.TOP_K)
            total += ours.run(x.half(), ids, weights).float()
        wanted = TorchBackend(whole).run(x.float(), ids, weights)
        yield _close(f"two ranks summed, {tokens} tokens", total, wanted)


def _columns(projection: Projection, tiles: slice, channels: slice) -> Projection:
    return Projection(
        projection.trellis[:, :, tiles].contiguous(),
        projection.suh,
        projection.svh[:, channels].contiguous(),
    )


def every(ext: Any, experts: Experts, golden: dict[str, Any]) -> Iterator[Result]:
    """Yield all comparisons."""
    yield from exact(ext, golden)
    yield from backend(experts)
    yield from backend(layer.random_experts(32, codebook="mul1"))
    yield from crowded(experts)
    yield from shards()
