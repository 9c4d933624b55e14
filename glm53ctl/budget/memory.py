"""What one rank's memory holds, what is left for the KV pool, and whether that serves a request."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from glm53ctl.budget.kv import Pool, pool
from glm53ctl.budget.machine import GIB, Machine
from glm53ctl.budget.model import INDEX_POOL, INDEX_ROW, loaded
from glm53ctl.budget.settings import Settings

MIB = 2**20
CONTEXT_BYTES = 400 * MIB
"""CUDA context, NCCL and libraries. Estimated."""
ACTIVATION_BYTES = 130 * 1024
"""A token of a batch: four residual streams and a dense MLP. Estimated."""
GRAPH_BYTES = round(2.43 * GIB)
"""vLLM's estimate for its CUDA graphs, as the vLLM recipe logged it; they really took nothing."""
HOST_BYTES = 8 * GIB
"""What a Spark's system, the API server and the page cache of a start need beside the engine."""
_LONG = 256 * 1024


@dataclass(frozen=True)
class Line:
    """A part of a rank's memory. `known`: counted or measured; else estimated."""

    name: str
    nbytes: int
    known: bool = True


@dataclass(frozen=True)
class Budget:
    """One rank's memory. `problems` is why it cannot start; empty when it can."""

    machine: Machine
    settings: Settings
    lines: tuple[Line, ...]
    pool: Pool
    problems: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether the pair starts and one full request can be served."""
        return not self.problems

    @property
    def used(self) -> int:
        """Bytes of everything but the pool."""
        return sum(line.nbytes for line in self.lines)

    @property
    def host(self) -> int:
        """Bytes that are left to the host."""
        return self.machine.memory - self.used - self.pool.nbytes


def budget(settings: Settings, machine: Machine) -> Budget:
    """Return the memory of one rank with these settings."""
    lines = tuple(_lines(settings, machine))
    used = sum(line.nbytes for line in lines)
    granted = round(settings.utilization * machine.memory)
    room = settings.kv_bytes if settings.kv_bytes is not None else max(granted - used, 0)
    found = pool(settings, machine, room)
    made = Budget(machine, settings, lines, found, ())
    return replace(made, problems=tuple(_problems(made)))


def _lines(settings: Settings, machine: Machine) -> Iterator[Line]:
    for weights in loaded(settings.method, vision=settings.vision):
        yield Line(weights.name, weights.on_rank(settings.ranks, settings.dense_of(weights.group)))
    yield Line("EXL3 workspace", exl3_bytes(settings.batch, machine))
    indexer = indexer_rows_bytes(settings) + indexer_logits_bytes(settings)
    yield Line("indexer workspace", indexer)
    yield Line("activations", ACTIVATION_BYTES * settings.batch, known=False)
    if settings.graphs and settings.estimate_graphs:
        yield Line("CUDA graphs", GRAPH_BYTES)
    yield Line("context, collectives", CONTEXT_BYTES, known=False)


def exl3_bytes(batch: int, machine: Machine) -> int:
    """Return the temporaries of the routed experts, shared by all layers (docs/exl3.md).

    10 MiB for small batches; for each token 20 KiB in each group of eight multiprocessors and
    128 KiB of results. Where long batches are unpacked, all that is of 1024 tokens, the results at
    half their size of the whole batch if that is more, and the unpacked block comes with 16 KiB a
    token.
    """
    groups, kib = machine.multiprocessors // 8, 1024
    if batch <= 1024 or not machine.unpacks:
        return 10 * MIB + batch * (groups * 20 + 128) * kib
    return (10 + groups * 20 + 1008) * MIB + (max(2048, batch) * 64 + batch * 16) * kib


def indexer_rows_bytes(settings: Settings) -> int:
    """Return what the sparse indexer reserves for rows that a prefill gathers, and 1 MiB beside.

    Source: get_max_prefill_buffer_size in vllm/v1/attention/backends/mla/indexer.py.
    """
    factor = 8 * (5 if settings.context <= _LONG or not settings.pooled_indexer else 2)
    rows = settings.context * factor // (INDEX_POOL if settings.pooled_indexer else 1)
    return rows * INDEX_ROW + MIB


def indexer_logits_bytes(settings: Settings) -> int:
    """Return what the indexer reserves for scores, fp32, at least 512 MiB.

    Source: the profiling branch of vllm/models/glm5next/nvidia/sparse_indexer.py.
    """
    deepest = min(settings.streams * (settings.drafted + 1), settings.batch)
    return max(512 * MIB, deepest * (settings.context // INDEX_POOL) * 4)


def _problems(made: Budget) -> Iterator[str]:
    settings, machine = made.settings, made.machine
    granted = settings.utilization * machine.memory
    if settings.kv_bytes is None and made.used > granted:
        yield (
            f"everything but the KV pool takes {made.used / GIB:.1f} GiB a rank, and the engine "
            f"may take {granted / GIB:.1f} GiB"
        )
    elif made.pool.blocks < made.pool.request_blocks:
        yield (
            f"one request of {settings.context} tokens takes {made.pool.request_bytes / GIB:.2f} "
            f"GiB of KV, and the pool has {made.pool.nbytes / GIB:.2f} GiB"
        )
    least = HOST_BYTES + settings.floor_gib * GIB if machine.unified else 0
    if made.host < least:
        yield f"the host is left {made.host / GIB:.1f} GiB and needs {least / GIB:.1f} GiB"


def nearest(settings: Settings, machine: Machine) -> Budget | None:
    """Return the fitting budget that changes least: first only the context, then the share too.

    A smaller share is the host's need; of the larger ones, the one with the longest context is
    taken. None when not even a small context fits, as on one rank.
    """
    share = round(settings.utilization * 100)
    lower = range(share - 1, 59, -1) if machine.unified else ()
    for tried in (settings.utilization, *(one / 100 for one in lower)):
        if (found := _longest(replace(settings, utilization=tried), machine)) is not None:
            return found
    if settings.kv_bytes:
        return _longest(replace(settings, kv_bytes=None), machine)
    higher = range(share + 1, 96) if machine.unified else ()
    made = (_longest(replace(settings, utilization=one / 100), machine) for one in higher)
    fitting = [one for one in made if one is not None]
    return max(fitting, key=lambda one: one.settings.context, default=None)


def _longest(settings: Settings, machine: Machine) -> Budget | None:
    """Return the budget with the longest context, in steps of 1024, that fits; None without one."""
    if (whole := budget(settings, machine)).fits:
        return whole
    low, high = 0, settings.context // 1024  # `low` fits, or is nothing
    while high - low > 1:
        middle = (low + high) // 2
        if budget(replace(settings, context=middle * 1024), machine).fits:
            low = middle
        else:
            high = middle
    return budget(replace(settings, context=low * 1024), machine) if low >= 2 else None
