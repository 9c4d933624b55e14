"""Deaths and hangs of the real engine: noticed, ended on both sides, and serving again.

One pair lives through all of them, in order; the first test starts it with rank 1 late.
"""

import json
import os
import threading
import time
from pathlib import Path

import httpx
import pytest
from conftest import KILL, START_SECONDS, STOP, alive, hurt, wait_for

from glm53ctl.facts.ports import can_listen
from glm53ctl.status.snapshot import Snapshot
from glm53ctl.supervise.ledger import read_incidents
from glm53ctl.supervise.report import Loss, Phase

ENDS_WITHIN = 90.0
"""Deadline only; the time that was needed is recorded, not asserted."""
LATE_SECONDS = 30.0
TRIES = 3
"""A supervisor that is held up is not the first to see its loss, and its peer tells another."""
RESULTS = Path(os.environ.get("GLM53_RESULTS", os.devnull))
MEASURED: list[dict] = []


@pytest.fixture(scope="module", autouse=True)
def results():
    yield
    RESULTS.write_text(json.dumps(MEASURED, indent=2) + "\n")


def complete(pair) -> str:
    answer = httpx.post(
        f"http://127.0.0.1:{pair.config.api.port}/v1/chat/completions",
        json={
            "model": pair.config.serve.model_name,
            "messages": [{"role": "user", "content": pair.config.canary.prompt}],
            "temperature": 0,
            "max_tokens": pair.config.canary.max_tokens,
            "chat_template_kwargs": {"enable_thinking": False},
        },
        timeout=60,
        trust_env=False,
    )
    answer.raise_for_status()
    return answer.json()["choices"][0]["message"]["content"]


def losses(pair) -> list[Loss]:
    """Those on record, as they came."""
    found = read_incidents(Path(pair.config.paths.state_dir))
    return sorted((loss for loss in found if not loss.commanded), key=lambda loss: loss.at)


def test_rank_1_comes_30_seconds_late(serving):
    """Nothing of the engine waits on its own; the head says whom it waits for."""
    serving.start_rank(0)
    first = wait_for(
        lambda: next(iter(serving.snapshot().findings), None), "the head to miss rank 1"
    )
    assert first.code == "PEER_ABSENT"
    deadline = time.monotonic() + LATE_SECONDS
    while time.monotonic() < deadline:
        head = serving.report(0)
        assert (head.phase, head.engine.pid, head.epoch) == (Phase.PAIRING, None, 0)
        time.sleep(1)
    serving.start_rank(1)
    serving.tend()
    assert serving.until_ready().epoch == 1
    assert complete(serving) == serving.config.canary.expect


def kill_worker_1(pair):
    return pair.worker(1), KILL


def kill_engine_main_1(pair):
    return pair.engine_main(1), KILL


def kill_engine_main_0(pair):
    return pair.engine_main(0), KILL


def kill_worker_0(pair):
    return pair.worker(0), KILL


def kill_supervisor_1(pair):
    return pair.pair.ranks[1].pid, KILL


def kill_supervisor_0(pair):
    return pair.pair.ranks[0].pid, KILL


def freeze_worker_1(pair):
    return pair.worker(1), STOP


FAULTS = [
    (kill_worker_1, "RANK_LOST", 1),
    (kill_engine_main_1, "RANK_LOST", 1),
    (kill_engine_main_0, "RANK_LOST", 0),
    (kill_worker_0, "RANK_LOST", 0),
    (kill_supervisor_1, "RANK_LOST", 1),
    (kill_supervisor_0, "RANK_LOST", 0),
    (freeze_worker_1, "ENGINE_WEDGED", 1),
]


def suffered(serving, fault) -> Loss:
    """Hurt the pair once; return what it says of that when it serves again."""
    before = serving.until_ready()
    engine = serving.engine_processes()
    assert len(engine) >= 6  # two guards, API server, engine core, workers
    pid, signum = fault(serving)
    at = hurt(pid, signum)

    def noticed() -> bool:
        seen = serving.snapshot()
        return not seen.ready or seen.epoch > before.epoch

    wait_for(noticed, "the loss to show", ENDS_WITHIN)
    detected = time.monotonic() - at
    others = {process for process in engine if process.pid != pid}
    wait_for(lambda: not alive(others), "both engines to be gone", ENDS_WITHIN)
    stopped = time.monotonic() - at
    serving.until_ready(before.epoch)
    served = time.monotonic() - at

    # The last one: a start after it may have been lost, too.
    loss = [one for one in losses(serving) if one.epoch == before.epoch][-1]
    assert complete(serving) == serving.config.canary.expect
    assert not alive(engine)
    MEASURED.append(
        {
            "fault": fault.__name__,
            "code": loss.code,
            "detect_s": round(detected, 2),
            "stopped_s": round(stopped, 2),
            "serving_s": round(served, 1),
            "said": loss.message,
        }
    )
    return loss


