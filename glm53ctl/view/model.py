"""The pair as its owner sees it: `PairView`, the one value behind the page and the metrics.

It says nothing that is not known: a value that could not be had is None, and where somebody can say
why, the reason stands beside it (`unknown`). Fractions are 0 to 1, times Unix seconds, durations
seconds; rates are means over the last few seconds, everything else of the engine that needs many
requests (percentiles, acceptance, reuse) covers `EngineView.window_seconds`.
"""

from pydantic import BaseModel, ConfigDict

from glm53ctl.bench.result import Result
from glm53ctl.status.snapshot import Snapshot
from glm53ctl.supervise.ledger import Incident


class _View(BaseModel):
    model_config = ConfigDict(frozen=True)


class Spread(_View):
    """A distribution in two numbers, in seconds: what is usual, and what is bad luck."""

    p50: float
    p95: float


class Acceptance(_View):
    """What drafting yields.

    `length` is tokens a step, the target's own included; `by_position` the share of drafts whose
    token at that position was accepted; `draft` the method (`dflash`, `mtp`).
    """

    draft: str
    length: float
    by_position: tuple[float, ...]


class EngineView(_View):
    """The engine, from its own /metrics.

    Rates are None until there are two readings; percentiles, reuse and acceptance are None while
    nothing happened in the window. On a node without the API server only what the head says over
    the pair link is there: requests and the pool.
    """

    running: int
    waiting: int
    kv_pool_tokens: int | None = None
    """vLLM's own figure: how many tokens of full-length requests the pool holds."""
    kv_pool_used: float | None = None
    """Fraction of the pool's blocks."""
    generation_tokens_per_s: float | None = None
    prompt_tokens_per_s: float | None = None
    ttft_s: Spread | None = None
    """Time to the first token."""
    itl_s: Spread | None = None
    """Time from one piece of an answer to the next; with speculation a piece is several tokens."""
    prefix_hit_rate: float | None = None
    """Share of prompt tokens that were found in the prefix cache."""
    acceptance: Acceptance | None = None
    preemptions: int | None = None
    """Requests that were put back for lack of KV blocks, since the engine began."""
    window_seconds: float = 0.0


class MemoryView(_View):
    """Main memory of a node, which on a Spark is the GPU's too. `pressure_*` is PSI, percent."""

    available_gib: float
    total_gib: float | None = None
    floor_gib: float
    """Below this the pair is stopped."""
    swap_used_gib: float | None = None
    swap_total_gib: float | None = None
    pressure_some_percent: float | None = None
    pressure_full_percent: float | None = None


class GpuView(_View):
    """One GPU. None is what NVML does not tell; on GB10 it leaves out several."""

    name: str = ""
    temperature_c: int | None = None
    clock_mhz: int | None = None
    max_clock_mhz: int | None = None
    power_w: float | None = None
    utilisation_percent: int | None = None
    throttled_by: tuple[str, ...] | None = None
    """Why the clock is lower than it could be; empty when nothing holds it down."""


class RailView(_View):
    """One port of the fabric. Rates count RDMA and IP together, errors are since the boot."""

    name: str
    rdma: str | None = None
    """The RDMA device of the port."""
    address: str | None = None
    carrier: bool | None = None
    lost: bool = False
    """No carrier where one is meant to be: it has an address or had a carrier since the boot."""
    speed_gbit_per_s: float | None = None
    mtu: int | None = None
    receive_bytes_per_s: float | None = None
    transmit_bytes_per_s: float | None = None
    errors: int | None = None


class NodeView(_View):
    """One machine of the pair. `unknown` says why `memory`, `gpus` or `rails` is None.

    `here` is whether it is the machine that tells all this. Of the others it knows what their
    supervisors say over the pair link.
    """

    rank: int
    name: str
    here: bool
    memory: MemoryView | None = None
    gpus: tuple[GpuView, ...] | None = None
    rails: tuple[RailView, ...] | None = None
    unknown: dict[str, str] = {}


class PairView(_View):
    """Everything, at one moment. `engine_unknown` says why `engine` is None.

    `incidents` are this node's, newest first: `cause` has the fix where the cause was recognised.
    """

    at: float
    snapshot: Snapshot
    engine: EngineView | None = None
    engine_unknown: str = ""
    nodes: tuple[NodeView, ...]
    incidents: tuple[Incident, ...] = ()
    bench: Result | None = None
