"""EXL3 served by real ranks against its dense twin; what `make exl3-parity` runs.

Four starts through glm53ctl, one and two ranks each: the packed checkpoint and the twin that
holds what it decodes to. Greedy tokens must be the same and their logprobs within TOLERANCE. Ends
with one line of JSON.
"""

import json
import os
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx
import yaml

from glm53ctl.config.sources import load
from glm53ctl.demo.model import make_model
from glm53ctl.demo.run import start
from glm53ctl.facts.ports import free_ports
from glm53ctl.plan import plan_rank
from glm53ctl.supervise.local import LocalPair

HERE = Path(__file__).parent
ENGINE = Path(os.environ.get("GLM53_ENGINE", HERE.parents[1] / ".engine")).absolute()

TOLERANCE = 1e-4
"""Largest difference of a logprob. Both compute in fp32 with the same weights, in another order:
fp32 rounds at 6e-8, and the sums of three layers widen that to 3.3e-6 (measured). A mistake is far
off: with gate and up exchanged, logprobs move by 0.23 in the median."""

PROMPTS = (
    "What keeps two ranks in step?",
    "One rank waits",
    "The head and the worker speak of",
    "A",
)
TOKENS = 32
REQUEST_SECONDS = 120.0

Answer = tuple[list[str], list[dict[str, float]]]
"""The tokens of an answer, and for each the logprobs of the likeliest ones."""


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="glm53-parity-") as scratch:
        root = Path(scratch)
        make_model(root / "tokenizer")
        _engine("-m", "glm53_overlay.exl3.tiny", root, "--tokenizer", root / "tokenizer")
        result: dict[str, object] = {}
        worst = 0.0
        for ranks in (1, 2):
            packed, dense = (serve(root, name, ranks) for name in ("exl3", "dense"))
            result[f"tp{ranks}_equal"] = [a[0] for a in packed] == [a[0] for a in dense]
            worst = max(worst, difference(packed, dense))
        result["max_logprob_diff"] = worst
        counts = json.loads(_engine(HERE / "corruptions.py", root / "exl3").splitlines()[-1])
        result["corruptions_refused"] = counts["refused"]
    print(json.dumps(result))
    equal = result["tp1_equal"] and result["tp2_equal"] and worst <= TOLERANCE
    return 0 if equal and counts["refused"] == counts["tried"] else 1


def serve(root: Path, name: str, ranks: int) -> list[Answer]:
    """Start the ranks on a checkpoint, ask every prompt, stop them."""
    folder = root / f"{name}-{ranks}"
    folder.mkdir()
    (folder / "token").touch(mode=0o600)
    (folder / "token").write_text(secrets.token_hex(32))
    api, master, link = free_ports(3)
    settings = {
        "profile": "demo",
        "nodes": [
            {"name": f"parity-{rank}", "address": "127.0.0.1", "cpus": str(rank)}
            for rank in range(ranks)
        ],
        "engine": {"prefix": str(ENGINE)},
        "weights": {"model_dir": str(root / name)},
        "link": {"token_file": str(folder / "token")},
        "canary": {"prompt": PROMPTS[0], "expect": "", "match": "contains", "max_tokens": 4},
        "paths": {"state_dir": str(folder / "state"), "run_dir": str(folder / "run")},
        "api": {"port": api},
        "fabric": {"master_port": master, "link_port": link},
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(settings))
    config = load(path).config
    pair = LocalPair(config, ["--config", str(path)])
    try:
        start(pair, lambda snapshot: None)
        url = plan_rank(config, 0).base_url
        return [_ask(f"{url}/v1/completions", config.serve.model_name, text) for text in PROMPTS]
    finally:
        pair.stop()


def _ask(url: str, model: str, prompt: str) -> Answer:
    question = {
        "model": model,
        "prompt": prompt,
        "max_tokens": TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "logprobs": 5,
    }
    reply = httpx.post(url, json=question, timeout=REQUEST_SECONDS)
    reply.raise_for_status()
    logprobs = reply.json()["choices"][0]["logprobs"]
    return logprobs["tokens"], logprobs["top_logprobs"]


def difference(one: list[Answer], other: list[Answer]) -> float:
    """Return the largest difference of the logprobs that both give, up to where they part."""
    found = [
        abs(left[token] - right[token])
        for (tokens, lefts), (theirs, rights) in zip(one, other, strict=True)
        for place, (left, right) in enumerate(zip(lefts, rights, strict=True))
        if tokens[:place] == theirs[:place]
        for token in left.keys() & right.keys()
    ]
    return max(found)


def _engine(*words: str | Path) -> str:
    command = [str(ENGINE / "bin/python"), *map(str, words)]
    env = os.environ | {"VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
    done = subprocess.run(
        command, env=env, stdout=subprocess.PIPE, text=True, check=True, timeout=600
    )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
