"""What each command prints and how it ends, on a host where nothing runs."""

import json

import pytest
import yaml

from glm53ctl import cli
from glm53ctl.config.schema import Config
from glm53ctl.status.snapshot import Snapshot

SECRET = "opensesame-0123456789"

RECIPE = f"""\
HEAD_IP=10.0.9.1
WORKER_IP=10.0.9.2
MAX_MODEL_LEN=600000
PORT=9999
HF_TOKEN=hf_{SECRET}
VLLM_API_KEY={SECRET}
EXTRA_ENV="$(curl evil)"
"""

# --- a pair that is down -------------------------------------------------------------------------


def test_status_of_a_pair_that_is_down_is_exit_3_and_says_so(run, config):
    said = run("status", "-c", config)
    assert (said.code, said.err) == (3, "")
    assert said.out.startswith("glm53 down")
    assert "glm53ctl up" in said.out


def test_status_of_a_pair_that_is_down_is_valid_json(run, config, closed_port):
    said = run("status", "-c", config, "--json")
    assert (said.code, said.err) == (3, "")
    picture = Snapshot.model_validate_json(said.out)
    assert (picture.state, picture.ready, picture.missing) == ("down", False, (0, 1))
    assert picture.endpoint == f"http://127.0.0.1:{closed_port}/v1"


@pytest.mark.parametrize("words", [("status",), ("down",), ("resume",), ("ask", "hi")])
def test_what_may_not_be_started_may_still_be_looked_for(run, settings, tmp_path, words):
    """An operator's shell does not see the unit's key, without which a wildcard is refused."""
    file = tmp_path / "open.yaml"
    file.write_text(json.dumps(settings | {"api": settings["api"] | {"host": "0.0.0.0"}}))
    assert run("config", "check", file).code == 2
    assert run(*words, "-c", file).code == 3


def test_status_draws_a_picture_as_well(run, config, tmp_path):
    assert run("status", "-c", config, "--svg", tmp_path / "status.svg").code == 3
    assert (tmp_path / "status.svg").read_text().startswith("<svg")


def test_a_watch_that_is_interrupted_ends_quietly(run, config, monkeypatch):
    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.time, "sleep", interrupt)
    said = run("status", "--watch", "-c", config)
    assert (said.code, said.err) == (130, "")


@pytest.mark.parametrize("word", ["down", "resume", "restart"])
def test_an_order_to_nobody_is_exit_3(run, config, word):
    said = run(word, "-c", config)
    assert said.code == 3
    assert said.err.startswith("PAIR_DOWN: ")
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_a_question_to_nobody_is_exit_3(run, config, closed_port):
    said = run("ask", "Who?", "-c", config)
    assert said.code == 3
    assert said.err.startswith("API_UNREACHABLE: ")
    assert str(closed_port) in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_logs_of_an_engine_that_never_ran_are_none(run, config):
    said = run("logs", "-c", config)
    assert said.code == 2
    assert said.err.startswith("LOG_NONE: ")


def test_logs_are_printed_as_they_are(run, config, tmp_path):
    folder = tmp_path / "state/logs"
    folder.mkdir(parents=True)
    lines = ["1", "\tINFO [red]:bug:[/red] " + "x" * 200, "3"]
    (folder / "rank1-000001.log").write_text("\n".join(lines) + "\n")
    assert run("logs", "1", "-c", config) == (0, "\n".join(lines) + "\n", "")
    assert run("logs", "1", "-n", "1", "-c", config) == (0, "3\n", "")


def test_a_pair_can_be_stopped_with_a_mistake_in_its_configuration(run, config):
    config.write_text("sevre: {}\nprofile: demo\n")
    said = run("down", "-c", config)
    assert said.code == 2
    assert said.err.endswith("To stop without it: `systemctl stop glm53.target`.\n")


@pytest.fixture
def worker(monkeypatch, config, settings):
    """The configuration of a pair of two hosts, on its worker."""
    names = {"spark-head": "192.0.2.1", "spark-worker": "192.0.2.2"}
    nodes = [{"name": name, "address": address} for name, address in names.items()]
    config.write_text(json.dumps({**settings, "nodes": nodes}))
    monkeypatch.setattr("socket.gethostname", lambda: "spark-worker")
    return config


@pytest.mark.parametrize("words", [("ask", "hello"), ("bench", "decode")])
def test_a_worker_is_told_where_to_ask(run, worker, words):
    said = run(*words, "-c", worker)
    assert said.code == 2
    assert said.err.startswith("API_ELSEWHERE: ")
    assert "Ask on spark-head" in said.err


def test_a_worker_asks_an_address_of_the_head(run, worker, settings, monkeypatch):
    """Then it is no mistake to ask from here, whatever comes of it."""
    monkeypatch.setattr("glm53ctl.api.stream_answer", lambda *_: iter(()))
    there = json.loads(worker.read_text()) | {"api": {"host": "192.0.2.1"}}
    worker.write_text(json.dumps(there))
    assert run("ask", "hello", "-c", worker).code == 0


def test_the_logs_of_a_worker_are_its_own(run, worker, tmp_path):
    folder = tmp_path / "state/logs"
    folder.mkdir(parents=True)
    (folder / "rank1-000001.log").write_text("of the worker\n")
    assert run("logs", "-c", worker) == (0, "of the worker\n", "")
    assert run("logs", "0", "-c", worker).err.startswith("LOG_NONE: ")


# --- configuration -------------------------------------------------------------------------------


def test_a_shown_configuration_loads_to_the_same_values(run, config, tmp_path):
    shown = run("config", "show", "-c", config)
    assert (shown.code, shown.err) == (0, "")
    copy = tmp_path / "copy.yaml"
    copy.write_text(shown.out)
    assert run("config", "show", "-c", copy) == shown
    assert Config.model_validate(yaml.safe_load(shown.out)).profile == "demo"


