"""What an expression of PromQL stands on: the metrics and the labels in it."""

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from glm53ctl.exporter.table import METRICS
from glm53ctl.view import engine

PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is missing (Debian, Ubuntu: apt install prometheus)"
)
RECORDED = Path(__file__).parents[1] / "view" / "vllm-0.32.0.prom"
_ENGINE = {"engine", "model_name"}
_OF_SPECULATION = {
    engine.DRAFTS: _ENGINE,
    engine.ACCEPTED: _ENGINE,
    engine.ACCEPTED_AT: _ENGINE | {"position"},
}
"""Not in the recording, as the demo drafts nothing: from vllm/v1/spec_decode/metrics.py."""
BY_PROMETHEUS = {"instance", "job"}
_NAME = re.compile(r"\b(?:glm53_|vllm:)[a-z0-9_]+")
_SELECTOR = re.compile(r"\{([^}]*)\}")
_MATCHER = re.compile(r"(\w+)\s*[=!]~?\s*\"")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")


def _of_the_engine() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(RECORDED.read_text()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return _OF_SPECULATION | {name: found[name] for name in found if name in engine.READ}


KNOWN = {metric.name: set(metric.labels) for metric in METRICS} | _of_the_engine()
"""Labels of every metric that may be asked for: ours, and those of vLLM's that the page reads."""


def names(expression: str) -> set[str]:
    """Return the metrics in an expression."""
    return set(_NAME.findall(expression))


def labels(expression: str) -> set[str]:
    """Return the labels that an expression selects or groups by."""
    selected = {
        label for found in _SELECTOR.findall(expression) for label in _MATCHER.findall(found)
    }
    grouped = (word for found in _GROUPING.findall(expression) for word in found.split(","))
    return selected | {word.strip() for word in grouped if word.strip()}


def strange(expression: str, also: Iterable[str] = ()) -> set[str]:
    """Return what an expression asks for and nobody has; `also` are labels used of its result."""
    asked = names(expression)
    there = BY_PROMETHEUS.union(*(KNOWN.get(name, set()) for name in asked))
    return (asked - KNOWN.keys()) | ((labels(expression) | set(also)) - there)


def promtool(*arguments: str | Path) -> None:
    """Run promtool; what it says of a failure is the test's message."""
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def write_rules(path: Path, expressions: Iterable[str]) -> None:
    """Write expressions as recording rules: promtool parses no expression by itself."""
    rules = [{"record": f"it:{number}", "expr": text} for number, text in enumerate(expressions)]
    path.write_text(yaml.safe_dump({"groups": [{"name": "expressions", "rules": rules}]}))
