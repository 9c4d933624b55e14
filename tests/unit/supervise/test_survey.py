"""What a waiting node does before a start: memory that the page cache has, the fabric's facts."""

import asyncio

import pytest
from pairs import pair_config

from glm53ctl.checks import start
from glm53ctl.facts.host import Unknown
from glm53ctl.facts.memory import KIB_IN_GIB, MemoryFacts
from glm53ctl.facts.node import NodeFacts
from glm53ctl.supervise import survey
from glm53ctl.supervise.survey import Survey

APART = [{"name": "a", "address": "10.0.0.1"}, {"name": "b", "address": "10.0.0.2"}]


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
        ("cuda", memory(112, 115), False),
        ("cuda", memory(20, 60), False),  # somebody else's: nothing to reclaim
        ("cuda", Unknown(unknown="no /proc"), False),
        ("cpu", memory(20, 115), False),
    ],
)
def test_memory_is_reclaimed_only_where_that_helps(tmp_path, monkeypatch, platform, facts, short):
    monkeypatch.setattr(start, "probe_memory", lambda: facts)
    config = pair_config(tmp_path, engine={"platform": platform}, memory={"start_gib": 110})
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

    def probe(_, rank: int) -> NodeFacts:
        seen.append(rank)
        return NodeFacts(node="b", rank=rank)

    monkeypatch.setattr(survey, "probe_fabric", probe)
    looked = Survey(1)
    assert looked.is_due
    asyncio.run(looked.take(config))
    assert not looked.is_due
    assert looked.facts == NodeFacts(node="b", rank=1)
    looked.forget()
    assert looked.is_due
    assert looked.facts is None
    assert seen == [1]


def test_ranks_of_one_host_have_no_fabric(tmp_path, monkeypatch):
    monkeypatch.setattr(survey, "probe_fabric", lambda *_: pytest.fail("there is nothing to see"))
    config = pair_config(tmp_path, engine={"platform": "cpu"})
    assert not config.spans_hosts
    assert pair_config(tmp_path, nodes=APART).spans_hosts
    asyncio.run(Survey(0).take(config))
