"""Whatever a user types: one sentence with a stable code and a number, never a traceback."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
import yaml

from glm53ctl.cli import app

CODED = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*: \S")
NOT_TEXT = os.fsdecode(b"\xff\xfe")


def refused(said, code, exit_code=2):
    """Check that a command was refused in one line under this code, and return the line."""
    assert said.code == exit_code, said
    assert said.err.startswith(f"{code}: "), said.err
    assert CODED.match(said.err)
    assert said.err.count("\n") == 1, said.err
    assert "Traceback" not in said.err
    return said.err


def refused_config(said, code):
    """Check that the configuration was refused for this mistake, and return its line.

    One mistake is one line; several have a heading and a line each.
    """
    assert said.out == ""
    first, *mistakes = said.err.splitlines()
    if not mistakes:
        return refused(said, code)
    assert said.code == 2
    assert first.startswith("CFG_INVALID: ")
    assert all(line.startswith("  ") and CODED.match(line.strip()) for line in mistakes), said.err
    return next(line for line in mistakes if line.startswith(f"  {code}: "))


def commands(group, path=()):
    """Yield the words of every command."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


# --- words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("nope",),
        ("config", "nope"),
        ("--nope",),
        ("status", "--nope"),
        ("status", "surplus"),
        ("status", "--config"),
        ("status", NOT_TEXT),
        ("rank",),
        ("rank", "x"),
        ("rank", "4"),
        ("rank", "-1"),
        ("rank", "0", "1"),
        ("logs", "4"),
        ("logs", "-n", "-1"),
        ("logs", "-n", "many"),
        ("ask",),
        ("ask", "x", "--max-tokens", "0"),
        ("ask", "x", "--max-tokens", "1.5"),
        ("plan", "argv", "--rank", "4"),
        ("plan", "argv", "--rank", "head"),
        ("config", "import"),
        ("demo", "--once=maybe"),
    ],
)
def test_words_that_no_command_takes_are_a_usage_error(run, words):
    said = run(*words)
    line = refused(said, "USAGE")
    assert "`glm53ctl --help`" in line
    assert said.out == ""


@pytest.mark.parametrize("words", [(), ("config",), ("weights",), ("engine",)])
def test_without_a_command_the_help_is_shown_and_nothing_is_done(run, words):
    said = run(*words)
    assert "Usage:" in said.out
    assert refused(said, "USAGE").startswith("USAGE: A command is missing.")


@pytest.mark.parametrize("words", [(), *commands(typer.main.get_command(app))], ids=" ".join)
def test_every_command_explains_itself(run, words):
    said = run(*words, "--help")
    assert (said.code, said.err) == (0, "")
    assert "Usage:" in said.out


def test_the_program_as_a_process_says_the_same():
    command = [sys.executable, "-m", "glm53ctl", "status", "--nope"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "USAGE: No such option: --nope `glm53ctl --help` lists the commands.\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [["config", "show"], ["config", "check"], ["--help"]])
def test_output_that_cannot_be_written_is_one_sentence(config, words, unbuffered, monkeypatch):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    command = [sys.executable, "-m", "glm53ctl", *words]
    if words[0] == "config":
        command += ["--config", str(config)]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert done.returncode == 1
    assert done.stderr == (
        "FILE_REFUSED: The output, or a file, cannot be written: No space left on device. "
        "Make room, or send it to another place.\n"
    )


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_nobody_who_reads_on_is_no_mistake(config, unbuffered, monkeypatch):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "glm53ctl", "config", "check", "--config", str(config)]
    done = subprocess.run(
        command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


# --- ranks that a configuration does not have ----------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("rank", "2"), "RANK_UNKNOWN"),
        (("logs", "2"), "RANK_UNKNOWN"),
        (("plan", "argv", "--rank", "2"), "RANK_UNKNOWN"),
    ],
)
def test_a_rank_beyond_the_nodes_is_refused(run, config, words, code):
    assert "there is no rank 2" in refused(run(*words, "-c", config), code).lower()


def test_a_rank_whose_lock_cannot_be_made_is_refused(run, config):
    (config.parent / "run/rank0.lock").mkdir(parents=True)
    said = run("rank", "0", "-c", config)
    assert said.code == 1  # a service tries again
    assert said.err.splitlines()[-1].startswith("RUN_DIR_UNUSABLE: ")


