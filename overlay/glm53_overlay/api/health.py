"""The body of /health; the status codes are vLLM's: 200, or 503 once the engine is dead."""

from typing import Any

RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
USAGE = "vllm:kv_cache_usage_perc"


async def look(state: Any) -> tuple[int, dict[str, Any]]:
    """Return status and body. `state` is that of vLLM's server.

    `pool_tokens` is what vLLM logs as the size of the KV cache: how many tokens the pool holds of
    one request after another. The gauges are the engine's, so they lag by up to a step.
    """
    from vllm.v1.engine.exceptions import EngineDeadError

    client = state.engine_client
    try:
        await client.check_health()
    except EngineDeadError:
        return 503, {"status": "dead"}
    gauges = read_gauges()
    pool = client.vllm_config.cache_config.kv_cache_size_tokens
    active = state.glm53_load.active
    refusal = state.glm53_load.refusal()
    return 200, {
        "status": "ok",
        "busy": active > 0 or gauges[RUNNING] > 0,
        "accepts": refusal is None,
        "active_streams": active,
        "running": int(gauges[RUNNING]),
        "waiting": int(gauges[WAITING]),
        "pool_tokens": pool,
        "pool_free_tokens": None if pool is None else round(pool * (1 - gauges[USAGE])),
    }


def read_gauges() -> dict[str, float]:
    """Return the engine's gauges, as they stand in this process."""
    from prometheus_client import REGISTRY

    names = (RUNNING, WAITING, USAGE)
    found = dict.fromkeys(names, 0.0)
    for metric in REGISTRY.restricted_registry(list(names)).collect():
        for sample in metric.samples:
            if sample.name in found:
                found[sample.name] += sample.value
    return found
