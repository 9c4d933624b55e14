"""The benches against a fake server that is its own process."""

import asyncio

import pytest
from fast_server import running

from glm53ctl.bench import baselines, client, measure, texts
from glm53ctl.bench.client import Answer, Server, ask
from glm53ctl.errors import UserError


@pytest.fixture(scope="module")
def fast():
    with running() as url:
        yield Server(url, "fake")


@pytest.fixture(scope="module")
def paced():
    with running("--pace", "0.01") as url:
        yield Server(url, "fake")


@pytest.fixture(scope="module")
def short():
    with running("--context", "500") as url:
        yield Server(url, "fake")


def quiet(_line: str) -> None: ...


async def asked(server: Server, streams: int, tokens: int) -> list[Answer]:
    async with server.client() as client:
        return await asyncio.gather(*(ask(client, "count", tokens) for _ in range(streams)))


def test_no_token_of_200_streams_is_lost(fast):
    answers = asyncio.run(asked(fast, 200, 50))
    assert [answer.tokens for answer in answers] == [50] * 200
    assert all(len(answer.arrivals) == 50 for answer in answers)
    assert all(answer.text.split() == [str(n) for n in range(50)] for answer in answers)


def test_gaps_are_those_the_server_makes(paced):
    """The server sleeps 10 ms at least; arrivals are noted then, not when the answer is over."""
    [answer] = asyncio.run(asked(paced, 1, 40))
    assert answer.arrivals[-1] - answer.began >= 39 * 0.0095
    assert len(set(answer.arrivals)) > 2
    assert answer.began < answer.arrivals[0]
    assert list(answer.arrivals) == sorted(answer.arrivals)


def test_decode_counts_both_texts_at_every_concurrency(fast):
    found = asyncio.run(measure.decode(fast, ["structured", "prose"], [1, 2], 3, 30, quiet))
    assert [case.name for case in found.cases] == [
        "structured x1", "structured x2", "prose x1", "prose x2",
    ]  # fmt: skip
    case = found.cases[0]
    assert len(case.values) == 3
    assert case.acceptance is not None
    assert case.acceptance.length == pytest.approx(2.5)
    assert case.acceptance.by_position == pytest.approx((0.9, 0.6))
    assert set(case.ttft_seconds) == {"p50", "p90", "p99"}
    assert found.faults  # the fake does not know primes


def test_an_answer_that_repeats_itself_is_a_fault():
    with running("--text", "!") as url:
        server = Server(url, "fake")
        found = asyncio.run(measure.decode(server, ["prose"], [1], 1, 30, quiet, coherence=False))
    assert len(found.faults) == 1
    assert "repeats itself" in found.faults[0]


def test_babble_under_load_is_a_fault():
    with running("--text", "!") as url:
        found = asyncio.run(measure.load(Server(url, "fake"), [2], 250, 1, 30, quiet))
    assert all(fault.startswith("load x2: the answer repeats itself") for fault in found.faults)
    assert found.faults


@pytest.mark.parametrize(
    ("max_tokens", "think", "published"),
    [(400, False, {"vllm-recipe": 62.9, "tensorfold": 114.7}), (399, False, {}), (400, True, {})],
)
def test_what_was_published_stands_beside_the_same_case_only(fast, max_tokens, think, published):
    server = Server(fast.url, "fake", think=think)
    asked = measure.decode(server, ["structured"], [1], 1, max_tokens, quiet, coherence=False)
    assert asyncio.run(asked).cases[0].baseline == published


def test_the_published_reuse_is_of_one_length(fast, monkeypatch):
    monkeypatch.setattr(baselines, "PREFIX_REUSE", {400: {"vllm-recipe": 0.46}})
    found = asyncio.run(measure.prefix(fast, [300, 400], 1, quiet))
    assert [case.baseline for case in found.cases] == [{}, {}, {}, {"vllm-recipe": 0.46}]


def test_prefill_meets_the_length_and_never_the_cache(fast):
    found = asyncio.run(measure.prefill(fast, [300, 700], 2, quiet))
    lengths = [case.extra["prompt_tokens"] for case in found.cases]
    assert lengths == pytest.approx([300, 700], rel=0.02)
    assert found.faults == []


