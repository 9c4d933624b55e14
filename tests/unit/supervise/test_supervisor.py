"""What two supervisors decide: real processes, link and sockets; only the engine is a stand-in."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
import yaml
from rich.console import Console
from waiting import wait_for

from glm53ctl.config.sources import load
from glm53ctl.facts.ports import free_ports
from glm53ctl.status.snapshot import gather
from glm53ctl.status.text import render
from glm53ctl.supervise import control, local
from glm53ctl.supervise.link import RECONNECT_AFTER_SECONDS
from glm53ctl.supervise.local import LocalPair
from glm53ctl.supervise.orders import give_order, stop
from glm53ctl.supervise.proctree import adopt_orphans
from glm53ctl.supervise.report import Phase

DEADLINE = 120.0


class Pair:
    """Two ranks of one host over the stand-in engine."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.model = root / "model"
        self.model.mkdir()
        (self.model / "config.json").write_text("{}")
        self.behave()
        program = root / "engine/bin/vllm"
        program.parent.mkdir(parents=True)
        stand_in = Path(__file__).with_name("fake_vllm.py")
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {stand_in} "$@"\n')
        program.chmod(0o755)
        token = root / "token"
        token.write_text("a" * 32)
        api, link, master = free_ports(3)
        self.settings = {
            "profile": "demo",
            "nodes": [
                {"name": "a", "address": "127.0.0.1"},
                {"name": "b", "address": "127.0.0.1"},
            ],
            "engine": {"prefix": str(root / "engine")},
            "serve": {"model_name": "glm"},
            "weights": {"model_dir": str(self.model)},
            "api": {"port": api},
            "fabric": {"link_port": link, "master_port": master},
            # A supervisor that was held up for seconds hangs up and calls again.
            "link": {"token_file": str(token), "beat_seconds": 0.1, "closed_grace_seconds": 5},
            "memory": {"start_gib": 0.2, "floor_gib": 0.1},
            "paths": {"state_dir": str(root / "state"), "run_dir": str(root / "run")},
            "supervise": {"backoff_seconds": 0.1, "backoff_max_seconds": 0.5, "crash_limit": 100},
        }
        self.path = root / "config.yaml"
        self.pair: LocalPair | None = None
        self.over = threading.Event()
        self.tender: threading.Thread | None = None

    def behave(self, **ranks: dict) -> None:
        """Say how each rank's engine misbehaves: `rank0={"hang_at": "load"}`."""
        behaviour = {name.removeprefix("rank"): wrong for name, wrong in ranks.items()}
        fresh = self.root / "behaviour.new"
        fresh.write_text(json.dumps(behaviour))
        fresh.replace(self.model / "behaviour.json")

    def write(self, **sections: dict) -> None:
        """Change sections of the configuration file."""
        merged = {k: self.settings.get(k, {}) | v for k, v in sections.items()}
        self.path.write_text(yaml.safe_dump(self.settings | merged))

    def start(self, **sections: dict) -> None:
        self.write(**sections)
        self.config = load(self.path).config
        self.pair = LocalPair(self.config, ["--config", str(self.path)])
        self.pair.start()
        self.tender = threading.Thread(target=self._tend, daemon=True)
        self.tender.start()

    def _tend(self) -> None:
        while not self.over.wait(0.05):
            self.pair.tend()

    def snapshot(self):
        return gather(self.config)

    def report(self, rank: int):
        return next((r for r in self.snapshot().ranks if r.rank == rank), None)

    def until_report(self, rank: int):
        return wait_for(lambda: self.report(rank), f"an answer of rank {rank}")

    def until_ready(self, after: int = 0):
        def ready():
            seen = self.snapshot()
            return seen if seen.ready and seen.epoch > after else None

        try:
            return wait_for(ready, f"an epoch after {after}")
        except AssertionError as error:
            said = (self.root / "state/logs").glob("supervisor*.log")
            tails = "\n".join(log.read_text()[-2000:] for log in said)
            raise AssertionError(f"{error}: {self.snapshot()}\n{tails}") from None

    def until_loss(self, code: str):
        def lost():
            loss = self.snapshot().last_loss
            return loss if loss is not None and loss.code == code else None

        return wait_for(lost, code)

    def until_finding(self, rank: int, code: str):
        def found():
            report = self.report(rank)
            return next((f for f in report.findings if f.code == code), None) if report else None

        return wait_for(found, f"{code} on rank {rank}")

    def phase(self, rank: int) -> Phase | None:
        report = self.report(rank)
        return report.phase if report else None

    def serves_after(self, epoch: int) -> bool:
        """Whether the head is ready in a later epoch: it may be asked without the worker."""
        report = self.report(0)
        return report is not None and report.phase is Phase.READY and report.epoch > epoch

    def logs(self, rank: int) -> list[Path]:
        return sorted((self.root / "state/logs").glob(f"rank{rank}-*.log"))

    def stop(self) -> int:
        self.over.set()
        if self.tender is not None:
            self.tender.join()  # it may be about to start a rank
        return self.pair.stop() if self.pair else 0


