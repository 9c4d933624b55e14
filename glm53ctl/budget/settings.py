"""What of the configuration decides about memory and speed."""

from dataclasses import dataclass
from typing import Literal

from glm53ctl.config.schema import Config

Method = Literal["dflash", "mtp", "none"]
Dense = Literal["bf16", "fp8", "q4"]
Group = Literal["kda", "mla", "shared", "mlp"]


@dataclass(frozen=True)
class Settings:
    """The engine's settings that the budget needs; lengths in tokens, sizes in bytes.

    The last five are what older engines and the recipes' patches had otherwise: `draft_block` is
    the KV block of DFlash2's sliding window, 0 for the engine's own; `prefill_checkpoint`, states
    that a KDA group keeps for a checkpoint; `pooled_indexer`, whether the indexer's workspace is
    counted in pooled rows; `estimate_graphs`, whether the memory profile leaves room for graphs;
    `draft_ranks`, over how many ranks the draft is split, 0 for all.
    """

    ranks: int = 2
    context: int = 900_000
    streams: int = 4
    batch: int = 1024
    utilization: float = 0.87
    kv_bytes: int | None = None
    method: Method = "dflash"
    drafted: int = 7
    dense: Dense = "bf16"
    dense_groups: tuple[tuple[Group, Dense], ...] = ()
    vision: bool = True
    graphs: bool = True
    floor_gib: float = 2.0
    draft_block: int = 0
    prefill_checkpoint: int = 1
    pooled_indexer: bool = True
    estimate_graphs: bool = True
    draft_ranks: int = 0

    def dense_of(self, group: Group | None) -> Dense:
        """Return how the projections of a group are kept; outside of all groups, as they came."""
        return dict(self.dense_groups).get(group, self.dense) if group else "bf16"


def from_config(config: Config) -> Settings:
    """Return the settings of a configuration."""
    return Settings(
        ranks=config.world_size,
        context=config.serve.max_model_len,
        streams=config.serve.max_num_seqs,
        batch=config.serve.max_num_batched_tokens,
        utilization=config.kv.gpu_memory_utilization,
        kv_bytes=config.kv.bytes,
        method=config.effective_spec_method,
        drafted=config.spec_tokens,
        dense=config.dense,
        dense_groups=_exceptions(config),
        vision=config.media.enable,
        graphs=not config.engine.enforce_eager,
        floor_gib=config.memory.floor_gib,
    )


def _exceptions(config: Config) -> tuple[tuple[Group, Dense], ...]:
    said = config.dense_groups
    named: tuple[tuple[Group, Dense | None], ...] = (
        ("kda", said.kda), ("mla", said.mla), ("shared", said.shared), ("mlp", said.mlp),
    )  # fmt: skip
    return tuple((group, mode) for group, mode in named if mode is not None)
