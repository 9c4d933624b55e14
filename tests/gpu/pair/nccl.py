"""Two ranks on one host, over NCCL: right, as planned, and dead as they should be.

    ENGINE/bin/python tests/gpu/pair/nccl.py --engine ENGINE --exl DIR --out DIR --together 6

Once over NVLink or shared memory, once with `NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1`, which makes
the ranks speak over sockets as two hosts do; the deaths are seen over sockets. With `--links
sockets` one GPU is enough, which the ranks then take in turns: that shows what is computed and who
notices what, and nothing of speed. Steps that are done are not done again: call it until it prints
its result. `--dry-run` says what would run. Exit status 1 when something that must hold does not.
ENGINE and DIR are those of `tests/gpu/engine.py`.
"""

import contextlib
import json
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

import engine as single  # noqa: E402
import sitting  # noqa: E402
from deaths import (  # noqa: E402
    BARE_SECONDS,
    LIMIT_SECONDS,
    Client,
    Outcome,
    Pair,
    When,
    faults,
    suffer,
)
from sitting import Steps, compare, unpacked  # noqa: E402

from glm53ctl.config.schema import Config  # noqa: E402
from glm53ctl.demo.run import start  # noqa: E402
from glm53ctl.plan import launch_env, plan_rank  # noqa: E402
from glm53ctl.status.snapshot import gather  # noqa: E402
from glm53ctl.supervise.local import LocalPair  # noqa: E402
from glm53ctl.supervise.proctree import descendants  # noqa: E402

COMMAND = "python tests/gpu/pair/nccl.py --engine ENGINE --exl DIR --out DIR --together 6"
SOCKETS = {
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_MULTI_RANK_GPU_ENABLE": "1",  # NCCL 2.30: where there is one GPU
}
LATE_SECONDS = 30.0
LONG_TOKENS = 3000
"""Of the request that is cut off."""

LEAN: dict[str, Any] = {
    "kv": {"bytes": 1 << 30, "gpu_memory_utilization": 0.05},
    "engine": {"verify_overlay": False, "enforce_eager": True},
}
"""What dies: all share the GPUs, and the kernels were compared by the steps before."""

MODES: dict[str, dict[str, Any]] = {"none": {}, "dflash2": {"spec": {"method": "dflash"}}}
LINKS: dict[str, dict[str, str]] = {"nvlink": {}, "sockets": SOCKETS}


class GpuPair(LocalPair):
    """Two supervisors on one host, a GPU for each; ended ranks are started anew."""

    def start_rank(self, rank: int) -> None:
        """Start one rank that sees one GPU."""
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu_of(rank)
        super().start_rank(rank)


def gpu_of(rank: int) -> str:
    """Return the GPU that a rank is to see: one of its own, where there are two."""
    return str(rank % len(sitting.devices()))


def configured(
    root: Path, engine: Path, name: str, link: str, ranks: int, /, **changes: Any
) -> Config:
    """Return the configuration of a step, written below `root`.

    Each has its own ports, sockets and logs; what is compiled is shared.
    """
    folder = root / filed(name)
    folder.mkdir(parents=True, exist_ok=True)
    token = folder / "token"
    if not token.exists():
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(32) + "\n")
    place = len(single.STEPS) + ALL.index(name)
    values = sitting.settings(root, engine, "exl3", place, **changes)
    values["nodes"] = [{"name": f"gpu-{rank}", "address": "127.0.0.1"} for rank in range(ranks)]
    values["engine"]["extra_env"] |= LINKS[link]
    values["link"] = {"token_file": str(token)}
    state = folder / "state"
    state.mkdir(exist_ok=True)
    if not (state / "cache").is_symlink():
        (root / "state/cache").mkdir(parents=True, exist_ok=True)
        (state / "cache").symlink_to(root / "state/cache")
    values["paths"] = {"state_dir": str(state), "run_dir": str(root / f"run{place}")}
    values["supervise"] = {"backoff_seconds": 0.5, "crash_limit": 100}
    return sitting.read(folder / "config.yaml", values)


def configuration(root: Path, engine: Path, name: str) -> Config:
    """Return the configuration of a step, which its name tells."""
    kind, *words = name.partition(": ")[0].split("-")
    if kind == "tp1":
        return configured(root, engine, name, "nvlink", 1, **MODES[words[0]])
    link = words[0]
    if kind == "tp2":
        return configured(root, engine, name, link, 2, **MODES[words[1]])
    return configured(root, engine, name, link, 2, **(LEAN if kind in KINDS else {}))