@pytest.mark.parametrize(
    ("fault", "code", "culprit"), FAULTS, ids=[fault.__name__ for fault, *_ in FAULTS]
)
def test_the_pair_ends_as_one_and_serves_again(serving, fault, code, culprit):
    for _ in range(TRIES):
        loss = suffered(serving, fault)
        if (loss.code, loss.rank) == (code, culprit):
            break
    assert (loss.code, loss.rank) == (code, culprit), loss.message


def test_a_client_in_flight_gets_an_error_and_not_silence(serving):
    before = serving.until_ready()
    outcome: list[object] = []

    def ask_on():
        """Ask until it fails: one reply may be over before its counter was seen."""
        while not outcome:
            try:
                answer = httpx.post(
                    f"http://127.0.0.1:{serving.config.api.port}/v1/completions",
                    json={
                        "model": serving.config.serve.model_name,
                        "prompt": "Two machines",
                        "max_tokens": 1900,
                        "ignore_eos": True,
                    },
                    timeout=START_SECONDS,
                    trust_env=False,
                )
                outcome.extend([answer.status_code] if answer.status_code != 200 else [])
            except httpx.HTTPError as error:
                outcome.append(type(error).__name__)

    client = threading.Thread(target=ask_on, daemon=True)
    client.start()

    def running() -> int | None:
        counters = serving.report(0).counters
        return counters and counters.running

    wait_for(running, "a request to run")
    assert not outcome
    hurt(serving.worker(1), KILL)
    client.join(ENDS_WITHIN)
    assert outcome, "the client still waits"
    serving.until_ready(before.epoch)


def test_status_says_it_all(serving):
    serving.until_ready()
    status = serving.status("ready")
    assert [rank["phase"] for rank in status["ranks"]] == [Phase.READY, Phase.READY]
    assert all(rank["engine"]["version"].startswith("0.32.0") for rank in status["ranks"])
    told = losses(serving)[-1]
    assert (status["last_loss"]["code"], status["last_loss"]["epoch"]) == (told.code, told.epoch)


def restarted(serving) -> Snapshot | None:
    """The pair after a restart with an override; None if a start of it was lost."""
    before = serving.until_ready()
    done = serving.command("restart", "--set", "serve.max_num_seqs=2")
    assert done.returncode == 0, done.stderr
    after = serving.until_ready(before.epoch)
    clean = (after.epoch, after.last_loss) == (before.epoch + 1, before.last_loss)
    return after if clean else None


def test_restart_is_one_new_epoch_with_the_override(serving):
    before = serving.until_ready()
    refused = serving.command("restart", "--set", "serve.max_num_seqs=many")
    assert refused.returncode == 2
    assert "serve.max_num_seqs" in refused.stderr
    assert serving.until_ready().epoch == before.epoch

    after = wait_for(lambda: restarted(serving), "a restart as one new epoch", START_SECONDS)
    command_line = Path(f"/proc/{after.ranks[0].engine.pid}/cmdline").read_text().split("\0")
    assert command_line[command_line.index("--max-num-seqs") + 1] == "2"


def test_down_stops_both_and_frees_the_ports(serving):
    serving.until_ready()
    engine = serving.engine_processes()
    serving.abandon()  # `up` would end with the pair
    done = serving.command("down")
    assert done.returncode == 0, done.stderr
    # First, as a rank that is held up may answer `down` no more and have its engine still.
    assert [rank.wait(START_SECONDS) for rank in serving.pair.ranks.values()] == [0, 0]
    assert not alive(engine)
    for port in (serving.config.api.port, serving.config.fabric.master_port):
        assert can_listen("127.0.0.1", port)