# --- configuration files -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("up",),
        ("down",),
        ("restart",),
        ("resume",),
        ("logs",),
        ("ask", "x"),
        ("rank", "0"),
        ("config", "show"),
        ("config", "check"),
        ("plan", "argv"),
    ],
)
def test_a_configuration_that_is_not_there_stops_every_command(run, tmp_path, words):
    missing = tmp_path / "missing.yaml"
    assert str(missing) in refused_config(run(*words, "--config", missing), "CFG_FILE")


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"profile: d\xe9mo\n", "CFG_FILE"),
        (b"\x7fELF\x02\x01\x00", "CFG_SYNTAX"),
        (b"\xff\xfe", "CFG_FILE"),
        (b"profile: [demo", "CFG_SYNTAX"),
        (b"\tprofile: demo\n", "CFG_SYNTAX"),
        (b"profile: !!python/object:os.system x\n", "CFG_SYNTAX"),
        (b"just words\n", "CFG_TYPE"),
        (b"- 1\n- 2\n", "CFG_TYPE"),
        (b"[" * 5000, "CFG_SYNTAX"),
    ],
)
def test_a_file_that_is_no_configuration_is_one_mistake(run, tmp_path, content, code):
    file = tmp_path / "odd.yaml"
    file.write_bytes(content)
    assert str(file) in refused_config(run("config", "check", file), code)


def test_a_directory_is_no_configuration(run, tmp_path):
    assert str(tmp_path) in refused_config(run("config", "check", tmp_path), "CFG_FILE")


def test_a_path_through_a_file_is_no_configuration(run, config):
    refused_config(run("config", "check", config / "x"), "CFG_FILE")


@pytest.mark.parametrize("name", [NOT_TEXT, "x" * 5000, "[red]:bug:"])
def test_a_name_that_no_file_has_is_no_traceback(run, name):
    refused_config(run("config", "check", name), "CFG_FILE")


def test_the_file_may_be_named_by_the_environment(run, tmp_path, monkeypatch):
    monkeypatch.setenv("GLM53CTL_CONFIG", str(tmp_path / "gone.yaml"))
    assert "gone.yaml" in refused_config(run("status"), "CFG_FILE")


def test_all_mistakes_come_at_once_each_on_its_line(run, tmp_path):
    file = tmp_path / "bad.yaml"
    file.write_text("profile: demo\nserve: {max_model_lenn: 1, max_num_seqs: many}\n")
    said = run("config", "check", file)
    assert said.code == 2
    first, *mistakes = said.err.splitlines()
    assert first == "CFG_INVALID: The configuration has 2 mistakes:"
    codes = {line.split(":")[0].strip() for line in mistakes}
    assert codes == {"CFG_TYPE", "CFG_UNKNOWN_KEY"}
    assert all(f"{file}:2" in line for line in mistakes)


@pytest.mark.parametrize(
    ("setting", "code"),
    [
        ("", "CFG_SYNTAX"),
        ("serve.max_num_seqs", "CFG_SYNTAX"),
        ("serve.max_num_seqs=", "CFG_TYPE"),
        ("serve.max_num_seqs=many", "CFG_TYPE"),
        ("serve.max_num_seqs=0", "CFG_RANGE"),
        ("serve.nothing=1", "CFG_UNKNOWN_KEY"),
        ("serve=1", "CFG_TYPE"),
        ("=1", "CFG_SYNTAX"),
        (f"{NOT_TEXT}=1", "CFG_UNKNOWN_KEY"),
        ("profile=nope", "CFG_PROFILE"),
        ("nodes=[", "CFG_SYNTAX"),
        ("api.port=99999", "CFG_RANGE"),
    ],
)
def test_a_setting_on_the_command_line_that_is_none(run, config, setting, code):
    refused_config(run("config", "show", "-c", config, "--set", setting), code)


def test_a_setting_of_bytes_that_are_no_text_is_no_traceback(run, config):
    said = run("config", "show", "-c", config, "--set", f"serve.model_name={NOT_TEXT}")
    assert said.code == 2
    assert "Traceback" not in said.err


def test_a_setting_of_the_environment_that_is_none(run, config, monkeypatch):
    monkeypatch.setenv("GLM53_SERVE__NOTHING", "1")
    line = refused_config(run("config", "show", "-c", config), "CFG_UNKNOWN_KEY")
    assert "GLM53_SERVE__NOTHING" in line


# --- other files ---------------------------------------------------------------------------------


