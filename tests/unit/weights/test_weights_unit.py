"""The unit as systemd runs it: a process with a notification socket, on a head and on a worker."""

import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import typer.main
import yaml
from hub import Blob, Fault
from waiting import wait_for
from weight_world import COMMIT, MIRROR, ORIGIN, ORIGIN_COMMIT, World, shard

from glm53ctl import cli
from glm53ctl.config.schema import Paths
from glm53ctl.config.sources import load
from glm53ctl.errors import UserError
from glm53ctl.findings import Finding, Severity
from glm53ctl.supervise.notify import Notifier
from glm53ctl.weights.layout import weight_sets
from glm53ctl.weights.progress import FILE_NAME, Progress, read_progress, write_progress
from glm53ctl.weights.service import UnitWatcher, WeightsUnit
from glm53ctl.weights.state import resolved, verdict

SERVICES = Path(__file__).parents[3] / "services"
UNITS = ("glm53-weights.service", "glm53-weights-scrub.service")


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Node:
    """One host: its files, its configuration file, and its unit."""

    def __init__(self, root: Path, port: int, **weights) -> None:
        root.mkdir()
        (root / "run").mkdir()
        self.root = root
        (root / "token").write_text("s" * 32)
        (root / "token").chmod(0o600)
        self.settings = {
            "nodes": [
                {"name": "a", "address": "127.0.0.1"},
                {"name": "b", "address": "127.0.0.2"},
            ],
            "weights": {
                "model_dir": str(root / "weights/model"),
                "repo": MIRROR,
                "revision": COMMIT,
                "fallback_repo": ORIGIN,
                "fallback_revision": ORIGIN_COMMIT,
                "reserve_gib": 0,
                "sync_port": port,
                **weights,
            },
            "spec": {"method": "none"},
            "licenses": {"accept": ["ShapleyMCG-1.0"]},
            "link": {"token_file": str(root / "token")},
            "paths": {"state_dir": str(root / "state"), "run_dir": str(root / "run")},
        }
        self.file = root / "config.yaml"
        self.file.write_text(yaml.safe_dump(self.settings))

    @property
    def config(self):
        return load(self.file, environ={}, rules=False).config


class Ended(NamedTuple):
    """How a command ended, and what it said."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def command(monkeypatch, capfd) -> Callable[..., Ended]:
    """Run `glm53ctl weights ...` on a node, in this process."""

    def run(node: Node, *words: str) -> Ended:
        monkeypatch.setattr(
            sys, "argv", ["glm53ctl", "weights", *words, "--config", str(node.file)]
        )
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert isinstance(ended.value.code, int)
        return Ended(ended.value.code, *capfd.readouterr())

    return run


class Said:
    """What a process told systemd."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.setblocking(False)
        self.lines: list[str] = []

    def has(self, text: str) -> bool:
        while True:
            try:
                self.lines += self.socket.recv(65536).decode().splitlines()
            except BlockingIOError:
                return any(text in line for line in self.lines)