def test_prefix_sees_what_is_reused(fast):
    found = asyncio.run(measure.prefix(fast, [400], 1, quiet))
    assert [case.name for case in found.cases] == ["prefix 400: again", "prefix 400: continued"]
    assert found.cases[1].values[0] == pytest.approx(400 / 450, abs=0.03)


def test_a_needle_that_is_not_named_is_lost(fast):
    found = asyncio.run(measure.needle(fast, [300], [0.1, 0.9], quiet))
    assert found.cases[0].values == (0.0, 0.0)


@pytest.mark.parametrize("depth", [0.0, 0.5, 1.0])
def test_a_needle_is_in_its_haystack_once(depth):
    prompt, code = texts.haystack(500, "salt", depth)
    assert prompt.count(code) == 1
    assert prompt.endswith(texts.QUESTION)


def test_agents_and_a_newcomer(paced):
    found = asyncio.run(measure.agents(paced, 2, 250, 300, 1, 20, quiet))
    alone, newcomer, *during = found.cases
    assert (alone.name, newcomer.name) == ("agents x2", "newcomer")
    assert newcomer.lower_is_better
    assert newcomer.extra["prompt_tokens"] > 300
    # The newcomer is read at once and the agents are, too: they may be done before all write. What
    # they keep, the next test shows; here it may be nothing, between two tokens.
    names = ["agents while a newcomer is read"] * (not found.notes)
    assert [case.name for case in during] == names
    assert found.faults == []


def test_agents_whose_answers_come_in_one_piece_end():
    async def measured(url: str) -> measure.Measured:
        asked = measure.agents(Server(url, "fake"), 2, 250, 300, 1, 20, quiet)
        return await asyncio.wait_for(asked, 30)

    with running("--whole") as url:
        found = asyncio.run(measured(url))
    assert [case.name for case in found.cases] == ["agents x2", "newcomer"]


def test_a_newcomer_that_is_refused_is_one_sentence(short):
    with pytest.raises(UserError) as error:
        asyncio.run(measure.agents(short, 2, 250, 600, 1, 20, quiet))
    assert (error.value.code, error.value.exit_code) == ("BENCH_REFUSED", 2)


LADDERS = {
    "prefill": lambda server, ladder: measure.prefill(server, ladder, 1, quiet),
    "needle": lambda server, ladder: measure.needle(server, ladder, [0.5], quiet),
    "prefix": lambda server, ladder: measure.prefix(server, ladder, 1, quiet),
}


@pytest.mark.parametrize("bench", LADDERS)
def test_what_was_measured_before_a_refusal_is_kept(short, bench):
    found = asyncio.run(LADDERS[bench](short, [300, 700]))
    assert {case.name.split(":")[0] for case in found.cases} == {f"{bench} 300"}
    assert found.cut.startswith(f"{bench} 700: the server answers 400")
    with pytest.raises(UserError):
        asyncio.run(LADDERS[bench](short, [700, 300]))


@pytest.mark.parametrize("bench", ["decode", "load"])
def test_what_was_measured_before_the_pair_was_lost_is_kept(fast, monkeypatch, bench):
    left = iter(range(4))

    async def lost(*words):
        if next(left, None) is None:
            raise UserError("BENCH_UNREACHABLE", "nobody answers.", exit_code=3)
        return await ask(*words)

    monkeypatch.setattr(measure, "ask", lost)
    if bench == "decode":
        asked = measure.decode(fast, ["prose"], [1, 2], 2, 20, quiet, coherence=False)
    else:
        asked = measure.load(fast, [1, 2], 250, 2, 20, quiet)
    found = asyncio.run(asked)
    assert len(found.cases) == 1
    assert found.cut.endswith("x2: nobody answers.")


def written(first: float, last: float, every: float = 0.1) -> Answer:
    """An answer that began to be written at `first`, a token at a time."""
    count = round((last - first) / every) + 1
    return Answer("", 0.0, tuple(first + n * every for n in range(count)), count, 5, 0, "stop")


