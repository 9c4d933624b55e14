"""The planner's arithmetic against what vLLM's planner said: run here, and logged elsewhere."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from glm53ctl.budget.kv import block_tokens, pool, state_bytes
from glm53ctl.budget.machine import GB10, GIB, H200
from glm53ctl.budget.settings import Settings

PLANNER = Path(__file__).parent / "planner.json"

# `max_in_flight_tokens` 1024 and no prefill checkpoint, as the planner was run.
PLAIN = Settings(batch=512, prefill_checkpoint=0)


@pytest.mark.parametrize(
    ("kda", "mla", "method", "draft_block", "block_bytes", "blocks", "gib", "concurrency"),
    [
        (33, 12, "none", 0, 29_632_512, 507, 7.73, 1.81),
        (33, 12, "dflash", 0, 36_700_160, 409, 9.64, 1.45),  # 4 heads a rank widen the block
        (33, 12, "dflash", 64, 29_632_512, 507, 9.08, 1.54),
        (34, 11, "dflash", 64, 27_163_136, 553, 8.55, 1.64),
        (34, 11, "none", 0, 27_163_136, 553, 7.31, 1.91),
    ],
)
def test_the_real_planner_says_the_same_of_14_gib(
    kda, mla, method, draft_block, block_bytes, blocks, gib, concurrency
):
    """vLLM 0.33.0's own planner, run on these layers with 7 drafted tokens, two ranks."""
    settings = replace(PLAIN, method=method, draft_block=draft_block)
    found = pool(settings, GB10, 14 * GIB, kda_layers=kda, mla_layers=mla)
    assert (found.block_bytes, found.blocks) == (block_bytes, blocks)
    assert round(found.request_bytes / GIB, 2) == gib
    assert round(found.concurrency, 2) == concurrency


@pytest.mark.parametrize(
    ("context", "batch", "blocks", "logged"),
    [
        (900_000, 1024, 690, 1_754_237),
        (850_000, 7168, 553, 883_552),
        (1_000_000, 2048, 643, 1_553_140),
        (900_000, 7168, 600, 989_010),
        (850_000, 7168, 615, 982_612),
    ],
)
def test_logged_pools_of_the_recipe_are_met_to_the_token(context, batch, blocks, logged):
    settings = Settings(context=context, batch=batch, draft_block=64, prefill_checkpoint=0)
    size = pool(settings, GB10, 0).block_bytes
    assert pool(settings, GB10, blocks * size).tokens == logged


def test_a_block_is_the_recipe_s_block():
    assert block_tokens(2, 7, GB10.kv_row) == 3584
    assert state_bytes(2, 7) == 2_342_912
    assert block_tokens(1, 0, H200.kv_row) == 8704  # logged on an H200


def test_the_checkpoint_inside_a_prefill_takes_a_state_a_group():
    """An H200 with 6 KDA and 2 MLA layers logged 11 blocks a request: 3 groups of 3, and 2."""
    tiny = Settings(ranks=1, context=4096, method="none", drafted=0)
    assert pool(tiny, H200, 0, kda_layers=6, mla_layers=2).request_blocks == 11


def test_a_pool_is_whole_blocks():
    found = pool(PLAIN, GB10, 14 * GIB)
    assert found.nbytes <= 14 * GIB < found.nbytes + found.block_bytes


@pytest.mark.parametrize("row", json.loads(PLANNER.read_text()), ids=str)
def test_the_real_planner_says_the_same_everywhere(row):
    """Recorded from vLLM 0.33.0's planner on our layers: 14 GiB, a prefill checkpoint."""
    ranks, method, drafted, batch, context, block_bytes, blocks, request_blocks = row
    settings = Settings(ranks=ranks, context=context, batch=batch, method=method, drafted=drafted)
    found = pool(settings, GB10, 14 * GIB)
    assert (found.block_bytes, found.blocks, found.request_blocks) == (
        block_bytes, blocks, request_blocks,
    )  # fmt: skip
