"""What `glm53ctl status` costs beside a pair: `python tests/bench/status.py --config FILE`.

Prints one JSON line. For the words of a terminal and for `--json`: seconds on the wall and of the
processor as best and median of COUNT, and the median as a multiple of `python -c pass`, each taken
in turn. Nearly all of it is loading: the interpreter keeps compiled modules only where
PYTHONDONTWRITEBYTECODE is not set.

Arguments: --config FILE, COUNT (15).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path


def once(command: Sequence[str]) -> tuple[float, float]:
    """Run a command; return its seconds on the wall and of the processor."""
    began = time.perf_counter()
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return time.perf_counter() - began, used.ru_utime + used.ru_stime


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("count", type=int, nargs="?", default=15)
    asked = parser.parse_args()
    python = [sys.executable, "-c", "pass"]
    status = [sys.executable, "-m", "glm53ctl", "status", "--config", str(asked.config)]
    commands = {"python": python, "text": status, "json": [*status, "--json"]}
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for command in commands.values():
        once(command)  # modules are compiled once
    for _ in range(asked.count):
        for name, command in commands.items():
            taken[name].append(once(command))
    middle = {name: statistics.median(wall for wall, _ in runs) for name, runs in taken.items()}
    figures = {
        name: {
            "wall_s": [round(min(w for w, _ in runs), 3), round(middle[name], 3)],
            "cpu_s": round(statistics.median(cpu for _, cpu in runs), 3),
            "ratio": round(middle[name] / middle["python"], 1),
        }
        for name, runs in taken.items()
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
