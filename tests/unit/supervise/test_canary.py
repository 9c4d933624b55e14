"""The question before READY, asked of a fake that answers well, wrong or not at all."""

import asyncio
import socket

import pytest
from fake_pair import FakePair, fake_pair

from glm53ctl.config.schema import Canary
from glm53ctl.supervise.canary import SPEC_ROUNDS, CanaryError, Target, ask_canary

CHAT = "/v1/chat/completions"


@pytest.fixture
def pair():
    with fake_pair() as running:
        yield running


def ask(
    pair: FakePair,
    canary: Canary | None = None,
    *,
    speculates: bool = False,
    seconds: float = 30,
    **headers: str,
) -> str:
    target = Target(pair.url, "glm", headers, speculates)
    return asyncio.run(ask_canary(target, canary or Canary(), seconds))


def failure(pair: FakePair, canary: Canary | None = None, **options) -> CanaryError:
    with pytest.raises(CanaryError) as caught:
        ask(pair, canary, **options)
    return caught.value


# --- a pair that is well -------------------------------------------------------------------------


def test_a_pair_that_answers_right_passes_with_its_answer(pair):
    assert ask(pair) == "OK."
    assert pair.asked == ["/health", "/v1/models", CHAT]


def test_a_server_that_puts_it_off_is_asked_again(pair):
    """Clients may have filled it already, or the watchdog lets nothing in for a while."""
    pair.later = 3
    target = Target(pair.url, "glm", {}, speculates=False)
    assert asyncio.run(ask_canary(target, Canary(), 30, patient=True)) == "OK."
    assert len(pair.questions) == 4


def test_a_server_that_listens_a_moment_after_its_start_is_complete_is_waited_for():
    with fake_pair(late_seconds=0.3) as pair:
        target = Target(pair.url, "glm", {}, speculates=False)
        assert asyncio.run(ask_canary(target, Canary(), 30, patient=True)) == "OK."


def test_a_probe_that_is_put_off_learns_nothing_and_does_not_wait(pair):
    pair.later = 3
    assert "503" in failure(pair).message
    assert len(pair.questions) == 1


def test_the_question_is_the_configured_one_without_chance_or_thinking(pair):
    pair.answer = "4"
    ask(pair, Canary(prompt="2+2?", expect="4", match="exact", max_tokens=9))
    assert pair.questions == [
        {
            "model": "glm",
            "messages": [{"role": "user", "content": "2+2?"}],
            "temperature": 0,
            "max_tokens": 9,
            "chat_template_kwargs": {"enable_thinking": False},
        }
    ]


def test_the_key_is_sent_with_every_request(pair):
    ask(pair, Authorization="Bearer opensesame", speculates=True)
    assert {sent.get("authorization") for sent in pair.headers} == {"Bearer opensesame"}


def test_a_proxy_has_no_business_between_supervisor_and_engine(pair, monkeypatch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{closed.getsockname()[1]}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        assert ask(pair) == "OK."


# --- a wrong answer ------------------------------------------------------------------------------


def test_a_server_under_another_name_is_not_the_pair(pair):
    pair.models = ("llama", "glm-5")
    error = failure(pair)
    assert error.code == "CANARY_MODEL"
    assert "llama" in error.message
    assert "'glm'" in error.message
    assert pair.questions == []


@pytest.mark.parametrize(
    ("match", "answer", "good"),
    [
        ("exact", "OK", True),
        ("exact", "OK.", False),
        ("exact", "ok", False),
        ("exact", " OK", False),
        ("contains", "It is OK.", True),
        ("contains", "ok", False),
        ("contains", "", False),
        ("contains", "!!!!!!!!", False),
    ],
)
def test_an_answer_is_compared_as_configured(pair, match, answer, good):
    pair.answer = answer
    canary = Canary(expect="OK", match=match)
    if good:
        assert ask(pair, canary) == answer
        return
    error = failure(pair, canary)
    assert error.code == "OUTPUT_DEGENERATE"
    assert repr(answer) in error.message
    assert match in error.message


def test_an_answer_without_content_is_an_empty_one(pair):
    pair.answer = None
    assert failure(pair).code == "OUTPUT_DEGENERATE"
    assert ask(pair, Canary(expect="")) == ""


def test_babble_without_end_is_shown_shortened(pair):
    pair.answer = "!" * 5000
    assert len(failure(pair).message) < 400


# --- no answer -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/health", "/v1/models", CHAT])
@pytest.mark.parametrize("status", [401, 404, 500, 503])
def test_an_error_of_any_route_is_no_answer(pair, path, status):
    pair.fails[path] = status
    error = failure(pair)
    assert error.code == "CANARY_NO_ANSWER"
    assert str(status) in error.message
    assert pair.asked[-1] == path


def test_nobody_listening_is_no_answer():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        error = failure(FakePair(f"http://127.0.0.1:{closed.getsockname()[1]}"))
    assert error.code == "CANARY_NO_ANSWER"


@pytest.mark.parametrize("path", ["/health", CHAT])
def test_a_pair_that_stays_silent_is_no_answer(pair, path):
    pair.hangs = frozenset({path})
    assert failure(pair, seconds=0.3).code == "CANARY_NO_ANSWER"


@pytest.mark.parametrize("path", ["/v1/models", CHAT])
@pytest.mark.parametrize("body", [b"<html>", b"{}", b"[]", b'{"choices": [], "data": [{}]}'])
def test_an_answer_in_another_form_is_no_answer(pair, path, body):
    pair.bodies[path] = body
    assert failure(pair).code in ("CANARY_NO_ANSWER", "CANARY_MODEL")


def test_a_key_that_cannot_be_sent_is_no_answer_and_not_shown(pair):
    error = failure(pair, Authorization="Bearer schlüssel")
    assert "schl" not in error.message


# --- speculation ---------------------------------------------------------------------------------


@pytest.mark.parametrize("drafted", [64, 100, 16])
def test_drafts_of_which_none_is_taken_are_a_collapse(pair, drafted):
    pair.drafts = (drafted, 0)
    error = failure(pair, speculates=True)
    assert error.code == "SPEC_ACCEPT_COLLAPSE"
    seen = drafted * len(pair.questions)
    assert seen >= 64
    assert str(seen) in error.message


def test_one_accepted_token_is_enough(pair):
    pair.drafts = (64, 1)
    assert ask(pair, speculates=True) == "OK."
    assert len(pair.questions) == 1


def test_questions_go_on_until_enough_was_drafted_to_judge(pair):
    pair.drafts = (16, 1)
    ask(pair, speculates=True)
    assert len(pair.questions) == 4


def test_the_number_of_drafts_to_see_is_configured(pair):
    pair.drafts = (16, 0)
    assert failure(pair, Canary(min_drafted=16), speculates=True).code == "SPEC_ACCEPT_COLLAPSE"
    assert len(pair.questions) == 1


def test_too_few_drafts_are_no_fault(pair):
    pair.drafts = (7, 0)
    assert ask(pair, speculates=True) == "OK."
    assert len(pair.questions) == 1 + SPEC_ROUNDS


def test_counters_that_cannot_be_read_are_no_fault(pair):
    pair.fails["/metrics"] = 500
    assert ask(pair, speculates=True) == "OK."


def test_without_speculation_nobody_looks_at_drafts(pair):
    pair.drafts = (1000, 0)
    assert ask(pair) == "OK."
    assert "/metrics" not in pair.asked


def test_a_wrong_answer_comes_before_a_collapse(pair):
    pair.drafts, pair.answer = (64, 0), "!!!!"
    assert failure(pair, speculates=True).code == "OUTPUT_DEGENERATE"
