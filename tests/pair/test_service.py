"""The pair as two systemd services with the real CPU engine: it boots into service, and returns.

One pair lives through all of them, in order; each test gets it serving, hurts it once, and waits.
Nobody gives a command after the first boot.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from waiting import wait_for

from glm53ctl.demo.run import DemoFiles

from .bed import RAIL1, WORKER
from .serving import ServingPair, demo_settings

ENDS_WITHIN = 60.0
"""Deadline only; the time that was needed is recorded, not asserted."""
RESULTS = Path(os.environ.get("GLM53_RESULTS", os.devnull))
MEASURED: list[dict[str, object]] = []

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def pair(whole_bed, product, tmp_path_factory):
    if reason := product.why_not():
        pytest.skip(reason)
    whole_bed.heal()
    settings = demo_settings(DemoFiles(whole_bed.state / "demo"), product)
    made = ServingPair(whole_bed, tmp_path_factory.mktemp("pair"), settings)
    made.install()
    yield made
    RESULTS.write_text(json.dumps(MEASURED, indent=2) + "\n")


def test_both_hosts_boot_into_service(pair):
    """Power on, and nothing else."""
    pair.bed.reboot(*pair.hosts)
    pair.until_ready()
    assert pair.ask() == pair.config.canary.expect
    refused = httpx.get(f"{pair.url}/v1/models", timeout=10, trust_env=False)
    assert refused.status_code == 401
    for rank, host in enumerate(pair.hosts):
        assert pair.unit(rank, "StatusText").startswith("ready")
        status = json.loads(host.output("glm53ctl", "status", "--json"))
        assert status["state"] == "ready"


def kill_worker_process(pair):
    pair.hosts[1].exec("kill", "-KILL", pair.pid(1, "Worker"))


def kill_engine_of_the_head(pair):
    pair.hosts[0].exec("kill", "-KILL", str(pair.report(0).engine.pid))


def kill_supervisor_of_the_worker(pair):
    pair.hosts[1].exec("systemctl", "kill", "-s", "KILL", "--kill-whom=main", "glm53-rank1")


def crash_of_the_head(pair):
    pair.hosts[0].crash()


def power_loss_of_the_worker(pair):
    pair.hosts[1].power_loss()


def reboot_of_the_worker(pair):
    pair.hosts[1].reboot()


def black_hole_on_the_rail(pair):
    pair.bed.network.mute(WORKER, RAIL1)


def power_returns(pair):
    pair.bed.heal()


def nothing(pair):
    """What the fault broke comes back without anybody."""


@dataclass(frozen=True)
class Story:
    """A fault, what the world does afterwards, and the ranks whose hosts live through it."""

    fault: Callable[[ServingPair], None]
    then: Callable[[ServingPair], None] = nothing
    survivors: tuple[int, ...] = (0, 1)


STORIES = (
    Story(kill_worker_process),
    Story(kill_engine_of_the_head),
    Story(kill_supervisor_of_the_worker),
    Story(black_hole_on_the_rail, power_returns),
    Story(reboot_of_the_worker, survivors=(0,)),
    Story(power_loss_of_the_worker, power_returns, survivors=(0,)),
    Story(crash_of_the_head, power_returns, survivors=(1,)),
)


@pytest.mark.parametrize("story", STORIES, ids=[story.fault.__name__ for story in STORIES])
def test_the_service_returns_by_itself(pair, story):
    before = pair.until_ready()
    engines = {rank: pair.engine(rank) for rank in story.survivors}
    assert all(engines.values())
    at = time.monotonic()
    story.fault(pair)
    hurt = time.monotonic()

    def noticed() -> bool:
        reports = [pair.report(rank) for rank in story.survivors]
        return any(report is None or report.phase != "ready" for report in reports)

    wait_for(noticed, "a survivor to notice", ENDS_WITHIN)
    detected = time.monotonic()
    for rank, pids in engines.items():
        wait_for(lambda: not pair.alive(rank, pids), f"engine {rank} to be gone", ENDS_WITHIN)  # noqa: B023
    stopped = time.monotonic()
    story.then(pair)
    mended = time.monotonic()
    after = pair.until_ready(before.epoch)
    served = time.monotonic()

    assert pair.ask() == pair.config.canary.expect
    # One fault is one loss: a start that failed on the way back is a fault of its own.
    assert after.epoch == before.epoch + 1, pair.evidence()
    MEASURED.append(
        {
            "fault": story.fault.__name__,
            "fault_s": round(hurt - at, 2),
            "detect_s": round(detected - at, 2),
            "stopped_s": round(stopped - at, 2),
            "serving_s": round(served - mended, 1),
            "said": after.last_loss.message if after.last_loss else None,
        }
    )
