"""`glm53ctl ask` against a fake server: what a person sees, and a program that reads the pipe."""

import io
import json
import os
import subprocess
import sys

import pytest
from fake_openai import event, stream
from rich.console import Console

from glm53ctl import cli


@pytest.fixture
def ask(tmp_path, monkeypatch, capfd, server):
    """Run `glm53ctl ask ...`; return its exit status, stdout and stderr."""
    for name in [name for name in os.environ if name.startswith("GLM53")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    for console in (cli.out(), cli.err()):  # they looked at FORCE_COLOR when they were made
        monkeypatch.setattr(console, "_force_terminal", None)
        monkeypatch.setattr(console, "_color_system", None)
    key = tmp_path / "key"
    key.write_text("opensesame-0123456789\n")
    config = tmp_path / "config.yaml"
    config.write_text(
        json.dumps(
            {
                "profile": "demo",
                "serve": {"model_name": "glm"},
                "api": {"port": server.port, "key_file": str(key)},
                "paths": {"state_dir": str(tmp_path / "state"), "run_dir": str(tmp_path / "run")},
            }
        )
    )

    def run(*words: str):
        monkeypatch.setattr(sys, "argv", ["glm53ctl", "ask", "-c", str(config), *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, *capfd.readouterr()

    run.config = config
    return run


def test_the_answer_is_printed_as_it_was_said(ask, server):
    said = ["a line of more than eighty columns " * 4, "\n\tif x[0]: :bug: [red]no[/red]\n", "  "]
    server.body = [stream(*(event(content=text) for text in said))]
    assert ask("Why?") == (0, "".join(said) + "\n", "")


def test_thinking_is_printed_before_the_answer(ask, server):
    server.body = [stream(event(reasoning="Hm. "), event(content="Yes."))]
    assert ask("Why?") == (0, "Hm. \n\nYes.\n", "")


def test_the_configured_key_model_and_length_are_sent(ask, server):
    ask("Why?", "--max-tokens", "7", "--no-think")
    assert server.headers[0]["authorization"] == "Bearer opensesame-0123456789"
    assert server.bodies[0]["model"] == "glm"
    assert server.bodies[0]["max_tokens"] == 7
    assert server.bodies[0]["chat_template_kwargs"] == {"enable_thinking": False}


def test_a_refusal_is_exit_2_and_one_line(ask, server):
    server.status, server.body = 400, [b'{"error": {"message": "[no] :bug:"}}']
    assert ask("Why?") == (2, "", "API_REFUSED: the server answers 400: [no] :bug:\n")


def test_a_failing_server_is_exit_3(ask, server):
    server.status = 503
    code, _, err = ask("Why?")
    assert code == 3
    assert err.startswith("API_REFUSED: ")


def test_a_question_that_is_not_utf8_is_exit_2(ask, server):
    code, _, err = ask(os.fsdecode(b"\xff"))
    assert code == 2
    assert err.startswith("API_NOT_TEXT: ")
    assert server.bodies == []


def test_a_reader_that_leaves_is_no_traceback(ask, server):
    server.body = [stream(*(event(content="word " * 4000) for _ in range(20)))]
    command = [sys.executable, "-m", "glm53ctl", "ask", "-c", str(ask.config), "Why?"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.read(4)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(120) != 0


def test_on_a_terminal_thinking_is_dim_and_the_answer_is_not():
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, color_system="standard", _environ={})
    cli._say(console, "Hm. ", thinking=True)
    cli._say(console, "Yes.")
    assert file.getvalue() == "\x1b[2mHm. \x1b[0mYes."