def config_path(root: Path, name: str) -> Path:
    """Return where `configured` wrote a step's configuration."""
    return root / filed(name) / "config.yaml"


# --- the pair, bare and supervised ----------------------------------------------------------------


class LongRequest:
    """A client with a request that takes longer than a fault needs to show."""

    def __init__(self, url: str) -> None:
        self._url, self._failed, self._begun = url, threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def begin(self) -> None:
        """Send it, and wait for its first token: from then on it is being served."""
        self._thread.start()
        self._begun.wait(sitting.ASK_SECONDS)

    def failed(self) -> bool:
        """Say whether it ended before its time."""
        return self._failed.is_set()

    def _ask(self) -> None:
        question = {
            "model": "tiny", "prompt": "One", "max_tokens": LONG_TOKENS, "temperature": 0,
            "ignore_eos": True, "stream": True,
        }  # fmt: skip
        finished = False
        try:
            with httpx.stream(
                "POST", f"{self._url}/v1/completions", json=question, timeout=LIMIT_SECONDS
            ) as answer:
                for line in answer.iter_lines():
                    if line.startswith('data: {"error"'):
                        break
                    finished = finished or line == "data: [DONE]"
                    self._begun.set()
        except httpx.HTTPError:
            pass
        if not finished:
            self._failed.set()
        self._begun.set()


class NextRequest(LongRequest):
    """A client that comes after the fault: nothing of it has to be served first."""

    def begin(self) -> None:
        """Send it."""
        self._thread.start()


@contextlib.contextmanager
def bare(config: Config, root: Path) -> Iterator[tuple[Pair, str]]:
    """Run both ranks without supervisors, as the recipes do; end them afterwards."""
    processes = []
    for rank in (1, 0):
        plan = plan_rank(config, rank, "lo")
        environment = launch_env(plan, os.environ | {"CUDA_VISIBLE_DEVICES": gpu_of(rank)})
        with (root / f"bare{rank}.log").open("wb") as log:
            processes.append(
                subprocess.Popen(
                    plan.argv, env=environment, stdout=log, stderr=log, start_new_session=True
                )
            )
    worker, head = (psutil.Process(process.pid) for process in processes)
    url = plan_rank(config, 0).base_url or ""
    try:
        _wait_for_health(url, processes)

        def of_rank(rank: int) -> list[psutil.Process]:
            top = (head, worker)[rank]
            return [top, *top.children(recursive=True)]

        yield Pair(of_rank, lambda when: client_of(url, when)), url
    finally:
        _end(processes)


def client_of(url: str, when: When) -> Client:
    """Return a client of an idle or of a serving pair."""
    return LongRequest(url) if when == "serving" else NextRequest(url)


