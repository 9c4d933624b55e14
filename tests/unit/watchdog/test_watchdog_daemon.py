"""The watchdog at work: real loop, control socket and probe; a fake agent for systemd, fake API."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from looks import config, failed, report, unit
from unit.supervise.fake_pair import FakePair, fake_pair

from glm53ctl.errors import UserError
from glm53ctl.facts.memory import KIB_IN_GIB, MemoryFacts
from glm53ctl.supervise import control
from glm53ctl.supervise.ledger import read_incidents
from glm53ctl.supervise.report import Phase, RankReport
from glm53ctl.watchdog import bus, daemon, power, rules
from glm53ctl.watchdog.report import FRESH_SECONDS, WatchdogReport, read_report, write_report

TARGET = {"name": "glm53.target", "active": "active", "sub": "active", "job": ""}


@dataclass
class FakeAgent:
    """A fake of the bus agent: it knows what a test tells it, and restarts nothing."""

    units: list[dict[str, Any]] = field(default_factory=list)
    refuses: bool = False
    asked: list[str] = field(default_factory=list)
    looks: int = 0
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        writer.write(b'{"ready": true}\n')
        while line := await reader.readline():
            request = json.loads(line)
            answer: dict[str, Any] = {"id": request["id"]}
            if request["do"] == "list":
                self.looks += 1
                answer["units"] = [TARGET, *self.units]
            else:
                self.asked.append(f"{request['do']} {request['unit']}")
                answer |= {"error": "not today"} if self.refuses else {}
            writer.write(json.dumps(answer).encode() + b"\n")
        writer.close()


@dataclass
class Scene:
    """One host: its units, what its supervisor says, and what the watchdog did."""

    folder: Path
    agent: FakeAgent = field(default_factory=FakeAgent)
    says: RankReport | None = None
    orders: list[control.Request] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def run_dir(self) -> Path:
        return self.folder / "run"

    @property
    def state_dir(self) -> Path:
        return self.folder / "state"

    @property
    def report(self) -> WatchdogReport | None:
        return read_report(self.run_dir)

    def load(self) -> Any:
        made = config(str(self.folder), **self.settings.get("watchdog", {}))
        return made.model_copy(update={k: v for k, v in self.settings.items() if k != "watchdog"})

    async def answer(self, request: control.Request) -> control.Answer:
        if request.action != "report":
            self.orders.append(request)
        return control.Answer(report=self.says)

    def play(self, until: Callable[[], Any]) -> None:
        """Run the watchdog until something is so."""
        asyncio.run(asyncio.wait_for(self._play(until), 120))

    async def _play(self, until: Callable[[], Any]) -> None:
        path = self.folder / "agent"
        server = await asyncio.start_unix_server(self.agent.serve, path)
        supervisor = None
        if self.says is not None:
            supervisor = await control.serve(self.run_dir / "rank0.sock", self.answer)
        watchdog = daemon.Watchdog(self.load, path)
        task = asyncio.create_task(watchdog.run())
        try:
            while not task.done() and not until():
                await asyncio.sleep(0.01)
            watchdog._stop()
            await task
            assert until()
        finally:
            for each in (server, supervisor):
                if each is not None:
                    each.close()


@pytest.fixture
def scene(tmp_path, monkeypatch):
    for name in ("run", "state"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(daemon, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(daemon, "NEWS_SECONDS", 0.0)
    monkeypatch.setattr(bus, "KNOWN_SECONDS", 0.0)  # the fake tells no news
    monkeypatch.setattr(rules, "AGAIN_SECONDS", 0.0)
    memory(monkeypatch, 60.0)
    for name in ("CREDENTIALS_DIRECTORY", "NOTIFY_SOCKET"):
        monkeypatch.delenv(name, raising=False)
    return Scene(tmp_path)


def memory(monkeypatch, gib: float, stalled: float = 0.0) -> None:
    facts = MemoryFacts(
        total=128 * KIB_IN_GIB, free=0, available=int(gib * KIB_IN_GIB), pressure_full=stalled
    )
    monkeypatch.setattr(daemon, "probe_memory", lambda: facts)


def incidents(scene: Scene) -> list[tuple[str, str]]:
    return [(found.code, found.action) for found in read_incidents(scene.state_dir)]


# --- supervisors ---------------------------------------------------------------------------------


def test_a_unit_that_was_given_up_is_restarted_and_it_is_written_down(scene):
    scene.agent.units = [failed().model_dump()]
    scene.play(lambda: scene.agent.asked)
    assert scene.agent.asked == ["restart glm53-rank0.service"]
    assert incidents(scene) == [("SUPERVISOR_LOST", "restarted glm53-rank0.service")]
    assert [found.code for found in scene.report.findings] == ["SUPERVISOR_LOST"]


def test_a_supervisor_without_an_answer_is_restarted_after_its_time(scene):
    scene.settings["watchdog"] = {"silent_seconds": 0.2}
    scene.agent.units = [unit().model_dump()]
    scene.play(lambda: scene.agent.asked)
    assert incidents(scene) == [("SUPERVISOR_STUCK", "restarted glm53-rank0.service")]


@pytest.mark.parametrize("phase", [Phase.HELD, Phase.STARTING])
def test_a_supervisor_that_answers_is_left_alone(scene, phase):
    scene.settings["watchdog"] = {"silent_seconds": 0.01, "probe_seconds": 0.01}
    scene.agent.units = [unit().model_dump()]
    scene.says = report(phase)
    scene.play(lambda: scene.agent.looks > 20)
    assert (scene.agent.asked, scene.orders, incidents(scene)) == ([], [], [])
    assert scene.report.watches == (0,)


def test_what_systemd_refuses_is_written_down_and_the_watch_goes_on(scene):
    scene.agent.refuses = True
    scene.agent.units = [failed().model_dump()]
    scene.play(lambda: scene.agent.looks > 10)
    assert incidents(scene) == [("SUPERVISOR_LOST", "failed: restarted glm53-rank0.service")]


def test_a_disk_that_takes_nothing_stops_nothing(scene):
    scene.state_dir.rmdir()
    scene.run_dir.rmdir()
    scene.agent.units = [failed().model_dump()]
    scene.play(lambda: scene.agent.asked and scene.agent.looks > 10)
    assert scene.agent.asked == ["restart glm53-rank0.service"]


def test_a_unit_of_a_rank_that_the_configuration_lacks_is_not_watched(scene):
    scene.agent.units = [failed().model_dump() | {"name": "glm53-rank3.service"}]
    scene.play(lambda: scene.agent.looks > 5)
    assert scene.agent.asked == []


# --- tokens --------------------------------------------------------------------------------------


@pytest.fixture
def ready(scene, monkeypatch):
    """A pair that says ready, and its API (fake)."""
    with fake_pair() as api:
        port = int(api.url.rsplit(":", 1)[1])
        made = config().api.model_copy(update={"port": port})
        scene.settings |= {
            "api": made,
            "watchdog": {"probe_seconds": 0.01},
        }
        scene.agent.units = [unit().model_dump()]
        scene.says = report(epoch=4)
        yield scene, api


def no_answer(scene: Scene, api: FakePair) -> None:
    """Let the API hang, and the watchdog soon take that for an answer."""
    api.hangs = frozenset({"/v1/chat/completions"})
    scene.settings["watchdog"]["probe_deadline_seconds"] = 1.0


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda _, api: setattr(api, "answer", "!!!!"), "answered '!!!!'"),
        (lambda _, api: setattr(api, "answer", None), "answered ''"),
        (no_answer, "ReadTimeout"),
        (lambda _, api: api.fails.update({"/health": 503}), "503"),
    ],
)
def test_a_ready_pair_without_right_tokens_is_ordered_to_begin_anew(ready, break_it, words):
    scene, api = ready
    break_it(scene, api)
    scene.play(lambda: scene.orders)
    assert [order.action for order in scene.orders] == ["restart"]
    (found,) = read_incidents(scene.state_dir)
    assert (found.code, found.epoch, found.rank) == ("PROBE_FAILED", 4, 0)
    assert words in found.message
    assert scene.agent.asked == []


def test_an_order_keeps_the_settings_of_the_one_run(ready):
    scene, api = ready
    api.answer = "!!!!"
    (scene.run_dir / "override.yaml").write_text("serve: {max_num_seqs: 2}\n")
    scene.play(lambda: scene.orders)
    assert scene.orders[0].overrides == ("serve.max_num_seqs=2",)


def test_a_pair_that_answers_is_asked_again_and_left_alone(ready):
    scene, api = ready
    scene.play(lambda: len(api.questions) > 5)
    assert (scene.orders, incidents(scene)) == ([], [])


@pytest.mark.parametrize("status", [400, 401, 404, 429])
def test_a_refusal_of_the_question_is_no_fault_of_the_engine(ready, status):
    scene, api = ready
    api.fails["/v1/chat/completions"] = status
    scene.play(lambda: len(api.questions) > 5)
    assert (scene.orders, incidents(scene)) == ([], [])


def test_a_probe_that_waited_for_the_work_of_others_is_no_failure(ready, monkeypatch):
    scene, api = ready
    no_answer(scene, api)
    started = time.monotonic()

    async def working(request: control.Request) -> control.Answer:
        scene.orders += [request] if request.action != "report" else []
        share = min(1.0, (time.monotonic() - started) / 60)
        return control.Answer(report=report(epoch=4, kv_usage=share))

    monkeypatch.setattr(scene, "answer", working)
    scene.play(lambda: len(api.questions) > 4)
    assert (scene.orders, incidents(scene)) == ([], [])


def test_the_pair_is_asked_where_it_serves_and_not_where_the_file_says_by_now(ready):
    """A file that was edited counts from the next restart on, however many epochs pass."""
    scene, api = ready
    del scene.settings["api"]
    served = {"endpoint": f"{api.url}/v1", "model": "glm"}
    scene.settings["serve"] = config().serve.model_copy(update={"model_name": "another"})
    scene.says = scene.says.model_copy(update=served)
    scene.play(lambda: len(api.questions) > 5)
    assert (scene.orders, incidents(scene)) == ([], [])


def test_the_configuration_is_read_anew_with_each_epoch(ready):
    """A restart may have changed it."""
    scene, api = ready
    loads = iter([{"canary": config().canary.model_copy(update={"expect": "No."})}, {}])
    load = scene.load
    scene.load = lambda: load().model_copy(update=next(loads))  # type: ignore[method-assign]
    scene.play(lambda: len(api.questions) > 2)
    assert scene.orders == []


def test_a_driver_that_never_answers_is_asked_once_and_holds_up_no_look(ready, monkeypatch):
    """That is how a wedged GPU may show, so the counters alone decide then."""
    scene, _ = ready
    scene.says = report(epoch=4, running=1)
    scene.settings["supervise"] = config().supervise.model_copy(update={"wedge_seconds": 0.1})
    monkeypatch.setattr(rules, "WEDGE_MARGIN_SECONDS", 0.1)
    monkeypatch.setattr(power, "ANSWER_SECONDS", 0.1)
    over, asked = threading.Event(), []

    def hangs() -> None:
        asked.append(1)
        over.wait(60)

    monkeypatch.setattr(power.PowerMeter.__init__, "__defaults__", (hangs,))
    scene.play(lambda: scene.orders and scene.agent.looks > 5)
    assert asked == [1]
    assert [code for code, _ in incidents(scene)] == ["ENGINE_WEDGED"]
    over.set()


def test_the_power_is_read(monkeypatch):
    assert asyncio.run(power.PowerMeter(lambda: 41.5).watts()) == 41.5


# --- memory --------------------------------------------------------------------------------------


def test_little_memory_is_said_and_new_work_refused(scene, monkeypatch):
    memory(monkeypatch, 3.5)
    scene.agent.units = [unit().model_dump()]
    scene.says = report(Phase.HELD)
    scene.play(lambda: scene.report and scene.report.refuses)
    assert scene.report.memory == "refuse"
    assert "3.5 GiB" in scene.report.refuses.reason
    assert scene.agent.asked == []


def has_engine(pid: int | None) -> RankReport:
    said = report()
    return said.model_copy(update={"engine": said.engine.model_copy(update={"pid": pid})})


def test_a_supervisor_that_does_not_end_its_engine_at_the_floor_is_killed_once(scene, monkeypatch):
    monkeypatch.setattr(daemon, "SUPERVISOR_FIRST_SECONDS", 0.1)
    memory(monkeypatch, 1.0)
    scene.agent.units = [unit().model_dump()]
    scene.says = has_engine(4711)
    scene.play(lambda: scene.agent.asked and scene.agent.looks > 20)
    assert scene.agent.asked == ["kill glm53-rank0.service"]
    assert incidents(scene) == [("MEM_GUARD", "killed glm53-rank0.service")]


def test_a_supervisor_that_ended_its_engine_is_not(scene, monkeypatch):
    monkeypatch.setattr(daemon, "SUPERVISOR_FIRST_SECONDS", 0.0)
    memory(monkeypatch, 1.0)
    scene.agent.units = [unit().model_dump()]
    scene.says = has_engine(None)
    scene.play(lambda: scene.agent.looks > 20)
    assert scene.agent.asked == []


def test_the_engine_after_a_stop_for_memory_is_left_alone(scene, monkeypatch):
    """The stage outlives the shortage, and the next engine starts before it is left."""
    monkeypatch.setattr(daemon, "SUPERVISOR_FIRST_SECONDS", 0.0)
    memory(monkeypatch, 1.0)
    scene.agent.units = [unit().model_dump()]
    scene.says = has_engine(None)
    back: list[int] = []

    def next_engine_runs() -> bool:
        if scene.agent.looks > 5 and not back:
            memory(monkeypatch, 60.0)
            back.append(scene.agent.looks)
        if back and scene.agent.looks > back[0] + 3:
            scene.says = has_engine(4712)
        return bool(back) and scene.agent.looks > back[0] + 25

    scene.play(next_engine_runs)
    assert scene.report.memory == "stop"
    assert (scene.agent.asked, incidents(scene)) == ([], [])


def test_a_right_kill_is_not_repeated_when_memory_is_back(scene, monkeypatch):
    monkeypatch.setattr(daemon, "SUPERVISOR_FIRST_SECONDS", 0.0)
    monkeypatch.setattr(daemon, "KILL_AGAIN_SECONDS", 0.2)
    memory(monkeypatch, 1.0)
    scene.agent.units = [unit().model_dump()]
    scene.says = has_engine(4711)
    killed: list[int] = []

    def next_engine_runs() -> bool:
        if scene.agent.asked and not killed:
            memory(monkeypatch, 60.0)
            killed.append(scene.agent.looks)
        return bool(killed) and scene.agent.looks > killed[0] + 25

    scene.play(next_engine_runs)
    assert scene.agent.asked == ["kill glm53-rank0.service"]


def test_the_supervisor_goes_first(scene, monkeypatch):
    monkeypatch.setattr(daemon, "SUPERVISOR_FIRST_SECONDS", 600.0)
    memory(monkeypatch, 1.0)
    scene.agent.units = [unit().model_dump()]
    scene.says = has_engine(4711)
    scene.play(lambda: scene.agent.looks > 20)
    assert scene.agent.asked == []


# --- the daemon itself ---------------------------------------------------------------------------


def test_systemd_is_told_when_it_watches_and_after_every_look(scene, monkeypatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(scene.folder / "notify"))
        manager.settimeout(0.2)
        monkeypatch.setenv("NOTIFY_SOCKET", str(scene.folder / "notify"))
        said: list[str] = []
        over = threading.Event()

        def listen() -> None:
            """Read along, as systemd does: a full socket would hold the watchdog up."""
            while True:
                try:
                    said.append(manager.recv(4096).decode())
                except TimeoutError:
                    if over.is_set():
                        return

        listener = threading.Thread(target=listen)
        listener.start()
        try:
            scene.play(lambda: scene.agent.looks > 5)
        finally:
            over.set()
            listener.join()
    assert said[0] == "READY=1"
    assert said.count("WATCHDOG=1") >= 4
    assert "STATUS=all well" in said
    assert said.count("STOPPING=1") == 1
    # The look that was under way is ended, and told.
    assert said.index("STOPPING=1") >= len(said) - 3


def test_without_the_bus_it_ends_with_a_sentence(scene):
    with pytest.raises(UserError) as missing:
        asyncio.run(daemon.Watchdog(scene.load, scene.folder / "agent").run())
    assert missing.value.code == "BUS_MISSING"


def test_when_the_bus_goes_it_ends_too(scene):
    def hang_up() -> bool:
        if scene.agent.looks > 3:
            scene.agent.writers[0].close()
        return False

    with pytest.raises(UserError) as missing:
        scene.play(hang_up)
    assert missing.value.code == "BUS_MISSING"


def test_switched_off_it_watches_nothing(scene):
    scene.settings["watchdog"] = {"enabled": False}
    asyncio.run(daemon.Watchdog(scene.load, scene.folder / "agent").run())
    assert scene.report is None


def test_the_report_of_a_dead_watchdog_counts_for_nothing(tmp_path):
    now = time.monotonic()
    write_report(tmp_path, WatchdogReport(pid=1, beat=now - FRESH_SECONDS - 1))
    assert read_report(tmp_path) is None
    write_report(tmp_path, WatchdogReport(pid=1, beat=now))
    assert read_report(tmp_path) is not None
