"""The roofline: the notes' floors, and that more work never takes less time."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glm53ctl.budget.machine import GB10, H200
from glm53ctl.budget.model import CLASSES, experts_read
from glm53ctl.budget.settings import Settings
from glm53ctl.budget.speed import KERNEL_US, decode, prefill, prefill_rate


def test_the_floors_are_those_of_the_notes():
    """38.1 ms for one token, 93.4 ms for eight with the draft on both ranks; they halve all dense
    weights, and each rank reads the low-rank projections and the indexers whole."""
    whole = sum(w.nbytes for w in CLASSES if w.name in ("KDA low rank", "MLA low rank", "indexers"))
    more = whole / 2 / GB10.bandwidth * 1e3
    alone = decode(Settings(method="none", drafted=0), GB10, 1)
    assert alone.floor * 1e3 == pytest.approx(38.1 + more, abs=0.3)
    assert decode(Settings(), GB10, 1).floor * 1e3 == pytest.approx(93.4 + more, abs=0.7)


def test_experts_are_those_of_independent_routing():
    assert experts_read(1) == pytest.approx(8)
    assert experts_read(8) == pytest.approx(58, abs=0.5)
    assert experts_read(32) == pytest.approx(171, abs=0.5)


def test_gb10_is_bound_by_memory_and_h200_by_decoding():
    settings = Settings()
    assert decode(settings, GB10, 1).bound_by == "memory bandwidth"
    assert decode(settings, H200, 1).bound_by == "EXL3 decoding"
    assert prefill(settings, GB10).bound_by == "EXL3 decoding"


def test_the_measured_kernel_times_are_met():
    settings = Settings(method="none", drafted=0)
    part = next(p for p in decode(settings, H200, 8).parts if p.name == "routed experts")
    assert part.floor == pytest.approx(42 * KERNEL_US[8] * 1e-6, rel=0.03)


@given(st.integers(1, 255), st.sampled_from(["dflash", "mtp", "none"]))
def test_more_streams_never_take_less_time(streams, method):
    settings = Settings(method=method, drafted={"dflash": 7, "mtp": 2, "none": 0}[method])
    for machine in (GB10, H200):
        one, more = decode(settings, machine, streams), decode(settings, machine, streams + 1)
        assert more.floor >= one.floor
        assert more.expected >= one.expected


@given(st.integers(1_000, 900_000))
def test_a_longer_prompt_is_read_slower(tokens):
    for machine in (GB10, H200):
        assert prefill_rate(Settings(), machine, tokens + 4096) < prefill_rate(
            Settings(), machine, tokens
        )


def test_quantised_dense_layers_are_faster():
    whole, half, quarter = (
        decode(replace(Settings(), dense=dense), GB10, 1).floor for dense in ("bf16", "fp8", "q4")
    )
    assert whole > half > quarter


def test_a_group_of_its_own_mode_counts_for_itself():
    """Linear attention is most of what is read in every step, the first MLPs the least."""
    whole = decode(Settings(), GB10, 1).floor
    alone = {
        group: whole - decode(Settings(dense_groups=((group, "q4"),)), GB10, 1).floor
        for group in ("kda", "mla", "shared", "mlp")
    }
    assert alone["kda"] > alone["mla"] > alone["mlp"] > 0
    together = whole - decode(Settings(dense="q4"), GB10, 1).floor
    assert sum(alone.values()) == pytest.approx(together, rel=1e-6)
    kept = decode(Settings(dense="q4", dense_groups=(("kda", "bf16"),)), GB10, 1).floor
    assert whole - kept == pytest.approx(together - alone["kda"], rel=1e-6)
