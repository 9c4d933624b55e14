"""How far a start has come, read off what the engine prints.

vLLM offers no progress interface and rank 1 never opens a port, so its log is the only witness.
The lines below were seen with vLLM 0.32.0 (CPU) and 0.33.0; a line that changes its wording makes
a stage longer, never wrong: the stage after it takes over.
"""

import re
from dataclasses import dataclass, field
from enum import StrEnum

from glm53ctl.config.schema import StageLimits


class Stage(StrEnum):
    """Stages of a start, in order."""

    BOOT = "boot"
    RENDEZVOUS = "rendezvous"
    NCCL = "nccl"
    LOAD = "load"
    KV = "kv"
    GRAPHS = "graphs"
    API = "api"
    WARMUP = "warmup"
    CANARY = "canary"
    SERVING = "serving"


ORDER = tuple(Stage)

STALL_CODES = {
    Stage.RENDEZVOUS: "NCCL_INIT_STALL",
    Stage.NCCL: "NCCL_INIT_STALL",
}
"""Codes of a stage that ran out of time; every other stage gives LOAD_STALLED."""

_ENTERS: tuple[tuple[Stage, re.Pattern[str]], ...] = (
    (Stage.RENDEZVOUS, re.compile(r"world_size=\d+ rank=\d+ .*distributed_init_method")),
    (Stage.NCCL, re.compile(r"vLLM is using nccl==|rank \d+ in world size \d+ is assigned")),
    (Stage.LOAD, re.compile(r"Starting to load model")),
    (Stage.KV, re.compile(r"Loading weights took|Model loading took")),
    (Stage.GRAPHS, re.compile(r"GPU KV cache size|CPU KV cache size|Capturing CUDA graphs")),
    (Stage.API, re.compile(r"init engine \(profile, create kv cache, warmup model\) took")),
    (Stage.WARMUP, re.compile(r"Application startup complete")),
)
"""A line that matches means that the stage has begun."""

_PROGRESS: tuple[tuple[Stage, re.Pattern[str]], ...] = (
    (Stage.LOAD, re.compile(r"checkpoint shards:.*?(\d+)/(\d+)")),
    (Stage.GRAPHS, re.compile(r"Capturing CUDA graphs.*?(\d+)/(\d+)")),
)
"""Lines that count something within a stage: done and all."""

_COMPILES = (
    re.compile(r"flashinfer\.jit: Building JIT module (\w+)"),
    re.compile(r"TileLang begins to compile kernel `(\w+)`"),
    re.compile(r"(JIT kernel) warmup starting"),
)
"""Lines before a silence in which a kernel is built, once for each engine: FlashInfer's top-k took
more than ten minutes."""


@dataclass
class StageTracker:
    """Follows one engine from its first line to `Application startup complete`.

    Feed it lines with the monotonic time in seconds at which they arrived; read `stage`,
    `percent` (0 to 100, or None where nothing is counted), `compiling` (the kernel that was begun
    last in this stage, or None) and `stalled()`.
    """

    limits: StageLimits
    started: float
    stage: Stage = Stage.BOOT
    percent: int | None = None
    compiling: str | None = None
    last_progress: float = field(init=False)

    def __post_init__(self) -> None:
        self.last_progress = self.started

    def feed(self, line: str, now: float) -> bool:
        """Take one line; say whether it moved the stage, its percentage or what is compiled."""
        for stage, pattern in _ENTERS:
            if ORDER.index(stage) > ORDER.index(self.stage) and pattern.search(line):
                return self.enter(stage, now)
        for stage, pattern in _PROGRESS:
            if stage is self.stage and (found := pattern.search(line)):
                return self.count(int(found[1]), int(found[2]), now)
        for pattern in _COMPILES:
            if found := pattern.search(line):
                self.compiling, self.last_progress = found[1], now
                return True
        return False

    def count(self, done: int, everything: int, now: float) -> bool:
        """Take how far the stage is; say whether that moved its percentage."""
        return self._progress(100 * done // max(everything, 1), now)

    def enter(self, stage: Stage, now: float) -> bool:
        """Begin a stage, from a line or because the supervisor itself reached it."""
        self.stage, self.percent, self.compiling, self.last_progress = stage, None, None, now
        return True

    def _progress(self, percent: int, now: float) -> bool:
        if percent == self.percent:
            return False
        self.percent, self.compiling, self.last_progress = percent, None, now
        return True

    def remaining(self, now: float) -> float:
        """Seconds until the stage counts as stalled (infinite once it serves)."""
        if self.stage is Stage.SERVING:
            return float("inf")
        limit: float = getattr(self.limits, self.stage.value)
        return limit - (now - self.last_progress)

    def stalled(self, now: float) -> str | None:
        """Return the code of a stalled stage, or None while there is time left."""
        if self.remaining(now) > 0:
            return None
        return STALL_CODES.get(self.stage, "LOAD_STALLED")
