"""The small kernels around exllamav3's: casts, the product of unpacked experts, sums.

Imported only where there is a CUDA device: Triton is not part of the CPU engine. Sizes that change
from call to call are kept out of Triton's specialisation, so that each kernel is compiled once per
data type and never while a CUDA graph is being captured.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_CAST_BLOCK = 256
"""Elements a program casts; four times as many make 0.5 us more at one token."""

_SUM_BLOCK = 1024
_SORT_BLOCK = 1024


@triton.jit(do_not_specialize=["elements", "slots"])
def _widen(x, ids, weights, x_half, ids_long, weights_half, elements, slots, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.extra.cuda.gdc_wait()
    tl.store(x_half + at, tl.load(x + at, mask=at < elements).to(tl.float16), mask=at < elements)
    slot = at < slots
    tl.store(ids_long + at, tl.load(ids + at, mask=slot).to(tl.int64), mask=slot)
    tl.store(weights_half + at, tl.load(weights + at, mask=slot).to(tl.float16), mask=slot)


def cast_in(
    x: Tensor, ids: Tensor, weights: Tensor, to: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Cast x [T, H], ids and weights [T, k] in one launch into the fp16, int64, fp16 buffers `to`.

    At one token three launches would be a tenth of the whole layer; and this one is set up while
    the kernel before it still runs (programmatic dependent launch, compute capability 9 and up).
    """
    tokens, top_k = ids.shape
    x_half, ids_long, weights_half = (buffer[:tokens] for buffer in to)
    grid = (triton.cdiv(x.numel(), _CAST_BLOCK),)
    _widen[grid](
        x, ids, weights, x_half, ids_long, weights_half, x.numel(), tokens * top_k,
        block=_CAST_BLOCK, launch_pdl=True,
    )  # fmt: skip
    return x_half, ids_long, weights_half


