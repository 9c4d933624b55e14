"""Asking the engine's parser, with stand-ins for the engine; the real one is in tests/engine."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from plan_configs import config

from glm53ctl.errors import UserError
from glm53ctl.plan import RankPlan, check_argv, plan_rank
from glm53ctl.plan.argcheck import SCRIPT


def plan_with(prefix: Path, python: str | None) -> RankPlan:
    """Return a plan whose engine's Python is the given shell script."""
    (prefix / "bin").mkdir(parents=True)
    if python is not None:
        (prefix / "bin/python3").write_text(f"#!/bin/sh\n{python}\n")
        (prefix / "bin/python3").chmod(0o755)
    return plan_rank(config(engine={"prefix": str(prefix)}), 1)


def test_the_parsers_values_come_back(tmp_path: Path) -> None:
    plan = plan_with(tmp_path, """echo '{"version": "0.33.0", "values": {"nnodes": 2}}'""")
    parsed = check_argv(plan, {})
    assert (parsed.version, parsed.values) == ("0.33.0", {"nnodes": 2})


def test_a_refusal_is_said_in_the_engines_words(tmp_path: Path) -> None:
    plan = plan_with(tmp_path, """echo '{"version": "0.33.0", "refusal": "no such flag"}'""")
    with pytest.raises(UserError, match=r"PLAN_ARGV: vLLM 0\.33\.0 .* rank 1: no such flag"):
        check_argv(plan, {})


def test_a_broken_engine_is_no_refusal(tmp_path: Path) -> None:
    plan = plan_with(tmp_path, "echo 'ImportError: libcuda' >&2; exit 1")
    with pytest.raises(UserError, match=r"PLAN_ENGINE: .*ImportError: libcuda"):
        check_argv(plan, {})


def test_an_engine_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    plan = plan_with(tmp_path, "exec sleep 60")
    with pytest.raises(UserError, match=r"PLAN_ENGINE: .*no answer within 0\.2 s"):
        check_argv(plan, {}, deadline_seconds=0.2)


def test_an_engine_without_python_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"PLAN_ENGINE: engine\.prefix: .*/bin"):
        check_argv(plan_with(tmp_path, None), {})


def test_the_engine_is_asked_with_its_own_environment_and_command_line(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    script = f'env > {seen}.env; cat > {seen}.in; echo \'{{"version": "x", "values": {{}}}}\''
    plan = plan_with(tmp_path, script)
    check_argv(plan, {"PATH": os.environ["PATH"], "HF_TOKEN": "hf_x"})
    assert json.loads(Path(f"{seen}.in").read_text())["argv"] == list(plan.argv[1:])
    env = Path(f"{seen}.env").read_text()
    assert "VLLM_HOST_IP=10.0.0.2" in env
    assert "HF_TOKEN" not in env


FAKE_PARSER = """
import argparse
class FlexibleArgumentParser(argparse.ArgumentParser):
    pass
"""
FAKE_CLI_ARGS = """
print("a log line on standard output")
def make_arg_parser(parser):
    parser.add_argument("model_tag")
    parser.add_argument("--nnodes", type=int)
    parser.add_argument("--where", type=__import__("pathlib").Path)
def validate_parsed_serve_args(args):
    if args.nnodes == 3:
        raise TypeError("three is too many")
"""


@pytest.fixture(params=["common", "launchers"])
def fake_vllm(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Return a folder with a `vllm` that keeps its parser where one of the two versions does."""
    files = {
        "vllm/version.py": "__version__ = '9.9'",
        "vllm/utils/argparse_utils.py": FAKE_PARSER,
        f"vllm/entrypoints/{request.param}/cli_args.py": FAKE_CLI_ARGS,
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def answer(folder: Path, *argv: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-P", str(SCRIPT)],
        input=json.dumps({"argv": argv}),
        env={"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "a log line" in done.stderr
    return json.loads(done.stdout)


def test_the_script_answers_on_standard_output_alone(fake_vllm: Path) -> None:
    assert answer(fake_vllm, "serve", "/m", "--nnodes", "2", "--where", "/x") == {
        "version": "9.9",
        "values": {"subparser": "serve", "model_tag": "/m", "nnodes": 2, "where": "/x"},
    }


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--nnodes", "two"], "invalid int value: 'two'"),
        (["--bogus"], "unrecognized arguments: --bogus"),
        (["--nnodes", "3"], "three is too many"),
    ],
)
def test_the_script_hands_on_the_engines_sentence(
    fake_vllm: Path, argv: list[str], sentence: str
) -> None:
    assert sentence in answer(fake_vllm, "serve", "/m", *argv)["refusal"]


def test_a_fault_of_the_engine_is_no_refusal(fake_vllm: Path) -> None:
    cli_args = next(fake_vllm.glob("vllm/entrypoints/*/cli_args.py"))
    cli_args.write_text("import a_package_that_is_missing")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        answer(fake_vllm, "serve", "/m")
    assert "a_package_that_is_missing" in caught.value.stderr
