"""Every metric, once: the exposition and docs/metrics.md are made of this table.

Base units as Prometheus wants them: bytes, seconds, hertz, ratios of 1. What is not known has no
sample, so that nothing is ever 0 for want of an answer.
"""

from collections.abc import Callable, Iterator
from datetime import datetime

from glm53ctl.exporter.metric import Metric, Sample
from glm53ctl.facts.memory import GIB
from glm53ctl.supervise.report import Phase, RankReport
from glm53ctl.view.model import EngineView, GpuView, MemoryView, NodeView, PairView, RailView

STATES = ("down", *(phase.value for phase in Phase))
HERTZ_IN_MHZ = 1_000_000
BYTES_IN_GBIT = 125_000_000
RANK, NODE = ("rank", "node"), ("node",)


def _one(value: Callable[[PairView], float | None]) -> Callable[[PairView], Iterator[Sample]]:
    def values(view: PairView) -> Iterator[Sample]:
        yield (), value(view)

    return values


def _engine(
    value: Callable[[EngineView], float | None],
) -> Callable[[PairView], Iterator[Sample]]:
    def values(view: PairView) -> Iterator[Sample]:
        if view.engine is not None:
            yield (), value(view.engine)

    return values


def _ranks(value: Callable[[RankReport], float | None]) -> Callable[[PairView], Iterator[Sample]]:
    def values(view: PairView) -> Iterator[Sample]:
        for report in view.snapshot.ranks:
            yield (str(report.rank), report.node), value(report)

    return values


def _here(view: PairView) -> Iterator[NodeView]:
    """Yield this machine, once, although two ranks of a demo share it.

    The other machine's exporter tells its own: told by both, every value would be there twice.
    """
    yield from [node for node in view.nodes if node.here][:1]


def _memory(value: Callable[[MemoryView], float | None]) -> Callable[[PairView], Iterator[Sample]]:
    def values(view: PairView) -> Iterator[Sample]:
        for node in _here(view):
            if node.memory is not None:
                yield (node.name,), value(node.memory)

    return values


def _gpus(value: Callable[[GpuView], float | None]) -> Callable[[PairView], Iterator[Sample]]:
    def values(view: PairView) -> Iterator[Sample]:
        for node in _here(view):
            for number, gpu in enumerate(node.gpus or ()):
                yield (node.name, str(number)), value(gpu)

    return values


def _rails(value: Callable[[RailView], float | None]) -> Callable[[PairView], Iterator[Sample]]:
    def values(view: PairView) -> Iterator[Sample]:
        for node in _here(view):
            for rail in node.rails or ():
                yield (node.name, rail.name), value(rail)

    return values


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


# --- values that need more than a line -----------------------------------------------------------


def _build(view: PairView) -> Iterator[Sample]:
    engines = {report.engine.version or "" for report in view.snapshot.ranks} or {""}
    yield (view.snapshot.version, max(engines), view.snapshot.model), 1.0


def _states(view: PairView) -> Iterator[Sample]:
    for state in STATES:
        yield (state,), float(view.snapshot.state == state)


def _findings(view: PairView) -> Iterator[Sample]:
    told = {(one.code, one.severity.value, one.node) for one in view.snapshot.findings}
    yield from ((labels, 1.0) for labels in sorted(told))


def _last_loss(view: PairView) -> Iterator[Sample]:
    if (loss := view.snapshot.last_loss) is not None:
        cause = loss.cause.code if loss.cause is not None else ""
        yield (loss.code, cause, str(loss.rank)), loss.at


def _heard(view: PairView) -> Iterator[Sample]:
    """Tell of all ranks where a supervisor runs, which hears them; else of this host's own."""
    hears = any(node.here and node.rank not in view.snapshot.missing for node in view.nodes)
    for node in view.nodes:
        if not hears and not node.here:
            continue
        yield (str(node.rank), node.name), float(node.rank not in view.snapshot.missing)


def _stages(view: PairView) -> Iterator[Sample]:
    for report in view.snapshot.ranks:
        if report.phase is Phase.STARTING and report.stage is not None:
            done = _scaled(report.percent, 0.01)
            yield (str(report.rank), report.node, report.stage.value), done


def _percentiles(which: str) -> Callable[[PairView], Iterator[Sample]]:
    def values(view: PairView) -> Iterator[Sample]:
        spread = None if view.engine is None else getattr(view.engine, which)
        if spread is not None:
            yield ("50",), spread.p50
            yield ("95",), spread.p95

    return values