@contextmanager
def unit(node: Node, rank: int) -> Iterator[tuple[subprocess.Popen[str], Said]]:
    """Run the unit's command for one node."""
    path = node.root / f"notify{len(list(node.root.iterdir()))}"
    said = Said(path)
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "glm53ctl", "weights", "run"),
            *("--config", str(node.file), "--rank", str(rank)),
        ],
        env={**os.environ, "NOTIFY_SOCKET": str(path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    with process, said.socket:
        try:
            yield process, said
        finally:
            process.kill()


@pytest.fixture
def nodes(tmp_path: Path) -> tuple[Node, Node]:
    port = free_port()
    return Node(tmp_path / "head", port), Node(tmp_path / "worker", port)


def until(process: subprocess.Popen[str], condition: Callable[[], bool], what: str) -> None:
    def done() -> bool:
        if condition():
            return True
        assert process.poll() is None, process.stderr and process.stderr.read()
        return False

    wait_for(done, what)


def ended(process: subprocess.Popen[str], said: Said) -> int:
    """Return how it ended; the socket is read meanwhile: a full one holds its sender up."""

    def code() -> bool:
        said.has("")
        return process.poll() is not None

    wait_for(code, "the end of the unit")
    return process.returncode


def test_the_head_fetches_and_serves_and_the_worker_pulls(nodes, hub):
    head, worker = nodes
    with unit(worker, 1) as (puller, worker_said):
        until(puller, lambda: worker_said.has("STATUS=FETCH_FAILED"), "the worker to wait")
        found = wait_for(lambda: read_progress(worker.root / "run"), "its progress")
        assert found.activity == "wait"
        (missing,) = verdict(worker.config)  # now: with a head there it may soon have them
        assert missing.code == "WEIGHTS_MISSING"
        assert "Under way" in missing.message
        with unit(head, 0) as (server, head_said):
            until(server, lambda: head_said.has("workers pull from"), "the head")
            assert head_said.has("READY=1")
            assert head_said.has("EXTEND_TIMEOUT_USEC=")
            assert verdict(head.config) == []
            assert ended(puller, worker_said) == 0
            assert worker_said.has("READY=1")
            assert not worker_said.has("READY=0")
            server.send_signal(signal.SIGTERM)
            assert ended(server, head_said) == 0
    assert verdict(worker.config) == []
    assert read_progress(head.root / "run") is None
    assert not any(Path(node.root / "run" / FILE_NAME).exists() for node in nodes)


def test_a_boot_without_a_network_needs_none(nodes, hub, monkeypatch, command):
    head, _ = nodes
    assert command(head, "fetch").returncode == 0
    asked = len(hub.asked)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with unit(head, 0) as (server, said):
        until(server, lambda: said.has("READY=1"), "the head")
        assert len(hub.asked) == asked
        assert not said.has("fetch model")


def test_a_boot_finds_a_shard_that_was_damaged_in_the_meantime(nodes, hub, command):
    head, _ = nodes
    assert command(head, "fetch").returncode == 0
    (shard,) = (head.root / "weights/model").glob("model-00002*")
    stat = shard.stat()
    with shard.open("r+b") as file:
        file.write(b"\0" * 100)  # in the first sample
    os.utime(shard, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with unit(head, 0) as (server, said):
        until(server, lambda: said.has("READY=1"), "the head")
    assert command(head, "verify").returncode == 0


def test_what_only_an_operator_can_mend_is_not_tried_again(nodes, hub):
    hub.fault = lambda a: Fault(status=401, headers={"X-Error-Code": "GatedRepo"})
    with unit(nodes[0], 0) as (server, said):
        assert ended(server, said) == 2
        assert server.stderr
        assert "FETCH_GATED" in server.stderr.read()
        assert not said.has("READY=1")


def test_a_stop_in_the_middle_of_a_fetch_is_quick_and_clean(nodes, hub, command):
    hub.fault = lambda a: Fault(slow=0.5) if a.path.startswith("/storage") else None
    with unit(nodes[0], 0) as (server, said):
        until(server, lambda: said.has("STATUS=fetch model"), "the fetch")
        server.send_signal(signal.SIGTERM)
        assert ended(server, said) == 0
    hub.fault = lambda _: None
    assert command(nodes[0], "fetch").returncode == 0


def test_a_stall_and_a_pause_get_the_time_that_they_take(nodes, monkeypatch):
    """From a stall to the next, from a 429 to the stall after the longest pause that is obeyed."""
    notifier = Notifier()
    asked: list[float] = []
    monkeypatch.setattr(notifier, "extend", asked.append)
    config = nodes[0].config
    watcher = UnitWatcher(config, notifier)
    finding = Finding(code="FETCH_STALLED", severity=Severity.WARN, message="no byte.")
    watcher.tell(finding)
    assert asked == [pytest.approx(1.1 * 300 + config.weights.stall_seconds)]


def test_a_state_directory_that_is_none_is_waited_for(nodes, hub):
    head, _ = nodes
    (head.root / "state").write_text("in the way")
    with unit(head, 0) as (server, said):
        until(server, lambda: said.has("STATUS=WEIGHTS_UNREADABLE"), "the unit to wait")


def test_a_fault_of_the_disk_is_waited_for(nodes, monkeypatch):
    head, _ = nodes
    works = WeightsUnit(head.config, 0)
    waited: list[str] = []

    def fails(_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), "/w/x")

    def wait(error: UserError, *_: object) -> None:
        waited.append(error.code)
        works.stop.set()

    monkeypatch.setattr(works, "_verified", fails)
    monkeypatch.setattr(works.watcher, "wait", wait)
    works.run()
    assert waited == ["FETCH_DISK_FAILED"]


DRAFT, DRAFT_COMMIT = "origin/draft", "c" * 40
DRAFT_FILES = {
    "config.json": Blob(b'{"is_causal": false}', lfs=False),
    "model.safetensors": Blob(shard(99)),
}


@pytest.fixture
def drafting(nodes, hub):
    """Two nodes that speculate with a draft, which the Hub has."""
    hub.repos[DRAFT, DRAFT_COMMIT] = DRAFT_FILES
    for node in nodes:
        node.settings["spec"] = {"method": "dflash"}
        node.settings["licenses"]["accept"].append("CC-BY-NC-ND-4.0")
        node.settings["weights"] |= {
            "draft_dir": str(node.root / "weights/draft"),
            "draft_repo": DRAFT,
            "draft_revision": DRAFT_COMMIT,
        }
        node.file.write_text(yaml.safe_dump(node.settings))
    return nodes


def test_the_draft_is_fetched_pulled_and_verified_as_the_checkpoint_is(drafting, hub):
    head, worker = drafting
    with unit(head, 0) as (server, said):
        until(server, lambda: said.has("workers pull from"), "the head")
        with unit(worker, 1) as (puller, puller_said):
            assert ended(puller, puller_said) == 0
    for node in drafting:
        assert verdict(node.config) == []
        directory = Path(resolved(node.config).weights.draft_dir)
        assert directory == weight_sets(node.config)[1].directory
        assert {path.name: path.read_bytes() for path in directory.iterdir()} == {
            name: blob.content for name, blob in DRAFT_FILES.items()
        }
    assert all(hub.sent[name] == blob.size for name, blob in DRAFT_FILES.items() if blob.lfs)


def test_a_damaged_draft_is_found_and_fetched_alone(drafting, hub, command):
    head, _ = drafting
    assert command(head, "fetch").returncode == 0
    before = dict(hub.sent)
    file = head.root / "weights/draft/model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\1")
    assert [f.code for f in verdict(head.config)] == ["WEIGHTS_UNVERIFIED"]
    assert command(head, "fetch").returncode == 0
    assert verdict(head.config) == []
    more = {name: hub.sent[name] - before[name] for name in before if hub.sent[name] > before[name]}
    assert more == {file.name: file.stat().st_size}


def test_without_its_licence_no_byte_of_the_draft_is_fetched(drafting, hub, command):
    """The pair then speculates without one, so the checkpoint is all that it needs."""
    head, _ = drafting
    assert command(head, "fetch", "--set", "licenses.accept=[ShapleyMCG-1.0]").returncode == 0
    assert not any(DRAFT in asked.path for asked in hub.asked)


# --- commands ------------------------------------------------------------------------------------


def test_the_commands_tell_a_story(nodes, hub, command):
    head, _ = nodes
    status = json.loads((done := command(head, "status", "--json")).stdout)
    assert done.returncode == 3
    assert status["sets"][0]["findings"][0]["code"] == "WEIGHTS_MISSING"
    locked = json.loads(command(head, "lock", "--json").stdout)
    assert (locked[0]["new"], locked[0]["files"]) == (True, 6)
    assert "unchanged" in command(head, "lock").stdout
    fetched = json.loads(command(head, "fetch", "--json").stdout)
    assert fetched["sets"][0]["verified_files"] == 6
    assert "verified, 6 of 6 files" in command(head, "status").stdout
    assert json.loads(command(head, "verify", "--json").stdout) == []
    assert command(head, "verify", "--quick").stdout == "verified: model\n"
    assert json.loads(command(head, "prune", "--json").stdout) == []
    (shard,) = (head.root / "weights/model").glob("model-00002*")
    shard.write_bytes(b"short")
    done = command(head, "verify", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)[0]["code"] == "CACHE_TRUNCATED"
    assert command(head, "status").returncode == 3
    assert command(head, "fetch", "--refresh").returncode == 0
    assert verdict(head.config) == []


def test_a_branch_is_no_commit(nodes, command):
    done = command(nodes[0], "fetch", "--set", "weights.revision=main")
    assert done.returncode == 2
    assert "WEIGHTS_REVISION" in done.stderr


def test_local_weights_are_left_alone(nodes, command):
    done = command(nodes[0], "fetch", "--set", "weights.source=local")
    assert done.returncode == 2
    assert "WEIGHTS_LOCAL" in done.stderr


def test_a_launch_gets_the_directory_and_not_the_link(nodes, hub, command):
    head, _ = nodes
    assert command(head, "fetch").returncode == 0
    config = resolved(head.config)
    assert config.weights.model_dir == str(weight_sets(head.config)[0].directory)


def test_progress_that_nobody_writes_any_more_is_none(tmp_path):
    progress = Progress(
        activity="fetch", role="model", done_bytes=1, total_bytes=4, done_files=0, total_files=2
    )
    write_progress(tmp_path, progress)
    found = read_progress(tmp_path)
    assert found is not None
    assert found.sentence().startswith("fetch model: 25.0 % of 4 bytes, 0 of 2 files")
    (tmp_path / FILE_NAME).write_text(found.model_copy(update={"at": 5.0}).model_dump_json())
    assert read_progress(tmp_path) is None
    (tmp_path / FILE_NAME).write_text("{")
    assert read_progress(tmp_path) is None


# --- unit files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", UNITS)
def test_the_units_run_commands_that_exist_in_directories_that_fit(name, command):
    text = (SERVICES / name).read_text()
    (words,) = re.findall(r"^ExecStart=glm53ctl weights (.+)$", text, re.M)
    command, *options = words.split()
    group = typer.main.get_command(cli.app).commands["weights"]
    group.commands[command].make_context(command, options)
    assert f"/var/lib/{re.findall(r'^StateDirectory=(.+)$', text, re.M)[0]}" == Paths().state_dir
    assert f"/run/{re.findall(r'^RuntimeDirectory=(.+)$', text, re.M)[0]}" == Paths().run_dir


def test_the_ranks_do_not_wait_for_the_weights():
    """They are blocked with a reason instead, and start by themselves."""
    for rank in SERVICES.glob("glm53-rank*.service"):
        assert "weights" not in re.sub(r"^#.*", "", rank.read_text(), flags=re.M)
    text = (SERVICES / UNITS[0]).read_text()
    assert re.search(r"^After=.*\bglm53\.target\b", text, re.M)
    assert UNITS[0] in (SERVICES / "glm53.target").read_text()


def test_the_credentials_are_the_two_that_are_read():
    text = (SERVICES / UNITS[0]).read_text()
    assert dict(re.findall(r"^LoadCredential=(\S+):(\S+)$", text, re.M)) == {
        "hf-token": "glm53.hf-token",
        "pair-token": "glm53.pair-token",
    }


def test_world_and_node_agree(world: World, nodes):
    """The two ways of the tests to write a configuration mean the same sets."""
    assert weight_sets(world.config)[0].origins == weight_sets(nodes[0].config)[0].origins
