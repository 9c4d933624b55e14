"""Config -> the plan of a rank. Everything common is made once; only what must differ is added."""

from glm53ctl.config.schema import Config, Node
from glm53ctl.errors import UserError
from glm53ctl.plan.env import common_env, node_env
from glm53ctl.plan.model import RankPlan, SecretSource
from glm53ctl.plan.options import common_argv

RANK_FLAGS = {
    "--node-rank": ("nodes",),
    "--headless": ("nodes",),
    "--host": ("api.host",),
    "--port": ("api.port",),
}
"""Flags that differ between the ranks, with their settings; no other flag may differ."""

API_KEY = "VLLM_API_KEY"
"""The engine reads its API key here; on the command line it would stand in `ps` and in the log."""


def rank_argv(config: Config, rank: int) -> list[str]:
    """Return what is this rank's own: the head serves clients, the others have no port."""
    own = ["--node-rank", str(rank)]
    if rank > 0:
        return [*own, "--headless"]
    return [*own, "--host", config.api.host, "--port", str(config.api.port)]


def base_url(config: Config) -> str:
    """Return where the head reaches its own API; a wildcard address is reached by loopback."""
    return config.api.url_at(config.api.reached_at)


def api_key(config: Config) -> SecretSource:
    """Return where the key of the API is, if there is one."""
    return SecretSource("api-key", config.api.key_file, "api.key_file")


def _node(config: Config, rank: int) -> Node:
    if not 0 <= rank < config.world_size:
        raise UserError(
            "RANK_UNKNOWN",
            f"There is no rank {rank}: `nodes` lists {config.world_size}.",
            f"Use a rank from 0 to {config.world_size - 1}.",
        )
    return config.nodes[rank]


def plan_rank(config: Config, rank: int, interface: str | None = None) -> RankPlan:
    """Return the plan of one rank.

    `interface` is the network device that holds the node's address, as probed; it counts only
    where the configuration names none.
    """
    node = _node(config, rank)
    head = rank == 0
    return RankPlan(
        rank=rank,
        node=node.name,
        argv=(
            f"{config.engine.prefix}/bin/vllm",
            "serve",
            config.weights.model_dir,
            *common_argv(config),
            *rank_argv(config, rank),
            *config.engine.extra_args,
        ),
        env={
            **config.engine.extra_env,
            **common_env(config),
            **node_env(config, node, interface),
        },
        secret_env={API_KEY: api_key(config)} if head else {},
        base_url=base_url(config) if head else None,
    )


def plan_pair(config: Config) -> tuple[RankPlan, ...]:
    """Return the plans of all ranks, head first."""
    return tuple(plan_rank(config, rank) for rank in range(config.world_size))