@pytest.fixture
def pair(tmp_path):
    made = Pair(tmp_path)
    yield made
    assert made.stop() == 0, "processes were left behind"


def test_both_become_ready_in_one_epoch_and_the_worker_starts_first(pair):
    pair.start()
    ready = pair.until_ready()
    assert [r.epoch for r in ready.ranks] == [1, 1]
    head, worker = (psutil.Process(r.engine.pid).create_time() for r in ready.ranks)
    assert worker <= head
    assert ready.state == "ready"
    assert ready.next_step == ""


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("exit_code", [0, 1])
def test_an_engine_that_exits_is_a_loss_whatever_its_status(pair, rank, exit_code):
    pair.behave(**{f"rank{rank}": {"crash_at": "kv", "exit_code": exit_code}})
    pair.start()
    loss = pair.until_loss("RANK_LOST")
    assert loss.rank == rank
    assert f"exited by itself (status {exit_code})" in loss.message
    assert any("Starting to load" in line for line in loss.evidence)
    pair.behave()
    assert pair.until_ready().epoch > 1


def test_weights_that_change_while_the_pair_is_down_are_introduced_anew(pair):
    """Both ranks read the same directory here, so both must notice."""
    pair.behave(rank0={"crash_at": "kv"})
    pair.start(supervise={**pair.settings["supervise"], "backoff_seconds": 0.1})
    pair.until_loss("RANK_LOST")
    (pair.model / "another.json").write_text("{}")
    pair.behave()
    pair.until_ready()
    wait_for(lambda: control_view(pair) == "connected", "the two to fit again")


def test_the_cause_is_read_off_the_last_words_of_the_engine(pair):
    words = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    pair.behave(rank1={"crash_at": "kv", "last_words": words})
    pair.start()
    loss = pair.until_loss("RANK_LOST")
    assert loss.cause.code == "GPU_OUT_OF_MEMORY"
    page = Console(width=200, file=io.StringIO())
    page.print(render(pair.snapshot()))
    assert loss.cause.message in page.file.getvalue()
    assert loss.cause.fix in page.file.getvalue()


@pytest.mark.parametrize(
    ("stage", "following", "code"),
    [
        ("boot", "rendezvous", "LOAD_STALLED"),
        ("nccl", "load", "NCCL_INIT_STALL"),
        ("load", "kv", "LOAD_STALLED"),
    ],
)
def test_a_stage_that_stands_still_ends_the_epoch(pair, stage, following, code):
    """The engine hangs before it says that the next stage begins."""
    pair.behave(rank0={"hang_at": following})
    limits = {"rendezvous": 20, "nccl": 20, "load": 20, stage: 2}  # a busy machine boots slowly
    pair.start(supervise={**pair.settings["supervise"], "limits": limits})
    loss = pair.until_loss(code)
    assert f"no progress in stage {stage}" in loss.message


def test_a_worker_that_has_loaded_may_be_silent_for_as_long_as_the_head_works(pair):
    pair.behave(rank0={"hang_at": "graphs"})
    pair.start(supervise={**pair.settings["supervise"], "limits": {"graphs": 1, "kv": 4}})
    loss = pair.until_loss("LOAD_STALLED")
    assert loss.rank == 0