@triton.jit(do_not_specialize=["elements"])
def _narrow(source, out, elements, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.extra.cuda.gdc_wait()
    tl.store(out + at, tl.load(source + at, mask=at < elements), mask=at < elements)


def cast_out(source: Tensor, dtype: torch.dtype) -> Tensor:
    """Return `source` in another dtype; set up, too, while the kernel before it still runs."""
    out = torch.empty(source.shape, dtype=dtype, device=source.device)
    grid = (triton.cdiv(out.numel(), _CAST_BLOCK),)
    _narrow[grid](source, out, out.numel(), block=_CAST_BLOCK, launch_pdl=True)
    return out


@triton.jit(do_not_specialize=["first", "experts"])
def _grouped(
    a, w, out, bounds, token, weight, limit, first, experts,
    k: tl.constexpr, n: tl.constexpr, gated: tl.constexpr, padded: tl.constexpr,
    bm: tl.constexpr, bn: tl.constexpr, bk: tl.constexpr,
):  # fmt: skip
    expert = tl.arange(0, padded)
    here = expert < experts
    low = tl.load(bounds + first + expert, mask=here, other=0).to(tl.int32)
    high = tl.load(bounds + first + expert + 1, mask=here, other=0).to(tl.int32)
    row_tiles = (high - low + bm - 1) // bm
    ends = tl.cumsum(row_tiles, 0)
    # A tile is two blocks of bn columns: of gate and of up, or two neighbours of down.
    columns: tl.constexpr = n // bn if gated else n // (2 * bn)
    # A fixed number of programs walks the tiles: the host need not know how many there are.
    for tile in range(tl.program_id(0), tl.sum(row_tiles, 0) * columns, tl.num_programs(0)):
        row_tile = tile // columns
        e = tl.sum((ends <= row_tile).to(tl.int32), 0)
        before = tl.sum(tl.where(expert == e, ends - row_tiles, 0), 0)
        start = tl.load(bounds + first + e)
        rows = start + (row_tile - before) * bm + tl.arange(0, bm)
        inside = rows < tl.load(bounds + first + e + 1)
        source = tl.load(token + rows, mask=inside, other=0) if gated else rows
        column = (tile % columns) * (bn if gated else 2 * bn) + tl.arange(0, bn)
        second = experts.to(tl.int64) * k * n if gated else bn
        ks = tl.arange(0, bk)
        a_at = a + source[:, None] * k + ks[None, :]
        w_at = w + e.to(tl.int64) * k * n + ks[:, None] * n + column[None, :]
        acc_1 = tl.zeros((bm, bn), dtype=tl.float32)
        acc_2 = tl.zeros((bm, bn), dtype=tl.float32)
        for _ in range(k // bk):
            block = tl.load(a_at, mask=inside[:, None], other=0.0)
            acc_1 = tl.dot(block, tl.load(w_at), acc_1)
            acc_2 = tl.dot(block, tl.load(w_at + second), acc_2)
            a_at += bk
            w_at += bk * n
        out_at = out + rows[:, None] * n + column[None, :]
        if gated:
            if limit > 0:
                acc_1 = tl.minimum(acc_1, limit)
                acc_2 = tl.minimum(tl.maximum(acc_2, -limit), limit)
            inner = acc_1 * tl.sigmoid(acc_1) * acc_2
            tl.store(out_at, inner.to(tl.float16), mask=inside[:, None])
        else:
            share = tl.load(weight + rows, mask=inside, other=0.0).to(tl.float32)[:, None]
            tl.store(out_at, (acc_1 * share).to(tl.float16), mask=inside[:, None])
            tl.store(out_at + bn, (acc_2 * share).to(tl.float16), mask=inside[:, None])


def _product(
    a: Tensor, w: Tensor, out: Tensor, bounds: Tensor, of_row: Tensor, limit: float, first: int,
    experts: int, *, gated: bool,
) -> None:  # fmt: skip
    k, n = w.shape[-2:]
    programs = torch.cuda.get_device_properties(out.device).multi_processor_count
    _grouped[(programs,)](
        a, w, out, bounds, of_row, of_row, limit, first, experts, k=k, n=n, gated=gated,
        padded=triton.next_power_of_2(experts), bm=128, bn=128 if gated or n % 256 == 0 else 64,
        bk=64, num_warps=8, num_stages=4,
    )  # fmt: skip


def gate_up(
    x: Tensor, w: Tensor, bounds: Tensor, token: Tensor, limit: float, first: int, out: Tensor
) -> None:
    """Write swiglu(x @ gate, x @ up) of the rows of B experts to `out` [rows, I].

    `w` [2, B, H, I] holds gate and up of expert `first` and on; `bounds` [E+1] where the rows of
    each expert begin and `token` the row of `x` each is.
    """
    _product(x, w, out, bounds, token, limit, first, w.shape[1], gated=True)


def down(inner: Tensor, w: Tensor, bounds: Tensor, weight: Tensor, first: int, out: Tensor) -> None:
    """Write inner @ down, times the row's weight, to `out` [rows, H]; `w` is [B, I, H]."""
    _product(inner, w, out, bounds, weight, 0.0, first, w.shape[0], gated=False)


@triton.jit
def _is_of(chosen, valid, mine, count: tl.constexpr):
    """Say which choices are expert `mine`'s; `count` stands for all that are no expert of ours."""
    foreign = (chosen < 0) | (chosen >= count)
    return valid & ((chosen == mine) | (foreign & (mine == count)))


@triton.jit(do_not_specialize=["n"])
def _count(ids, loads, n, count: tl.constexpr, block: tl.constexpr):
    mine = tl.program_id(0)
    total = tl.zeros((block,), dtype=tl.int32)
    for first in range(0, n, block):
        at = first + tl.arange(0, block)
        chosen = tl.load(ids + at, mask=at < n, other=0)
        total += _is_of(chosen, at < n, mine, count).to(tl.int32)
    tl.store(loads + mine, tl.sum(total))


@triton.jit(do_not_specialize=["n"])
def _place(
    ids, weights, loads, order, load, bounds, token, expert, weight, position, n,
    top_k: tl.constexpr, by_load: tl.constexpr, count: tl.constexpr, width: tl.constexpr,
    block: tl.constexpr,
):  # fmt: skip
    mine = tl.program_id(0)
    others = tl.arange(0, width)
    theirs = tl.load(loads + others, mask=others < count, other=0)
    own = tl.load(loads + mine)
    earlier = others < mine
    if by_load:
        earlier = (theirs > own) | ((theirs == own) & (others < mine))
    earlier = (earlier | (mine == count)) & (others < count)
    rank = tl.sum(earlier.to(tl.int32))
    row = tl.sum(tl.where(earlier, theirs, 0))
    tl.store(order + rank, mine)
    tl.store(load + rank, own)
    tl.store(bounds + rank, row)
    if mine == count:
        tl.store(bounds + count + 1, n)
    for first in range(0, n, block):
        at = first + tl.arange(0, block)
        chosen = tl.load(ids + at, mask=at < n, other=0)
        taken = _is_of(chosen, at < n, mine, count)
        to = row + tl.cumsum(taken.to(tl.int32), 0) - 1
        tl.store(token + to, (at // top_k).to(tl.int64), mask=taken)
        tl.store(expert + to, tl.full((block,), 0, tl.int32) + mine, mask=taken)
        tl.store(weight + to, tl.load(weights + at, mask=taken).to(tl.float16), mask=taken)
        tl.store(position + at, to.to(tl.int64), mask=taken)
        row += tl.sum(taken.to(tl.int32))


def sort_choices(
    ids: Tensor, weights: Tensor, count: int, *, by_load: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Sort the choices [T, k] of a batch by expert: a counting sort in two launches.

    Experts come in their own order, or with the most rows first. Returns order, load, bounds,
    token, expert, weight and position: the fields of `kernels.Routing`. Within an expert rows are
    in the order of the tokens, so the result is the same each time.
    """
    n, top_k = ids.numel(), ids.shape[1]

    def empty(size: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(size, dtype=dtype, device=ids.device)

    long, loads = torch.int64, empty(count + 1, torch.int32)
    made = (
        empty(count + 1, long), empty(count + 1, long), empty(count + 2, long), empty(n, long),
        empty(n, torch.int32), empty(n, torch.float16), empty(n, long),
    )  # fmt: skip
    grid = (count + 1,)
    _count[grid](ids, loads, n, count=count, block=_SORT_BLOCK)
    _place[grid](
        ids, weights, loads, *made, n, top_k=top_k, by_load=by_load, count=count,
        width=triton.next_power_of_2(count), block=_SORT_BLOCK,
    )  # fmt: skip
    return made


@triton.jit
def _combine(rows, position, end, out, n, top_k: tl.constexpr, block: tl.constexpr):
    token = tl.program_id(0)
    column = tl.program_id(1) * block + tl.arange(0, block)
    ours = tl.load(end)
    total = tl.zeros((block,), dtype=tl.float32)
    for slot in tl.static_range(top_k):
        row = tl.load(position + token * top_k + slot)
        here = (row < ours) & (column < n)
        total += tl.load(rows + row * n + column, mask=here, other=0.0).to(tl.float32)
    tl.store(out + token.to(tl.int64) * n + column, total, mask=column < n)


def combine(rows: Tensor, position: Tensor, end: Tensor, out: Tensor) -> None:
    """Sum each token's rows into `out` [T, H], always in the same order.

    `position` [T, k] is the row of each choice in `rows` [T*k, H]; rows from `end` [1] on belong
    to no expert of ours.
    """
    tokens, top_k = position.shape
    n = out.shape[1]
    grid = (tokens, triton.cdiv(n, _SUM_BLOCK))
    _combine[grid](rows, position, end, out, n, top_k=top_k, block=_SUM_BLOCK)
