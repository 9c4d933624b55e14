"""Acceptance by position, from the engine's counters."""

import pytest

from glm53ctl.diagnose.acceptance import MIN_DRAFTS, judge, judge_totals


def test_a_causal_draft_is_named_with_what_to_check():
    found = judge_totals(1000, (900, 90, 5, 0))
    assert found is not None
    assert found.code == "SPEC_ACCEPT_COLLAPSE"
    assert "0.900, 0.090, 0.005, 0.000" in found.message
    assert "causal" in found.message
    assert "is_causal: false" in found.fix


@pytest.mark.parametrize(
    "accepted",
    [
        (800, 700, 600, 500, 400, 300, 200),
        (800, 300, 120, 10, 2, 0, 0),  # a text that is hard to guess
        (300, 40, 10, 2, 0, 0, 0),  # nothing is accepted anywhere: not this cause
        (800, 0),  # two positions say nothing about later ones
        (),
    ],
)
def test_any_other_draft_is_no_concern(accepted):
    assert judge_totals(1000, accepted) is None


def test_few_drafts_are_not_judged():
    assert judge(MIN_DRAFTS - 1, (1.0, 0.0, 0.0)).finding.code == "SPEC_TOO_FEW"
    assert judge_totals(MIN_DRAFTS - 1, (MIN_DRAFTS - 1, 0, 0)) is None


def test_an_engine_that_does_not_draft_has_no_verdict():
    assert judge_totals(0, (0, 0, 0)) is None
