"""The body of /health; the status codes are vLLM's: 200, or 503 once the engine is dead."""

from typing import Any, Literal

from pydantic import BaseModel, Field

RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
USAGE = "vllm:kv_cache_usage_perc"


class Health(BaseModel):
    """The server lives; whether it takes new work is another matter."""

    status: Literal["ok"] = "ok"
    busy: bool = Field(description="Something is being generated.")
    accepts: bool = Field(description="New work is taken, as far as the host allows it.")
    active_streams: int = Field(description="Replies that were asked for and are not complete.")
    running: int = Field(description="Those that the engine works on.")
    waiting: int = Field(description="Those that wait for the engine.")
    pool_tokens: int | None = Field(description="Tokens that the KV cache holds.")
    pool_free_tokens: int | None = Field(description="Tokens of it that are free.")


class Dead(BaseModel):
    """The engine is gone, and this process soon."""

    status: Literal["dead"] = "dead"


async def look(state: Any) -> tuple[int, Health | Dead]:
    """Return status and body. `state` is that of vLLM's server.

    `pool_tokens` is what vLLM logs as the size of the KV cache: how many tokens the pool holds of
    one request after another. The gauges are the engine's, so they lag by up to a step.
    """
    from vllm.v1.engine.exceptions import EngineDeadError

    client = state.engine_client
    try:
        await client.check_health()
    except EngineDeadError:
        return 503, Dead()
    gauges = read_gauges()
    pool = client.vllm_config.cache_config.kv_cache_size_tokens
    active = state.glm53_load.active
    return 200, Health(
        busy=active > 0 or gauges[RUNNING] > 0,
        accepts=state.glm53_load.refusal() is None,
        active_streams=active,
        running=int(gauges[RUNNING]),
        waiting=int(gauges[WAITING]),
        pool_tokens=pool,
        pool_free_tokens=None if pool is None else round(pool * (1 - gauges[USAGE])),
    )


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
