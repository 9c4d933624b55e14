"""Nothing of an engine survives. The engine here is a shell that behaves as badly as one."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from waiting import wait_for

from glm53ctl.supervise import engine as engine_module
from glm53ctl.supervise import reasons
from glm53ctl.supervise.engine import EngineProcess
from glm53ctl.supervise.proctree import (
    SHM,
    adopt_orphans,
    descendants,
    kill_descendants,
    shared_memory,
    stale_processes,
    still_there,
)

DEADLINE = 120.0
# A main process that ignores SIGTERM, a child in a session of its own, and an orphan of an orphan.
UNRULY = "trap '' TERM; setsid sleep 1001 & (setsid sleep 1002 &) ; sleep 1003 & echo up; wait"


def sleepers(marker: str) -> list[int]:
    """Pids of the processes that carry this test's marker in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("GLM53_TEST_MARKER") == marker and process.pid != os.getpid():
                found.append(process.pid)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """A process that is only held up is waited for; one that stays is still found."""
    for name in ("KILL_WAIT_SECONDS", "FOLLOW_SECONDS"):
        monkeypatch.setattr(engine_module, name, DEADLINE)
    monkeypatch.setattr(engine_module, "kill_descendants", lambda _: kill_descendants(DEADLINE))


@pytest.fixture
def marker(tmp_path):
    name = f"{os.getpid()}-{tmp_path.name}"  # another run has folders of the same names
    yield name
    for pid in sleepers(name):
        os.kill(pid, signal.SIGKILL)


async def start(
    script: str, marker: str, log: Path, on_line=lambda _: None, **more
) -> EngineProcess:
    adopt_orphans()
    environment = {**os.environ, "GLM53_TEST_MARKER": marker}
    argv = ["/bin/bash", "-c", script]
    return await EngineProcess.start(argv, environment, log, on_line, **more)


async def until_up(engine: EngineProcess) -> None:
    async with asyncio.timeout(DEADLINE):
        while "up" not in engine.last_lines:
            await asyncio.sleep(0.02)


def test_an_end_is_told(marker, tmp_path):
    async def scenario():
        told = asyncio.Event()
        engine = await start("exit 3", marker, tmp_path / "log", on_end=told.set)
        async with asyncio.timeout(DEADLINE):
            await told.wait()
        assert engine.exit_code == 3
        await engine.end()

    asyncio.run(scenario())


LATE = """
import os, subprocess, sys

class Late(subprocess.Popen):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

subprocess.Popen = Late
from glm53ctl.supervise import guard
guard.main(int(sys.argv[1]), sys.argv[2:])
"""
"""The guard, held up until the engine that it has started has ended."""


def test_an_engine_that_ends_before_its_guard_looks_is_noticed():
    reports, channel = os.pipe()
    command = [sys.executable, "-c", LATE, str(channel), "/bin/sh", "-c", "exit 3"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=(channel,)) as guard:
        os.close(channel)
        try:
            guard.wait(DEADLINE)
        finally:
            guard.stdin.close()
    with open(reports, "rb") as told:
        assert b"exit 3\n" in told.read()


def test_end_leaves_nothing_of_an_unruly_tree(marker, tmp_path):
    async def scenario():
        engine = await start(UNRULY, marker, tmp_path / "log")
        await until_up(engine)
        await asyncio.to_thread(wait_for, lambda: len(sleepers(marker)) >= 4, "all of the tree")
        await engine.end()
        assert engine.left == []

    asyncio.run(scenario())
    assert sleepers(marker) == []


def test_a_large_engine_with_many_threads_is_waited_for_to_its_last_page(marker, tmp_path):
    """Its first thread is a zombie at once; the others hold the memory a while longer."""
    code = (
        "import threading, time; block = bytearray(400 << 20); block[::4096] = b'x' * (400 << 8);"
        "[threading.Thread(target=time.sleep, args=(1000,)).start() for _ in range(200)];"
        "print('up', flush=True)"
    )

    async def scenario():
        engine = await start(f'{sys.executable} -c "{code}"; :', marker, tmp_path / "log")
        await until_up(engine)
        members = psutil.Process(engine.guard.pid).children(recursive=True)
        await engine.end()
        assert not any(psutil.pid_exists(member.pid) for member in members)

    asyncio.run(scenario())


def test_children_of_an_engine_that_exits_by_itself_go_too(marker, tmp_path):
    async def scenario():
        engine = await start("setsid sleep 1001 & echo up; exit 0", marker, tmp_path / "log")
        await asyncio.wait_for(engine.ended.wait(), DEADLINE)
        assert engine.exit_code == 0
        await engine.end()

    asyncio.run(scenario())
    assert sleepers(marker) == []