def test_three_wrong_answers_hold_the_pair_until_resume(pair):
    pair.behave(rank0={"answer": "!!!!!!"})
    pair.start(supervise={**pair.settings["supervise"], "crash_limit": 3})
    held = pair.until_finding(0, "HELD")
    assert "3 crashes" in held.message
    assert "'!!!!!!'" in held.message
    assert pair.until_finding(1, "PEER_HELD").message.startswith("a is held")
    seen = wait_for(lambda: told if (told := pair.snapshot()).state == "held" else None, "held")
    assert "resume" in seen.next_step
    epoch = seen.epoch
    assert epoch == 3

    pair.behave()
    time.sleep(1.0)  # a held pair must stay where it is: there is nothing to wait for
    assert pair.snapshot().epoch == epoch
    give_order(pair.config, "resume")
    assert pair.until_ready().epoch == 4
    assert pair.until_report(0).crashes == 0


def test_a_server_under_another_name_does_not_pass_the_canary(pair):
    pair.behave(rank0={"model": "another"})
    pair.start()
    assert "'glm'" in pair.until_loss("CANARY_MODEL").message


def test_frozen_counters_under_a_request_end_the_epoch(pair):
    pair.start(supervise={**pair.settings["supervise"], "wedge_seconds": 1.5})
    before = pair.until_ready()
    pair.behave(rank0={"load": 1, "metrics": {"vllm:num_requests_running": 1}})
    assert pair.until_loss("ENGINE_WEDGED").rank == 0
    pair.behave()
    pair.until_ready(before.epoch)


def test_a_draft_that_works_at_the_first_position_only_is_told_and_serves_on(pair):
    pair.start()
    before = pair.until_ready()
    counts = enumerate((800, 300, 20, 3))
    per_position = {
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{place}"}}': count
        for place, count in counts
    }
    pair.behave(rank0={"metrics": {"vllm:spec_decode_num_drafts_total": 1000, **per_position}})
    assert "causal" in pair.until_finding(0, "SPEC_ACCEPT_COLLAPSE").message
    assert pair.until_ready().epoch == before.epoch


def test_a_supervisor_that_is_silent_for_a_moment_is_not_lost(pair):
    pair.start()
    before = pair.until_ready()
    worker = pair.pair.ranks[1].pid
    os.kill(worker, signal.SIGSTOP)
    wait_for(lambda: control_view(pair) == "silent", "the silence to show")
    os.kill(worker, signal.SIGCONT)
    wait_for(lambda: control_view(pair) == "connected", "the link to heal")
    assert pair.until_ready().epoch == before.epoch


def test_a_supervisor_that_stays_silent_is_lost(pair):
    pair.start(link={**pair.settings["link"], "silence_grace_seconds": 4})
    before = pair.until_ready()
    worker = pair.pair.ranks[1].pid
    os.kill(worker, signal.SIGSTOP)

    def lost():
        told = pair.report(0)
        loss = told.last_loss if told else None
        return loss if loss is not None and loss.epoch >= before.epoch else None

    loss = wait_for(lost, "the loss")
    assert "nothing was heard of it for" in loss.message
    assert loss.rank == 1
    pair.until_finding(0, "PEER_ABSENT")
    os.kill(worker, signal.SIGCONT)
    pair.until_ready(before.epoch)


def control_view(pair) -> str | None:
    """How the head sees the worker; None while it gives no answer."""
    path = control.socket_path(Path(pair.config.paths.run_dir), 0)
    answer = control.ask(path, control.Request(action="report"))
    return answer.report.peers[1].state if answer else None


def test_a_rank_stopped_on_command_is_no_crash(pair):
    pair.start()
    pair.until_ready()
    pair.over.set()  # nobody starts it anew
    pair.pair.ranks[1].terminate()
    assert pair.pair.ranks[1].wait(DEADLINE) == 0
    wait_for(lambda: pair.phase(0) is Phase.PAIRING, "the head to wait")
    assert "drained" not in pair.logs(0)[-1].read_text()  # with half an engine nothing can finish
    told = pair.until_report(0)
    assert told.crashes == 0
    assert told.last_loss is None


