"""The signatures, from cause to symptom.

The order is the order of trust: when a log shows several, the first one is named as the cause.
Log lines are quoted in the shape that vLLM 0.33.0, NCCL 2.31, the kernel or systemd print them.
"""

from glm53ctl.diagnose.table import build, client, engine, fabric, memory, symptoms, units, weights

SIGNATURES = (
    *units.TABLE,
    *build.TABLE,
    *memory.TABLE,
    *fabric.TABLE,
    *weights.TABLE,
    *engine.TABLE,
    *client.TABLE,
    *symptoms.TABLE,
)

__all__ = ["SIGNATURES"]
