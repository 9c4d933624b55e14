"""The dashboard asks for nothing that nobody tells."""

import json
import re
from pathlib import Path

import pytest
import yaml
from promql import names, needs_promtool, promtool, strange, write_rules

FILE = Path(__file__).parents[3] / "monitoring" / "grafana.json"
DASHBOARD = json.loads(FILE.read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
ANNOTATION = DASHBOARD["annotations"]["list"][0]
ASKED = [
    pytest.param(target["expr"], target["legendFormat"], id=f"{panel['title']} {target['refId']}")
    for panel in PANELS
    for target in panel["targets"]
] + [pytest.param(ANNOTATION["expr"], ANNOTATION["textFormat"], id="annotation")]
EXPRESSIONS = [one.values[0] for one in ASKED] + [
    rule["expr"]
    for group in yaml.safe_load((FILE.parent / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]
MINUTES = {"s": 1 / 60, "m": 1, "h": 60, "d": 1440}


def ranges(expression: str) -> list[float]:
    """Return the ranges in an expression, in minutes."""
    found = re.findall(r"\[(\d+)([smhd])\]", expression)
    assert len(found) == expression.count("[")
    return [int(number) * MINUTES[unit] for number, unit in found]


@pytest.mark.parametrize(("expression", "legend"), ASKED)
def test_each_query_is_of_metrics_and_labels_that_there_are(expression, legend):
    assert names(expression)
    assert strange(expression, re.findall(r"\{\{(\w+)\}\}", legend)) == set()


def test_a_query_of_what_is_not_there_is_found():
    assert strange("max by (rank) (glm53_pair_ready)") == {"rank"}
    assert strange('vllm:num_requests_swapped{engine="0"}') >= {"vllm:num_requests_swapped"}
    assert strange("glm53_node_rail_up", ["rails"]) == {"rails"}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_each_range_holds_samples_that_are_a_minute_apart(expression):
    """Prometheus asks once a minute unless told otherwise; a rate is of two samples at least."""
    assert all(minutes >= 4 for minutes in ranges(expression))


def test_the_ranges_of_an_expression_are_found():
    assert ranges("rate(a[1m]) / increase(b[30s]) > c[1d]") == [1.0, 0.5, 1440.0]


def test_pair_ranks_engine_and_nodes_are_on_it():
    shown = set().union(*(names(expression) for expression, _ in (one.values for one in ASKED)))
    for kind in ("pair", "rank", "engine", "node"):
        assert any(name.startswith(f"glm53_{kind}_") for name in shown)


def test_panels_do_not_overlap():
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells


@needs_promtool
def test_each_query_is_promql(tmp_path):
    rules = tmp_path / "rules.yaml"
    write_rules(rules, [one.values[0] for one in ASKED])
    promtool("check", "rules", rules)
