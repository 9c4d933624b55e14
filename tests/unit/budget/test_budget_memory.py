"""Memory of a rank: weights are the checkpoint's bytes, and what cannot fit is refused."""

from dataclasses import replace

import pytest

from glm53ctl.budget.machine import GB10, GIB, H200
from glm53ctl.budget.memory import MIB, budget, exl3_bytes, nearest
from glm53ctl.budget.model import (
    CLASSES,
    EXPERT_BYTES,
    EXPERTS,
    MOE_LAYERS,
    MTP,
    ROUTED,
    VISION,
    loaded,
)
from glm53ctl.budget.settings import Settings

TENSOR_BYTES = 175_622_979_576
ROUTED_BYTES = 156_283_454_592


def of(*names: str) -> int:
    return sum(w.nbytes for w in (*CLASSES, *MTP) if w.name in names)


def test_the_routed_experts_are_the_published_bytes():
    assert (MOE_LAYERS + 1) * EXPERTS * EXPERT_BYTES == ROUTED_BYTES


def test_all_classes_are_the_checkpoint_but_for_norms():
    whole = ROUTED.nbytes + sum(w.nbytes for w in (*CLASSES, *MTP, VISION))
    assert whole == pytest.approx(TENSOR_BYTES, rel=1e-3)
    assert whole <= TENSOR_BYTES


@pytest.mark.parametrize(
    ("names", "gib"),
    [
        (("lm_head",), 1.18),
        (("embeddings",), 1.18),
        (("dense MLPs", "routers"), 0.94),
    ],
)
def test_classes_are_the_published_ones(names, gib):
    assert round(of(*names) / GIB, 2) == gib


def test_attention_and_shared_experts_are_the_published_ones_with_the_mtp_layer_s():
    """Published: 11.55 and 2.02 GiB; the MTP layer's router and eh_proj are in neither."""
    attention = [w.name for w in CLASSES if w.name.startswith(("KDA", "MLA", "indexers"))]
    both = of(*attention, "shared experts", "MTP projections", "MTP rest") / GIB
    assert both == pytest.approx(11.55 + 2.02 + 0.065, abs=0.06)


def test_the_mtp_layer_is_loaded_only_to_draft():
    assert {w.name for w in loaded("mtp", vision=True)} >= {"MTP experts"}
    assert not any(w.name.startswith("MTP") for w in loaded("dflash", vision=True))


def test_the_workspace_of_the_experts_is_the_measured_one():
    assert exl3_bytes(1024, H200) == 458 * MIB
    assert exl3_bytes(4096, H200) == 1658 * MIB
    assert exl3_bytes(1024, GB10) == 258 * MIB
    assert exl3_bytes(4096, GB10) == 1002 * MIB


def test_the_recipe_fits_and_the_pool_is_what_is_left():
    made = budget(Settings(), GB10)
    assert made.fits
    assert made.used + made.pool.nbytes <= 0.87 * GB10.memory
    assert made.used + made.pool.nbytes + made.host == GB10.memory


@pytest.mark.parametrize(
    "settings",
    [
        Settings(utilization=0.72),  # the pool holds no full request
        Settings(utilization=0.6),  # and not even the weights fit
        Settings(utilization=0.95),  # the host is left too little
        Settings(kv_bytes=40 * GIB),
        Settings(kv_bytes=2 * GIB),
    ],
)
def test_what_does_not_fit_is_refused_with_the_nearest_that_does(settings):
    made = budget(settings, GB10)
    assert not made.fits
    found = nearest(settings, GB10)
    assert found is not None
    assert found.fits
    assert found.settings != settings


def test_the_nearest_context_is_the_longest_that_fits():
    settings = Settings(utilization=0.72)
    found = nearest(settings, GB10)
    assert found is not None
    longer = replace(found.settings, context=found.settings.context + 2048)
    assert not budget(longer, GB10).fits
    assert found.settings.utilization == 0.72


def test_one_spark_cannot_hold_the_model():
    alone = Settings(ranks=1)
    assert "everything but the KV pool" in budget(alone, GB10).problems[0]
    assert nearest(alone, GB10) is None
