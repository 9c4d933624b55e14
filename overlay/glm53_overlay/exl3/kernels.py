"""The backends that compute a layer's experts, and the choice between them.

`ExtBackend` drives the kernels of exllamav3 1.6.5 (module `exllamav3_ext`) directly, in one of
four ways that depends on the number of tokens alone:

- direct: `exl3_moe_coop`, which reads each chosen expert once for up to eight rows; decode;
- sliced: the same on the batch's rows sorted by expert, 256 at a time, and each token's rows
  summed after; up to where experts have more than eight rows each;
- tiled: `exl3_moe`, 16 sorted rows at a time, which decodes an expert again for each tile;
- unpacked: blocks of experts are decoded to fp16 once and multiplied by tensor cores.

All of them give the same answer each time, never wait for the device, and can be captured in a
CUDA graph.

Only one may run on a device at a time: `exl3_moe` spins on a lock buffer that belongs to the
device, its grid must be resident as a whole, and all layers use the same temporaries. The order of
one CUDA stream is what guarantees this. A lock could not: it would be held while the kernels are
queued, not while they run. So everything here is queued on the caller's current stream, and the
caller must not run two layers on two streams at once (of vLLM only dual batch overlap would; its
stream for shared experts runs no EXL3 kernel).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from glm53_overlay.errors import OverlayError
from glm53_overlay.exl3.experts import Backend, Experts, Projection
from glm53_overlay.exl3.reference import TorchBackend

ARGUMENTS = {
    "exl3_moe": 35,
    "exl3_moe_coop": 36,
    "exl3_moe_max_concurrency": 1,
    "reconstruct_had_batch": 7,
}
"""The functions called, with how many arguments each takes in exllamav3 1.6.5."""

COOP_SLOTS = 256
"""Rows that one `exl3_moe_coop` takes (its limit)."""

SLICED_TOKENS = 128
"""Tokens up to which `exl3_moe_coop` is the faster kernel (H200, 8 of 288 experts at random)."""

TILED_TOKENS = 1024
"""Tokens up to which `exl3_moe` is faster than unpacking every expert (likewise)."""

UNPACKED_MIB = 1024
"""Room for the experts that are unpacked at a time; at 512 it takes 8 % longer."""


def make_backend(experts: Experts, device: torch.device, max_tokens: int, top_k: int) -> Backend:
    """Return what computes these experts on this device, for batches of up to `max_tokens`.

    Raises OverlayError when the device is a GPU and its kernels are missing or other ones.
    """
    if device.type == "cpu":
        return TorchBackend(experts)
    return ExtBackend(experts, device, max_tokens, top_k)


def check_extension(extension: Any) -> None:
    """Raise OverlayError unless the extension has the functions called, as 1.6.5 has them.

    They take positional arguments only, whose number has changed between releases: a list made
    for another one would be read as other arguments.
    """
    for name, expected in ARGUMENTS.items():
        function = getattr(extension, name, None)
        if function is None:
            raise OverlayError("EXL3_EXTENSION", f"exllamav3_ext has no function {name}.")
        found = len(re.findall(r"\barg\d+: ", function.__doc__ or ""))
        if found != expected:
            raise OverlayError(
                "EXL3_EXTENSION",
                f"{name} of exllamav3_ext takes {found} arguments and not {expected}: "
                "it is not of exllamav3 1.6.5.",
            )


@cache
def load_extension() -> Any:
    """Import and check `exllamav3_ext`."""
    try:
        import exllamav3_ext
    except ImportError as error:
        raise OverlayError("EXL3_EXTENSION", f"exllamav3_ext cannot be loaded: {error}.") from error
    check_extension(exllamav3_ext)
    return exllamav3_ext


def unpacks(device: torch.device) -> bool:
    """Say whether unpacking pays here: with the memory of a data centre's GPU.

    It moves nine bytes for each byte of packed weights. At GB10's 273 GB/s that alone is 60 ms a
    layer, more than `exl3_moe` should need there for 4096 tokens.
    """
    return torch.cuda.get_device_capability(device)[0] in (9, 10)


@dataclass(frozen=True)
class Shape:
    """What the temporaries depend on: all layers of one model share them."""

    device: torch.device
    count: int
    hidden: int
    intermediate: int
    top_k: int
    max_tokens: int
    unpacked_mib: int


class Workspace:
    """The temporaries of one device and shape, allocated once and used by every layer in turn."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.mib = 0.0
        self.warm = False
        hidden, inner, top_k, most = shape.hidden, shape.intermediate, shape.top_k, shape.max_tokens
        half, single, slots = torch.float16, torch.float32, COOP_SLOTS

        self.direct_tokens = min(COOP_SLOTS // top_k, most)
        self.sliced_tokens = min(SLICED_TOKENS, most)
        self.tiled_tokens = min(TILED_TOKENS, most) if unpacks(shape.device) else most

        self.cast = (
            self._zeros(half, self.direct_tokens, hidden),
            self._zeros(torch.int64, self.direct_tokens, top_k),
            self._zeros(half, self.direct_tokens, top_k),
        )
        self.direct_out = self._zeros(single, self.direct_tokens, hidden)
        # All 256 rows even for one token: with room to spare the kernel splits its sums over more
        # blocks. The counters must start at zero, and it leaves them so.
        self.coop = (
            *(self._zeros(half, slots, width) for width in (hidden, hidden, inner, inner, inner)),
            self._zeros(single, slots, hidden),
            self._zeros(torch.int32, slots * (inner // 128 + hidden // 128 + 2) + 3),
        )
        groups = load_extension().exl3_moe_max_concurrency(shape.device.index or 0)
        self.tiled = tuple(
            self._zeros(half, groups, self.tiled_tokens, width)
            for width in (hidden, hidden, inner, inner)
        )
        # What each choice of each token comes to: fp32 from exllamav3's kernels, fp16 from ours.
        self.rows = self._zeros(half, max(2 * self.tiled_tokens, most) * top_k, hidden)
        self.block = 0
        if most > self.tiled_tokens:
            expert_mib = 3 * hidden * inner * 2 / (1 << 20)
            self.block = max(1, min(shape.count, int(shape.unpacked_mib / expert_mib)))
            self.gate_up = self._zeros(half, 2 * self.block, hidden, inner)
            self.down = self._zeros(half, self.block, inner, hidden)
            self.inner = self._zeros(half, most * top_k, inner)

    def single_rows(self, count: int) -> Tensor:
        """Return `count` rows in fp32, [count, H]."""
        return self.rows.view(-1).view(torch.float32).view(-1, self.shape.hidden)[:count]

    def _zeros(self, dtype: torch.dtype, *size: int) -> Tensor:
        made = torch.zeros(size, dtype=dtype, device=self.shape.device)
        self.mib += made.numel() * made.element_size() / (1 << 20)
        return made


@cache
def _workspace(shape: Shape) -> Workspace:
    return Workspace(shape)


@dataclass(frozen=True)
class Routing:
    """The choices of a batch sorted by expert; choices that are no expert of ours come last."""

    order: Tensor  # int64 [E+1], the expert at each place; E stands for none of ours
    load: Tensor  # int64 [E+1], how many rows the expert at each place has
    bounds: Tensor  # int64 [E+2], the first of them; [E] is the end of the last expert's
    token: Tensor  # int64 [T*k], the token of each row
    expert: Tensor  # int32 [T*k], its expert; E for none of ours
    weight: Tensor  # fp16 [T*k]
    position: Tensor  # int64 [T*k], the row that each choice became


class ExtBackend:
    """Computes one layer's experts with exllamav3's kernels; see the module's text."""

    def __init__(
        self,
        experts: Experts,
        device: torch.device,
        max_tokens: int,
        top_k: int,
        unpacked_mib: int = UNPACKED_MIB,
    ) -> None:
        if experts.codebook not in ("mcg", "mul1"):
            raise OverlayError(
                "EXL3_KERNEL", f"no fused kernel decodes the codebook {experts.codebook}."
            )
        from glm53_overlay.exl3 import triton_kernels  # needs Triton, so not on a CPU

        self._ext = load_extension()
        self._triton = triton_kernels
        self.experts = experts  # the kernels are given addresses: the tensors must live
        self.workspace = _workspace(
            Shape(
                device, experts.count, experts.hidden, experts.intermediate, top_k, max_tokens,
                unpacked_mib,
            )
        )  # fmt: skip
        self._flags = (experts.codebook == "mcg", experts.codebook == "mul1")
        self._bits = (experts.bits,) * 3
        gate, up, down = map(addresses, (experts.gate, experts.up, experts.down))
        self._tables = (*gate, *up, *down)
        self._table = torch.stack(self._tables)
        self._blocks = []
        for first in range(0, experts.count, self.workspace.block or experts.count):
            block = slice(first, first + self.workspace.block)
            both = [torch.cat([g[block], u[block]]) for g, u in zip(gate, up, strict=True)]
            self._blocks.append((first, both, [d[block] for d in down]))
        self._warm_up()

    def run(self, x: Tensor, topk_ids: Tensor, topk_weights: Tensor) -> Tensor:
        """Return this rank's partial sum [T, H] in the dtype of `x`; see `Backend`.

        Inside everything is fp16 with fp32 sums, as in exllamav3, so |x| must stay below 65504.
        The ids of one token must differ from each other, as every router makes them.
        """
        workspace, tokens = self.workspace, x.shape[0]
        if tokens > workspace.shape.max_tokens or topk_ids.shape[1] != workspace.shape.top_k:
            raise OverlayError(
                "EXL3_BATCH",
                f"{tokens} tokens with {topk_ids.shape[1]} experts each do not fit the room for "
                f"{workspace.shape.max_tokens} with {workspace.shape.top_k}.",
            )
        if tokens == 0:
            return torch.empty_like(x)
        x = x.contiguous()
        if tokens <= workspace.direct_tokens:
            return self._direct(x, topk_ids.contiguous(), topk_weights.contiguous())
        way = self._unpacked
        if tokens <= workspace.tiled_tokens:
            way = self._sliced if tokens <= workspace.sliced_tokens else self._tiled
        return self._sorted(way, x, topk_ids, topk_weights)

    def _sorted(
        self, way: Callable[[Tensor, Routing], Tensor], x: Tensor, ids: Tensor, weights: Tensor
    ) -> Tensor:
        """Sort, compute the rows of all experts in one of the ways, sum each token's."""
        routing = self._sort(ids, weights, by_load=way == self._tiled)
        rows, out = way(x.half(), routing), torch.empty_like(x)
        end = routing.bounds[self.experts.count :]
        self._triton.combine(rows, routing.position.view_as(ids), end, out)
        return out

    def _coop(self, x: Tensor, ids: Tensor, weights: Tensor, out: Tensor) -> None:
        experts = self.experts
        self._ext.exl3_moe_coop(
            x, ids, weights, 0, experts.count, experts.hidden, *self._tables, None, None, None,
            *self._bits, *self._flags, 0, experts.swiglu_limit, True, *self.workspace.coop, out,
            None, None,
        )  # fmt: skip

    def _direct(self, x: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
        workspace = self.workspace
        self._coop(*self._triton.cast_in(x, ids, weights, workspace.cast), workspace.direct_out)
        return self._triton.cast_out(workspace.direct_out[: len(x)], x.dtype)

    def _sliced(self, x: Tensor, routing: Routing) -> Tensor:
        rows = self.workspace.single_rows(len(routing.token))
        inputs, ids = x[routing.token], routing.expert.long().unsqueeze(1)
        weights = routing.weight.unsqueeze(1)
        for first in range(0, len(rows), COOP_SLOTS):
            part = slice(first, first + COOP_SLOTS)
            self._coop(inputs[part], ids[part], weights[part], rows[part])
        return rows

    def _tiled(self, x: Tensor, routing: Routing) -> Tensor:
        workspace = self.workspace
        rows = workspace.single_rows(len(routing.token))
        unused = rows[: len(x)]  # the atomic sum of the other mode; with `rows` it is not touched
        # The kernel takes experts in their order, as groups of SMs become free: with the most
        # rows first, the last ones to end are short.
        tables = self._table.index_select(1, routing.order[: self.experts.count]).unbind()
        self._ext.exl3_moe(
            x, unused, routing.load, routing.token, routing.weight, *workspace.tiled, 0,
            *self._bits, *tables, *self._flags * 3, self.experts.swiglu_limit, -1, rows,
            routing.bounds, 1, workspace.tiled_tokens, 16,
        )  # fmt: skip
        return rows

    def _unpacked(self, x: Tensor, routing: Routing) -> Tensor:
        experts, workspace = self.experts, self.workspace
        rows = workspace.rows[: len(routing.token)]
        for first, both, down in self._blocks:
            size = len(down[0])
            w13, w2 = workspace.gate_up[: 2 * size], workspace.down[:size]
            self._ext.reconstruct_had_batch(w13, *both, experts.bits, *self._flags)
            self._triton.gate_up(
                x, w13.unflatten(0, (2, size)), routing.bounds, routing.token,
                experts.swiglu_limit, first, workspace.inner,
            )  # fmt: skip
            self._ext.reconstruct_had_batch(w2, *down, experts.bits, *self._flags)
            self._triton.down(workspace.inner, w2, routing.bounds, routing.weight, first, rows)
        return rows

    def _sort(self, ids: Tensor, weights: Tensor, *, by_load: bool = False) -> Routing:
        """Sort the choices by expert on the device: the host learns neither counts nor bounds."""
        count = self.experts.count
        return Routing(
            *self._triton.sort_choices(
                ids.contiguous(), weights.contiguous(), count, by_load=by_load
            )
        )

    def _warm_up(self) -> None:
        """Run every way once with no expert chosen, so that kernels are built and locks allocated.

        Both would fail inside a CUDA graph capture.
        """
        workspace = self.workspace
        if workspace.warm:
            return
        shape = workspace.shape
        most = (workspace.direct_tokens, workspace.sliced_tokens, workspace.tiled_tokens)
        for tokens in {1, *most, shape.max_tokens}:
            for dtype in (torch.bfloat16, torch.float16):
                for id_dtype in (torch.int32, torch.int64):
                    self.run(
                        torch.zeros(tokens, shape.hidden, dtype=dtype, device=shape.device),
                        torch.full((tokens, shape.top_k), -1, dtype=id_dtype, device=shape.device),
                        # Unsaid, the router's dtype would be the model's while vLLM loads it.
                        torch.zeros(tokens, shape.top_k, dtype=torch.float32, device=shape.device),
                    )
        torch.cuda.synchronize(shape.device)
        workspace.warm = True


def addresses(projection: Projection) -> tuple[Tensor, Tensor, Tensor]:
    """Return the device addresses of each expert's trellis, suh and svh, int64 [E] each."""

    def of(stack: Tensor) -> Tensor:
        if not stack.is_contiguous():
            raise OverlayError("EXL3_KERNEL", "the experts' tensors must be contiguous.")
        step = stack[0].numel() * stack.element_size()
        return torch.arange(len(stack), device=stack.device) * step + stack.data_ptr()

    return of(projection.trellis), of(projection.suh), of(projection.svh)
