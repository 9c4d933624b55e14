"""Lines that say that something broke, and not why."""

from glm53ctl.diagnose.signature import Confidence, Signature
from glm53ctl.supervise.stages import Stage

TABLE = (
    Signature(
        "NCCL_INIT_FAILED",
        ("unhandled system error", "unhandled cuda error"),
        r"NCCL error.*unhandled (?:system|cuda) error",
        "NCCL could not set up the link and does not say why.",
        "Set fabric.nccl_debug: INFO for one start, and look at `glm53ctl doctor`.",
        confidence=Confidence.SYMPTOM,
        stages=frozenset({Stage.BOOT, Stage.RENDEZVOUS, Stage.NCCL}),
    ),
    Signature(
        "RANK_LOST",
        ("died unexpectedly",),
        r"Worker proc \S*?-(?P<rank>\d+) died unexpectedly \(exit code: (?P<exit>[^)]+)\)",
        "the worker process of rank {rank} died (exit code {exit}).",
        "The kernel log of that minute says whether memory ran out.",
        confidence=Confidence.SYMPTOM,
    ),
    Signature(
        "RANK_LOST",
        ("recvValue failed", "Connection closed by peer", "Connection reset by peer"),
        r"recvValue failed.*Connection was likely closed|"
        r"(?:gloo|c10d|TCPStore|NCCL).*Connection (?:closed|reset) by peer",
        "the connection to the other rank closed: that one went first.",
        "Look at the other node's log of the same minute.",
        confidence=Confidence.SYMPTOM,
    ),
    # What none of the others knows: the first error of a start is nearest to its cause.
    Signature(
        "ENGINE_ERROR",
        ("Error: ", "Exception: ", "Value error, "),
        r"(?:^|\) |\] |\w: |ERROR )(?P<error>[A-Za-z_][\w.]*(?:Error|Exception)): "
        r"(?!Engine core init|WorkerProc init|EngineCore )(?P<text>.*\S)",
        "the engine failed while it started: {error}: {text}< ({detail})>",
        "That is the first error of the start and not known here; the traceback above it in "
        "`glm53ctl logs` says where.",
        confidence=Confidence.SYMPTOM,
        also=(r"^\s+Value error, (?P<detail>.*\S)",),
        stages=frozenset(set(Stage) - {Stage.SERVING}),
        until=("Application startup complete", "Avg generation throughput"),
    ),
    Signature(
        "ENGINE_FAILED",
        ("EngineCore encountered a fatal error", "EngineCore failed to start"),
        r"EngineCore (?:encountered a fatal error|failed to start)",
        "the engine failed and the log names no cause that is known here.",
        "The first traceback above that line says what happened.",
        confidence=Confidence.SYMPTOM,
    ),
)
