"""Cables that do not fit: seen from inside the units, named before a start and while serving.

Most of it needs no engine: a start that is refused never comes to one. The last test has one pair
serve, and breaks what can break under it.
"""

import pytest
from waiting import wait_for

from glm53ctl.facts.host import known
from glm53ctl.facts.node import NodeFacts
from glm53ctl.status.snapshot import assemble

from .bed import CHECKOUT, RAIL1, RAIL2, WORKER
from .faults import BY_NAME
from .serving import ServingPair

NAMED_SECONDS = 60.0
"""Deadline for a name in the status: a look every 5 s before a start, every 10 s while serving."""

UNREADABLE = {"gpus"}
"""What the bed has not: a driver. Everything else can be read in a unit's sandbox."""

pytestmark = pytest.mark.engine


@pytest.fixture
def asleep(pair):
    """The pair with no fault in it and both ranks stopped, before and after."""
    pair.bed.heal()
    stop(pair)
    yield pair
    stop(pair)  # before the fault is mended, which would start an engine
    pair.bed.heal()


def stop(pair: ServingPair) -> None:
    for rank, host in enumerate(pair.hosts):
        host.exec("systemctl", "stop", pair.unit_name(rank), check=False, timeout=120)


def start(pair: ServingPair) -> None:
    for rank, host in enumerate(pair.hosts):
        host.exec("systemctl", "start", "--no-block", pair.unit_name(rank))


def told(pair: ServingPair, rank: int) -> tuple[str, ...]:
    """Return the codes that `glm53ctl status` shows on one host, first things first."""
    report = pair.report(rank)
    known_there = {rank: report} if report is not None else {}
    return tuple(f.code for f in assemble(pair.config, known_there, 0.0).findings)


def until_told(pair: ServingPair, rank: int, code: str) -> None:
    """Wait until a host's status names a code."""
    try:
        what = f"{code} in the status of {pair.hosts[rank].name}"
        wait_for(lambda: code in told(pair, rank), what, NAMED_SECONDS)
    except AssertionError as error:
        raise AssertionError(f"{error}: {told(pair, rank)}\n{pair.evidence()}") from error


# --- inside the sandbox --------------------------------------------------------------------------


def facts_in_the_unit(pair: ServingPair, rank: int) -> NodeFacts:
    """Return what can be read by a unit that is the rank's in all but its program."""
    host, unit = pair.hosts[rank], "glm53-look.service"
    source = CHECKOUT / "services" / pair.unit_name(rank)
    host.push(source, f"/etc/systemd/system/{unit}", 0o644)
    host.write(
        f"/etc/systemd/system/{unit}.d/look.conf",
        "[Service]\nType=oneshot\nNotifyAccess=none\nWatchdogSec=0\nRestart=no\nExecStopPost=\n"
        "ExecStart=\nExecStart=glm53ctl doctor record /var/lib/glm53/facts.json --rank "
        f"{rank}\n",
    )
    host.exec("systemctl", "daemon-reload")
    try:
        host.exec("systemctl", "start", unit)
        return NodeFacts.model_validate_json(host.output("cat", "/var/lib/glm53/facts.json"))
    finally:
        host.exec("rm", "-r", f"/etc/systemd/system/{unit}", f"/etc/systemd/system/{unit}.d")
        host.exec("systemctl", "daemon-reload")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_unit_can_read_every_fact(asleep, rank):
    facts = facts_in_the_unit(asleep, rank)
    unknown = facts.unknowns()
    assert unknown.keys() <= UNREADABLE, unknown
    network = known(facts.network)
    assert network is not None
    peer = RAIL1.address(asleep.hosts[1 - rank].spark)
    assert (peer, True) in {(probe.target, probe.answered) for probe in network.probes}
    assert any(one.address == peer and one.mac for one in network.neighbours)


# --- before a start ------------------------------------------------------------------------------

BEFORE = {
    # What is done: what the head's and what the worker's status must name.
    "cut_rail": ("NET_NEIGH_FAILED", "NET_IF_DOWN"),
    "pull_cable": ("NET_IF_DOWN", "NET_IF_DOWN"),
    "black_hole": ("NET_NEIGH_FAILED", "NET_NEIGH_FAILED"),
    "mtu_unequal": ("NET_MTU_MISMATCH", "NET_MTU_MISMATCH"),
    "address_gone": ("NET_NEIGH_FAILED", "NET_ADDRESS_MISSING"),
    "wrong_prefix": ("NET_NEIGH_FAILED", "NET_NEIGH_FAILED"),
    "wrong_subnet": ("NET_NEIGH_FAILED", "NET_ADDRESS_MISSING"),
    "swapped_cables": ("NET_CABLES_SWAPPED", "NET_CABLES_SWAPPED"),
}


