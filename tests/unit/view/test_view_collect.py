"""What a view is gathered from: real files, control socket and HTTP; a fake engine."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from expositions import exposition
from unit.status.pictures import config, heard, loss, report
from unit.supervise.fake_pair import FakePair, fake_pair
from unit.view.views import BENCH

from glm53ctl.bench.ledger import NAME, append
from glm53ctl.config.schema import Config
from glm53ctl.facts.host import Unknown
from glm53ctl.facts.nvml import GpuFacts
from glm53ctl.findings import Finding, Severity
from glm53ctl.supervise import control
from glm53ctl.supervise.ledger import Incident, append_incident
from glm53ctl.supervise.report import Counters, EngineReport, Phase, RankReport
from glm53ctl.view import collect
from glm53ctl.view.collect import Gatherer
from glm53ctl.view.model import PairView

GPU = GpuFacts(name="GB10", temperature_celsius=61)
RUNS = EngineReport(pid=4711, version="0.33.0")
AWAY = "203.0.113.9"  # no address of this host: reserved for documentation


class Place:
    """One host: what its supervisors say, its engine (fake), and what is recorded there."""

    def __init__(self, root: Path, api: FakePair) -> None:
        self.root, self.api = root, api
        self.says: dict[int, RankReport] = {}
        self.changes: dict[str, Any] = {"api": {"port": int(api.url.rsplit(":", 1)[1])}}
        self.gpus: tuple[GpuFacts, ...] | Unknown = (GPU,)
        self.gatherer = Gatherer(self.config, gpus=lambda: self.gpus)
        for name in ("run", "state"):
            (root / name).mkdir()

    def config(self) -> Config:
        return config(str(self.root), **self.changes)

    def look(self) -> PairView:
        """Return a view of now, not the one of a moment ago."""
        self.gatherer._view = None
        return self._listening(self.gatherer.view)

    def _listening(self, act: Any) -> Any:
        loop = asyncio.new_event_loop()
        servers = [loop.run_until_complete(self._serve(rank)) for rank in self.says]
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            return act()
        finally:
            for server in servers:
                loop.call_soon_threadsafe(server.close)
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    async def _serve(self, rank: int) -> asyncio.Server:
        async def answer(_: control.Request) -> control.Answer:
            return control.Answer(report=self.says[rank])

        return await control.serve(control.socket_path(self.root / "run", rank), answer)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    with fake_pair() as api:
        yield Place(tmp_path, api)


def tell(place: Place, **counts: float) -> None:
    place.api.bodies["/metrics"] = exposition(**counts).encode()


def test_the_engines_own_counters_with_rates_from_the_second_look_on(place):
    place.says = {0: report(0, engine=RUNS)}
    tell(place, running=1, prompt=100, generated=0, kv=0.5)
    first = place.look()
    assert first.engine is not None
    assert (first.engine.running, first.engine.kv_pool_used) == (1, 0.5)
    assert first.engine.generation_tokens_per_s is None
    tell(place, running=1, prompt=100, generated=1000)
    second = place.look()
    assert second.engine is not None
    assert second.engine.generation_tokens_per_s > 0
    assert second.engine.prompt_tokens_per_s == 0.0


def test_the_metrics_are_asked_for_with_the_key(place):
    key = place.root / "key"
    key.write_text("sk-test\n")
    place.changes["api"]["key_file"] = str(key)
    place.says = {0: report(0, engine=RUNS)}
    tell(place)
    assert place.look().engine is not None
    assert place.api.headers[-1]["authorization"] == "Bearer sk-test"


@pytest.mark.parametrize("status", [401, 503])
def test_an_engine_that_tells_nothing_is_no_reason_to_show_nothing(place, status):
    place.api.fails["/metrics"] = status
    place.says = {0: report(0, engine=RUNS)}
    view = place.look()
    assert view.engine is None
    assert str(status) in view.engine_unknown
    assert view.snapshot.ranks


def test_a_key_that_cannot_be_read_is_said_and_not_shown(place):
    place.changes["api"]["key_file"] = str(place.root / "gone")
    place.says = {0: report(0, engine=RUNS)}
    assert "cannot be read" in place.look().engine_unknown


def test_an_engine_on_its_way_is_starting(place):
    place.api.fails["/metrics"] = 503
    place.says = {0: report(0, Phase.STARTING, engine=RUNS)}
    assert place.look().engine_unknown == "the engine is starting"


def test_without_an_engine_nobody_is_asked(place):
    place.says = {0: report(0, Phase.WAITING)}
    view = place.look()
    assert (view.engine, view.engine_unknown) == (None, "no engine runs on the head")
    assert place.api.asked == []


def test_a_new_engine_has_no_past(place):
    place.says = {0: report(0, engine=RUNS)}
    tell(place, generated=10)
    place.look()
    place.says = {0: report(0, Phase.WAITING)}
    place.look()
    place.says = {0: report(0, engine=RUNS)}
    tell(place, generated=5000)
    view = place.look()
    assert view.engine is not None
    assert view.engine.generation_tokens_per_s is None


def on_the_worker(place: Place, head: RankReport) -> PairView:
    place.changes["nodes"] = [
        {"name": "a", "address": AWAY},
        {"name": "b", "address": "127.0.0.1"},
    ]
    place.says = {1: report(1, peers={0: heard("connected", head)})}
    return place.look()


def test_the_worker_shows_what_it_hears_of_the_head(place):
    counters = Counters(running=2, kv_usage=0.5)
    view = on_the_worker(place, report(0, counters=counters, memory_available_gib=7.5))
    assert view.engine is not None
    assert (view.engine.running, view.engine.kv_pool_used) == (2, 0.5)
    head, worker = view.nodes
    assert (head.here, worker.here) == (False, True)
    assert head.memory is not None
    assert head.memory.available_gib == 7.5
    assert head.gpus is None
    assert "own page" in head.unknown["gpus"]
    assert worker.gpus is not None
    assert place.api.asked == []


def test_a_head_without_counters_is_said_to_say_nothing(place):
    view = on_the_worker(place, report(0, Phase.STARTING))
    assert view.engine is None
    assert "says nothing" in view.engine_unknown


def test_this_machine_as_it_is(place):
    view = place.look()
    node = view.nodes[0]
    assert node.memory is not None
    assert 0 < node.memory.available_gib < node.memory.total_gib
    assert node.memory.floor_gib == place.config().memory.floor_gib
    assert node.gpus is not None
    assert node.gpus[0].temperature_c == 61
    assert node.rails == ()  # both ranks are here


def test_without_a_driver_it_says_why(place):
    place.gpus = Unknown(unknown="no NVIDIA driver answers")
    assert place.look().nodes[0].unknown == {"gpus": "no NVIDIA driver answers"}


def test_incidents_newest_first_with_cause_and_fix(place):
    cause = Finding(code="GPU_XID", severity=Severity.FAIL, message="Xid 79.", fix="Reboot.")
    for at in (1.0, 2.0):
        for seen_by in ("rank 0", "rank 1"):  # of one host: both write the loss down
            incident = Incident(**loss(at, cause=cause).model_dump(), seen_by=seen_by)
            append_incident(place.root / "state", incident)
    view = place.look()
    assert [incident.at for incident in view.incidents] == [2.0, 1.0]
    assert view.incidents[0].cause is not None
    assert view.incidents[0].cause.fix == "Reboot."


def test_the_last_bench_is_the_newest_line_of_the_ledger(place):
    assert place.look().bench is None
    ledger = place.root / "state" / NAME
    append(ledger, BENCH)
    assert place.look().bench == BENCH
    newer = BENCH.model_copy(update={"kind": "prefill"})
    append(ledger, newer)
    assert place.look().bench == newer


def test_whoever_asks_at_once_gets_the_same_view(place, monkeypatch):
    monkeypatch.setattr(collect, "FRESH_SECONDS", 3600.0)
    assert place.gatherer.view() is place.gatherer.view()


def test_a_view_gets_old(place, monkeypatch):
    monkeypatch.setattr(collect, "FRESH_SECONDS", 0.0)
    assert place.gatherer.view() is not place.gatherer.view()


def test_a_view_travels_as_json(place):
    place.says = {0: report(0, engine=RUNS, peers={1: heard("connected", report(1))})}
    tell(place, running=1)
    view = place.look()
    assert PairView.model_validate_json(view.model_dump_json()) == view
