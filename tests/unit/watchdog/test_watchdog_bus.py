"""D-Bus by pydbus: the real agent, a real bus daemon of its own, and a fake of systemd on it."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
from agents import AGENT, served
from waiting import wait_for

from glm53ctl.config.schema import Watchdog
from glm53ctl.errors import UserError
from glm53ctl.watchdog import bus as bus_module
from glm53ctl.watchdog.bus import Bus

PYTHON = Watchdog().bus_python
FAKE = os.path.join(os.path.dirname(__file__), "fake_systemd.py")


def why_no_bus() -> str:
    if shutil.which("dbus-daemon") is None:
        return "dbus-daemon is not installed"
    if not os.path.exists(PYTHON):
        return f"there is no {PYTHON}"
    done = subprocess.run([PYTHON, "-c", "import gi, pydbus"], capture_output=True, check=False)
    return "" if done.returncode == 0 else f"{PYTHON} has no pydbus or no gi"


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """An agent that is only held up in its start is no missing one."""
    monkeypatch.setattr(bus_module, "HELLO_SECONDS", 120.0)
    monkeypatch.setattr(bus_module, "ANSWER_SECONDS", 120.0)


REASON = why_no_bus()
needs_bus = pytest.mark.skipif(bool(REASON), reason=REASON)
CONFIG = """<busconfig><listen>unix:path={path}</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*"/><allow receive_sender="*"/>
<allow own="*"/><allow user="*"/></policy></busconfig>"""


class FakeSystemd:
    """The fake process: what it was asked, and a way to make it change."""

    def __init__(self, process: subprocess.Popen[str], bus: subprocess.Popen[bytes]) -> None:
        self.process, self.bus = process, bus
        assert self.line() == "owned"

    def line(self) -> str:
        return self.process.stdout.readline().strip()

    def rest(self) -> list[str]:
        """End it and return what else it was asked."""
        return self.process.communicate(timeout=120)[0].splitlines()

    def say(self, word: str) -> None:
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()


@pytest.fixture
def system(tmp_path):
    """A private bus with the fake on it, in the environment of a system bus."""
    file = tmp_path / "bus.conf"
    file.write_text(CONFIG.format(path=tmp_path / "bus"))
    words = ["dbus-daemon", f"--config-file={file}", "--nofork", "--nopidfile"]
    daemon = subprocess.Popen(words)
    wait_for((tmp_path / "bus").exists, "the bus")
    environ = os.environ | {"DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={tmp_path}/bus"}
    fake = subprocess.Popen(
        [PYTHON, FAKE], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield FakeSystemd(fake, daemon), environ
    finally:
        for process in (fake, daemon):
            process.kill()
            process.wait()


@contextmanager
def connected(tmp_path, environ):
    """Run the real agent behind a socket and return what runs a test against it."""
    path = tmp_path / "agent"

    def run(test):
        async def whole():
            changed = asyncio.Event()
            bus = await Bus.connect(changed, path)
            try:
                return await test(bus, changed)
            finally:
                await bus.close()

        return asyncio.run(asyncio.wait_for(whole(), 120))

    with served(path, [PYTHON, "-I", AGENT], environ) as pids:
        run.pids = pids
        yield run


@needs_bus
def test_units_are_listed_with_what_the_rules_need(system, tmp_path):
    with connected(tmp_path, system[1]) as run:
        units = run(lambda bus, _: bus.units())
    rank = units["glm53-rank0.service"]
    assert (rank.active, rank.sub, rank.job, rank.pid) == ("active", "running", "restart", 4711)
    assert (rank.result, rank.exited_with) == ("fake", 75)
    assert units["glm53.target"].active == "active"


@needs_bus
def test_failures_are_forgotten_before_a_restart(system, tmp_path):
    with connected(tmp_path, system[1]) as run:
        run(lambda bus, _: bus.restart("glm53-rank0.service"))
    assert system[0].rest() == [
        "Subscribe",
        "ResetFailedUnit glm53-rank0.service",
        "RestartUnit glm53-rank0.service replace",
    ]


@needs_bus
def test_a_kill_takes_every_process(system, tmp_path):
    with connected(tmp_path, system[1]) as run:
        run(lambda bus, _: bus.kill("glm53-rank0.service"))
    assert system[0].rest() == ["Subscribe", "KillUnit glm53-rank0.service all 9"]


@needs_bus
@pytest.mark.parametrize("unit", ["sshd.service", "glm53-rank0.service.d", "glm53-rank7.service"])
def test_no_other_unit_can_be_touched(system, tmp_path, unit):
    with connected(tmp_path, system[1]) as run, pytest.raises(UserError) as refused:
        run(lambda bus, _: bus.restart(unit))
    assert refused.value.code == "BUS_REFUSED"
    assert system[0].rest() == ["Subscribe"]


@needs_bus
def test_what_systemd_refuses_is_said_and_the_bus_lives_on(system, tmp_path):
    async def test(bus, _):
        with pytest.raises(UserError, match="glm53-rank3") as refused:
            await bus.restart("glm53-rank3.service")
        assert refused.value.code == "BUS_REFUSED"
        return await bus.units()

    with connected(tmp_path, system[1]) as run:
        assert run(test)


@needs_bus
@pytest.mark.parametrize("news", ["finished", "died"])
def test_a_change_of_a_rank_is_news_and_its_words_or_other_units_are_not(
    system, tmp_path, news, monkeypatch
):
    monkeypatch.setattr(bus_module, "KNOWN_SECONDS", 0.0)  # each answer comes after earlier news

    async def test(bus, changed):
        for word in ("other", "said"):
            system[0].say(word)
        for _ in range(3):
            await bus.units()
        assert not changed.is_set()
        system[0].say(news)
        await changed.wait()

    with connected(tmp_path, system[1]) as run:
        run(test)


@needs_bus
@pytest.mark.parametrize("cause", ["died", "restart", "kill"])
def test_units_are_asked_for_again_after_a_change_or_an_order(system, tmp_path, cause, monkeypatch):
    monkeypatch.setattr(bus_module, "KNOWN_SECONDS", 600.0)

    async def test(bus, changed):
        known = await bus.units()
        assert await bus.units() is known
        if cause == "died":
            system[0].say(cause)
            await changed.wait()
        else:
            await getattr(bus, cause)("glm53-rank0.service")
        assert await bus.units() is not known

    with connected(tmp_path, system[1]) as run:
        run(test)


@needs_bus
@pytest.mark.parametrize("victim", ["bus", "agent"])
def test_a_bus_or_an_agent_that_ends_is_missing_at_the_next_question(system, tmp_path, victim):
    async def test(bus, changed):
        await bus.units()
        pid = system[0].bus.pid if victim == "bus" else run.pids[0]
        os.kill(pid, signal.SIGKILL)
        await changed.wait()
        with pytest.raises(UserError) as missing:
            await bus.units()
        assert missing.value.code == "BUS_MISSING"

    with connected(tmp_path, system[1]) as run:
        run(test)


@needs_bus
def test_a_system_without_a_bus_says_so(tmp_path):
    environ = os.environ | {"DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={tmp_path}/nothing"}
    with connected(tmp_path, environ) as run, pytest.raises(UserError) as missing:
        run(lambda bus, _: bus.units())
    assert missing.value.code == "BUS_MISSING"
    assert "the system bus gives no answer" in missing.value.message


def connect(path):
    return asyncio.run(asyncio.wait_for(Bus.connect(asyncio.Event(), path), 60))


def test_an_interpreter_without_gi_is_named(tmp_path):
    path = tmp_path / "agent"
    command = [sys.executable, "-S", "-I", AGENT]  # -S: no packages at all
    with served(path, command, os.environ), pytest.raises(UserError) as missing:
        connect(path)
    assert missing.value.code == "BUS_MISSING"
    assert f"{sys.executable} has no module pydbus" in missing.value.message
    assert "apt install python3-pydbus" in missing.value.fix


def test_an_interpreter_that_is_not_there_is_named(tmp_path):
    path = tmp_path / "agent"
    config = tmp_path / "config.yaml"
    config.write_text("{profile: demo, watchdog: {bus_python: /nowhere/python3}}")
    command = [sys.executable, "-m", "glm53ctl", "bus", "--config", str(config)]
    with served(path, command, os.environ), pytest.raises(UserError) as missing:
        connect(path)
    assert "/nowhere/python3 (watchdog.bus_python) does not run" in missing.value.message


def test_an_agent_that_says_nothing_is_missing(tmp_path):
    path = tmp_path / "agent"
    with served(path, ["true"], os.environ), pytest.raises(UserError, match="says nothing"):
        connect(path)


def test_without_the_socket_it_is_said_which_unit_makes_it(tmp_path):
    with pytest.raises(UserError) as missing:
        connect(tmp_path / "agent")
    assert (missing.value.code, missing.value.exit_code) == ("BUS_MISSING", 2)
    assert "glm53-bus.socket" in missing.value.fix