def mix(alone: list[Answer], joined: list[Answer], late: float) -> measure._Mix:
    return measure._Mix(alone, joined, written(late, late + 1), sent=10.0)


def test_the_pace_kept_is_of_the_time_in_which_all_write():
    """One agent is read three seconds before the other; both then keep half of their pace."""
    alone = [written(1.0, 6.0), written(4.0, 9.0)]
    slow = [written(8.0, 20.0, 0.2), written(9.0, 20.0, 0.2)]
    assert mix(alone, slow, 18.0).kept == pytest.approx(0.5, rel=0.03)


def test_an_agent_that_is_done_ends_what_is_looked_at():
    alone = [written(1.0, 6.0), written(1.0, 6.0)]
    joined = [written(9.0, 12.0), written(9.0, 12.0)]
    assert mix(alone, joined, 30.0).kept == pytest.approx(1.0, rel=0.06)


@pytest.mark.parametrize(
    ("alone", "joined"),
    [
        ([written(1.0, 2.0), written(3.0, 4.0)], [written(9.0, 12.0)] * 2),
        ([written(1.0, 6.0)] * 2, [written(8.0, 9.0), written(9.5, 12.0)]),
    ],
)
def test_without_a_time_in_which_all_write_nothing_is_said(alone, joined):
    assert mix(alone, joined, 30.0).kept is None


@pytest.mark.parametrize("tokens", [300, 8_192, 131_072])
def test_a_prompt_has_the_wanted_length_whatever_a_salt_takes(monkeypatch, tokens):
    def count(text: str) -> int:
        return 9 + sum(21 if len(word) >= 32 else 1 for word in text.split())

    async def counted(_client, prompt, _max_tokens):
        return Answer("", 0.0, (0.0,), 1, count(prompt), 0, "stop")

    monkeypatch.setattr(measure, "ask", counted)
    words = asyncio.run(measure.words_for(None, tokens))
    assert count(texts.filler(words, "f" * 32)) == pytest.approx(tokens, abs=1)


def test_load_counts_requests(fast):
    found = asyncio.run(measure.load(fast, [8], 300, 2, 20, quiet))
    assert len(found.cases[0].values) == 2
    assert found.cases[0].extra["requests_per_second"] > 0


def test_fillers_of_two_salts_differ_from_the_first_word():
    one, other = texts.filler(100, "a"), texts.filler(100, "b")
    assert one.split()[0] != other.split()[0]
    assert len(one.split()) == len(other.split()) == 100
    assert texts.filler(100, "a") == one


@pytest.mark.parametrize(
    ("text", "bad"),
    [
        ("!" * 40, True),
        ("the the the the the the the the the", True),
        (", ".join(map(str, range(1, 60))), False),
        ("A hash map keeps pairs of a key and a value in an array of buckets.", False),
        ("OK", False),
    ],
)
def test_what_is_no_language_is_told_from_counting(text, bad):
    assert texts.degenerate(text) is bad


def test_rate_of_two_together_is_over_the_time_of_both():
    def answer(*arrivals: float) -> Answer:
        return Answer("", 0.0, arrivals, 11, 5, 0, "stop")

    assert measure.rate_together([answer(1.0, 2.0), answer(1.5, 3.0)]) == pytest.approx(10.0)


def test_nobody_there_is_one_sentence():
    with pytest.raises(UserError) as error:
        asyncio.run(asked(Server("http://127.0.0.1:9", "none"), 1, 5))
    assert error.value.code == "BENCH_UNREACHABLE"


@pytest.mark.parametrize(
    "body",
    [
        b"data: {\n",
        b"data: []\n",
        b'data: {"choices": [5]}\n',
        b'data: {"choices": [{"delta": {"content": "a"}}], "usage": {"total_tokens": 3}}\n',
        b'data: {"choices": [{"delta": {"content": 5}}], "usage": {"completion_tokens": 3}}\n',
    ],
)
def test_another_protocol_is_one_sentence(body):
    with pytest.raises(UserError) as error:
        client.read_answer("http://x", 0.0, [(1.0, body)])
    assert error.value.code == "BENCH_REFUSED"
    assert "http://x" in error.value.message
