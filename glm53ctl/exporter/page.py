"""The table of metrics for people. Writes docs/metrics.md.

`python -m glm53ctl.exporter.page [FILE]`
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from glm53ctl.exporter.table import METRICS
from glm53ctl.view import engine

TARGET = Path("docs/metrics.md")

_INTRO = f"""\
# Metrics

Written by `python -m glm53ctl.exporter.page`; a test keeps it equal to the code.

The watchdog of each node serves them at `/metrics` beside its page, on port 8890 of
`page.host` (loopback unless said otherwise), without a key. They are made of the same view as the
page and `glm53ctl status`. The engine's own metrics stay where vLLM has them, on the API's port
behind the API key; the dashboard reads both:

```yaml
scrape_configs:
  - job_name: glm53            # each node tells of the pair, and of its own memory, GPU and rails
    static_configs:
      - targets: [spark-head:8890, spark-worker:8890]
  - job_name: glm53-engine
    authorization: {{credentials_file: /etc/prometheus/glm53-api-key}}
    static_configs:
      - targets: [spark-head:8888]
rule_files: [alerts.yaml]      # monitoring/alerts.yaml; monitoring/grafana.json is the dashboard
```

What is not known has no sample. A node tells of its own memory, GPU and rails only; Prometheus asks
both. Metrics of the engine beyond requests and pool exist on the head only. *The last seconds*
reach back to the look before, {engine.RATE_SECONDS:.0f} s at least where there was one; *the
window* is {engine.WINDOW_SECONDS / 60:.0f} minutes. Both need somebody who looks: nothing is read
in between.

A scrape costs 20 ms of processor time on the demo pair's host (one core of a virtual Xeon): 8 ms
here, 9 ms in vLLM for its own metrics, 3 ms in the supervisors (`tests/bench/scrape.py`). What NVML
adds is unproven on GB10. At rest the head's four daemons together took 0.91 % of such a core over
45 s and 110 MiB of memory (`make bench-idle`). `glm53ctl status` beside a server that is ready
takes 0.29 s, 0.26 with `--json` (medians of 15 on 16 cores of an Intel Xeon with an H200; 0.31 to
0.40 s on the demo pair's host, whose two cores run the engines as well; `tests/bench/status.py`).

| metric | kind | labels | meaning |
|---|---|---|---|
"""

_VLLM = """
## What the page reads of vLLM's

"""


def render() -> str:
    """Return the whole page."""
    rows = (
        f"| `{metric.name}` | {metric.kind} | {', '.join(f'`{one}`' for one in metric.labels)} | "
        f"{metric.help} |\n"
        for metric in METRICS
    )
    read = "".join(f"- `{name}`\n" for name in engine.READ)
    return _INTRO + "".join(rows) + _VLLM + read


def main(arguments: Sequence[str]) -> None:
    """Write the page to the given file or to its place in the repository."""
    target = Path(arguments[0]) if arguments else TARGET
    target.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
