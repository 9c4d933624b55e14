"""What the runs with a whole engine share: checkpoints, servers of our argv, questions, answers.

Steps of a run are kept one by one, so a run that was cut off goes on where it was: the machine may
be lent for ten minutes at a time, and a first start compiles for half of that.
"""

import argparse
import contextlib
import fcntl
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import httpx

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[1] / "overlay"), str(HERE.parent)]

from glm53ctl.config.schema import Config  # noqa: E402
from glm53ctl.config.sources import load  # noqa: E402
from glm53ctl.plan import plan_rank  # noqa: E402

START_SECONDS = 560.0
FIRST_PORT = 21000
"""Below the ports that the kernel gives out, so that servers beside each other share none."""
ASK_SECONDS = 180.0
PROMPTS = (
    "What keeps two ranks in step?",
    "One rank waits",
    "The head and the worker speak of",
    "A",
    "Count from one to ten and back again.",
    "Two machines, one cable, and",
)
TOKENS = 48
TOP, ALL = 20, -1
"""Logprobs asked for at each token; the server is told that all may be."""

FLAT = 0.1
"""Two likeliest tokens closer than this (a difference of logprobs) may swap when sums round
otherwise: what follows is another text, not another model."""
WITHIN = 0.15
"""Largest difference of the logprobs of one token between two ways to compute the same in bf16,
which rounds at 4e-3; up to where the texts part."""

VERSIONS = ("vllm", "torch", "triton", "flashinfer-python", "nvidia-nccl-cu13", "transformers")


@dataclass(frozen=True)
class Answer:
    """A greedy answer: its tokens, and for each the logprobs of the likeliest."""

    tokens: tuple[str, ...]
    logprobs: tuple[Mapping[str, float], ...]


@dataclass(frozen=True)
class Comparison:
    """Two lists of answers beside each other."""

    equal: bool
    flat: int
    """Answers that part at a token where the two likeliest are within FLAT."""
    worst: float
    """Largest difference of a logprob, up to where an answer parts."""


def compare(one: Sequence[Answer], other: Sequence[Answer]) -> Comparison:
    """Compare answers to the same prompts; `equal` allows a parting only where logits are flat."""
    equal, flat, worst = True, 0, 0.0
    for left, right in zip(one, other, strict=True):
        for place, (mine, theirs) in enumerate(zip(left.logprobs, right.logprobs, strict=True)):
            shared = mine.keys() & theirs.keys()
            worst = max([worst, *(abs(mine[t] - theirs[t]) for t in likely(mine) & shared)])
            if left.tokens[place] == right.tokens[place]:
                continue
            if is_flat(mine):
                flat += 1
            else:
                equal = False
            break
    return Comparison(equal, flat, worst)


def likely(logprobs: Mapping[str, float]) -> set[str]:
    """Return the five likeliest tokens: the tail rounds away."""
    return set(sorted(logprobs, key=lambda token: -logprobs[token])[:5])


def is_flat(logprobs: Mapping[str, float]) -> bool:
    """Say whether the two likeliest tokens are so close that rounding may swap them."""
    best = sorted(logprobs.values(), reverse=True)[:2]
    return len(best) == 2 and best[0] - best[1] <= FLAT


def logit_error(one: Sequence[Answer], other: Sequence[Answer]) -> float:
    """Return the relative error of `other`'s logits against `one`'s, over the first tokens.

    Both answer the same prompts, so the first token of each sees the same text. Logprobs are logits
    up to a constant, which is taken out over the tokens that both name.
    """
    squares = wanted = 0.0
    for left, right in zip(one, other, strict=True):
        mine, theirs = left.logprobs[0], right.logprobs[0]
        shared = sorted(mine.keys() & theirs.keys())
        a, b = ([source[token] for token in shared] for source in (mine, theirs))
        a, b = ([value - statistics.fmean(side) for value in side] for side in (a, b))
        squares += sum((x - y) ** 2 for x, y in zip(a, b, strict=True))
        wanted += sum(x * x for x in a)
    return (squares / wanted) ** 0.5


# --- the command line -----------------------------------------------------------------------------


