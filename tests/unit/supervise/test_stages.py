"""The stages are read off real lines of vLLM 0.32.0 (CPU) and of 0.33.0 (CUDA)."""

import pytest

from glm53ctl.config.schema import StageLimits
from glm53ctl.supervise.stages import Stage, StageTracker

RANK0_LINES = [
    ("INFO non-default args: {'model': 'x'}", Stage.BOOT, None),
    (
        "INFO world_size=2 rank=0 local_rank=0 distributed_init_method=tcp://10.0.0.1:29521",
        Stage.RENDEZVOUS,
        None,
    ),
    ("INFO rank 0 in world size 2 is assigned as DP rank 0, PP rank 0", Stage.NCCL, None),
    ("INFO Starting to load model /var/lib/glm53/weights/model...", Stage.LOAD, None),
    ("Loading safetensors checkpoint shards:   0% Completed | 0/120 [00:00<?]", Stage.LOAD, 0),
    (
        "Loading safetensors checkpoint shards:  25% Completed | 30/120 [00:09<00:27]",
        Stage.LOAD,
        25,
    ),
    ("INFO Loading weights took 41.20 seconds", Stage.KV, None),
    ("INFO GPU KV cache size: 982,612 tokens", Stage.GRAPHS, None),
    ("Capturing CUDA graphs (decode, FULL):  50%|##### | 4/8 [00:03<00:03]", Stage.GRAPHS, 50),
    ("INFO init engine (profile, create kv cache, warmup model) took 61.3 s", Stage.API, None),
    ("INFO:     Application startup complete.", Stage.WARMUP, None),
]


def tracker() -> StageTracker:
    return StageTracker(StageLimits(boot=10, load=60), started=0.0)


def test_a_whole_start_passes_through_every_stage_in_order():
    watched = tracker()
    for line, stage, percent in RANK0_LINES:
        watched.feed(line, 1.0)
        assert (watched.stage, watched.percent) == (stage, percent), line


def test_a_stage_is_never_left_backwards():
    watched = tracker()
    watched.feed("INFO Loading weights took 41.20 seconds", 1.0)
    assert not watched.feed("INFO Starting to load model again", 2.0)
    assert watched.stage is Stage.KV


def test_a_missing_line_is_bridged_by_the_next_stage():
    watched = tracker()
    watched.feed("INFO:     Application startup complete.", 1.0)
    assert watched.stage is Stage.WARMUP


def test_progress_within_a_stage_renews_its_limit():
    watched = tracker()
    watched.feed("Starting to load model x", 0.0)
    watched.feed("checkpoint shards: 1% | 1/120", 50.0)
    assert watched.stalled(100.0) is None
    assert watched.stalled(111.0) == "LOAD_STALLED"


def test_the_same_percentage_again_is_no_progress():
    watched = tracker()
    watched.feed("Starting to load model x", 0.0)
    watched.feed("checkpoint shards: 1% | 1/120", 10.0)
    watched.feed("checkpoint shards: 1% | 1/120", 50.0)
    assert watched.stalled(71.0) == "LOAD_STALLED"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("world_size=2 rank=0 x distributed_init_method=tcp://a:1", "NCCL_INIT_STALL"),
        ("rank 0 in world size 2 is assigned", "NCCL_INIT_STALL"),
        ("nothing of interest", "LOAD_STALLED"),
    ],
)
def test_a_stall_is_named_after_its_stage(line, code):
    watched = tracker()
    watched.feed(line, 0.0)
    assert watched.stalled(10_000.0) == code


def test_a_serving_engine_never_stalls():
    watched = tracker()
    watched.enter(Stage.SERVING, 0.0)
    assert watched.stalled(1e9) is None


BUILDS = [
    (
        "2026-11-30 04:33:50,280 - INFO - core.py:594 - flashinfer.jit: Building JIT module topk; "
        "this can take several minutes on first use.",
        "topk",
    ),
    (
        "2026-11-30 04:33:23  [TileLang:tilelang.jit.kernel:INFO] (kernel.py:129): TileLang begins "
        "to compile kernel `mhc_post_tilelang` with `out_idx=None`",
        "mhc_post_tilelang",
    ),
    (
        "(Worker pid=6792) INFO 11-30 04:35:51 [kernel_warmup.py:179] JIT kernel warmup starting.",
        "JIT kernel",
    ),
]


@pytest.mark.parametrize(("line", "kernel"), BUILDS)
def test_a_kernel_that_is_built_is_named_and_has_the_stage_to_itself(line, kernel):
    watched = tracker()
    watched.feed("INFO Loading weights took 41.20 seconds", 1.0)
    left = watched.remaining(100.0)
    assert watched.feed(line, 100.0)
    assert watched.compiling == kernel
    assert watched.remaining(100.0) > left
    watched.feed("INFO GPU KV cache size: 982,612 tokens", 300.0)
    assert watched.compiling is None
