"""`glm53ctl switch`: what it refuses, what it proves, and with which status it ends."""

import json
import subprocess

import pytest
from unit.cli.conftest import clean_environment, closed_port, config, run, settings  # noqa: F401 - fixtures  # noqa: F401

from glm53ctl.bench.ledger import append
from glm53ctl.bench.result import Case, Identity, Result
from glm53ctl.config.sources import digest, load
from glm53ctl.errors import UserError
from glm53ctl.switch import bench
from glm53ctl.switch.bench import Proof, shortfall

ASKED = {"think": False, "max_tokens": 400}


def result(
    *values: float, name: str = "prose", lower: bool = False, of: str = "", **asked: int
) -> Result:
    case = Case(name=name, unit="tok/s", values=values, lower_is_better=lower)
    identity = Identity(config_digest=of)
    return Result(
        kind="decode", at="2026-11-30T00:00:00", identity=identity, parameters=asked, cases=(case,)
    )


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        (result(10, 10), result(9.1, 9.1), None),
        (result(10, 10), result(8.9, 8.9), "prose reaches 0.89"),
        (result(1, 1, lower=True), result(1.05, 1.05, lower=True), None),
        (result(1, 1, lower=True), result(1.2, 1.2, lower=True), "prose reaches 0.83"),
        (result(1, 1, lower=True), result(0, 0, lower=True), None),
        (result(10, 10), result(10, name="other"), "no case in common"),
        (result(0, 0), result(0, 0), "no case in common"),
    ],
)
def test_each_case_must_reach_its_share(before, after, fault):
    found = shortfall((before,), (after,), 0.9)
    assert found is None if fault is None else fault in found


def test_a_bench_is_compared_with_what_runs_now(config):  # noqa: F811
    now = load(config).config
    with pytest.raises(UserError) as caught:
        Proof.of("decode --runs 5", 0.9, now)
    assert caught.value.code == "SWITCH_NO_MEASURE"
    ledger = config.parent / "state/bench.jsonl"
    append(ledger, result(1.0, of="another", **ASKED))
    append(ledger, result(2.0, of=digest(now), **ASKED))
    append(ledger, result(3.0, of=digest(now), **ASKED | {"max_tokens": 100}))
    append(ledger, result(4.0, of=digest(now)))
    proof = Proof.of("decode --runs 5", 0.9, now)
    assert proof.words == ("decode", "--runs", "5")
    assert [r.cases[0].values for r in proof.before] == [(2.0,)]
    proof = Proof.of("decode --runs 5 --max-tokens 100", 0.9, now)
    assert [r.cases[0].values for r in proof.before] == [(3.0,)]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("demmo",), "CFG_PROFILE"),
        (("demo", "--set", "serve.max_num_seqs=no"), "CFG_TYPE"),
        (("demo",), "SWITCH_NOTHING"),
        (("demo", "--set", "paths.run_dir=/elsewhere"), "SWITCH_PLACE"),
        (("demo", "--set", "dense=fp8", "--bench", "decode"), "SWITCH_NO_MEASURE"),
        (("demo", "--set", "dense=fp8", "--bench", "decode 'open"), "SWITCH_BENCH"),
        (("demo", "--set", "serve.max_num_seqs=2"), "PAIR_DOWN"),
    ],
)
def test_what_is_refused_ends_with_2_and_changes_nothing(run, config, words, code):  # noqa: F811
    said = run("switch", *words, "--config", config)
    assert said.code == 2, said
    assert said.err.startswith(code) or code in said.err
    assert not (config.parent / "state/switched.json").exists()
    assert json.loads(config.read_text())["profile"] == "demo"


@pytest.mark.parametrize("said", ["", "no JSON", "{}"])
def test_a_bench_that_prints_no_result_proves_nothing(monkeypatch, said):
    done = subprocess.CompletedProcess([], 0, stdout=said)
    monkeypatch.setattr(bench.subprocess, "run", lambda *_, **__: done)
    fault = Proof(("decode",), 0.9, (result(1.0),)).fault(())
    assert fault == "`bench decode` printed no result"
