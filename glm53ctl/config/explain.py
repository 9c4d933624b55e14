"""The configuration for people: each value with its origin, and as YAML or JSON."""

import json
from typing import NamedTuple

import yaml
from pydantic import JsonValue

from glm53ctl.config.catalog import LEAVES
from glm53ctl.config.identity import value_at
from glm53ctl.config.schema import Config
from glm53ctl.config.sources import Loaded

LONG_VALUE = 40
"""Values longer than this do not widen the column of the others."""


class Row(NamedTuple):
    """One line of `config show --explain`."""

    path: str
    value: str
    origin: str


def one_line(value: JsonValue) -> str:
    """Return a value as it can be written after `--set path=`."""
    text: str = yaml.safe_dump(
        value, default_flow_style=True, sort_keys=False, width=10**9, allow_unicode=True
    )
    return text.removesuffix("...\n").strip()


def rows(loaded: Loaded) -> list[Row]:
    """Return every setting with its value and the place that said it."""
    return [
        Row(path, one_line(value_at(loaded.config, path)), str(loaded.origins[path]))
        for path in LEAVES
    ]


def to_yaml(config: Config) -> str:
    """Return the whole configuration as a file that loads to the same values."""
    text: str = yaml.safe_dump(
        config.model_dump(mode="json"), sort_keys=False, width=100, allow_unicode=True
    )
    return text


def to_json(config: Config) -> str:
    """Return the whole configuration as JSON."""
    return config.model_dump_json(indent=2)


def render_config(loaded: Loaded, *, explain: bool = False, as_json: bool = False) -> str:
    """Return the text of `config show`: YAML or JSON, with origins when they are asked for."""
    if not explain:
        return (to_json if as_json else to_yaml)(loaded.config).rstrip("\n")
    if as_json:
        data = {
            r.path: {"value": value_at(loaded.config, r.path), "origin": r.origin}
            for r in rows(loaded)
        }
        return json.dumps(data, indent=2, ensure_ascii=False)
    found = rows(loaded)
    width = max(len(f"{row.path}: {row.value}") for row in found if len(row.value) < LONG_VALUE)
    return "\n".join(f"{f'{r.path}: {r.value}':<{width}}  # {r.origin}" for r in found)
