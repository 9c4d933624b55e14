"""What a scrape of the metrics costs on a host whose pair runs: `python tests/bench/scrape.py`.

Prints one JSON line. `view_ms` is the time to gather a fresh view (supervisors, engine, sensors,
records), `render_ms` to write it as an exposition, both as best, median and worst of COUNT,
`cpu_ms` the processor time of one scrape in this process. Over HTTP the server's share is added.

Arguments: --config FILE, COUNT (100).
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from unittest.mock import patch

from glm53ctl.config.sources import load
from glm53ctl.exporter import render
from glm53ctl.view import collect


def spread(values: list[float]) -> list[float]:
    """Return the best, the median and the worst."""
    return [round(f(values), 1) for f in (min, statistics.median, max)]


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path)
    parser.add_argument("count", type=int, nargs="?", default=100)
    asked = parser.parse_args()
    settings = load(asked.config, rules=False).config
    gatherer = collect.Gatherer(lambda: settings)
    with patch.object(collect, "FRESH_SECONDS", 0.0):
        size = len(render(gatherer.view()))  # the first one loads modules and opens connections
        views, renders, cpu = [], [], time.process_time()
        for _ in range(asked.count):
            began = time.perf_counter()
            view = gatherer.view()
            gathered = time.perf_counter()
            render(view)
            views.append(1000 * (gathered - began))
            renders.append(1000 * (time.perf_counter() - gathered))
        cpu = 1000 * (time.process_time() - cpu) / asked.count
    figures = {
        "view_ms": spread(views),
        "render_ms": spread(renders),
        "cpu_ms": round(cpu, 1),
        "bytes": size,
        "ready": view.snapshot.ready,
        "engine": view.engine is not None,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
