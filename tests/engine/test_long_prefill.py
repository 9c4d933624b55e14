"""A prefill that takes many times the limit of the wedge rule is work, and is left alone."""

import json
import shutil
import time
from pathlib import Path

import httpx
import pytest
from conftest import START_SECONDS, ServingPair
from waiting import wait_for

CONTEXT = 65_536
"""Long enough that attention takes seconds on any CPU; the demo model's rope has no limit."""
LIMIT_SECONDS = 2.5
"""`supervise.wedge_seconds` here."""
TIMES = 2
"""How many times the limit the prefills must have lasted for the test to say something."""
MOST = 40
"""Prompts, until a very fast machine is said to be too fast."""


def _long_model(model: Path, target: Path) -> Path:
    shutil.copytree(model, target)
    for name, key in (("config.json", "max_position_embeddings"),
                      ("tokenizer_config.json", "model_max_length")):  # fmt: skip
        file = target / name
        file.write_text(json.dumps(json.loads(file.read_text()) | {key: CONTEXT}))
    return target


@pytest.fixture(scope="module")
def pair(demo_files, tmp_path_factory):
    root = tmp_path_factory.mktemp("long")
    made = ServingPair(
        root,
        demo_files,
        weights={"model_dir": str(_long_model(demo_files.model, root / "model"))},
        serve={"max_model_len": CONTEXT},
        kv={"bytes": 2**28},
        supervise={"wedge_seconds": LIMIT_SECONDS},
    )
    for rank in (0, 1):
        made.start_rank(rank)
    made.tend()
    yield made
    assert made.close() == 0


def prefill(pair, salt: int) -> float:
    """Have a prompt read that none before began like; return the seconds that it took."""
    asked = time.monotonic()
    answer = httpx.post(
        f"http://127.0.0.1:{pair.config.api.port}/v1/completions",
        json={
            "model": pair.config.serve.model_name,
            "prompt": [3 + (salt + i) % 200 for i in range(CONTEXT - 8)],
            "max_tokens": 1,
        },
        timeout=START_SECONDS,
        trust_env=False,
    )
    answer.raise_for_status()
    return time.monotonic() - asked


def is_left_alone(pair) -> bool:
    """Say whether the pair outlived its prefills.

    One whose engine was held up for as long as the limit, as on a busy machine, is rightly ended.
    """
    before = pair.until_ready()
    longest = 0.0
    try:
        for salt in range(MOST):
            longest = max(longest, prefill(pair, salt))
            if longest > TIMES * LIMIT_SECONDS:
                break
    except httpx.HTTPError as error:
        print(f"lost: {error!r}")
        return False
    assert longest > TIMES * LIMIT_SECONDS, "each prompt was too fast to tell"
    return pair.until_ready().epoch == before.epoch


def test_a_long_prefill_is_no_wedge(pair):
    wait_for(lambda: is_left_alone(pair), "a long prefill that is left alone", START_SECONDS)