def parser(description: str) -> argparse.ArgumentParser:
    """Return a parser with what both programs are told."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--engine", type=Path, required=True)
    made.add_argument("--exl", type=Path, help="exllamav3_ext of the 1.6.5 wheel")
    made.add_argument("--out", type=Path, required=True)
    made.add_argument("--state", type=Path, default=Path("/tmp/glm53-sitting"))
    made.add_argument(
        "--together", type=int, metavar="N", help="steps beside each other, N of them"
    )
    made.add_argument("--dry-run", action="store_true")
    return made


def shared(given: argparse.Namespace) -> list[str]:
    """Return the options that a step in a process of its own is given again."""
    names = ("engine", "exl", "out", "state")
    return [word for name in names for word in (f"--{name}", str(getattr(given, name)))]


# --- steps that are kept --------------------------------------------------------------------------


@dataclass
class Steps:
    """Results by name, each in a file of its own below `folder`."""

    folder: Path
    log: Callable[[str], None] = print

    def run(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the step's result, made now unless an earlier call made it."""
        path = self.folder / f"{name}.json"
        if path.exists():
            return dict(json.loads(path.read_text()))
        began = time.monotonic()
        self.log(f"{name}: begins")
        result = make() | {"seconds": round(time.monotonic() - began, 1)}
        self.folder.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(result) + "\n")
        fresh.replace(path)
        self.log(f"{name}: {result['seconds']} s")
        return result


def together(script: str, options: Sequence[str], names: Sequence[str], limit: int) -> None:
    """Do steps beside each other, each in a process of its own; what fails is said, and left out.

    `limit` is how many at a time. Each is the script itself with `--only` and the step's name.
    """

    def one(name: str) -> None:
        command = [sys.executable, script, *options, "--only", name]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        print(f"--- {name} (exit status {done.returncode})\n{done.stdout}", flush=True)

    with ThreadPoolExecutor(limit) as pool:
        list(pool.map(one, names))


@contextlib.contextmanager
def starting(root: Path) -> Iterator[None]:
    """Say to the steps beside this one that an engine starts: until it is up, none measures."""
    yield from _locked(root, fcntl.LOCK_SH)


@contextlib.contextmanager
def measuring(root: Path) -> Iterator[None]:
    """Wait until no engine starts and no other step measures, and keep it so."""
    yield from _locked(root, fcntl.LOCK_EX)


def _locked(root: Path, how: int) -> Iterator[None]:
    with (root / "measuring.lock").open("w") as file:
        fcntl.flock(file, how)
        yield