def _accepted(view: PairView) -> Iterator[Sample]:
    if view.engine is not None and (accepted := view.engine.acceptance) is not None:
        for position, share in enumerate(accepted.by_position):
            yield (str(position),), share


def _pressure(view: PairView) -> Iterator[Sample]:
    for node in _here(view):
        if node.memory is not None:
            yield (node.name, "some"), _scaled(node.memory.pressure_some_percent, 0.01)
            yield (node.name, "full"), _scaled(node.memory.pressure_full_percent, 0.01)


def _throttled(view: PairView) -> Iterator[Sample]:
    for node in _here(view):
        for number, gpu in enumerate(node.gpus or ()):
            for reason in gpu.throttled_by or ():
                yield (node.name, str(number), reason), 1.0


def _bench(view: PairView) -> Iterator[Sample]:
    if view.bench is not None:
        yield (view.bench.kind,), datetime.fromisoformat(view.bench.at).timestamp()


METRICS = (
    # --- the pair
    Metric(
        "glm53_build_info",
        "Always 1; the versions of this program and of the engine, and the model's name.",
        _build,
        ("version", "engine", "model"),
    ),
    Metric(
        "glm53_pair_ready",
        "1 while every rank is ready and the pair serves.",
        _one(lambda view: float(view.snapshot.ready)),
    ),
    Metric(
        "glm53_pair_state", "1 for the state the pair is in, 0 for the others.", _states, ("state",)
    ),
    Metric(
        "glm53_pair_epoch",
        "Number of the newest joint run of the engines.",
        _one(lambda view: view.snapshot.epoch),
    ),
    Metric(
        "glm53_pair_finding",
        "1 for each finding that stands now; docs/codes.md says what a code means.",
        _findings,
        ("code", "severity", "node"),
    ),
    Metric(
        "glm53_pair_last_loss_timestamp_seconds",
        "When the last epoch ended that nobody ended on purpose.",
        _last_loss,
        ("code", "cause", "rank"),
    ),
    Metric(
        "glm53_watchdog_alive",
        "1 while the watchdog of this node reports.",
        _one(lambda view: float(view.snapshot.watchdog is not None)),
    ),
    # --- the ranks
    Metric(
        "glm53_rank_heard",
        "1 while the rank's supervisor is heard of; without one here, of this node's rank only.",
        _heard,
        RANK,
    ),
    Metric(
        "glm53_rank_crashes",
        "Own crashes within supervise.crash_window_seconds; supervise.crash_limit holds the pair.",
        _ranks(lambda report: report.crashes),
        RANK,
    ),
    Metric(
        "glm53_rank_start_seconds",
        "How long the last start took, from launch to READY.",
        _ranks(lambda report: report.start_seconds),
        RANK,
    ),
    Metric(
        "glm53_rank_stage_ratio",
        "How far the stage is that a start is in, where it can be told.",
        _stages,
        (*RANK, "stage"),
    ),
    # --- the engine
    Metric(
        "glm53_engine_requests_running",
        "Requests that the engine works on.",
        _engine(lambda engine: engine.running),
    ),
    Metric(
        "glm53_engine_requests_waiting",
        "Requests that wait for a place.",
        _engine(lambda engine: engine.waiting),
    ),
    Metric(
        "glm53_engine_kv_pool_tokens",
        "Tokens of full-length requests that the KV pool holds, by vLLM's own count.",
        _engine(lambda engine: engine.kv_pool_tokens),
    ),
    Metric(
        "glm53_engine_kv_pool_used_ratio",
        "Used share of the KV pool's blocks.",
        _engine(lambda engine: engine.kv_pool_used),
    ),
    Metric(
        "glm53_engine_generation_tokens_per_second",
        "Tokens written a second, over the last seconds.",
        _engine(lambda engine: engine.generation_tokens_per_s),
    ),
    Metric(
        "glm53_engine_prompt_tokens_per_second",
        "Prompt tokens read a second, over the last seconds. A prompt counts when it is read.",
        _engine(lambda engine: engine.prompt_tokens_per_s),
    ),
    Metric(
        "glm53_engine_ttft_seconds",
        "Time to the first token, over the window.",
        _percentiles("ttft_s"),
        ("percentile",),
    ),
    Metric(
        "glm53_engine_inter_token_seconds",
        "Time between two pieces of an answer, over the window.",
        _percentiles("itl_s"),
        ("percentile",),
    ),
    Metric(
        "glm53_engine_prefix_hit_ratio",
        "Share of prompt tokens found in the prefix cache, over the window.",
        _engine(lambda engine: engine.prefix_hit_rate),
    ),
    Metric(
        "glm53_engine_draft_accepted_ratio",
        "Share of drafts whose token at this position (from 0) was accepted, over the window.",
        _accepted,
        ("position",),
    ),
    Metric(
        "glm53_engine_accepted_length_tokens",
        "Tokens a step, the target's own included, over the window.",
        _engine(lambda engine: engine.acceptance.length if engine.acceptance else None),
    ),
    Metric(
        "glm53_engine_preemptions_total",
        "Requests put back for lack of KV blocks, since the engine began.",
        _engine(lambda engine: engine.preemptions),
        kind="counter",
    ),
    # --- this machine
    Metric(
        "glm53_node_memory_available_bytes",
        "Memory that the kernel could hand out (MemAvailable).",
        _memory(lambda memory: memory.available_gib * GIB),
        NODE,
    ),
    Metric(
        "glm53_node_memory_total_bytes",
        "All memory.",
        _memory(lambda memory: _scaled(memory.total_gib, GIB)),
        NODE,
    ),
    Metric(
        "glm53_node_memory_floor_bytes",
        "memory.floor_gib: with less available the pair is stopped.",
        _memory(lambda memory: memory.floor_gib * GIB),
        NODE,
    ),
    Metric(
        "glm53_node_swap_used_bytes",
        "Swap in use.",
        _memory(lambda memory: _scaled(memory.swap_used_gib, GIB)),
        NODE,
    ),
    Metric(
        "glm53_node_swap_total_bytes",
        "All swap.",
        _memory(lambda memory: _scaled(memory.swap_total_gib, GIB)),
        NODE,
    ),
    Metric(
        "glm53_node_memory_pressure_ratio",
        "Share of the last ten seconds in which some or all tasks waited for memory (PSI).",
        _pressure,
        (*NODE, "kind"),
    ),
    Metric(
        "glm53_node_gpu_temperature_celsius",
        "Temperature of the GPU.",
        _gpus(lambda gpu: gpu.temperature_c),
        (*NODE, "gpu"),
    ),
    Metric(
        "glm53_node_gpu_clock_hertz",
        "Clock of the GPU's SMs.",
        _gpus(lambda gpu: _scaled(gpu.clock_mhz, HERTZ_IN_MHZ)),
        (*NODE, "gpu"),
    ),
    Metric(
        "glm53_node_gpu_power_watts",
        "Power that the GPU draws.",
        _gpus(lambda gpu: gpu.power_w),
        (*NODE, "gpu"),
    ),
    Metric(
        "glm53_node_gpu_busy_ratio",
        "Share of time in which a kernel ran.",
        _gpus(lambda gpu: _scaled(gpu.utilisation_percent, 0.01)),
        (*NODE, "gpu"),
    ),
    Metric(
        "glm53_node_gpu_throttled",
        "1 for each reason that holds the clock down.",
        _throttled,
        (*NODE, "gpu", "reason"),
    ),
    Metric(
        "glm53_node_rail_up",
        "1 while the port has a carrier.",
        _rails(lambda rail: None if rail.carrier is None else float(rail.carrier)),
        (*NODE, "rail"),
    ),
    Metric(
        "glm53_node_rail_speed_bytes_per_second",
        "Speed of the link, one way.",
        _rails(lambda rail: _scaled(rail.speed_gbit_per_s, BYTES_IN_GBIT)),
        (*NODE, "rail"),
    ),
    Metric(
        "glm53_node_rail_mtu_bytes",
        "Largest packet of the port.",
        _rails(lambda rail: rail.mtu),
        (*NODE, "rail"),
    ),
    Metric(
        "glm53_node_rail_receive_bytes_per_second",
        "What comes in, RDMA and IP together, over the last seconds.",
        _rails(lambda rail: rail.receive_bytes_per_s),
        (*NODE, "rail"),
    ),
    Metric(
        "glm53_node_rail_transmit_bytes_per_second",
        "What goes out, RDMA and IP together, over the last seconds.",
        _rails(lambda rail: rail.transmit_bytes_per_s),
        (*NODE, "rail"),
    ),
    Metric(
        "glm53_node_rail_errors_total",
        "Packets damaged or lost, and answers that RDMA waited for in vain, since the boot.",
        _rails(lambda rail: rail.errors),
        (*NODE, "rail"),
        kind="counter",
    ),
    # --- benches
    Metric(
        "glm53_bench_timestamp_seconds",
        "When the last bench of this node was measured.",
        _bench,
        ("kind",),
    ),
)
