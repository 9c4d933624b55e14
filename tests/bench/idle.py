"""What the daemons of one host cost while the pair serves and nobody asks.

A real pair of supervisors with their guards and a real watchdog with its bus agent, at rest. Two
things are stand-ins, and neither is counted: the engine, and systemd on a private bus. Prints a
line for each daemon: share of a core over the time of the measurement, and proportional memory
(PSS, which counts a shared page once over all that share it); then one JSON line with the sum of
the head's four. Usage: `python tests/bench/idle.py [SECONDS]`, on a Linux with dbus-daemon and an
interpreter with pydbus at watchdog.bus_python.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from unit.supervise.test_supervisor import Pair
from unit.watchdog.agents import AGENT, served
from waiting import wait_for

from glm53ctl.config.schema import Link, Watchdog
from glm53ctl.supervise.proctree import descendants

METRICS = Path(__file__).parents[1] / "unit/view/vllm-0.32.0.prom"
"""What a real engine says at /metrics."""
FAKE_SYSTEMD = Path(__file__).parents[1] / "unit/watchdog/fake_systemd.py"
BUSY, AT_REST = '7, "restart", "/j/7"', '0, "", "/"'
"""The stand-in has a job for rank 0, and the watchdog looks harder at a unit with one."""
PYTHON = Watchdog().bus_python
START_SECONDS = 180.0
SETTLE_SECONDS = Watchdog().probe_seconds + 15
"""So that what is done once, the watchdog's first question above all, is over."""
WATCHDOG = """
import asyncio, sys
from pathlib import Path
from glm53ctl.config.sources import load
from glm53ctl.watchdog.daemon import Watchdog
read = lambda: load(Path(sys.argv[1]), rules=False).config
asyncio.run(Watchdog(read, socket=Path(sys.argv[2])).run())
"""
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def pss_mib(pid: int) -> float:
    """Memory of a process, shared pages divided among those who share them."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise SystemExit(f"the kernel does not tell the memory of process {pid}")


@contextlib.contextmanager
def system_bus(root: Path) -> Iterator[str]:
    """A private bus with a stand-in for systemd on it; yields its address."""
    address = f"unix:path={root / 'bus'}"
    bus = subprocess.Popen(
        ["dbus-daemon", "--session", "--nofork", "--address", address], stderr=subprocess.DEVNULL
    )
    environ = {**os.environ, "DBUS_SYSTEM_BUS_ADDRESS": address}
    wait_for((root / "bus").exists, "the bus", START_SECONDS)
    systemd = subprocess.Popen(
        [PYTHON, "-c", FAKE_SYSTEMD.read_text().replace(BUSY, AT_REST)],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert systemd.stdout is not None
    systemd.stdout.readline()
    try:
        yield address
    finally:
        systemd.kill()
        bus.kill()


def guard_of(supervisor: int) -> int:
    """The guard of a rank's engine."""
    for process in descendants(supervisor):
        if "glm53ctl.supervise.guard" in " ".join(process.cmdline()):
            return int(process.pid)
    raise SystemExit("the supervisor has no guard")


def main(seconds: float) -> None:
    """Measure and print."""
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        pair = Pair(root)
        stack.callback(pair.stop)
        told = (line for line in METRICS.read_text().splitlines() if not line.startswith("#"))
        pair.behave(rank0={"metrics": dict(line.rsplit(" ", 1) for line in told)})
        pair.start(link=Link(token_file=pair.settings["link"]["token_file"]).model_dump())
        wait_for(lambda: pair.snapshot().ready, "the pair", START_SECONDS)
        address = stack.enter_context(system_bus(root))
        environ = {**os.environ, "DBUS_SYSTEM_BUS_ADDRESS": address}
        agents = stack.enter_context(served(root / "agent", [PYTHON, "-I", AGENT], environ, None))
        command = [sys.executable, "-c", WATCHDOG, str(pair.path), str(root / "agent")]
        watchdog = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        stack.callback(watchdog.wait)
        stack.callback(watchdog.terminate)
        report = Path(pair.config.paths.run_dir) / "watchdog.json"
        wait_for(lambda: report.exists() and agents, "the watchdog's first look", START_SECONDS)
        time.sleep(SETTLE_SECONDS)
        supervisors = [pair.pair.ranks[rank].pid for rank in (0, 1)] if pair.pair else []
        daemons = {
            "supervisor, head": supervisors[0],
            "guard, head": guard_of(supervisors[0]),
            "watchdog": watchdog.pid,
            "bus agent": agents[-1],
            "supervisor, worker": supervisors[1],
            "guard, worker": guard_of(supervisors[1]),
        }
        before = {name: cpu_seconds(pid) for name, pid in daemons.items()}
        began = time.monotonic()
        time.sleep(seconds)
        lasted = time.monotonic() - began
        spent = {name: (cpu_seconds(pid) - before[name]) / lasted for name, pid in daemons.items()}
        memory = {name: pss_mib(pid) for name, pid in daemons.items()}
    for name in daemons:
        print(f"{name:<20}{100 * spent[name]:7.2f} % of a core{memory[name]:8.1f} MiB")
    head = list(daemons)[:4]
    result = {
        "seconds": round(lasted, 1),
        "cpu_percent": round(100 * sum(spent[name] for name in head), 2),
        "pss_mib": round(sum(memory[name] for name in head), 1),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)