@pytest.mark.parametrize("name", BEFORE)
def test_what_does_not_fit_is_named_on_both_hosts_and_nothing_is_started(asleep, name):
    before = engine_logs(asleep)
    fault = BY_NAME[name]
    fault.hurt(asleep)
    start(asleep)
    try:
        for rank, code in enumerate(BEFORE[name]):
            until_told(asleep, rank, code)
        assert engine_logs(asleep) == before
    finally:
        stop(asleep)
        fault.mend(asleep)


def engine_logs(pair: ServingPair) -> set[str]:
    """Return the names of the engines' logs on both hosts: each start of one leaves its own."""
    return {str(log) for h in pair.hosts for log in (h.merged / "var/lib/glm53/logs").glob("*")}


def test_an_address_that_the_configuration_puts_into_another_network_is_named(asleep):
    """Both hosts agree with the configuration, and no packet could ever pass."""
    elsewhere = "10.0.9.2"
    head, worker = (dict(node) for node in asleep.settings["nodes"])
    worker["address"] = elsewhere
    plain = asleep.settings
    try:
        asleep.settings = plain | {"nodes": [head, worker]}
        for rank in (0, 1):
            asleep.configure(rank)
        asleep.hosts[1].exec("ip", "address", "flush", "dev", RAIL1.name)
        asleep.hosts[1].exec("ip", "address", "add", f"{elsewhere}/24", "dev", RAIL1.name)
        start(asleep)
        for rank in (0, 1):
            until_told(asleep, rank, "NET_NEIGH_FAILED")
    finally:
        stop(asleep)
        asleep.settings = plain
        for rank in (0, 1):
            asleep.configure(rank)
        BY_NAME["wrong_subnet"].mend(asleep)


def test_a_silent_second_rail_stops_a_pair_that_asks_for_two(asleep):
    before = engine_logs(asleep)
    asleep.bed.network.mute(WORKER, RAIL2)
    try:
        for rank in (0, 1):
            asleep.configure(rank, fabric={"rails": 2})
        start(asleep)
        for rank in (0, 1):
            until_told(asleep, rank, "NET_RAIL_UNREACHABLE")
        assert engine_logs(asleep) == before
    finally:
        stop(asleep)
        for rank in (0, 1):
            asleep.configure(rank)


# --- while serving -------------------------------------------------------------------------------


def test_what_changes_under_a_serving_pair_is_named_and_a_second_rail_costs_nothing(asleep):
    """A drift is shown, and the pair restarts only for what it loses by it."""
    pair, network = asleep, asleep.bed.network
    start(pair)
    before = pair.until_ready()
    wait_for(lambda: told(pair, 0) == told(pair, 1) == (), "a clean status", NAMED_SECONDS)

    network.mute(WORKER, RAIL2)
    for rank in (0, 1):
        until_told(pair, rank, "NET_RAIL_UNREACHABLE")
    network.unmute(WORKER, RAIL2)
    for rank in (0, 1):
        wait_for(lambda rank=rank: told(pair, rank) == (), "a clean status", NAMED_SECONDS)

    worker = pair.hosts[1]
    worker.exec("ip", "link", "set", "mtu", "1500", "dev", RAIL1.name)
    for rank in (0, 1):
        until_told(pair, rank, "NET_MTU_MISMATCH")
    worker.exec("ip", "link", "set", "mtu", str(RAIL1.mtu), "dev", RAIL1.name)
    for rank in (0, 1):
        wait_for(lambda rank=rank: told(pair, rank) == (), "a clean status", NAMED_SECONDS)
    assert pair.until_ready().epoch == before.epoch
    assert pair.ask() == pair.config.canary.expect

    network.swap(WORKER)
    for rank in (0, 1):
        until_told(pair, rank, "NET_CABLES_SWAPPED")
    network.unswap(WORKER)
    pair.until_ready()

    # Without its address the rail is lost, and the pair with it; afterwards the cause is named.
    worker.exec("ip", "address", "flush", "dev", RAIL1.name)
    until_told(pair, 1, "NET_ADDRESS_MISSING")
    until_told(pair, 0, "NET_NEIGH_FAILED")
