"""What a waiting node does before a start: memory that the page cache has, the fabric's facts."""

import asyncio
from ipaddress import IPv4Address

import pytest
from pairs import pair_config

from glm53ctl.checks import start
from glm53ctl.facts.host import Unknown
from glm53ctl.facts.memory import KIB_IN_GIB, MemoryFacts
from glm53ctl.facts.network import Address, Interface, Network, RailProbe
from glm53ctl.facts.node import NodeFacts
from glm53ctl.supervise import survey
from glm53ctl.supervise.survey import Survey

APART = [{"name": "a", "address": "10.0.0.1"}, {"name": "b", "address": "10.0.0.2"}]


@pytest.fixture(autouse=True)
def no_hurry(monkeypatch):
    """What was looked at just now is not due again, however long a test is held up."""
    monkeypatch.setattr(survey, "AGAIN_SECONDS", 3600.0)


def memory(free: float, available: float) -> MemoryFacts:
    return MemoryFacts(
        total=128 * KIB_IN_GIB,
        free=int(free * KIB_IN_GIB),
        available=int(available * KIB_IN_GIB),
    )


@pytest.mark.parametrize(
    ("platform", "facts", "short"),
    [
        ("cuda", memory(20, 115), True),
        ("cuda", memory(104, 115), False),  # as much as `glm53ctl reclaim` makes of it
        ("cuda", memory(20, 60), False),  # somebody else's: nothing to reclaim
        ("cuda", Unknown(unknown="no /proc"), False),
        ("cpu", memory(20, 115), False),
    ],
)
def test_memory_is_reclaimed_only_where_that_helps(tmp_path, monkeypatch, platform, facts, short):
    monkeypatch.setattr(start, "probe_memory", lambda: facts)
    share = {"gpu_memory_utilization": 0.8}  # of 128 GiB, and 1.5 to spare: 103.9
    settings = {"engine": {"platform": platform}, "memory": {"start_gib": 110}, "kv": share}
    config = pair_config(tmp_path, **settings)
    assert start.short_of_free_memory(config) is short


def test_room_is_asked_for_and_waited_for(tmp_path, monkeypatch):
    config = pair_config(tmp_path, engine={"platform": "cpu"})
    answers = iter([True, True, False])
    monkeypatch.setattr(survey, "short_of_free_memory", lambda _: next(answers))
    monkeypatch.setattr(survey, "POLL_SECONDS", 0.01)
    (tmp_path / "run").mkdir()
    asyncio.run(Survey(0).take(config))
    assert (tmp_path / "run/reclaim").exists()
    assert next(answers, "asked to the end") == "asked to the end"


def test_a_start_is_tried_where_room_cannot_be_asked_for(tmp_path, monkeypatch):
    config = pair_config(tmp_path, engine={"platform": "cpu"})
    monkeypatch.setattr(survey, "short_of_free_memory", lambda _: True)
    asyncio.run(Survey(0).take(config))  # there is no run directory


def test_facts_are_read_anew_for_each_start(tmp_path, monkeypatch):
    config = pair_config(tmp_path, nodes=APART, engine={"platform": "cpu"})
    seen: list[int] = []

    def probe(_, rank: int, far) -> NodeFacts:
        seen.append(rank)
        return NodeFacts(node="b", rank=rank)

    monkeypatch.setattr(survey, "probe_fabric", probe)
    looked = Survey(1)
    assert looked.is_due(())
    asyncio.run(looked.take(config))
    assert not looked.is_due(())
    assert looked.facts == NodeFacts(node="b", rank=1)
    looked.forget()
    assert looked.is_due(())
    assert looked.facts is None
    assert seen == [1]


def test_a_rail_that_the_others_tell_of_is_asked_at_once(tmp_path, monkeypatch):
    config = pair_config(tmp_path, nodes=APART, engine={"platform": "cpu"})
    second = Interface(
        name="r", mtu=9000, carrier=True, addresses=(Address(address="10.0.1.1", prefix=24),)
    )

    def probe(_, rank: int, far) -> NodeFacts:
        asked = tuple(RailProbe(device="r", target=str(a), mtu=9000, answered=True) for a in far)
        return NodeFacts(rank=rank, network=Network(interfaces=(second,), probes=asked))

    monkeypatch.setattr(survey, "probe_fabric", probe)
    looked, told = Survey(0), [IPv4Address("10.0.1.2")]
    asyncio.run(looked.take(config))
    assert not looked.is_due([])
    assert looked.is_due(told)
    asyncio.run(looked.take(config, told))
    assert not looked.is_due(told)


def test_why_a_peer_does_not_come_is_looked_for_now_and_then(tmp_path, monkeypatch):
    config = pair_config(tmp_path, nodes=APART, engine={"platform": "cpu"})
    seen: list[int] = []

    def probe(_, rank: int) -> NodeFacts:
        seen.append(rank)
        return NodeFacts(rank=rank, network=Unknown(unknown="no ip"))

    monkeypatch.setattr(survey, "probe_fabric", probe)
    looked = Survey(1)
    asyncio.run(looked.look_out(config))
    asyncio.run(looked.look_out(config))
    assert seen == [1]
    assert [finding.code for finding in looked.outlook] == ["PROBE_UNKNOWN"]
    assert looked.facts is None  # what was seen alone begins no epoch


def test_ranks_of_one_host_have_no_fabric(tmp_path, monkeypatch):
    monkeypatch.setattr(survey, "probe_fabric", lambda *_: pytest.fail("there is nothing to see"))
    config = pair_config(tmp_path, engine={"platform": "cpu"})
    assert not config.spans_hosts
    assert pair_config(tmp_path, nodes=APART).spans_hosts
    asyncio.run(Survey(0).take(config))
