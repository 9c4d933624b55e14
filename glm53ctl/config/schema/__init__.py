"""The configuration as types: every setting exists here once.

The docs table, the YAML file, the environment names, the Nix options and the engine's argv are
all derived from these classes.
"""

from typing import Annotated, Literal

from pydantic import Field

from glm53ctl.config.schema.api import Api, Media, Thinking
from glm53ctl.config.schema.base import Knob, Section, Setting, settings
from glm53ctl.config.schema.engine import Ablit, DenseGroups, DenseMode, Engine, Kv, Serve, Spec
from glm53ctl.config.schema.page import Page
from glm53ctl.config.schema.pair import Fabric, Link, Node
from glm53ctl.config.schema.supervise import (
    Canary,
    Memory,
    Paths,
    Power,
    StageLimits,
    Supervise,
    Warmup,
)
from glm53ctl.config.schema.watchdog import Watchdog
from glm53ctl.config.schema.weights import Licenses, Weights

ProfileName = Literal["vllm-recipe", "long", "demo"]


class Config(Section):
    """The whole configuration of a pair; the same text on every node."""

    profile: ProfileName = "vllm-recipe"
    """Set of defaults to start from."""
    nodes: Annotated[tuple[Node, ...], Field(min_length=1, max_length=4)]
    """The machines, head first."""
    fabric: Fabric = Fabric()
    """The network between the nodes."""
    link: Link = Link()
    """The link between the supervisors."""
    engine: Engine = Engine()
    """The installed vLLM."""
    weights: Weights = Weights()
    """Checkpoint and draft."""
    licenses: Licenses = Licenses()
    """Accepted licences."""
    serve: Serve = Serve()
    """Size of requests and batches."""
    kv: Kv = Kv()
    """The KV cache."""
    spec: Spec = Spec()
    """Speculative decoding."""
    dense: Annotated[DenseMode, Knob(vllm_recipe="GLM53_DENSE_FP8", tensorfold="DENSE")] = "bf16"
    """Type of the projections that the checkpoint keeps in BF16; `fp8` and `q4` (MXFP4) are made
    while loading. Less memory and faster decoding for a little accuracy: docs/engine.md."""
    dense_groups: DenseGroups = DenseGroups()
    """Exceptions from it."""
    ablit: Ablit = Ablit()
    """Removal of a refusal direction."""
    api: Api = Api()
    """The server that clients see."""
    thinking: Thinking = Thinking()
    """Reasoning and tool calls."""
    media: Media = Media()
    """Images and videos."""
    memory: Memory = Memory()
    """Guard of the unified memory."""
    power: Power = Power()
    """Clock limits."""
    supervise: Supervise = Supervise()
    """Recovery."""
    canary: Canary = Canary()
    """The question before READY."""
    warmup: Warmup = Warmup()
    """Requests before that question."""
    watchdog: Watchdog = Watchdog()
    """The outside eye."""
    page: Page = Page()
    """What an owner looks at."""
    paths: Paths = Paths()
    """The program's own files."""

    @property
    def head(self) -> Node:
        """The node of rank 0."""
        return self.nodes[0]

    @property
    def dense_modes(self) -> dict[str, DenseMode]:
        """The type of each group of dense projections."""
        groups = type(self.dense_groups).model_fields
        return {name: getattr(self.dense_groups, name) or self.dense for name in groups}

    @property
    def world_size(self) -> int:
        """Number of ranks: one a node."""
        return len(self.nodes)

    @property
    def spans_hosts(self) -> bool:
        """Whether there is a fabric at all: ranks of one host meet on its loopback."""
        return not all(node.address.is_loopback for node in self.nodes)

    @property
    def effective_spec_method(self) -> Literal["dflash", "mtp", "none"]:
        """What drafts in the end: DFlash2 only with its licence accepted, else MTP."""
        if self.spec.method == "dflash" and "CC-BY-NC-ND-4.0" not in self.licenses.accept:
            return "mtp"
        return self.spec.method

    @property
    def spec_tokens(self) -> int:
        """Drafted tokens a step (0 without speculation)."""
        method = self.effective_spec_method
        if method == "none":
            return 0
        if self.spec.tokens is not None and method == self.spec.method:
            return self.spec.tokens
        return {"dflash": 7, "mtp": 2}[method]


__all__ = [
    "Ablit",
    "Api",
    "Canary",
    "Config",
    "Engine",
    "Fabric",
    "Knob",
    "Kv",
    "Licenses",
    "Link",
    "Media",
    "Memory",
    "Node",
    "Page",
    "Paths",
    "Power",
    "ProfileName",
    "Section",
    "Serve",
    "Setting",
    "Spec",
    "StageLimits",
    "Supervise",
    "Thinking",
    "Watchdog",
    "Weights",
    "settings",
]