def test_a_recipe_that_cannot_be_read_is_refused(run, tmp_path):
    refused(run("config", "import", tmp_path / "missing.env"), "CFG_FILE")
    refused(run("config", "import", tmp_path), "CFG_FILE")
    (tmp_path / "latin.env").write_bytes(b"PORT=\xe9\n")
    refused(run("config", "import", tmp_path / "latin.env"), "CFG_FILE")


@pytest.mark.parametrize("content", [None, b"", b"\xff", b"two\nlines\n"])
def test_a_key_file_that_holds_no_key_is_refused(run, config, tmp_path, content):
    key = tmp_path / "key"
    if content is not None:
        key.write_bytes(content)
    key_in_config = config.read_text().replace('"port"', f'"key_file": "{key}", "port"')
    config.write_text(key_in_config)
    line = refused(run("ask", "x", "-c", config), "PLAN_SECRET")
    assert str(key) in line
    assert "lines" not in line


def test_a_picture_that_cannot_be_written_is_refused(run, config, tmp_path):
    said = run("status", "-c", config, "--svg", tmp_path / "no/such/folder.svg")
    assert "folder.svg" in refused(said, "FILE_REFUSED")


def test_a_demo_in_a_file_is_refused(run, config):
    assert str(config) in refused(run("demo", "--dir", config), "FILE_REFUSED")


def test_an_engine_that_is_not_there_is_refused(run, tmp_path):
    refused(run("engine", "check", "--prefix", tmp_path), "ENGINE_MISSING")


def test_up_with_a_state_directory_that_cannot_be_made_is_refused(config):
    # A process of its own: `up` adopts orphans and ends all its descendants.
    command = [sys.executable, "-m", "glm53ctl", "up", "-c", str(config)]
    command += ["--set", f"paths.state_dir={config}/state"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("FILE_REFUSED: ")
    assert "Traceback" not in done.stderr


def test_up_for_nodes_elsewhere_is_refused(run, config):
    nodes = "nodes=[{name: a, address: 192.0.2.1}, {name: b, address: 192.0.2.2}]"
    said = run("up", "-c", config, "--set", nodes)
    assert said.code == 2
    assert said.err.splitlines()[-1].startswith("UP_NOT_LOCAL: ")


# --- recorded files in disorder ------------------------------------------------------------------

LONG = "9" * 5000
DEEP = "[" * 100_000
OF_FACTS = '"format": "glm53-facts/1", "node": "h"'
OF_NODES = '"nodes": [{"name": "a", "address": "10.0.0.1"}, {"name": "b", "address": "10.0.0.2"}]'


def of_bundle(rank: int, more: str = "") -> str:
    """Return recorded facts of a rank."""
    return f'{{{OF_FACTS}, "rank": {rank}, "config": {{{OF_NODES}{more}}}}}'


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("b.json", of_bundle(7), "rank 7"),
        ("b.json", of_bundle(-1), "rank -1"),
        ("b.json", of_bundle(0, ', "serve": {"a_later_one": 1}'), "config.serve.a_later_one"),
        ("memavail.csv", "t,available\nfoo\n", "memory"),
        ("ibv_devinfo.txt", "hca_id:", "rdma"),
        ("peer-state.json", "[]", "peer"),
        ("peer-state.json", DEEP, "peer"),
        ("nvidia-smi-apps.csv", "pid,name,used\nx,y,z\n", "gpus"),
    ],
)
def test_facts_in_disorder_are_refused_with_what_is_wrong(run, tmp_path, name, text, part):
    file = tmp_path / name
    file.write_text(text)
    line = refused(run("doctor", "--facts", file), "FACTS_FILE")
    assert part in line
    assert str(file) in line


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.env", "HEAD_IP=10.0.0.1\nWORKER_IP=spark2.local\nMAX_MODEL_LEN=850000\n"),
        ("tf.env", "WORKER=me@192.0.2.2\nDRAFTER=mtp\n"),
        ("a.env", "HEAD_IP=10.0.0.1\nHEAD_GID=\u00b2\n"),
        ("a.env", "HEAD_IP=10.0.0.1\nPORT=88a\n"),
        ("a.env", f"HEAD_IP=10.0.0.1\nPORT={LONG}\nHEAD_GID={LONG}\n"),
        ("s.txt", "### head/argv.txt\nvllm serve x --speculative-config [1]\n"),
        ("s.txt", '### head/argv.txt\nvllm serve x --speculative-config "mtp"\n'),
        ("s.txt", f"### head/argv.txt\nvllm serve x --speculative-config {DEEP}\n"),
        ("wheels.lock.json", '[{"name": "x"}, 1]'),
        ("wheels.lock.json", "5"),
        ("systemctl-show.txt", "Id=glm53-rank0.service\nUser=\u00b2\nRemoveIPC=yes\n"),
        ("wheels.lock.json", DEEP),
    ],
)
def test_what_a_check_cannot_read_does_not_end_the_others(run, tmp_path, name, text):
    file = tmp_path / name
    file.write_text(text)
    said = run("doctor", "--facts", file)
    assert said.code in (0, 3)
    assert said.out
    assert said.err == ""


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ("explain",),
            "SpecDecoding metrics: Drafted: 70 tokens, Per-position acceptance rate: 0.1.2, Avg\n",
        ),
        (("explain",), f"oom-kill:task=x,pid=1\nOut of memory: Killed process 1 rss:{LONG}kB\n"),
        (("explain",), f"Out of memory: Killed process 1 (x) shmem-rss:{LONG}kB\n"),
        (("explain",), '{"messages": ' + DEEP),
        (("explain",), f'{{"t": 1, "stage": "load"}}\n{{"t": 1{"0" * 400}, "stage": "load"}}\n'),
        (("explain",), f"HTTP/1.1 {LONG} x\n\n"),
        (("explain",), f"hca_id: a\nactive_mtu: {LONG}\n"),
        (("explain",), f"rank={LONG}\n"),
        (
            ("explain",),
            "Free memory on device cuda:0 (1.2.3/4 GiB) on startup is less than desired GPU memory "
            "utilization (0.8, 9.9.9 GiB)\n",
        ),
        (("explain", "--request"), DEEP),
    ],
)
def test_numbers_and_depths_that_nobody_writes_are_explained_as_nothing(run, tmp_path, words, text):
    file = tmp_path / "x.log"
    file.write_text(text)
    said = run(*words, file)
    assert said.code in (0, 3)
    assert said.err == ""


