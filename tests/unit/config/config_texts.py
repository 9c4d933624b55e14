"""Configurations that the tests of this room start from."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given as property_of
from hypothesis import settings

from glm53ctl.config.schema import Config
from glm53ctl.config.sources import Loaded, load

NODES = "nodes=[{name: spark-head, address: 10.0.9.1}, {name: spark-worker, address: 10.0.9.2}]"
ACCEPTED = "licenses.accept=[ShapleyMCG-1.0, CC-BY-NC-ND-4.0]"
VALID = (NODES, ACCEPTED)

FILE = """\
profile: vllm-recipe
nodes:
  - {name: spark-head, address: 10.0.9.1}
  - {name: spark-worker, address: 10.0.9.2}
licenses:
  accept: [ShapleyMCG-1.0, CC-BY-NC-ND-4.0]
"""


def given(*overrides: str, path: Path | None = None, **options: Any) -> Loaded:
    """Load what these words say, in an empty environment."""
    return load(path, overrides=overrides, environ=options.pop("environ", {}), **options)


def pair(*overrides: str) -> Config:
    """Return a valid pair with changes that no rule has judged."""
    return given(*VALID, *overrides, rules=False).config


def drawn(*args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    """Draw values as hypothesis does, without a time limit: a busy machine is no failure."""
    return lambda test: settings(deadline=None)(property_of(*args, **kwargs)(test))
