"""How the pair is started, judged and kept: limits, the canary, memory and back-off."""

from typing import Annotated, Literal

from pydantic import Field

from glm53ctl.config.schema.base import Knob, Section

Seconds = Annotated[float, Field(gt=0, le=86_400)]


class StageLimits(Section):
    """How long a stage of the start may go without progress."""

    boot: Seconds = 180.0
    """From the start of the process to its first words about the pair."""
    rendezvous: Seconds = 120.0
    """Until the ranks have met."""
    nccl: Seconds = 180.0
    """Until the collectives work. A wrong port or GID hangs here."""
    load: Seconds = 600.0
    """Without a further shard. A cold load of 164 GiB reports each of its 120 shards."""
    kv: Seconds = 1800.0
    """Profiling and allocation of the KV cache. At the very first start FlashInfer compiles here:
    its top-k alone, which DFlash2 takes, more than six minutes on a server's core."""
    graphs: Seconds = 900.0
    """Kernel compilation, warm-up and capture of CUDA graphs."""
    api: Seconds = 180.0
    """From a warm engine to an answering API."""
    warmup: Annotated[Seconds, Knob(vllm_recipe="GLM53_WARMUP_REQ_TIMEOUT")] = 600.0
    """For each shape of the warm-up's requests."""
    canary: Seconds = 240.0
    """For the first real answers, kernels of new shapes included."""


class Canary(Section):
    """The question that the pair must answer before it is called ready."""

    prompt: str = "Reply with OK."
    """What is asked, at temperature 0 and without thinking."""
    expect: str = "OK"
    """What the answer must be or contain."""
    match: Literal["exact", "contains"] = "contains"
    """How the answer is compared."""
    max_tokens: Annotated[int, Field(ge=1, le=4096)] = 64
    """Length of the answer."""
    min_drafted: Annotated[int, Field(ge=1)] = 64
    """Drafted tokens to see before acceptance is judged; with speculation one must be accepted."""


class Warmup(Section):
    """Requests of many shapes before READY, so that no client waits for a kernel to be compiled.

    What goes wrong in it is shown and keeps nobody from READY; the canary decides about that.
    """

    enable: Annotated[bool, Knob(vllm_recipe="GLM53_BOOT_SHAPE_WARMUP")] = True
    """Warm up at every start."""
    prompt_tokens: tuple[Annotated[int, Field(ge=1, le=1_048_576)], ...] = (16, 256, 1024, 4096)
    """Lengths of the prompts, roughly; those beyond the window are left out."""
    together: tuple[Annotated[int, Field(ge=1, le=256)], ...] = (1, 2, 4)
    """How many requests at a time, for each length; at most `serve.max_num_seqs`."""
    max_tokens: Annotated[int, Field(ge=1, le=4096)] = 32
    """Length of each reply."""
    limit_seconds: Seconds = 900.0
    """The whole sweep ends after this, done or not."""


class Memory(Section):
    """Guard of the unified memory, whose exhaustion freezes a Spark instead of raising an error."""

    floor_gib: Annotated[float, Field(ge=0, le=64)] = 2.0
    """The pair is stopped when less memory than this is available."""
    start_gib: Annotated[float, Field(ge=0, le=128)] = 110.0
    """Memory that must be available before a start."""
    reserve_gib: Annotated[float | None, Field(gt=0, le=16)] = None
    """Memory that the kernel keeps free for itself (vm.min_free_kbytes), set by
    glm53-prepare.service; left out, the kernel's own value."""


class Power(Section):
    """Clock limits of the GPU."""

    max_gpu_clock_mhz: Annotated[int | None, Field(ge=300, le=4000), Knob(node_local=True)] = None
    """Cap set before the start; published figures of the TensorFold recipe used 2200."""


class Supervise(Section):
    """Recovery."""

    limits: StageLimits = StageLimits()
    """Limits of the stages."""
    stop_grace_seconds: Seconds = 10.0
    """From SIGTERM to SIGKILL on a commanded stop, after draining. Losses kill at once."""
    wedge_seconds: Seconds = 150.0
    """Requests running and no counter moving for this long is a wedge. Longer than an
    interruption of the link that heals by itself."""
    frozen_seconds: Seconds = 5.0
    """How long an engine process may be stopped (state T) before the epoch ends."""
    backoff_seconds: Seconds = 2.0
    """Pause before the first relaunch; doubles with each loss."""
    backoff_max_seconds: Seconds = 60.0
    """Longest pause."""
    stable_seconds: Seconds = 600.0
    """Service that lasted this long resets the pause."""
    crash_limit: Annotated[int, Field(ge=1, le=100)] = 3
    """Own crashes within `crash_window_seconds` that lead to HELD."""
    crash_window_seconds: Seconds = 3600.0
    """Window of the crash count."""
    unclean_boot_limit: Annotated[int, Field(ge=1, le=10)] = 2
    """Boots that ended while loading, in a row, that lead to HELD."""
    keep_logs: Annotated[int, Field(ge=1, le=1000), Knob(tensorfold="LOG_KEEP")] = 10
    """Engine logs kept for each rank, one an epoch."""


class Paths(Section):
    """Where the program keeps its own files."""

    state_dir: Annotated[str, Knob(node_local=True)] = "/var/lib/glm53"
    """Incidents, logs and counters; survives a reboot."""
    run_dir: Annotated[str, Knob(node_local=True)] = "/run/glm53"
    """Control sockets and one-run overrides; gone after a reboot."""
