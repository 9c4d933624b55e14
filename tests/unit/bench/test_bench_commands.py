"""`glm53ctl bench` and the recipe's own command line, end to end against a fake server."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fast_server import running
from typer.testing import CliRunner

from glm53ctl import cli
from glm53ctl.bench import commands, draw
from glm53ctl.bench.client import Server
from glm53ctl.bench.ledger import read
from glm53ctl.bench.result import Case, Identity, Result
from glm53ctl.errors import UserError

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def url():
    with running() as address:
        yield address


def bench(*words: str | Path):
    return CliRunner().invoke(cli.app, ["bench", *map(str, words)])


SMALL = {
    "decode": ("--runs", "1", "--max-tokens", "12", "--no-coherence"),
    "prefill": ("--tokens", "300"),
    "needle": ("--tokens", "300", "--depth", "0.5"),
    "prefix": ("--tokens", "300", "--runs", "1"),
    "agents": ("--tokens", "250", "--newcomer", "300", "--runs", "1", "--max-tokens", "12"),
    "load": ("--streams", "2", "--tokens", "250", "--runs", "1", "--max-tokens", "12"),
}


ASKED = {
    "decode": {"think": False, "max_tokens": 12},
    "prefill": {},
    "needle": {"depth": (0.5,)},
    "prefix": {},
    "agents": {"count": 4, "tokens": 250, "newcomer": 300, "max_tokens": 12},
    "load": {"tokens": 250, "max_tokens": 12},
}


@pytest.mark.parametrize("kind", SMALL)
def test_each_bench_prints_and_keeps_a_result(url, tmp_path, kind):
    kept, copy = tmp_path / "ledger.jsonl", tmp_path / "copy.json"
    said = bench(kind, "--url", url, *SMALL[kind], "--json", "--ledger", kept, "--out", copy)
    assert said.exit_code == 0, said.output
    result = Result.model_validate_json(said.stdout)
    assert result.kind == kind
    assert result.ok
    assert result.identity.engine == "0.0.fake"
    assert result.identity.model == "fake"
    assert Result.model_validate_json(kept.read_text()) == result
    assert Result.model_validate_json(copy.read_text()) == result
    assert result.parameters == ASKED[kind] == commands.parameters_of((kind, *SMALL[kind]))


def test_what_is_cut_short_is_printed_kept_and_exit_3(tmp_path):
    kept = tmp_path / "ledger.jsonl"
    with running("--context", "500") as address:
        words = ("--tokens", "300", "--tokens", "700", "--ledger", kept)
        said = bench("prefill", "--url", address, *words)
    assert said.exit_code == 3
    assert "  prefill 300 " in said.stdout
    assert "note: prefill 700: the server answers 400" in said.stdout
    [result] = read(kept)
    assert [case.name for case in result.cases] == ["prefill 300"]
    assert result.ok


def test_the_ladder_ends_where_the_context_does():
    """The length of a prompt is met to a part of a hundred: nobody asks for the very last token."""
    assert commands.rungs(1_048_576, 1) == commands.LADDER
    *lower, last = commands.rungs(900_000, 32)
    assert tuple(lower) == commands.LADDER[:-1]
    assert 870_000 < last < 900_000 - 32
    assert commands.rungs(4_096, 1) == (commands.rungs(4_096, 1)[0],)
    assert commands.rungs(None, 1) == commands.LADDER


@pytest.mark.parametrize("kind", ["prefill", "needle", "prefix"])
def test_a_ladder_that_nobody_named_fits_the_pair(monkeypatch, kind):
    with running("--context", "1200") as address:
        target = commands.Target(Server(address, "fake"), Identity(), None, context=1200)
        monkeypatch.setattr(commands, "_target", lambda *_, **__: target)
        said = bench(kind, "--json")
    assert said.exit_code == 0, said.output
    assert Result.model_validate_json(said.stdout).cases[0].name.startswith(f"{kind} 1")


def test_text_shows_the_recipes_beside(url):
    asked = ("--runs", "1", "--no-coherence", "--streams", "1")
    said = bench("decode", "--url", f"{url}/v1/", *asked)
    assert "published: vllm-recipe 62.9, tensorfold 114.7" in said.stdout
    assert "acceptance: 2.50 tokens a step" in said.stdout


def test_answers_that_are_not_sane_are_exit_1(url):
    said = bench("decode", "--url", url, "--runs", "1", "--max-tokens", "12", "--streams", "1")
    assert said.exit_code == 1
    assert "note: coherence" in said.stdout


def test_nobody_there_is_exit_3():
    said = bench("decode", "--url", "http://127.0.0.1:9")
    assert isinstance(said.exception, UserError)
    assert said.exception.exit_code == 3


def keep(path: Path, digest: str, *values: float) -> None:
    case = Case(name="structured x1", unit="tok/s", values=values, baseline={"vllm-recipe": 62.9})
    result = Result(
        kind="decode", at="2026-01-02T03:04:05", identity=Identity(config_digest=digest),
        cases=(case,),
    )  # fmt: skip
    with path.open("a") as file:
        file.write(result.model_dump_json() + "\n")


def test_a_worse_one_is_exit_1(tmp_path):
    path = tmp_path / "ledger.jsonl"
    for _start in range(4):
        keep(path, "old", 66.0, 66.4, 65.8, 66.1, 66.3)
        keep(path, "new", 61.9, 62.3, 61.7, 62.0, 62.2)
    assert bench("compare", "--ledger", path).exit_code == 1
    said = bench("compare", "new", "old", "--ledger", path, "--json")
    assert said.exit_code == 0
    assert json.loads(said.stdout)[0]["verdict"] == "better"


def test_one_start_each_is_not_sure_and_no_exit_1(tmp_path):
    path = tmp_path / "ledger.jsonl"
    keep(path, "old", 66.0, 66.4, 65.8, 66.1, 66.3)
    keep(path, "new", 61.9, 62.3, 61.7, 62.0, 62.2)
    said = bench("compare", "--ledger", path)
    assert said.exit_code == 0
    assert "one start each: how much starts differ is not known" in said.stdout


def test_one_alone_is_not_compared(tmp_path):
    path = tmp_path / "ledger.jsonl"
    keep(path, "old", 1.0)
    said = bench("compare", "--ledger", path)
    assert isinstance(said.exception, UserError)
    assert said.exception.code == "BENCH_NOTHING_TO_COMPARE"


def test_the_ledger_is_drawn(tmp_path):
    path = tmp_path / "ledger.jsonl"
    keep(path, "old", 66.0, 66.4)
    keep(path, "new", 61.9, 62.3)
    assert bench("plot", tmp_path / "p.svg", "--ledger", path).exit_code == 0
    assert "<svg" in (tmp_path / "p.svg").read_text()


def test_a_line_of_the_picture_is_of_what_may_be_compared(tmp_path, monkeypatch):
    def kept(model: str, **asked: int) -> Result:
        return Result(
            kind="decode", at="2026-01-02T03:04:05", identity=Identity(model=model),
            parameters=asked, cases=(Case(name="prose x1", unit="tok/s", values=(1.0,)),),
        )  # fmt: skip

    pictures = []
    monkeypatch.setattr(draw, "save", lambda canvas, target: pictures.append(canvas))
    draw.draw([kept("a", n=1), kept("b", n=1), kept("a", n=2), kept("a", n=1)], tmp_path / "p.svg")
    lines = [line for line in pictures[0].axes[0].lines if line.get_linestyle() == "-"]
    assert [list(line.get_xdata()) for line in lines] == [[0, 3], [1], [2]]
    assert [line.get_label() for line in lines] == ["a, n 1", "b, n 1", "a, n 2"]


def test_the_schema_is_printed():
    assert json.loads(bench("schema").stdout)["title"] == "Result"


def test_the_recipe_s_command_line_still_works(url, tmp_path):
    target = tmp_path / "structured.json"
    words = "--phase structured --structured --runs 2 --max-tokens 20 --skip-coherence --out"
    done = subprocess.run(
        [sys.executable, ROOT / "tests/bench_decode.py", *words.split(), target,
         "--url", url, "--model", "fake"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(target.read_text())
    assert said["phase"] == "structured"
    assert [case["name"] for case in said["cases"]] == ["structured x1"]
    assert len(said["cases"][0]["values"]) == 2


def recipe(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / "tests/bench_decode.py", "--skip-coherence", *words],
        capture_output=True, text=True, timeout=60, env=os.environ | environment,
    )  # fmt: skip


def test_the_recipe_s_command_line_takes_a_key():
    with running("--key", "k1") as url:
        words = ("--runs", "1", "--max-tokens", "20", "--url", url)
        assert recipe(*words).returncode == 2
        assert recipe(*words, GLM53_BENCH_KEY="k1").returncode == 0


@pytest.mark.parametrize("word", ["--runs", "--max-tokens", "--concurrency"])
def test_the_recipe_s_command_line_refuses_nothing_at_all(word):
    done = recipe(word, "0")
    assert done.returncode == 2
    assert f"argument {word}: 0 is too few" in done.stderr


def test_nothing_of_it_is_imported_before_it_is_used():
    """Starting any command must not pay for benches, plans or pictures."""
    code = (
        "import sys, glm53ctl.cli; print([m for m in sys.modules if m.startswith(("
        "'matplotlib', 'glm53ctl.bench.m', 'glm53ctl.bench.c', 'glm53ctl.budget.'))])"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = said.stdout
    assert "matplotlib" not in loaded
    assert "glm53ctl.bench.measure" not in loaded
    assert "glm53ctl.budget.speed" not in loaded
