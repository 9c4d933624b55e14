"""What systemd says of a service."""

from glm53ctl.diagnose.signature import Confidence, Signature

TABLE = (
    Signature(
        "UNIT_START_LIMIT",
        ("start-limit-hit",),
        r"start-limit-hit",
        "systemd gives up (start-limit-hit) after several failed starts; the cause is the failure "
        "before it.",
        "Mend that cause, then `systemctl reset-failed` and start the units again.",
    ),
    Signature(
        "UNIT_TIMEOUT_SHORT",
        ("start operation timed out",),
        r"(?P<unit>[\w@.-]+\.service): start operation timed out",
        "systemd ended {unit} while it was still starting (start operation timed out).",
        "Use the units of this package: TimeoutStartSec is extended there while the start moves.",
    ),
    Signature(
        "UNIT_TIMEOUT_SHORT",
        ("core processes to start", "VLLM_ENGINE_READY_TIMEOUT_S"),
        r"Timed out waiting for engine core processes to start|"
        r"(?i:increase|raise|set)\S* .*VLLM_ENGINE_READY_TIMEOUT_S",
        "vLLM ended its own start: the engine was not ready within VLLM_ENGINE_READY_TIMEOUT_S "
        "(600 s unless set).",
        "Start it with `glm53ctl` (the plan sets 3600 s), or set it on both ranks.",
    ),
    Signature(
        "UNIT_WATCHDOG",
        ("Watchdog timeout",),
        r"(?P<unit>[\w@.-]+\.service): Watchdog timeout \(limit (?P<limit>[^)]+)\)",
        "systemd ended {unit}: its supervisor gave no sign of life for {limit}.",
        "Look at `glm53ctl status`: the engine stood still, or the host did.",
        confidence=Confidence.LIKELY,
    ),
)