def test_a_killed_guard_takes_the_engine_along(marker, tmp_path):
    async def scenario():
        engine = await start(UNRULY, marker, tmp_path / "log")
        await until_up(engine)
        engine.guard.kill()
        await asyncio.wait_for(engine.ended.wait(), DEADLINE)
        await engine.end()

    asyncio.run(scenario())
    assert sleepers(marker) == []


def test_a_process_that_the_kernel_does_not_let_go_holds_up_nobody(marker, tmp_path, monkeypatch):
    """It keeps the pipe of the output open; that must not keep the next epoch waiting."""
    monkeypatch.setattr(engine_module, "FOLLOW_SECONDS", 0.1)
    monkeypatch.setattr(engine_module, "kill_descendants", lambda _: sleepers(marker))

    async def scenario():
        engine = await start(UNRULY, marker, tmp_path / "log")
        await until_up(engine)
        engine.guard.kill()
        await asyncio.wait_for(engine.ended.wait(), DEADLINE)
        await asyncio.wait_for(engine.end(), DEADLINE)
        return engine.left

    left = asyncio.run(scenario())
    assert left
    assert set(sleepers(marker)) <= set(left)  # some may have ended by themselves since


def test_what_is_left_is_told_until_it_is_gone():
    sleeper = subprocess.Popen(["sleep", "1004"])
    known = stale_processes([sleeper.pid, 2**22 + 1])
    assert [process.pid for process in known] == [sleeper.pid]
    assert still_there(known) == known
    finding = reasons.left_behind(known)
    assert (finding.code, f"process {sleeper.pid} " in finding.message) == ("RANK_STALE", True)
    os.kill(sleeper.pid, signal.SIGKILL)
    wait_for(lambda: not still_there(known), "the process to be reaped")
    sleeper.returncode = -signal.SIGKILL  # reaped above


def test_a_killed_supervisor_takes_everything_along(marker, tmp_path):
    code = (
        "import asyncio, os, sys; from pathlib import Path;"
        "from glm53ctl.supervise.engine import EngineProcess\n"
        "async def main():\n"
        "    await EngineProcess.start(['/bin/bash', '-c', sys.argv[1]], dict(os.environ),"
        " Path(sys.argv[2]), lambda line: print(line, flush=True))\n"
        "    await asyncio.sleep(1000)\n"
        "asyncio.run(main())"
    )
    supervisor = subprocess.Popen(
        [sys.executable, "-c", code, UNRULY, str(tmp_path / "log")],
        env={**os.environ, "GLM53_TEST_MARKER": marker},
        stdout=subprocess.PIPE,
    )
    assert supervisor.stdout.readline() == b"up\n"
    supervisor.kill()
    supervisor.wait()
    supervisor.stdout.close()
    wait_for(lambda: not sleepers(marker), "the engine to be gone with its supervisor")


def test_a_polite_engine_gets_its_time(marker, tmp_path):
    script = "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.05; done"

    async def scenario():
        engine = await start(script, marker, tmp_path / "log")
        await until_up(engine)
        await engine.end(grace_seconds=DEADLINE)
        assert engine.exit_code == 7
        assert "bye" in engine.last_lines

    asyncio.run(scenario())


def test_a_guard_that_was_stopped_hears_its_orders(marker, tmp_path):
    async def scenario():
        engine = await start(
            "trap 'exit 3' TERM; echo up; sleep 1000 & wait", marker, tmp_path / "log"
        )
        await until_up(engine)
        engine.guard.send_signal(signal.SIGSTOP)
        await engine.end(grace_seconds=DEADLINE)
        return engine.exit_code

    assert asyncio.run(scenario()) == 3


def test_an_engine_is_not_deaf_to_signals_because_its_guard_is(marker, tmp_path):
    """Ignored signals are inherited across exec; vLLM needs SIGTERM and SIGINT."""

    async def scenario():
        engine = await start("sleep 1001 & echo up; exec sleep 1002", marker, tmp_path / "log")
        await until_up(engine)
        await engine.end(grace_seconds=DEADLINE)
        assert engine.exit_code == -signal.SIGTERM

    asyncio.run(scenario())


