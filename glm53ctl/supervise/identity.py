"""Who a supervisor is, and whether two of them may form a pair."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, JsonValue

from glm53ctl import __version__
from glm53ctl.config.schema import Config
from glm53ctl.config.sources import differences, digest, shared_view
from glm53ctl.findings import Finding, Severity

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Identity(BaseModel):
    """What both sides tell each other before anything is started.

    `run_id` is new with every start of the supervisor: a peer that comes back with the same one
    was only out of reach, with another one it has lost its engine.
    """

    model_config = ConfigDict(frozen=True)

    rank: int
    node: str
    run_id: str
    boot_id: str
    world_size: int
    version: str
    engine_version: str
    closure: str
    weights_digest: str
    config_digest: str
    config: dict[str, JsonValue]


def boot_id() -> str:
    """Return the kernel's name for this boot."""
    return _BOOT_ID.read_text().strip()


def identify(
    config: Config, rank: int, run_id: str, *, engine_version: str, closure: str, weights: str
) -> Identity:
    """Build this side's identity from its configuration and what is installed."""
    return Identity(
        rank=rank,
        node=config.nodes[rank].name,
        run_id=run_id,
        boot_id=boot_id(),
        world_size=config.world_size,
        version=__version__,
        engine_version=engine_version,
        closure=closure,
        weights_digest=weights,
        config_digest=digest(config),
        config=shared_view(config),
    )


_MAY_LACK = ("weights_digest",)
"""What a node may not have yet: it then forbids a start itself, and introduces itself anew."""

_MUST_EQUAL = (
    ("version", "PAIR_VERSION", "glm53ctl", "Install the same release on both nodes."),
    ("engine_version", "PAIR_ENGINE", "the engine", "Install the same engine on both nodes."),
    ("closure", "PAIR_CLOSURE", "the system closure", "Switch both nodes to one generation."),
    ("weights_digest", "PAIR_WEIGHTS", "the weights", "Run `glm53ctl weights sync` on the worker."),
)
"""Identity field, code of a mismatch, what it is called, and what to do."""


def mismatches(here: Identity, there: Identity) -> list[Finding]:
    """Return what forbids the pair, each with both values; empty when they fit."""
    findings = []
    for field, code, name, fix in _MUST_EQUAL:
        ours, theirs = getattr(here, field), getattr(there, field)
        lacking = field in _MAY_LACK and "" in (ours, theirs)
        if ours != theirs and not lacking:
            message = f"{name} differs: {ours!r} on {here.node}, {theirs!r} on {there.node}."
            findings.append(_finding(code, message, fix, here.node))
    if here.config_digest != there.config_digest:
        lines = differences(here.config, there.config) or ["(no key in common)"]
        message = f"the configuration of {there.node} differs: {'; '.join(lines)}."
        fix = "Put the same configuration on both nodes: they read it anew by themselves."
        findings.append(_finding("PAIR_CONFIG", message, fix, here.node))
    if here.rank == there.rank or there.rank >= here.world_size:
        message = f"{there.node} says it is rank {there.rank} of {here.world_size}, which is taken."
        findings.append(_finding("PAIR_RANK", message, "Give each node its own rank.", here.node))
    return findings


def _finding(code: str, message: str, fix: str, node: str) -> Finding:
    return Finding(code=code, severity=Severity.FAIL, message=message, fix=fix, node=node)