def test_a_second_supervisor_of_a_rank_is_refused_and_disturbs_nothing(pair):
    pair.start()
    before = pair.until_ready()
    command = [sys.executable, "-m", "glm53ctl", "rank", "1", "--config", str(pair.path)]
    second = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert second.returncode == 2
    assert second.stderr.splitlines()[-1].startswith("RANK_RUNS: another supervisor of rank 1 ")
    assert pair.until_report(1).pid == pair.pair.ranks[1].pid
    assert pair.until_ready().epoch == before.epoch


def test_down_reaches_the_pair_through_any_rank_and_the_head_drains(pair):
    pair.start()
    pair.until_ready()
    path = control.socket_path(Path(pair.config.paths.run_dir), 1)
    assert control.ask(path, control.Request(action="stop")) is not None
    assert [pair.pair.ranks[r].wait(DEADLINE) for r in (0, 1)] == [0, 0]
    assert "drained" in pair.logs(0)[-1].read_text()


def test_a_worker_held_up_while_the_pair_goes_down_goes_down_too(pair):
    """It hangs up when it goes on, and what was said meanwhile went with the connection."""
    pair.start()
    pair.until_ready()
    path = control.socket_path(Path(pair.config.paths.run_dir), 1)
    assert control.ask(path, control.Request(action="stop")) is not None
    worker = pair.pair.ranks[1].pid
    os.kill(worker, signal.SIGSTOP)
    time.sleep(RECONNECT_AFTER_SECONDS + 1)  # longer than its patience with the head
    os.kill(worker, signal.SIGCONT)
    assert [pair.pair.ranks[r].wait(DEADLINE) for r in (0, 1)] == [0, 0]


def test_restart_reads_the_configuration_anew_and_both_agree(pair):
    pair.start()
    before = pair.until_ready()
    pair.write(serve={"model_name": "glm", "max_num_seqs": 2})
    give_order(pair.config, "restart")
    after = pair.until_ready(before.epoch)
    assert after.epoch == before.epoch + 1
    assert after.last_loss is None
    for rank in after.ranks:
        command = Path(f"/proc/{rank.engine.pid}/cmdline").read_text().split("\0")
        assert command[command.index("--max-num-seqs") + 1] == "2"


def test_two_files_that_differ_are_read_anew_until_they_agree(pair):
    """Each node has its own: what is mended on one needs no order, nor may a lost one be missed."""
    pair.write()
    pair.config = load(pair.path).config
    other = pair.root / "other.yaml"
    other.write_text(yaml.safe_dump(pair.settings | {"serve": {"max_num_seqs": 2}}))
    pair.pair = LocalPair(pair.config, ["--config", str(pair.path)])
    adopt_orphans()
    pair.pair.start_rank(0)
    pair.pair.options = ["--config", str(other)]
    pair.pair.start_rank(1)
    pair.until_finding(0, "PAIR_CONFIG")
    pair.until_finding(1, "PAIR_CONFIG")
    other.write_text(pair.path.read_text())
    assert pair.until_ready().epoch == 1


def reboot_with_settings_of_one_run(pair, **remembered):
    """Reboot the worker's node, and no other: its directory in /run is new then."""
    pair.start()
    first = pair.until_ready()
    give_order(pair.config, "restart", ("serve.max_num_seqs=2",))
    before = pair.until_ready(first.epoch)
    places = {name: pair.root / f"{name}-after-reboot" for name in ("state_dir", "run_dir")}
    for place in places.values():
        place.mkdir()
    (places["state_dir"] / "rank1.json").write_text(json.dumps(remembered))
    other = pair.root / "rebooted.yaml"
    paths = {name: str(place) for name, place in places.items()}
    other.write_text(yaml.safe_dump({**pair.settings, "paths": paths}))
    pair.pair.options = ["--config", str(other)]
    pair.pair.ranks[1].kill()
    pair.until_loss("RANK_LOST")
    override = places["run_dir"] / "override.yaml"
    wait_for(override.exists, "the worker to take them over")
    return before


