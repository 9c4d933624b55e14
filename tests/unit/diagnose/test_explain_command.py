"""`glm53ctl explain`: files and pipes in, causes out."""

import json
import os
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from glm53ctl.cli import app
from glm53ctl.diagnose import commands
from glm53ctl.errors import UserError

PORT = (
    "OSError: [Errno 98] error while attempting to bind on address ('0.0.0.0', 8888): "
    "address already in use"
)


def run(*words: str, stdin: str | None = None):
    return CliRunner().invoke(app, ["explain", *words], input=stdin)


def test_a_file_is_explained_with_cause_evidence_and_next_step(tmp_path):
    log = tmp_path / "rank0.log"
    log.write_text(f"INFO all is well\n{PORT}\n")
    got = run(str(log))
    assert got.exit_code == 3
    assert got.stdout.splitlines()[0] == "fail PORT_IN_USE"
    assert "port 8888" in got.stdout
    assert "-> Stop the process" in got.stdout
    assert f"| {PORT}" in got.stdout


@pytest.mark.parametrize("words", [[], ["-"]])
def test_a_pipe_is_explained(words):
    got = run(*words, stdin=PORT)
    assert got.exit_code == 3
    assert "PORT_IN_USE" in got.stdout


def test_a_healthy_log_is_no_failure(logs):
    got = run(str(logs / "healthy-rank0.log"))
    assert (got.exit_code, got.stdout) == (0, "nothing known is wrong here\n")


def test_json_holds_the_finding_with_confidence_and_stage():
    (one,) = json.loads(run("--json", stdin=PORT).stdout)
    assert (one["code"], one["confidence"], one["stage"]) == ("PORT_IN_USE", "certain", None)
    assert one["evidence"] == [PORT]


def test_a_request_is_linted(tmp_path):
    file = tmp_path / "body"
    file.write_text('{"model": "m", "messages": [], "extra_body": {"top_k": 1}}')
    got = run("--request", str(file))
    assert got.exit_code == 3
    assert "top_k" in got.stdout


def test_a_request_is_one_whatever_it_holds(tmp_path):
    file = tmp_path / "body"
    file.write_text('{"t": 1}')
    assert "REQ_SHAPE" in run("--request", str(file)).stdout


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"message": "maximum context length is 131072 tokens", "code": 400}, "REQ_CONTEXT"),
        ({"message": "it broke", "code": 500}, "API_SERVER_ERROR"),
        ({"message": "full", "code": 503}, "API_BUSY"),
        ({"message": "no", "code": "REQ_ROLE"}, "REQ_REFUSED"),
        ("no", "REQ_REFUSED"),
    ],
)
def test_an_error_that_came_without_its_head_is_explained(error, code):
    assert code in run(stdin=json.dumps({"error": error})).stdout


def test_an_answer_is_one_however_long_it_is_and_whatever_it_is_called(tmp_path):
    answer = json.dumps({"choices": [{"message": {"content": "!" * 6000}}]})
    (tmp_path / "answer.txt").write_text(answer)
    for got in (run(stdin=answer), run("-", stdin=answer), run(str(tmp_path / "answer.txt"))):
        assert "OUTPUT_DEGENERATE" in got.stdout


def test_silence_is_judged_as_of_a_time():
    start = (
        "INFO 09-20 10:00:05 world_size=2 rank=0 distributed_init_method=tcp://10.0.0.1:1 "
        "backend=nccl"
    )
    assert "NCCL_INIT_STALL" in run("--now", "09-20 11:00:00", stdin=start).stdout


def test_a_time_that_is_none_is_refused():
    got = run("--now", "yesterday", stdin=PORT)
    assert isinstance(got.exception, UserError)
    assert got.exception.code == "TIME_UNREADABLE"


def test_a_file_that_is_not_there_is_one_sentence(tmp_path):
    got = run(str(tmp_path / "none.log"))
    assert isinstance(got.exception, UserError)
    assert got.exception.code == "FILE_UNREADABLE"


def test_a_directory_is_one_sentence(tmp_path):
    assert isinstance(run(str(tmp_path)).exception, UserError)


@pytest.fixture
def terminal(monkeypatch, tmp_path):
    """Return the arguments for a host of its own, asked from a terminal."""
    monkeypatch.setattr("glm53ctl.diagnose.commands._is_terminal", lambda: True)
    node = "{name: a, address: 127.0.0.1}"
    file = tmp_path / "config.yaml"
    file.write_text(f"nodes: [{node}]\npaths: {{state_dir: {tmp_path}}}\n")
    return ["--config", str(file)]


def test_without_a_file_the_newest_logs_of_this_host_are_explained(terminal, tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "rank0-000001.log").write_text("CUDA out of memory")
    (logs / "rank0-000002.log").write_text(PORT)
    got = run(*terminal)
    assert "PORT_IN_USE" in got.stdout
    assert "GPU_OUT_OF_MEMORY" not in got.stdout


@pytest.fixture
def stdin(monkeypatch, request):
    """A pipe, as ssh without a terminal hands over, and in what state it is."""
    monkeypatch.setattr(commands, "PIPE_SECONDS", 0.2, raising=False)
    reader, writer = os.pipe()
    with open(reader) as stream, open(writer, "w") as other:
        if request.param == "written":
            print(PORT, file=other, flush=True)
        if request.param == "ended":
            other.close()
        monkeypatch.setattr(sys, "stdin", None if request.param == "closed" else stream)
        yield


@pytest.mark.parametrize(
    ("stdin", "from_pipe"),
    [("open", False), ("ended", False), ("closed", False), ("written", True)],
    indirect=["stdin"],
)
def test_a_pipe_that_says_nothing_is_not_waited_for(stdin, from_pipe, tmp_path):
    log = tmp_path / "logs" / "rank0-000001.log"
    log.parent.mkdir()
    log.write_text(PORT)
    file = tmp_path / "config.yaml"
    file.write_text(f"nodes: [{{name: a, address: 127.0.0.1}}]\npaths: {{state_dir: {tmp_path}}}\n")
    assert commands._default(file) == [Path("-") if from_pipe else log]


def test_without_a_file_and_without_a_log_it_says_so(terminal):
    got = run(*terminal)
    assert isinstance(got.exception, UserError)
    assert got.exception.code == "LOG_NONE"
