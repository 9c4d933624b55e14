"""Nix and the program judge alike: on every case of the rules' own tests."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from nix_tool import ROOT, Nix
from test_config_rules import BAD, GOOD

from glm53ctl.config.layers import Layer, Problems, gather
from glm53ctl.config.rules import RULES, violations
from glm53ctl.config.schema import Config
from glm53ctl.config.sources import load
from glm53ctl.config.validation import nested, validate

sys.path.insert(0, str(ROOT / "nix"))
import schema

SCHEMA = ROOT / "nix/modules/schema.json"
VALID = [
    "nodes=[{name: spark-head, address: 10.0.9.1}, {name: spark-worker, address: 10.0.9.2}]",
    "licenses.accept=[ShapleyMCG-1.0, CC-BY-NC-ND-4.0]",
]
WORDS = [
    *(words for _, words in BAD),
    *(words for cases in GOOD.values() for words in cases),
    *([f"profile={profile}"] for profile in ("vllm-recipe", "long", "demo")),
]


def said(words: list[str]) -> tuple[dict[str, Any], Config]:
    """Return what words say, as Nix is told it, and the configuration that the program makes."""
    leaves = gather(Path("/nonexistent"), [*VALID, *words], {}, Problems(), required=False)
    config = validate(leaves)
    assert isinstance(config, Config)
    own = {path: leaf for path, leaf in leaves.items() if leaf.origin.layer is not Layer.PROFILE}
    return nested(own), config


KEY = "/etc/credstore/glm53.api-key"
CASES = [
    *((words, None) for words in WORDS),
    # A credential answers rules about the API only.
    *((words, KEY) for words in WORDS if all(word.startswith("api.") for word in words)),
]


def named(words: list[str], key: str | None) -> str:
    return " ".join(words) + (", a key" if key else "")


@pytest.fixture(scope="module")
def judged(nix: Nix) -> dict[str, Any]:
    """Return what Nix makes of every case."""
    cases = {}
    for words, key in CASES:
        options = {"enable": True, "rank": 0, "settings": said(words)[0]}
        options["credentials"] = {"apiKey": key}
        cases[named(words, key)] = [{"services": {"glm53": options}}]
    return nix.machines(cases)


@pytest.mark.parametrize(("words", "key"), CASES, ids=[named(*case) for case in CASES])
def test_both_find_the_same(words: list[str], key: str | None, judged: dict[str, Any]) -> None:
    found = judged[named(words, key)]
    assert "error" not in found, found
    broken = violations(said(words)[1], {"api-key"} if key else set())
    assert sorted(f["rule"] for f in found["findings"]) == sorted(rule.name for rule, _ in broken)


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_both_see_the_same_settings(
    words: list[str], judged: dict[str, Any], tmp_path: Path
) -> None:
    """What Nix judged is what the program makes of the file that Nix writes."""
    found = judged[named(words, None)]
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps(found["settings"]))
    config = load(file, environ={}, rules=False).config
    assert found["effective"] == config.model_dump(mode="json")


def test_every_code_of_the_modules_is_a_code_of_the_program() -> None:
    """Nothing is called otherwise than `glm53ctl` calls it."""
    folder = ROOT / "nix/modules"
    text = "".join(file.read_text() for file in folder.rglob("*.nix"))
    said = set(re.findall(r"\b(?:API|CFG|MEM|NET|RANK|PAIR)_[A-Z_]+\b", text))
    assert len(said) > 5
    program = "".join(file.read_text() for file in (ROOT / "glm53ctl").rglob("*.py"))
    assert {code for code in said if f'"{code}"' not in program} == set()


def test_nix_has_a_predicate_for_every_rule() -> None:
    folder = ROOT / "nix/modules/rules"
    text = "".join(file.read_text() for file in folder.glob("*.nix"))
    missing = [rule.name for rule in RULES if f"\n  {rule.name} =" not in text]
    assert missing == []


def test_nix_knows_the_configuration_as_it_is() -> None:
    wanted = schema.document()
    if os.environ.get("GLM53_UPDATE_GOLDEN"):
        SCHEMA.write_text(json.dumps(wanted, indent=1, ensure_ascii=False) + "\n")
    assert json.loads(SCHEMA.read_text()) == json.loads(json.dumps(wanted)), (
        "make it anew: .venv/bin/python nix/schema.py > nix/modules/schema.json"
    )