def _wait_for_health(url: str, processes: list[subprocess.Popen[bytes]]) -> None:
    limit = time.monotonic() + sitting.START_SECONDS
    while time.monotonic() < limit:
        if any(process.poll() is not None for process in processes):
            raise SystemExit("a rank ended while starting; see bare0.log and bare1.log")
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/health", timeout=5, trust_env=False).is_success:
                return
        time.sleep(0.5)
    raise SystemExit(f"the ranks do not serve after {sitting.START_SECONDS:.0f} s")


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    """End what is left of each rank: its own group, by the processes that were started here."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()


@contextlib.contextmanager
def supervised(config: Config, path: Path) -> Iterator[tuple[Pair, str]]:
    """Run both ranks under `glm53ctl`; stop them afterwards."""
    pair = GpuPair(config, ["--config", str(path)])
    over = threading.Event()
    url = plan_rank(config, 0).base_url or ""

    def tend() -> None:
        while not over.wait(0.05):
            pair.tend()

    tender = threading.Thread(target=tend)
    try:
        start(pair, lambda snapshot: None, sitting.START_SECONDS)
        tender.start()
        first = gather(config).epoch

        def of_rank(rank: int) -> list[psutil.Process]:
            pid = gather(config).ranks[rank].engine.pid
            top = psutil.Process(pid)
            return [top, *top.children(recursive=True)]

        def is_back() -> bool:
            now = gather(config)
            return bool(now.ready and now.epoch > first)

        def said() -> str:
            loss = gather(config).last_loss
            return f"{loss.code}: {loss.message}" if loss else ""

        yield Pair(of_rank, lambda when: client_of(url, when), is_back, said), url
    finally:
        over.set()
        if tender.ident is not None:
            tender.join()
        pair.stop()


# --- steps ----------------------------------------------------------------------------------------


def served(root: Path, engine: Path, name: str) -> dict[str, Any]:
    """Start one or two ranks under supervision, ask everything, and return what was said."""
    config = configuration(root, engine, name)
    pair = GpuPair(config, ["--config", str(config_path(root, name))])
    url = plan_rank(config, 0).base_url or ""
    try:
        with sitting.starting(root):
            start(pair, lambda snapshot: None, sitting.START_SECONDS)
            sitting.ask(url, sitting.PROMPTS[0])
        with sitting.measuring(root):
            answers = sitting.ask_all(url)
            step = round(sitting.step_ms(url), 3)
            used = gpu_mib()
            path = config_path(root, name)
            status = sitting.status_seconds(path) if name == "tp1-none" else None
    finally:
        pair.stop()
    folder = Path(config.paths.state_dir) / "logs"
    logs = [max(folder.glob(f"rank{rank}-*.log")) for rank in range(len(config.nodes))]
    said = [log.read_text(errors="replace") for log in logs]
    return {
        "answers": sitting.packed(answers),
        "step_ms": step,
        "gpu_mib": used,
        "status": status,
        "weight_gib": [sitting.loaded_gib(text) for text in said],
        "graphs": sitting.graphs_captured(said[0]),
        "argv": sitting.argv_of(config, root),
    }


def gpu_mib() -> list[int]:
    """Return the memory of a GPU that each process started here uses."""
    ours = {process.pid for process in descendants()}
    lines = (line.split(", ") for line in sitting.smi("--query-compute-apps=pid,used_memory"))
    return [int(mib) for pid, mib in lines if int(pid) in ours]


def died(root: Path, engine: Path, name: str) -> dict[str, Any]:
    """Start a fresh pair, do one fault to it, and return what was measured."""
    config = configuration(root, engine, name)
    fault = next(fault for fault in faults() if name.endswith(f": {fault.name}"))
    if name.startswith("bare"):
        with bare(config, config_path(root, name).parent) as (pair, _):
            return suffer(fault, pair, BARE_SECONDS).row()
    with supervised(config, config_path(root, name)) as (pair, _):
        return suffer(fault, pair, LIMIT_SECONDS).row()


def never(root: Path, engine: Path, name: str) -> dict[str, Any]:
    """Start rank 0 alone, and see what is known of the missing one; then start it, late."""
    config = configuration(root, engine, name)
    pair = GpuPair(config, ["--config", str(config_path(root, name))])
    outcome = Outcome(f"rank 1 {LATE_SECONDS:.0f} s late")
    try:
        pair.start_rank(0)
        began = time.monotonic()
        while time.monotonic() - began < LATE_SECONDS:
            findings = gather(config).findings
            if findings and outcome.client_knows is None:
                outcome.client_knows, outcome.said = time.monotonic() - began, findings[0].code
            time.sleep(0.2)
        engines = gather(config).ranks[0].engine.pid
        pair.start_rank(1)
        late = time.monotonic()
        while not gather(config).ready and time.monotonic() - late < sitting.START_SECONDS:
            pair.tend()
            time.sleep(0.2)
        outcome.back = time.monotonic() - late if gather(config).ready else None
    finally:
        pair.stop()
    return outcome.row() | {"engine_waited_alone": engines is not None}


def plan(links: list[str]) -> list[str]:
    """Return the names of all steps, in their order."""
    names = [f"tp1-{mode}" for mode in MODES]
    for link in links:
        names += [f"tp2-{link}-{mode}" for mode in MODES]
    if DYING in links:
        names += [f"late-{DYING}"]
        names += [f"{kind}-{DYING}: {fault.name}" for kind in KINDS for fault in faults()]
    return names


DYING = "sockets"
"""The link over which ranks die: between two hosts there is no other."""
KINDS = ("supervised", "bare")
ALL = plan(list(LINKS))
"""Every step; its place is its number."""


def do(root: Path, engine: Path, name: str) -> dict[str, Any]:
    """Do one step by its name."""
    if ": " in name:
        return died(root, engine, name)
    return (never if name.startswith("late") else served)(root, engine, name)


def result(
    done: dict[str, dict[str, Any]], links: list[str], own_gpus: bool = True
) -> dict[str, Any]:
    """Return what the steps show. Pure: their results in, the file's content out.

    Where ranks take turns on one GPU, times say nothing: no ratio then.
    """
    alone = {mode: unpacked(done[f"tp1-{mode}"]["answers"]) for mode in MODES}
    found: dict[str, Any] = {"links": {}, "deaths": {}}
    for link in links:
        for mode in MODES:
            both, one = done[f"tp2-{link}-{mode}"], done[f"tp1-{mode}"]
            against = compare(alone["none"], unpacked(both["answers"]))
            found["links"][f"{link} {mode}"] = {
                "tokens_equal": against.equal,
                "parted_where_flat": against.flat,
                "worst_logprob": round(against.worst, 4),
                "step_ratio": sitting.step_ratio(both, one) if own_gpus else None,
                "weight_gib": both["weight_gib"],
                "alone_weight_gib": one["weight_gib"],
                "gpu_mib": both["gpu_mib"],
                "graphs": both["graphs"],
            }
    if DYING in links:
        found["deaths"] = {
            "late": done[f"late-{DYING}"],
            **{
                fault.name: {kind: done[f"{kind}-{DYING}: {fault.name}"] for kind in KINDS}
                for fault in faults()
            },
        }
    limits = {"supervised": LIMIT_SECONDS, "bare": BARE_SECONDS}
    bounds = {"flat": sitting.FLAT, "logprob": sitting.WITHIN, "seconds": limits}
    status = done["tp1-none"]["status"]
    return found | {"own_gpus": own_gpus, "status": status, "bounds": bounds}


def failed(found: dict[str, Any]) -> list[str]:
    """Return what must hold and does not: equal answers, and a pair that comes back from all."""
    wrong = [
        f"{name}: other tokens"
        for name, link in found["links"].items()
        if not link["tokens_equal"] or link["worst_logprob"] > sitting.WITHIN
    ]
    for fault, row in found["deaths"].items():
        mine = row if fault == "late" else row["supervised"]
        if mine["back"] is None:
            wrong.append(f"{fault}: the pair did not come back")
    return wrong


def main() -> int:
    """Do what is left to do; write the result when all of it is there."""
    parser = sitting.parser("Two ranks over NCCL on two GPUs.")
    parser.add_argument("--links", choices=LINKS, nargs="+", default=list(LINKS))
    parser.add_argument("--only", nargs="*", help="steps whose names begin so")
    given = parser.parse_args()
    steps = Steps(given.state / "pair")
    names = plan(given.links)
    if given.dry_run:
        for name in names:
            config = configuration(given.state, given.engine, name)
            print(f"{name}: {sitting.argv_of(config, given.state)}")
    else:
        Steps(given.state / "steps").run(
            "prepare", lambda: single.prepare(given.state, given.engine, given.exl)
        )
        asked = [n for n in names if not given.only or n.startswith(tuple(given.only))]
        if given.together:
            sitting.together(__file__, sitting.shared(given), asked, given.together)
        else:
            for name in asked:
                steps.run(filed(name), lambda name=name: do(given.state, given.engine, name))
    kept = {name: steps.folder / f"{filed(name)}.json" for name in names}
    if missing := [name for name, path in kept.items() if not path.exists()]:
        print(f"{len(missing)} steps are still to do, the next is {missing[0]}")
        return 0
    done = {name: json.loads(path.read_text()) for name, path in kept.items()}
    found = result(done, given.links, own_gpus=len(sitting.devices()) > 1)
    given.out.mkdir(parents=True, exist_ok=True)
    written = sitting.described(COMMAND) | found
    (given.out / "pair.json").write_text(json.dumps(written, indent=1) + "\n")
    wrong = failed(found)
    print(*wrong, sep="\n")
    return 1 if wrong else 0


def filed(name: str) -> str:
    """Return a step's name as that of a file."""
    return name.replace(": ", "--").replace(", ", "-").replace(" ", "_")


if __name__ == "__main__":
    sys.exit(main())
