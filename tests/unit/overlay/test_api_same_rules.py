"""The middleware refuses what the linter calls wrong, and does what the linter says it does.

The two live in interpreters that never meet (the engine's has no glm53ctl, the tools' no overlay),
so the thirty lines of rules about bodies exist on both sides; this is what keeps them one.
"""

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from glm53ctl.diagnose import Answer, judge_answer, lint_request
from glm53ctl.diagnose.request import EFFORTS, TEMPLATE_EFFORTS
from glm53ctl.watchdog import report

OVERLAY = Path(__file__).parents[3] / "overlay"
ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(scope="module")
def overlay():
    sys.path.insert(0, str(OVERLAY))
    from glm53_overlay.api import load, requests, window
    from glm53_overlay.settings import ApiSettings

    yield {"load": load, "requests": requests, "window": window, "settings": ApiSettings()}
    sys.path.remove(str(OVERLAY))


def served(overlay: dict[str, Any], body: dict[str, Any]) -> tuple[dict[str, Any] | None, str]:
    """What the engine gets, or the code of the refusal."""
    from glm53_overlay.api.refusal import RefusedError

    try:
        return overlay["requests"].adapt("/v1/chat/completions", body, overlay["settings"]), ""
    except RefusedError as refused:
        return None, refused.code


@pytest.mark.parametrize(
    "change",
    [
        {"extra_body": {"top_k": 1}},
        {"extra_body": None},
        {"chat_template_kwargs": "{}"},
        {"chat_template_kwargs": ["a"]},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"temperature": 0.5},
    ],
)
def test_both_judge_a_body_alike(overlay, change) -> None:
    (found,) = lint_request({**ASK, **change})
    _, code = served(overlay, {**ASK, **change})
    assert (code or "REQ_OK") == found.code


def test_both_know_the_same_efforts(overlay) -> None:
    meant = overlay["requests"].EFFORTS
    assert {effort for effort in EFFORTS if meant[effort] == effort} == set(EFFORTS)
    assert set(meant.values()) == set(EFFORTS)
    assert set(TEMPLATE_EFFORTS) < set(EFFORTS)


@pytest.mark.parametrize("name", ["guided_json", "guided_regex", "guided_choice", "guided_grammar"])
def test_what_vllm_ignores_does_not_reach_it(overlay, name) -> None:
    body = {**ASK, name: ["a"] if name == "guided_choice" else "a"}
    assert [finding.code for finding in lint_request(body)] == ["REQ_GUIDED_IGNORED"]
    made, _ = served(overlay, body)
    assert made is not None
    assert lint_request(made)[0].code == "REQ_OK"


def test_a_refusal_of_the_window_is_recognised(overlay) -> None:
    refusal = overlay["window"].exceeded("/v1/completions", 900, 500, 500)
    body = {"error": {"message": refusal.message, "code": refusal.code}}
    (found,) = judge_answer(Answer(400, body), ASK)
    assert found.code == "REQ_CONTEXT"
    assert "900" in found.message


def test_the_watchdogs_word_is_read_as_it_is_written(overlay, tmp_path) -> None:
    said = report.WatchdogReport(
        pid=1, beat=time.monotonic(), refuses=report.Refusal(reason="memory is short")
    )
    report.write_report(tmp_path, said)
    assert overlay["load"].REPORT_FRESH_SECONDS == report.FRESH_SECONDS
    refusal = overlay["load"].Load(report=report.report_path(tmp_path)).refusal()
    assert refusal.status == 503
    assert refusal.retry_after == said.refuses.retry_after_seconds
    assert "memory is short" in refusal.message
