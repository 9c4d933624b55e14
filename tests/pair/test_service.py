"""The pair as two systemd services with the real CPU engine: it boots into service, and returns.

One pair lives through all of them, in order; each test gets it serving, hurts it once, and waits.
Nobody gives a command after the first boot. `make pair-table` does the same with every fault of
`faults.py`, often enough for medians, and beside the plain alternative.
"""

import json
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from waiting import wait_for

from .bed import RAIL1, Host
from .faults import BY_NAME
from .measure import measure
from .side import START_SECONDS

REPRESENTATIVE = (
    "kill_worker_1",
    "kill_main_0",
    "kill_supervisor_1",
    "freeze_core_0",
    "black_hole",
    "power_loss_1",
    "crash_0",
    "reboot_1",
    "spare_rail",
    "config_drift",
)
"""One of each kind; the rest is the table's."""
BREAK_SECONDS = 2.0
"""How long a cable is out: links need some seconds more to come back, and the pair has ten."""

pytestmark = pytest.mark.engine


def test_both_hosts_boot_into_service(pair):
    """Power on, and nothing else."""
    pair.bed.reboot(*pair.hosts)
    pair.until_ready()
    assert pair.ask() == pair.config.canary.expect
    refused = httpx.get(f"{pair.url}/v1/models", timeout=60, trust_env=False)
    assert refused.status_code == 401
    for rank, host in enumerate(pair.hosts):
        # What a rank says of itself is known a moment later to systemd and to the other host.
        wait_for(lambda rank=rank: pair.unit(rank, "StatusText").startswith("ready"), "its words")
        wait_for(lambda host=host: state(host) == "ready", f"{host.name} to know that both serve")
        assert "ordering cycle" not in host.journal("--boot=0")


def test_a_cable_that_is_soon_back_costs_a_request_its_time_and_no_more(pair):
    before = pair.until_ready()
    with ThreadPoolExecutor() as client:
        pair.bed.network.pull(RAIL1)
        answer = client.submit(pair.ask)
        with pytest.raises(TimeoutError):
            answer.result(timeout=BREAK_SECONDS)
        pair.bed.network.push(RAIL1)
        assert answer.result() == pair.config.canary.expect
    assert pair.until_ready().epoch == before.epoch


def state(host: Host) -> str:
    """Return what `glm53ctl status` says in a word."""
    return json.loads(host.exec("glm53ctl", "status", "--json", check=False).stdout)["state"]


@pytest.mark.parametrize("name", REPRESENTATIVE)
def test_the_pair_does_what_must_follow(pair, name):
    fault = BY_NAME[name]
    before = pair.until_ready()
    seen = measure(pair, fault, START_SECONDS)
    if fault.follows == "serve" and seen.detect_s is not None:
        # A supervisor that was held up for seconds has not answered meanwhile: once more.
        seen = measure(pair, fault, START_SECONDS)
    after = pair.until_ready()

    assert fault.says in seen.said, pair.evidence()
    assert seen.serving_s is not None, pair.evidence()
    if fault.follows == "serve":
        assert after.epoch == before.epoch
        assert seen.detect_s is None
        return
    assert seen.detect_s is not None
    assert seen.stopped_s is not None
    # One fault is one loss: a start that failed on the way back is a fault of its own.
    assert after.epoch == before.epoch + 1, pair.evidence()
