"""The configuration as people read it, and as it is written back."""

import json
from pathlib import Path

import pytest
import yaml
from config_texts import VALID, given

from glm53ctl.config import knobs
from glm53ctl.config.catalog import LEAVES
from glm53ctl.config.docstrings import description
from glm53ctl.config.explain import render_config, rows, to_yaml
from glm53ctl.config.profiles import PROFILES
from glm53ctl.config.sources import load

DOCS = Path(__file__).parents[3] / "docs" / "configuration.md"
ODD = (
    "canary.expect='yes'",
    "canary.prompt='null'",
    "weights.revision='1e5" + 37 * "0" + "'",
    "api.port=9000",
)


@pytest.mark.parametrize("profile", list(PROFILES))
def test_the_yaml_loads_to_the_same_configuration(tmp_path: Path, profile: str) -> None:
    config = given(*VALID, *ODD, f"profile={profile}").config
    path = tmp_path / "config.yaml"
    path.write_text(to_yaml(config))
    assert load(path, environ={}).config == config


def test_a_row_says_value_and_origin() -> None:
    loaded = given(*VALID, "serve.max_num_seqs=2")
    found = {row.path: row for row in rows(loaded)}
    assert found.keys() == LEAVES.keys()
    assert found["serve.max_num_seqs"][1:] == ("2", "--set")
    assert found["kv.dtype"][1:] == ("fp8", "profile vllm-recipe")


def test_a_shown_value_can_be_given_back() -> None:
    loaded = given(*VALID, *ODD)
    words = [f"{row.path}={row.value}" for row in rows(loaded)]
    assert given(*words).config == loaded.config


def test_show_prints_yaml_json_and_origins() -> None:
    loaded = given(*VALID)
    assert yaml.safe_load(render_config(loaded)) == json.loads(render_config(loaded, as_json=True))
    lines = render_config(loaded, explain=True).splitlines()
    assert any(
        line.startswith("kv.dtype: fp8 ") and line.endswith("# profile vllm-recipe")
        for line in lines
    )
    explained = json.loads(render_config(loaded, explain=True, as_json=True))
    assert explained["nodes"]["origin"] == "--set"


def test_the_page_is_the_one_that_the_code_writes() -> None:
    assert DOCS.read_text() == knobs.render(), "run python -m glm53ctl.config.knobs"


def test_the_page_tells_every_setting(tmp_path: Path) -> None:
    knobs.main([str(tmp_path / "page.md")])
    page = (tmp_path / "page.md").read_text()
    for path, setting in LEAVES.items():
        assert f"| `{path}`" in page
        assert description(setting), path