@pytest.mark.parametrize(
    ("text", "code", "part"),
    [
        (f"serve: {{max_model_len: 0x{LONG}}}", "CFG_TYPE", "serve.max_model_len"),
        (f"ablit: {{enable: true, layers: 1-{LONG}}}", "CFG_RANGE", "ablit.layers"),
        (f"nodes: [{{cpus: '{LONG}'}}]", "CFG_RANGE", "nodes.0.cpus"),
        ('serve: {model_name: "\\ud800"}', "CFG_SYNTAX", ":1 serve.model_name"),
        ('serve: {"\\ud800": 1}', "CFG_SYNTAX", ":1"),
        ("nodes: [1, 2]", "CFG_TYPE", "a mapping with name, address"),
        ("serve: {max_num_seqs: 1:30}", "CFG_TYPE", "a whole number"),
    ],
)
def test_a_value_that_nobody_can_mean_has_its_place(run, tmp_path, text, code, part):
    file = tmp_path / "config.yaml"
    file.write_text(text + "\n")
    assert part in refused_config(run("config", "check", file), code)


def test_words_that_are_not_text_have_their_place(run, config, monkeypatch):
    words = ("plan", "argv", "-c", config)
    monkeypatch.setenv("GLM53_SERVE__MODEL_NAME", NOT_TEXT)
    assert "GLM53_SERVE__MODEL_NAME" in refused(run(*words), "CFG_SYNTAX")
    monkeypatch.delenv("GLM53_SERVE__MODEL_NAME")
    said = run("up", "-c", config, "--set", f"serve.model_name={NOT_TEXT}")
    assert "--set serve.model_name" in refused(said, "CFG_SYNTAX")


def test_capture_sizes_that_are_no_numbers_are_none(run, tmp_path):
    file = tmp_path / "config.yaml"
    sizes = ["--cudagraph-capture-sizes", "\u00b2", LONG]
    config = yaml.safe_load(f"{{{OF_NODES}}}")
    config |= {"licenses": {"accept": ["ShapleyMCG-1.0"]}, "engine": {"extra_args": sizes}}
    file.write_text(yaml.safe_dump(config))
    assert "lacks" in refused_config(run("config", "check", file), "CFG_GRAPH_SIZES")