def packed(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """Return answers for a step's file."""
    return [{"tokens": a.tokens, "logprobs": [dict(each) for each in a.logprobs]} for a in answers]


def unpacked(data: Sequence[Mapping[str, Any]]) -> list[Answer]:
    """Return answers from a step's file."""
    return [Answer(tuple(each["tokens"]), tuple(each["logprobs"])) for each in data]


# --- checkpoints and configurations ---------------------------------------------------------------


def make_checkpoints(root: Path, layout: str, device: str) -> None:
    """Write the packed checkpoint, its dense twin and the draft below `root`, once."""
    import draft

    from glm53_overlay.exl3 import tiny
    from glm53ctl.demo.model import make_model

    if (root / "draft/model.safetensors").exists():
        return
    make_model(root / "tokenizer")
    tiny.write(root, layout, root / "tokenizer", device=device)
    draft.write(root / "draft", root / "exl3")


def leave_out(checkpoint: Path, copy: Path, end: str) -> None:
    """Write a copy of a checkpoint without the one tensor whose name ends so."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(checkpoint, copy, ignore=shutil.ignore_patterns("*.safetensors"))
    tensors = load_file(checkpoint / "model.safetensors")
    (gone,) = [name for name in tensors if name.endswith(end)]
    del tensors[gone]
    save_file(tensors, copy / "model.safetensors", {"format": "pt"})


def settings(root: Path, engine: Path, name: str, place: int, /, **changes: Any) -> dict[str, Any]:
    """Return the configuration of one rank on this host; `name` is the checkpoint below `root`.

    `place` is the step's own number: engines beside each other need ports of their own. They share
    a GPU, so none claims a part of it; the KV cache has its size in bytes.
    """
    api, master, link = (FIRST_PORT + 10 * place + port for port in range(3))
    base: dict[str, Any] = {
        "profile": "vllm-recipe",
        "nodes": [{"name": "gpu-0", "address": "127.0.0.1"}],
        "engine": {
            "prefix": str(engine),
            # Multicast over NVLink can take a shared host's GPUs out of service.
            "extra_env": {
                "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
                "NVSHMEM_DISABLE_NVLS": "1",
                "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
                "VLLM_ALLREDUCE_USE_FLASHINFER": "0",
                # Hopper's own for MXFP4; with it, not GB10's (Marlin) would be looked at.
                "VLLM_DISABLED_KERNELS": "HummingMxFp4LinearKernel",
            },
            # FlashInfer's own all-reduce, which vLLM fuses in on Hopper and not on GB10.
            "extra_args": [
                "--compilation-config",
                '{"pass_config":{"fuse_allreduce_rms":false}}',
                "--max-logprobs",
                "-1",
            ],
        },
        "weights": {
            "source": "local",
            "model_dir": str(root / name),
            "draft_dir": str(root / "draft"),
        },
        "licenses": {"accept": ["ShapleyMCG-1.0", "CC-BY-NC-ND-4.0"]},
        "serve": {"model_name": "tiny", "max_model_len": 16384, "max_num_batched_tokens": 1024},
        "kv": {"dtype": "fp8", "bytes": 2 << 30, "gpu_memory_utilization": 0.1},
        "spec": {"method": "none"},
        "media": {"enable": False},
        "thinking": {"template": "checkpoint", "suppress_stops": False},
        "canary": {
            "prompt": PROMPTS[0],
            "expect": "",
            "match": "contains",
            "max_tokens": 4,
            "min_drafted": 1 << 40,
        },
        "warmup": {"enable": False},
        "memory": {"floor_gib": 0.5, "start_gib": 4},
        "fabric": {"master_port": master, "link_port": link},
        "api": {"port": api},
    }
    for section, values in changes.items():
        mapping = isinstance(values, dict) and isinstance(base.get(section), dict)
        base[section] = base[section] | values if mapping else values
    return base


def read(path: Path, values: Mapping[str, Any]) -> Config:
    """Write a configuration and read it as the programs do."""
    import yaml

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(dict(values), sort_keys=False))
    return load(path).config


# --- a server of our argv -------------------------------------------------------------------------


@dataclass
class Server:
    """`vllm serve` as the plan has it, without a supervisor around."""

    config: Config
    log: Path
    process: subprocess.Popen[bytes] = field(init=False)

    def __enter__(self) -> "Server":
        plan = plan_rank(self.config, 0, "lo")
        environment = os.environ | dict(plan.env)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                plan.argv, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    @property
    def url(self) -> str:
        """Where it serves."""
        return plan_rank(self.config, 0).base_url or ""

    def _wait(self) -> None:
        limit = time.monotonic() + START_SECONDS
        while time.monotonic() < limit:
            if self.process.poll() is not None:
                raise SystemExit(f"the engine ended while starting:\n{self.tail()}")
            try:
                if httpx.get(f"{self.url}/health", timeout=5, trust_env=False).is_success:
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.5)
        raise SystemExit(f"the engine does not serve after {START_SECONDS:.0f} s:\n{self.tail()}")

    def tail(self, lines: int = 40) -> str:
        """Return the last lines of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def argv_of(config: Config, root: Path) -> str:
    """Return the command line of a configuration, for a result: `root` in it is STATE."""
    return " ".join(plan_rank(config, 0).argv).replace(str(root), "STATE")


def ask(url: str, prompt: str, tokens: int = TOKENS, top: int = TOP) -> Answer:
    """Return the greedy continuation of a text."""
    question = {
        "model": "tiny",
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "logprobs": top,
        # By their text, all tokens that are no whole character would be one.
        "return_tokens_as_token_ids": True,
    }
    reply = httpx.post(f"{url}/v1/completions", json=question, timeout=ASK_SECONDS, trust_env=False)
    reply.raise_for_status()
    found = reply.json()["choices"][0]["logprobs"]
    return Answer(tuple(found["tokens"]), tuple(found["top_logprobs"]))


def ask_all(url: str) -> list[Answer]:
    """Return the greedy continuation of every prompt."""
    return [ask(url, prompt) for prompt in PROMPTS]


def first_logits(url: str) -> list[Answer]:
    """Return the first token of every prompt, with the logprobs of the whole vocabulary.

    Among the likeliest alone an error is several times what it is of all logits: they lie close.
    """
    return [ask(url, prompt, 1, ALL) for prompt in PROMPTS]


def counters(url: str) -> dict[str, float]:
    """Return the engine's counters, each summed over its labels."""
    text = httpx.get(f"{url}/metrics", timeout=30, trust_env=False).text
    found: dict[str, float] = {}
    for name, value in re.findall(r"^(vllm:\w+)(?:\{[^}]*\})? ([0-9.e+-]+)$", text, re.MULTILINE):
        found[name] = found.get(name, 0.0) + float(value)
    return found


def step_ms(url: str, tokens: int = 192) -> float:
    """Return how long one decode step takes with one request, milliseconds.

    A step yields one token and what of a draft was accepted; the engine counts drafts, or tokens.
    """
    ask(url, PROMPTS[1], 16)
    before, began = counters(url), time.monotonic()
    first = ask(url, PROMPTS[1], 1)
    single = time.monotonic() - began
    began = time.monotonic()
    ask(url, PROMPTS[1], tokens)
    took, after = time.monotonic() - began - single, counters(url)
    assert first.tokens
    name = "vllm:spec_decode_num_drafts_total"
    drafts = after.get(name, 0.0) - before.get(name, 0.0)
    return took * 1000 / (drafts or tokens - 1)


def step_ratio(run: Mapping[str, Any], base: Mapping[str, Any]) -> float:
    """Return how long a decode step of one run takes, as a multiple of another's."""
    return round(float(run["step_ms"] / base["step_ms"]), 4)


def prefix_hit(url: str) -> bool:
    """Say whether the second of two long prompts that begin alike is found in the cache.

    Alike for more than a block, which for a hybrid model is up to 8704 tokens (docs/plan.md).
    """
    name, text = "vllm:prefix_cache_hits_total", "All of this is the same. " * 1000
    ask(url, text + "One", 2)
    before = counters(url).get(name, 0.0)
    ask(url, text + "Two", 2)
    return counters(url).get(name, 0.0) > before


def loaded_gib(log: str) -> float | None:
    """Return what the engine says that its weights take."""
    found = re.findall(r"Model loading took ([0-9.]+) ?GiB", log)
    return float(found[-1]) if found else None


def graphs_captured(log: str) -> bool:
    """Say whether the engine's log tells of captured CUDA graphs."""
    return bool(re.search(r"Graph capturing finished", log))


def status_seconds(config: Path) -> Any:
    """Return what `glm53ctl status` costs beside a pair that serves (tests/bench/status.py)."""
    command = [sys.executable, "tests/bench/status.py", "--config", str(config)]
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program is compiled
    done = subprocess.run(
        command, cwd=HERE.parents[1], env=environment,
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def products_proven(log: str) -> dict[str, list[float]]:
    """Return what the engine's log tells of the kernels of its dense projections.

    By name and shape of the projection: its relative error, and the one that its mode should make.
    """
    said = (
        r"dense: \S*?(\w+) (\(\d+, \d+\)): "
        r"relative error ([0-9.]+), where \w+ should make ([0-9.]+)"
    )
    return {
        f"{name} {shape}": [float(error), float(expected)]
        for name, shape, error, expected in re.findall(said, log)
    }


def described(command: str) -> dict[str, Any]:
    """Return device, versions and command, for a result."""
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for name in VERSIONS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return {"device": devices(), "versions": versions, "command": command}


def devices() -> list[str]:
    """Return the GPUs of this machine and their driver."""
    return smi("--query-gpu=name,driver_version")


def smi(query: str) -> list[str]:
    """Return the lines with which nvidia-smi answers a query."""
    asked = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()