def test_settings_of_one_run_that_a_reboot_lost_are_taken_from_the_head(pair):
    before = reboot_with_settings_of_one_run(pair)
    wait_for(lambda: pair.serves_after(before.epoch), "the next epoch")


def test_a_rank_that_takes_over_the_head_s_settings_is_held_as_before(pair):
    """Nobody has looked at a machine that goes down in every load."""
    reboot_with_settings_of_one_run(pair, loading_since_boot="another", unclean_boots=1)
    assert "HOST_RESET_LOOP" in pair.until_finding(0, "PEER_HELD").message


def test_a_configuration_broken_on_disk_blocks_with_its_reason_and_heals(pair):
    pair.start()
    before = pair.until_ready()
    good = pair.path.read_text()
    pair.path.write_text(good.replace("profile: demo", "profile: demo\nnonsense: 1"))
    give_order(pair.config, "restart")
    assert "nonsense" in pair.until_finding(0, "CFG_UNKNOWN_KEY").message
    wait_for(lambda: pair.snapshot().state == "blocked", "the pair to be blocked")
    pair.path.write_text(good)
    pair.until_ready(before.epoch)


def test_a_pair_that_is_blocked_can_be_stopped(pair):
    pair.start()
    pair.until_ready()
    pair.path.write_text("nonsense: 1")
    give_order(pair.config, "restart")
    pair.until_finding(0, "CFG_INVALID")
    pair.over.set()
    stop(pair.config)
    assert [pair.pair.ranks[r].wait(DEADLINE) for r in (0, 1)] == [0, 0]


def test_old_engine_logs_are_dropped(pair):
    pair.behave(rank1={"crash_at": "load"})
    pair.start(supervise={**pair.settings["supervise"], "keep_logs": 3})
    wait_for(lambda: pair.snapshot().epoch >= 5, "five epochs")
    assert len(pair.logs(1)) <= 3


def test_the_control_socket_is_private_and_survives_nonsense(pair):
    pair.start()
    pair.until_ready()
    path = control.socket_path(Path(pair.config.paths.run_dir), 0)
    assert path.stat().st_mode & 0o077 == 0
    for nonsense in (b"\n", b"{}\n", b'{"action": "explode"}\n', b"\xff\n"):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(nonsense)
            assert b"not a request" in client.recv(4096)
    pair.until_ready()


def test_systemd_is_told_everything_it_needs(pair, tmp_path, monkeypatch):
    address = tmp_path / "notify"
    heard: list[str] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        manager.settimeout(0.2)
        monkeypatch.setenv("NOTIFY_SOCKET", str(address))
        over = threading.Event()

        def listen():
            while not over.is_set():
                try:
                    heard.append(manager.recv(4096).decode())
                except TimeoutError:
                    continue

        listener = threading.Thread(target=listen)
        listener.start()
        pair.start()
        pair.until_ready()
        wait_for(lambda: heard.count("READY=1") >= 2, "READY of both ranks")
        pair.stop()
        wait_for(lambda: heard.count("STOPPING=1") >= 2, "STOPPING of both ranks")
        over.set()
        listener.join()
    assert any(word.startswith("STATUS=epoch 1: ") for word in heard)
    assert any(word.startswith("EXTEND_TIMEOUT_USEC=") for word in heard)
    first_ready = heard.index("READY=1")
    assert "WATCHDOG=1" in heard[first_ready:]


def test_stopping_lets_the_guard_of_a_killed_supervisor_finish(tmp_path, monkeypatch):
    """Only the guard knows the shared memory of its engine: killed at once, it removes none."""
    monkeypatch.setattr(local, "GUARD_SECONDS", DEADLINE)
    made = Pair(tmp_path)
    made.write()
    made.pair = LocalPair(load(made.path).config, [])
    kept = tmp_path / "segment"
    kept.touch()
    program = "import os, sys, time; sys.stdin.read(); time.sleep(0.3); os.unlink(sys.argv[1])"
    guard = subprocess.Popen([sys.executable, "-c", program, str(kept)], stdin=subprocess.PIPE)
    guard.stdin.close()
    assert made.stop() == 0
    assert not kept.exists()
    guard.returncode = 0  # reaped above
