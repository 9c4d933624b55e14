"""Acceptance by position, from the engine's counters."""

import pytest

from glm53ctl.diagnose.acceptance import MIN_DRAFTS, judge, judge_counters


def metrics(drafts: int, *accepted: int) -> str:
    lines = [f'vllm:spec_decode_num_drafts_total{{engine="0",model_name="m"}} {drafts}']
    lines += [
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="{n}"}} {count}'
        for n, count in enumerate(accepted)
    ]
    return "\n".join(("vllm:num_requests_running 1", *lines, ""))


@pytest.mark.parametrize(
    ("accepted", "code"),
    [
        ((800, 300, 40, 10, 2, 0, 0), "SPEC_ACCEPT_COLLAPSE"),
        ((800, 700, 600, 500, 400, 300, 200), "SPEC_OK"),
        ((800, 300, 120, 10, 2, 0, 0), "SPEC_OK"),  # a text that is hard to guess
        ((300, 40, 10, 2, 0, 0, 0), "SPEC_OK"),  # nothing is accepted anywhere: not this cause
        ((800, 0), "SPEC_OK"),  # two positions say nothing about later ones
    ],
)
def test_a_causal_draft_is_told_from_a_hard_text(accepted, code):
    found = judge_counters(metrics(1000, *accepted))
    assert found is not None
    assert found.finding.code == code


def test_the_causal_draft_is_named_with_what_to_check():
    found = judge_counters(metrics(1000, 900, 90, 5, 0))
    assert found is not None
    assert "0.900, 0.090, 0.005, 0.000" in found.finding.message
    assert "causal" in found.finding.message
    assert "is_causal: false" in found.finding.fix


def test_few_drafts_are_not_judged():
    assert judge(MIN_DRAFTS - 1, (1.0, 0.0, 0.0)).finding.code == "SPEC_TOO_FEW"


def test_an_engine_that_does_not_draft_has_no_verdict():
    assert judge_counters("vllm:num_requests_running 0\n") is None
    assert judge_counters(metrics(0, 0, 0)) is None
