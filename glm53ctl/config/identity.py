"""What both nodes must agree on: a flat view of the configuration, its digest, its differences."""

import hashlib
import json
from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from glm53ctl.config.catalog import LEAVES
from glm53ctl.config.masks import shown
from glm53ctl.config.schema import Config

View = Mapping[str, JsonValue]
"""Dotted paths to values, for everything that must be equal on both nodes."""

_ABSENT = "not set"


def flat(path: str, value: JsonValue) -> Iterator[tuple[str, JsonValue]]:
    """Yield a value as leaves; lists and mappings by position and key, so that a line names one."""
    members: Iterator[tuple[object, JsonValue]] | None = None
    if isinstance(value, dict) and value:
        members = iter(value.items())
    elif isinstance(value, list) and value:
        members = iter(enumerate(value))
    if members is None:
        yield path, value
        return
    for key, inner in members:
        yield from flat(f"{path}.{key}", inner)


def value_at(config: Config, path: str) -> JsonValue:
    """Return one setting as plain data."""
    value: JsonValue = config.model_dump(mode="json")
    for key in LEAVES[path].key:
        assert isinstance(value, dict)  # noqa: S101 - a path in LEAVES leads through sections
        value = value[key]
    return value


def shared_view(config: Config) -> dict[str, JsonValue]:
    """Return everything that must be equal on both nodes; settings of one node are left out."""
    view: dict[str, JsonValue] = {}
    for path, setting in LEAVES.items():
        if not setting.knob.node_local:
            view.update(flat(path, value_at(config, path)))
    return view


def digest(config: Config) -> str:
    """Return the sha256 of the shared view, equal exactly when the nodes agree."""
    text = json.dumps(shared_view(config), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def differences(here: View, there: View, other: str = "rank 1") -> list[str]:
    """Return one line for each setting in which two shared views differ."""
    lines = []
    for path in sorted({*here, *there}):
        mine, theirs = (
            shown(path, view[path]) if path in view else _ABSENT for view in (here, there)
        )
        if path in here and path in there and here[path] == there[path]:
            continue
        lines.append(f"{path}: {mine} here, {theirs} on {other}")
    return lines
