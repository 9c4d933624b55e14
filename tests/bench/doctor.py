"""How long the doctor takes on this host: each probe, each check, and the command as a whole.

Usage: `python tests/bench/doctor.py [RUNS] [OPTIONS OF glm53ctl doctor]`. Prints the slowest of all
runs and fails when one is over its limit. What a healthy host is, the caller knows.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from glm53ctl.checks import CHECKS, judge
from glm53ctl.checks.doctor import read_facts, recorded

PROBE_SECONDS, DOCTOR_SECONDS = 2.0, 5.0
"""The limits: of a probe or a check, and of the whole."""
GLM53CTL = (sys.executable, "-m", "glm53ctl")
SHOWN = 5


def slowest(into: dict[str, float], name: str, seconds: float) -> None:
    """Keep the longest time of a name."""
    into[name] = max(seconds, into.get(name, 0.0))


def cpu_seconds() -> float:
    """Return the processor time of this process's children so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(runs: int, options: list[str]) -> dict[str, dict[str, float]]:
    """Return the longest time of each probe, each check, and the command, in seconds."""
    times: dict[str, dict[str, float]] = {"probe": {}, "check": {}, "command": {}}
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "facts.json"
        subprocess.run([*GLM53CTL, "doctor", "record", str(bundle), *options], check=True)
        nodes = recorded(read_facts([bundle]))[0]
        for _ in range(runs):
            began, worked = time.monotonic(), cpu_seconds()
            done = subprocess.run(
                [*GLM53CTL, "doctor", "--json", *options], capture_output=True, check=False
            )
            slowest(times["command"], "glm53ctl doctor", time.monotonic() - began)
            slowest(times["command"], "of it at work", cpu_seconds() - worked)
            for probes in json.loads(done.stdout)["seconds"].values():
                for name, seconds in probes.items():
                    slowest(times["probe"], name, seconds)
            for check in CHECKS:
                began = time.monotonic()
                # A pair of one node twice: what the comparisons cost is seen.
                judge([*nodes, *nodes], [check])
                slowest(times["check"], check.name, time.monotonic() - began)
    return times


def main(runs: int, options: list[str]) -> int:
    """Print what was measured; 1 when something is over its limit."""
    limits = {"probe": PROBE_SECONDS, "check": PROBE_SECONDS, "command": DOCTOR_SECONDS}
    over = 0
    for kind, seconds in measure(runs, options).items():
        ordered = sorted(seconds.items(), key=lambda item: -item[1])
        over += sum(value > limits[kind] for _, value in ordered)
        shown = ", ".join(f"{name} {value:.3f}" for name, value in ordered[:SHOWN])
        print(f"{kind:<8} limit {limits[kind]:.0f} s, {len(ordered)} in all: {shown}")
    return int(over > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3, sys.argv[2:]))
