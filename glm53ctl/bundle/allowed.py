"""What of structured data may be shown: a value that is not listed here is not in the bundle."""

from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

from pydantic import JsonValue

from glm53ctl.config.catalog import LEAVES
from glm53ctl.config.identity import value_at
from glm53ctl.config.masks import NOT_SHOWN
from glm53ctl.config.schema import Config

Allowed = Mapping[str, Any]
"""Names of fields, each with what is allowed below it; `ALL` allows everything there."""
ALL: Allowed = {"*": True}


def _all(names: str) -> dict[str, Allowed]:
    return dict.fromkeys(names.split(), ALL)


FINDING: Allowed = _all("code severity message fix node")
LOSS: Allowed = {
    **_all("code message rank epoch at commanded own seen_by action"),
    "cause": FINDING,
}
"""Without `evidence`: lines of logs, which are in the logs."""
RANK: Allowed = {
    **_all("rank node phase since stage percent epoch crashes retry_at ready_at start_seconds"),
    **_all("switched memory_available_gib counters engine"),
    "findings": FINDING,
    "last_loss": LOSS,
    "trial": _all("state reason ready_seconds proof_seconds"),
    "peers": {"state": ALL, "silent_seconds": ALL},
}
STATUS: Allowed = {
    **_all("version time state ready epoch missing next_step"),
    "ranks": RANK,
    "findings": FINDING,
    "last_loss": LOSS,
}
FACTS: Allowed = {
    **_all("format node rank at software network rdma gpus memory listeners clock disks owners"),
    **_all("service_uid devices limits libraries clock_cap boots peer weights"),
    "kernel": {"release": ALL, "page_size": ALL, "unknown": ALL},
    "processes": {"pid": ALL, "name": ALL, "rss_kib": ALL, "unknown": ALL},
}
"""Not command lines, whatever they are of; not units and texts, which have files of their own."""
BENCH: Allowed = _all("kind at identity ok cases")
UNIT = (
    *("Id", "LoadState", "ActiveState", "SubState", "UnitFileState", "Result", "NRestarts"),
    *("ExecMainStatus", "ExecMainCode", "ActiveEnterTimestamp", "InactiveEnterTimestamp"),
    *("MemoryCurrent", "CPUUsageNSec", "TasksCurrent", "StatusText", "DropInPaths"),
)
"""Properties of a unit. Not its environment, and no command line."""
CONFIG_TEXTS = frozenset(
    {
        *("serve.model_name", "weights.repo", "weights.revision", "weights.fallback_repo"),
        *("engine.prefix", "engine.dtype", "paths.state_dir", "paths.run_dir", "api.host"),
        "weights.model_dir",
    }
)
"""Settings whose free text may be shown; numbers, switches and choices always may."""


def picked(value: JsonValue, allowed: Allowed) -> JsonValue:
    """Return what is allowed of a value; lists, and mappings by number, are gone through."""
    if "*" in allowed:
        return value
    if isinstance(value, list):
        return [picked(one, allowed) for one in value]
    if not isinstance(value, dict):
        return value if value is None else NOT_SHOWN
    if value and all(key.isdigit() for key in value):
        return {key: picked(one, allowed) for key, one in value.items()}
    return {key: picked(one, allowed[key]) for key, one in value.items() if key in allowed}


def settings(config: Config) -> dict[str, JsonValue]:
    """Return the configuration by dotted path, without free texts that are not listed."""
    shown: dict[str, JsonValue] = {}
    for path, setting in LEAVES.items():
        value = value_at(config, path)
        plain = value is None or isinstance(value, bool | int | float)
        may = plain or path in CONFIG_TEXTS or _is_choice(setting.field.annotation)
        shown[path] = value if may else NOT_SHOWN
    shown["nodes"] = [
        {"name": node.name, "address": str(node.address), "hcas": list(node.hcas)}
        for node in config.nodes
    ]
    return shown


def _is_choice(annotation: Any) -> bool:
    """Say whether a type is one of a few words (or a number), never free text."""
    if get_origin(annotation) is Literal or annotation in (bool, int, float, type(None)):
        return True
    parts = get_args(annotation)
    return bool(parts) and all(_is_choice(p) for p in parts if isinstance(p, type) or get_args(p))
