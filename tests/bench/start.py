"""What supervision costs: time to the first answer, supervised against bare, in turn.

Bare is two `vllm serve` processes with the very same command lines and environment, started
together and asked as soon as /health says 200. Supervised is the pair up to READY, so with the pair
link, the canary and the start of two supervisors. Prints seconds of each run and the ratio of the
medians. Usage: `python tests/bench/start.py [RUNS]` after `make setup`.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

from glm53ctl.config.schema import Config
from glm53ctl.demo.run import PROMPT, DemoFiles, ask, prepare, start
from glm53ctl.plan import engine_env, plan_pair
from glm53ctl.supervise.local import LocalPair
from glm53ctl.supervise.proctree import adopt_orphans, kill_descendants

ENGINE = Path(__file__).parents[2] / ".engine"
LIMIT_SECONDS = 300.0


def bare(config: Config) -> float:
    """Seconds from the start of both ranks to an answer, without a supervisor."""
    began = time.monotonic()
    plans = plan_pair(config)
    for plan in plans:
        subprocess.Popen(
            plan.argv,
            env=engine_env(plan, os.environ),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    while not _healthy(plans[0].health_url or ""):
        if time.monotonic() - began > LIMIT_SECONDS:
            raise SystemExit("the bare pair did not come up")
        time.sleep(0.1)
    ask(config, PROMPT, config.canary.max_tokens)
    seconds = time.monotonic() - began
    kill_descendants(LIMIT_SECONDS)
    return seconds


def _healthy(url: str) -> bool:
    try:
        return httpx.get(url, timeout=1.0, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def supervised(config: Config, path: Path) -> float:
    """Seconds from the start of both supervisors to READY and an answer."""
    began = time.monotonic()
    pair = LocalPair(config, ["--config", str(path)])
    start(pair, lambda _: None)
    ask(config, PROMPT, config.canary.max_tokens)
    seconds = time.monotonic() - began
    pair.stop()
    return seconds


def main(runs: int) -> None:
    """Run both in turn and print what was measured."""
    adopt_orphans()
    with tempfile.TemporaryDirectory() as folder:
        files = DemoFiles(Path(folder))
        config = prepare(files, ENGINE, print, lambda _: None)
        times: dict[str, list[float]] = {"bare": [], "supervised": []}
        for _ in range(runs):
            times["bare"].append(bare(config))
            times["supervised"].append(supervised(config, files.config))
    for name, seconds in times.items():
        print(f"{name:<11}" + "".join(f"{value:8.1f}" for value in seconds) + " s")
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    print(f"supervised / bare: {medians['supervised'] / medians['bare']:.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
