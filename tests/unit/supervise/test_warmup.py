"""Requests before the canary: which, how many at a time, and that nothing of them is fatal."""

import asyncio

import httpx
import pytest
from fake_pair import fake_pair
from pairs import pair_config

from glm53ctl.supervise import warmup
from glm53ctl.supervise.canary import Target
from glm53ctl.supervise.warmup import Shape, questions, shapes, warm_up

CHAT = "/v1/chat/completions"


@pytest.fixture
def pair():
    with fake_pair() as running:
        yield running


@pytest.fixture
def wanted(tmp_path):
    def make(limits=None, **said):
        changes = {"prompt_tokens": [8, 300], "together": [1, 2], "max_tokens": 4} | said
        rules = {"supervise": {"limits": limits}} if limits else {}
        return pair_config(tmp_path, warmup=changes, **rules)

    return make


def run(pair, config, report=lambda done, of: None):
    return asyncio.run(warm_up(Target(pair.url, "glm", {}, False), config, report))


def test_all_shapes_are_sent_and_nothing_is_said(pair, wanted):
    told = []
    assert run(pair, wanted(), lambda done, of: told.append((done, of))) == ()
    assert len(pair.questions) == 1 + 2 + 1 + 2 + 1
    assert told == [(1, 7), (3, 7), (4, 7), (6, 7), (7, 7)]


def test_a_server_that_is_about_to_listen_is_waited_for(wanted):
    with fake_pair(late_seconds=0.3) as pair:
        assert run(pair, wanted()) == ()


def test_lengths_grow_and_no_two_prompts_begin_alike(pair, wanted):
    run(pair, wanted())
    prompts = [question["messages"][0]["content"] for question in pair.questions]
    assert len({prompt[:12] for prompt in prompts[:-1]}) == 6
    assert max(map(len, prompts)) > 20 * min(map(len, prompts))
    assert {question["max_tokens"] for question in pair.questions} == {4}


def test_one_reply_is_under_a_grammar(pair, wanted):
    run(pair, wanted())
    assert [q.get("response_format") for q in pair.questions].count({"type": "json_object"}) == 1


def test_requests_of_a_shape_are_in_flight_together(wanted, monkeypatch):
    """Two of two are answered only when both have come."""
    both = asyncio.Event()
    waiting = []

    async def handle(request):
        waiting.append(request)
        if len(waiting) == 2:
            both.set()
        await asyncio.wait_for(both.wait(), 60)
        return httpx.Response(200, json={})

    client = httpx.AsyncClient
    monkeypatch.setattr(
        warmup.httpx,
        "AsyncClient",
        lambda **given: client(base_url="http://pair", transport=httpx.MockTransport(handle)),
    )
    config = wanted(prompt_tokens=[8], together=[2])
    monkeypatch.setattr(warmup, "shapes", lambda config: (Shape(8, 2),))
    assert asyncio.run(warm_up(Target("http://pair", "glm", {}, False), config)) == ()
    assert len(waiting) == 2


def test_the_window_and_the_batch_bound_what_is_sent(tmp_path):
    config = pair_config(
        tmp_path,
        serve={"max_model_len": 2048, "max_num_seqs": 2},
        warmup={"prompt_tokens": [16, 1024, 4096], "together": [1, 2, 4]},
    )
    made = shapes(config)
    assert {shape.prompt_tokens for shape in made} == {16, 1024}
    assert {shape.together for shape in made} == {1, 2}
    assert len(set(made)) == len(made)


def test_prompts_are_not_longer_than_was_asked_for():
    (asked,) = questions(Shape(1000, 1), "glm", 4)
    assert 800 < len(asked["messages"][0]["content"].split()) < 1000


@pytest.mark.parametrize("status", [400, 500, 503])
def test_a_refused_request_is_a_finding(pair, wanted, status):
    pair.fails[CHAT] = status
    (finding,) = run(pair, wanted())
    assert (finding.code, finding.severity.value) == ("WARMUP_FAILED", "warn")
    assert f"1 x 8 tokens: status {status}" in finding.message
    assert "and 4 more" in finding.message


def test_a_request_without_an_answer_is_a_finding(pair, wanted):
    pair.hangs = frozenset({CHAT})
    (finding,) = run(pair, wanted(limits={"warmup": 2.0}, prompt_tokens=[8], together=[1]))
    assert finding.code == "WARMUP_FAILED"
    assert "ReadTimeout" in finding.message


def test_the_whole_ends_at_its_limit(pair, wanted):
    pair.hangs = frozenset({CHAT})
    (finding,) = run(pair, wanted(limit_seconds=0.2))
    assert finding.code == "WARMUP_LATE"
    assert "2 x 300 tokens" in finding.message
    assert "under a grammar" in finding.message


def test_a_key_that_no_header_can_carry_is_a_finding(pair, wanted):
    target = Target(pair.url, "glm", {"Authorization": "Bearer \u2713"}, speculates=False)
    (finding,) = asyncio.run(warm_up(target, wanted()))
    assert finding.code == "WARMUP_FAILED"
    assert pair.questions == []


def test_a_request_fails_before_its_stage_counts_as_stuck(pair, wanted, monkeypatch):
    given, client = {}, httpx.AsyncClient

    def made(**settings):
        given.update(settings)
        return client(**settings)

    monkeypatch.setattr(warmup.httpx, "AsyncClient", made)
    run(pair, wanted(limits={"warmup": 100.0}))
    assert 50.0 < given["timeout"] < 100.0
