"""The alert rules: what they stand on exists, and they fire when they should."""

import ast
import re
from pathlib import Path

import pytest
import yaml
from promql import names, needs_promtool, promtool, strange

import glm53ctl

ROOT = Path(__file__).parents[3]
FILE = ROOT / "monitoring" / "alerts.yaml"
CASES = Path(__file__).parent / "alert_cases.yaml"
RULES = [
    pytest.param(rule, id=rule["alert"])
    for group in yaml.safe_load(FILE.read_text())["groups"]
    for rule in group["rules"]
]


def codes() -> set[str]:
    """Return every text of the program that has the form of a code."""
    return {
        node.value
        for path in Path(glm53ctl.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"[A-Z]+(_[A-Z]+)*", node.value)
    }


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as a forge makes them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_of_metrics_and_labels_that_there_are(rule):
    said = " ".join(rule["annotations"].values())
    assert names(rule["expr"])
    assert strange(rule["expr"], re.findall(r"\$labels\.(\w+)", said)) == set()


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_says_what_to_do_and_where(rule):
    assert rule["labels"]["severity"] in {"critical", "warning"}
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert anchor == rule["alert"].lower()
    assert anchor in anchors(ROOT / page)


def test_the_codes_are_the_programs():
    given = {rule.values[0]["labels"].get("code") for rule in RULES} - {None}
    assert len(given) > 10
    assert given - codes() == set()


def test_every_runbook_has_its_rule():
    rules = {rule.values[0]["alert"] for rule in RULES}
    told = set(re.findall(r"^### (\w+)$", (ROOT / "docs/alerts.md").read_text(), re.MULTILINE))
    assert told == rules


def test_every_rule_has_a_case_in_which_it_fires_and_one_in_which_it_does_not():
    fires: dict[str, set[bool]] = {}
    for case in yaml.safe_load(CASES.read_text())["tests"]:
        for asked in case["alert_rule_test"]:
            fires.setdefault(asked["alertname"], set()).add(bool(asked.get("exp_alerts")))
    assert fires == {rule.values[0]["alert"]: {True, False} for rule in RULES}


@needs_promtool
def test_promtool_takes_the_rules():
    promtool("check", "rules", FILE)


@needs_promtool
def test_the_rules_fire_when_they_should():
    promtool("test", "rules", CASES)