def test_out_of_memory_the_engine_dies_before_its_supervisor(marker, tmp_path):
    own = Path("/proc/self/oom_score_adj")
    before = own.read_text()

    async def scenario():
        engine = await start(
            "cat /proc/self/oom_score_adj; echo up; sleep 60", marker, tmp_path / "log"
        )
        await until_up(engine)
        await engine.end()
        assert "1000" in engine.last_lines
        assert own.read_text() == before

    asyncio.run(scenario())


def test_a_program_that_does_not_exist_is_an_end_with_a_reason(tmp_path):
    async def scenario():
        adopt_orphans()
        engine = await EngineProcess.start(
            [str(tmp_path / "vllm")], {}, tmp_path / "log", lambda _: None
        )
        await asyncio.wait_for(engine.ended.wait(), DEADLINE)
        assert (engine.exit_code, engine.failure) == (127, "No such file or directory")
        await engine.end()

    asyncio.run(scenario())


def test_progress_bars_arrive_line_by_line_and_bytes_that_are_no_text_do_no_harm(marker, tmp_path):
    lines: list[str] = []

    async def scenario():
        script = r"printf 'a 1/3\ra 2/3\ra 3/3\n\xff\xfe\nlast'"
        engine = await start(script, marker, tmp_path / "log", lines.append)
        await asyncio.wait_for(engine.ended.wait(), DEADLINE)
        await engine.end()

    asyncio.run(scenario())
    assert lines[:3] == ["a 1/3", "a 2/3", "a 3/3"]
    assert lines[-1] == "last"
    assert (tmp_path / "log").read_text().splitlines() == lines


@pytest.mark.parametrize("place", ["/dev/full", "{folder}/log", "{folder}/file/log"])
def test_an_engine_is_followed_without_a_disk_for_its_log(marker, tmp_path, place, caplog, capfd):
    (tmp_path / "file").touch()
    lines: list[str] = []

    async def scenario():
        log = Path(place.format(folder=tmp_path))
        engine = await start("echo one; echo up; exit 3", marker, log, lines.append)
        await asyncio.wait_for(engine.ended.wait(), DEADLINE)
        await engine.end()
        return list(engine.last_lines)

    assert asyncio.run(scenario()) == lines == ["one", "up"]
    complaints = [record.getMessage() for record in caplog.records]
    assert len(complaints) == (place == "{folder}/file/log")
    assert capfd.readouterr().err == ""


SEGMENT = (
    "import mmap, time; file = open('/dev/shm/{name}', 'wb+'); file.truncate(4096);"
    "memory = mmap.mmap(file.fileno(), 4096)"
)
SEMAPHORE = "import multiprocessing, time; lock = multiprocessing.get_context('spawn').Lock()"


def segments() -> set[int]:
    """Inodes of what is in shared memory now; the machine is not this test's alone."""
    found = set()
    for segment in SHM.iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(segment.lstat().st_ino)
    return found


@pytest.mark.parametrize("code", [SEGMENT, SEMAPHORE], ids=["segment", "semaphore"])
def test_shared_memory_of_a_killed_engine_is_removed(marker, tmp_path, code):
    program = code.format(name=f"glm53-{marker}") + "; print('up', flush=True); time.sleep(1000)"

    async def scenario():
        engine = await start(f'exec {sys.executable} -c "{program}"', marker, tmp_path / "log")
        await until_up(engine)
        mapped = shared_memory(descendants(engine.guard.pid))
        assert mapped & segments()
        await engine.end()
        return mapped

    assert not asyncio.run(scenario()) & segments()


def test_shared_memory_of_a_process_that_died_soon_and_below_the_engine_is_removed(
    marker, tmp_path
):
    """A worker and the core that mapped its queue die before the guard's turn to look came."""
    segment = SHM / f"glm53-{marker}"
    worker = SEGMENT.format(name=segment.name) + "; time.sleep(3)"  # less than LOOK_SECONDS

    async def scenario():
        script = f'({sys.executable} -c "{worker}"; :); echo up; sleep 1001'
        engine = await start(script, marker, tmp_path / "log")
        await until_up(engine)
        assert segment.exists()
        await engine.end()

    def removed() -> bool:
        asyncio.run(scenario())
        left = segment.exists()
        segment.unlink(missing_ok=True)
        return not left

    # A guard that was held up for all of the worker's life has seen nothing of it: once more.
    assert any(removed() for _ in range(3))


def test_shared_memory_seen_earlier_is_removed_though_its_process_is_gone(marker):
    segment = SHM / f"glm53-{marker}"
    segment.write_bytes(b"x")
    assert kill_descendants(DEADLINE, [segment.stat().st_ino]) == []
    assert not segment.exists()
