"""Weights on two hosts from nothing: fetched by the head, pulled by the worker, through trouble.

The Hub is the fake one of `tests/hub.py`, on the LAN; units, fabric, sync and engine are
real. A file of ballast that the engine does not read makes the pull long enough to be disturbed.
"""

import contextlib
import json
from pathlib import Path

import pytest
from hub import Blob, Hub, serving
from waiting import wait_for

from glm53ctl.demo.run import DemoFiles

from .bed import CLIENT_ADDRESS, RAIL1, WORKER
from .serving import ServingPair, demo_settings
from .side import START_SECONDS

REPO, COMMIT = "demo/glm", "d" * 40
BALLAST_BYTES = 400_000_000
SYNC_MB_PER_SECOND = 25
"""Sixteen seconds for the ballast."""

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def hub(whole_bed, product, tmp_path_factory):
    ballast = tmp_path_factory.mktemp("hub") / "ballast"
    with ballast.open("wb") as file:
        for number in range(BALLAST_BYTES // 1_000_000):
            file.write(number.to_bytes(4, "big") * 250_000)
    files = {path.name: Blob(path) for path in product.model.iterdir() if path.is_file()}
    repo = {**files, "ballast.bin": Blob(ballast)}
    with serving(Hub({(REPO, COMMIT): repo}), CLIENT_ADDRESS) as made:
        yield made


@pytest.fixture(scope="module")
def pair(whole_bed, product, hub, tmp_path_factory):
    if reason := product.why_not():
        pytest.skip(reason)
    whole_bed.heal()
    settings = demo_settings(DemoFiles(whole_bed.state / "demo"), product)
    settings["weights"] = {
        "source": "hub",
        "repo": REPO,
        "revision": COMMIT,
        "fallback_repo": None,
        "reserve_gib": 1,
        "sync_mb_per_second": SYNC_MB_PER_SECOND,
    }
    settings["licenses"] = {"accept": ["ShapleyMCG-1.0"]}
    made = ServingPair(whole_bed, tmp_path_factory.mktemp("pair"), settings)
    made.install()
    for host in made.hosts:
        host.write(
            "/etc/systemd/system/glm53-weights.service.d/hub.conf",
            f"[Service]\nEnvironment=HF_ENDPOINT={hub.url}\n",
        )
    return made


def the_set(pair: ServingPair, rank: int) -> dict:
    """Return what `glm53ctl weights status` says of the model on a host."""
    done = pair.hosts[rank].exec("glm53ctl", "weights", "status", "--json", check=False)
    (found,) = json.loads(done.stdout)["sets"]
    return found


def is_verified(pair: ServingPair, rank: int) -> bool:
    """Say whether a host may serve what it has."""
    found = the_set(pair, rank)
    return found["verified_bytes"] == found["bytes"] > BALLAST_BYTES and not found["findings"]


def pulled(pair: ServingPair) -> int:
    """Return how much of the ballast the worker has: a part, or the whole under its own name."""
    folder = pair.hosts[1].merged / "var/lib/glm53/weights/model.sets" / COMMIT
    for name in ("ballast.bin.incomplete", "ballast.bin"):
        with contextlib.suppress(FileNotFoundError):
            return (folder / name).stat().st_size
    return 0


def test_a_fresh_pair_fetches_pulls_and_serves_through_a_cut_and_a_reboot(pair, hub):
    pair.bed.reboot(*pair.hosts)
    wait_for(lambda: pulled(pair) > BALLAST_BYTES / 8, "the worker to pull", START_SECONDS)
    assert is_verified(pair, 0)

    pair.bed.network.mute(WORKER, RAIL1)
    before = pulled(pair)
    pair.bed.network.unmute(WORKER, RAIL1)
    wanted = min(max(before + 1, BALLAST_BYTES / 3), BALLAST_BYTES)  # it may have ended already
    wait_for(lambda: pulled(pair) >= wanted, "the pull to go on", 60)

    before = pulled(pair)
    pair.bed.reboot(pair.hosts[0])
    assert pulled(pair) >= before
    pair.until_ready()
    assert is_verified(pair, 0)
    assert is_verified(pair, 1)
    assert pair.ask() == pair.config.canary.expect
    # The worker had everything from the head, and the head everything once.
    assert all(hub.sent[name] == blob.size for name, blob in hub.repos[REPO, COMMIT].items())


def test_the_next_boot_needs_no_hub(pair, hub):
    asked = len(hub.asked)
    pair.bed.reboot(*pair.hosts)
    pair.until_ready()
    assert len(hub.asked) == asked


def test_a_damaged_file_is_not_served_and_comes_anew_from_the_head(pair, hub):
    """A shard of the right size with one other bit: the quick look of a boot finds the change."""
    before = pair.until_ready()
    sets = Path("/var/lib/glm53/weights/model.sets")
    shard = next(n for n in sorted(hub.repos[REPO, COMMIT]) if n.endswith(".safetensors"))
    worker = pair.hosts[1]
    worker.exec("systemctl", "stop", pair.unit_name(1))
    program = "import sys; f = open(sys.argv[1], 'r+b'); f.seek(-1, 2); b = f.read(1)[0]; "
    program += "f.seek(-1, 2); f.write(bytes([b ^ 1]))"
    worker.exec("/usr/bin/python3", "-c", program, str(sets / COMMIT / shard))
    worker.exec("systemctl", "start", "--no-block", pair.unit_name(1))

    def blocked() -> bool:
        report = pair.report(1)
        return report is not None and any(f.where.endswith(shard) for f in report.findings)

    wait_for(blocked, "the rank to name the file", 60)
    worker.exec("systemctl", "restart", "--no-block", "glm53-weights.service")
    pair.until_ready(before.epoch)
    assert is_verified(pair, 1)