def test_a_shown_configuration_may_be_json(run, config):
    said = run("config", "show", "--json", "-c", config, "--set", "serve.max_num_seqs=3")
    assert (said.code, said.err) == (0, "")
    assert json.loads(said.out)["serve"]["max_num_seqs"] == 3


def test_each_value_is_explained_by_where_it_comes_from(run, config, monkeypatch):
    monkeypatch.setenv("GLM53_SERVE__MAX_NUM_SEQS", "3")
    said = run("config", "show", "--explain", "--json", "-c", config, "--set", "dense=q4")
    explained = json.loads(said.out)
    assert explained["serve.max_num_seqs"] == {"value": 3, "origin": "GLM53_SERVE__MAX_NUM_SEQS"}
    assert explained["dense"] == {"value": "q4", "origin": "--set"}
    assert explained["engine.dtype"]["origin"] == "profile demo"
    assert explained["api.port"]["origin"].startswith(str(config))


def test_a_valid_configuration_is_called_valid(run, config):
    expected = (0, "valid: profile demo, 2 ranks\n", "")
    assert run("config", "check", config) == expected
    assert run("config", "check", "--config", config) == expected


def test_a_doubtful_setting_is_a_warning_and_no_failure(run, config, monkeypatch):
    monkeypatch.setenv("GLM53_TYPO", "1")
    said = run("config", "check", config)
    assert said.code == 0
    assert said.err.startswith("CFG_UNKNOWN_KEY: ")
    assert run("status", "--json", "-c", config).err == ""


def test_an_imported_recipe_is_a_valid_configuration(run, tmp_path):
    recipe = tmp_path / "recipe.env"
    recipe.write_text(RECIPE)
    said = run("config", "import", recipe)
    assert said.code == 0
    made = yaml.safe_load(said.out)
    assert [node["address"] for node in made["nodes"]] == ["10.0.9.1", "10.0.9.2"]
    assert made["serve"]["max_model_len"] == 600_000
    assert made["api"]["port"] == 9999
    file = tmp_path / "imported.yaml"
    file.write_text(said.out + "licenses: {accept: [ShapleyMCG-1.0, CC-BY-NC-ND-4.0]}\n")
    assert run("config", "check", file).out == "valid: profile vllm-recipe, 2 ranks\n"


def test_an_import_says_what_became_of_each_line_and_shows_no_secret(run, tmp_path):
    recipe = tmp_path / "recipe.env"
    recipe.write_text(RECIPE)
    said = run("config", "import", recipe)
    for number in range(1, RECIPE.count("\n") + 1):
        assert f"{recipe}:{number}: " in said.err
    assert SECRET not in said.out + said.err


def test_an_import_takes_the_head_s_address_that_the_file_lacks(run, tmp_path):
    recipe = tmp_path / "local.sh"
    recipe.write_text("WORKER=me@spark-b\nFABRIC_PEER=10.0.9.2\nCONTEXT=262144\n")
    said = run("config", "import", recipe, "--head-address", "10.0.9.1")
    nodes = yaml.safe_load(said.out)["nodes"]
    assert [node["address"] for node in nodes] == ["10.0.9.1", "10.0.9.2"]


# --- plan ----------------------------------------------------------------------------------------


@pytest.fixture
def with_secrets(config, settings, tmp_path, monkeypatch):
    """The demo with a key in a file, and others in the environment that have no business here."""
    (tmp_path / "key").write_text(f"{SECRET}\n")
    settings["api"]["key_file"] = str(tmp_path / "key")
    settings["weights"]["token_file"] = str(tmp_path / "key")
    config.write_text(json.dumps(settings))
    monkeypatch.setenv("VLLM_API_KEY", SECRET)
    monkeypatch.setenv("HF_TOKEN", SECRET)
    return config


@pytest.mark.parametrize("rank", ["0", "1"])
@pytest.mark.parametrize("words", [(), ("--json",), ("--check",)])
def test_the_planned_command_line_shows_no_secret(run, with_secrets, rank, words):
    said = run("plan", "argv", "-c", with_secrets, "--rank", rank, *words)
    assert (said.code, said.err) == (0, "")
    assert SECRET not in said.out
    assert "serve" in said.out
    assert (str(with_secrets.parent / "key") in said.out) == (rank == "0")  # where it comes from


def test_the_plan_as_json_is_one_rank_s_own(run, config, closed_port):
    head = json.loads(run("plan", "argv", "--json", "-c", config).out)
    worker = json.loads(run("plan", "argv", "--json", "--rank", "1", "-c", config).out)
    assert head["argv"][1] == "serve"
    assert head["base_url"] == f"http://127.0.0.1:{closed_port}"
    assert "--headless" not in head["argv"]
    assert "--headless" in worker["argv"]
    assert worker["base_url"] is None


def test_an_argument_that_the_engine_refuses_is_its_own_sentence(run, config, tmp_path):
    answer = '{"version": "0.0.fake", "refusal": "unrecognized arguments: --x"}'
    (tmp_path / "engine/bin/python3").write_text(f"#!/bin/sh\necho '{answer}'\n")
    for words in (("plan", "argv", "--check"), ("restart",)):
        said = run(*words, "-c", config)
        assert (said.code, said.out) == (2, "")
        assert said.err.startswith("PLAN_ARGV: vLLM 0.0.fake refuses ")
        assert "unrecognized arguments: --x" in said.err


@pytest.mark.parametrize("words", [("config", "show"), ("config", "show", "--explain")])
def test_a_shown_configuration_names_key_files_and_no_keys(run, with_secrets, words):
    said = run(*words, "-c", with_secrets)
    assert said.code == 0
    assert SECRET not in said.out + said.err
