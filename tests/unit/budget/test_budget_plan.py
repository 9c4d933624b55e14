"""`glm53ctl plan`: what it prints, refuses and draws; and the table of published figures."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from glm53ctl import cli
from glm53ctl.budget.published import rows, summary, table
from glm53ctl.errors import UserError

TABLE = Path(__file__).parents[3] / "docs/plan.md"


def plan(*words: str | Path):
    return CliRunner().invoke(cli.app, ["plan", *map(str, words)])


def test_the_answer_has_what_was_asked_for():
    said = plan("--json", "--profile", "vllm-recipe", "--machine", "gb10")
    assert said.exit_code == 0
    data = json.loads(said.stdout)
    assert data["kv_pool_tokens"] > 900_000
    assert 10 < data["kv_pool_gib"] < 30
    assert 20 < data["decode_floor_ms"] < 120
    assert data["bound_by"] == "memory bandwidth"
    assert len(data["decode"]) == 27  # three speculations, three dense modes, three concurrencies


def test_a_configuration_that_does_not_fit_is_refused_with_what_does():
    said = plan("--json", "--profile", "vllm-recipe", "--set", "kv.gpu_memory_utilization=0.72")
    assert isinstance(said.exception, UserError)
    assert said.exception.code == "PLAN_NO_ROOM"
    assert said.exception.exit_code == 2
    data = json.loads(said.stdout)
    nearest = data["nearest"]["serve.max_model_len"]
    assert f"serve.max_model_len={nearest}" in said.exception.fix
    again = plan(
        "--json", "--profile", "vllm-recipe", "--set", "kv.gpu_memory_utilization=0.72",
        "--set", f"serve.max_model_len={nearest}",
    )  # fmt: skip
    assert again.exit_code == 0


@pytest.mark.parametrize(
    ("setting", "change"),
    [
        ("kv.bytes=42949672960", "kv.bytes=null"),
        ("kv.gpu_memory_utilization=0.6", "kv.gpu_memory_utilization="),
    ],
)
def test_what_is_said_to_fit_does(setting, change):
    said = plan("--json", "--profile", "vllm-recipe", "--set", setting)
    nearest = json.loads(said.stdout)["nearest"]
    changes = [f"{name}={json.dumps(value)}" for name, value in nearest.items()]
    assert changes[0].startswith(change)
    assert all(f"--set {one}" in said.exception.fix for one in changes)
    words = [word for one in (setting, *changes) for word in ("--set", one)]
    assert plan("--json", "--profile", "vllm-recipe", *words).exit_code == 0


def test_the_demo_s_model_is_not_planned():
    said = plan("--profile", "demo")
    assert isinstance(said.exception, UserError)
    assert said.exception.code == "PLAN_NO_GPU"


@pytest.mark.parametrize(("name", "start"), [("p.png", b"\x89PNG"), ("p.svg", b"<?xml")])
def test_it_is_drawn(tmp_path, name, start):
    assert plan("--profile", "long", "--plot", tmp_path / name).exit_code == 0
    assert (tmp_path / name).read_bytes().startswith(start)


def test_a_picture_of_another_kind_is_refused(tmp_path):
    said = plan("--profile", "long", "--plot", tmp_path / "plan.bmp")
    assert isinstance(said.exception, UserError)
    assert said.exception.code == "PLOT_FORMAT"


def test_text_names_every_part():
    said = plan("--profile", "vllm-recipe", "--spec", "dflash")
    for word in ("routed experts", "KV pool", "DFlash2 draft", "left to the host", "prefill"):
        assert word in said.stdout


def test_the_summary_counts_what_the_table_shows():
    found = rows()
    said = summary(found)
    assert said["figures"] == len(found) == table(found).count("\n") - 1
    assert said["within_10_percent"] == sum(abs(row.error) <= 0.1 for row in found)
    assert abs(said["worst_error"]) == pytest.approx(max(abs(r.error) for r in found), abs=1e-3)


def test_the_table_in_the_docs_is_today_s():
    assert table(rows()) in TABLE.read_text(encoding="utf-8")
