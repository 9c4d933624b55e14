"""The engine's counters, and what two readings of them say."""

from pathlib import Path

import pytest
from expositions import drafting, exposition, timing

from glm53ctl.supervise.report import Counters
from glm53ctl.view import engine
from glm53ctl.view.engine import (
    ACCEPTED,
    ACCEPTED_AT,
    DRAFTS,
    RATE_SECONDS,
    READ,
    WINDOW_SECONDS,
    History,
    heard,
    read,
)

RECORDED = Path(__file__).parent / "vllm-0.32.0.prom"


def history(*told: tuple[float, str]) -> History:
    made = History()
    for at, text in told:
        made.add(read(text, at))
    return made


def test_one_reading_tells_what_is_now_and_no_rate():
    text = exposition(running=2, waiting=1, kv=0.25, generated=500, preempted=3)
    view = history((10.0, text)).view("none")
    assert (view.running, view.waiting, view.preemptions) == (2, 1, 3)
    assert (view.kv_pool_tokens, view.kv_pool_used) == (982_612, 0.25)
    assert view.generation_tokens_per_s is None
    assert view.ttft_s is None
    assert view.acceptance is None
    assert view.prefix_hit_rate is None


def test_what_a_real_engine_told():
    text = RECORDED.read_text()
    view = history((0.0, exposition()), (4.0, text)).view("none")
    assert (view.running, view.waiting, view.preemptions) == (0, 0, 0)
    assert (view.kv_pool_tokens, view.kv_pool_used) == (43_648, 0.0)
    assert (view.prompt_tokens_per_s, view.generation_tokens_per_s) == (128.0, 72.0)
    assert view.prefix_hit_rate == 0.0
    assert view.ttft_s is not None
    assert view.ttft_s.p50 < 2.52 / 6 * 2  # the mean of six answers was 0.42 s
    assert view.itl_s is not None
    assert 0.1 < view.itl_s.p50 < view.itl_s.p95 < 1.0


def test_a_real_engine_tells_every_name_but_those_of_speculation():
    lines = RECORDED.read_text().splitlines()
    told = {name for name in READ if any(line.startswith(f"{name}{{") for line in lines)}
    assert set(READ) - told == {DRAFTS, ACCEPTED, ACCEPTED_AT}


def test_two_readings_tell_rates():
    view = history(
        (10.0, exposition(prompt=1000, generated=500)),
        (14.0, exposition(prompt=9000, generated=620)),
    ).view("none")
    assert (view.prompt_tokens_per_s, view.generation_tokens_per_s) == (2000.0, 30.0)
    assert view.window_seconds == 4.0


def test_a_rate_is_of_the_last_seconds_and_not_of_the_last_instant():
    told = [(float(at), exposition(generated=10 * at)) for at in range(20)]
    told.append((19.1, exposition(generated=10 * 19)))  # a second look within a step
    rate = history(*told).view("none").generation_tokens_per_s
    assert rate == pytest.approx(40 / (19.1 - 15))
    assert RATE_SECONDS <= 19.1 - 15


def test_percentiles_are_of_the_window_alone():
    before = timing("time_to_first_token_seconds", b0_1=50, b1_0=50, binf=50)
    after = timing("time_to_first_token_seconds", b0_1=50, b1_0=60, binf=60)
    gaps = timing("inter_token_latency_seconds", b0_1=10, binf=10)
    view = history((0.0, exposition() + before), (5.0, exposition() + after + gaps)).view("none")
    assert view.ttft_s is not None
    assert view.ttft_s.p50 == pytest.approx(0.1 + 0.9 * 0.5)
    assert view.ttft_s.p95 == pytest.approx(0.1 + 0.9 * 0.95)
    assert view.itl_s is not None
    assert view.itl_s.p50 == pytest.approx(0.05)


def test_acceptance_by_position_and_length():
    view = history(
        (0.0, exposition() + drafting(100, 90, 50)), (5.0, exposition() + drafting(150, 130, 65))
    ).view("dflash")
    assert view.acceptance is not None
    assert view.acceptance.draft == "dflash"
    assert view.acceptance.by_position == (0.8, 0.3)
    assert view.acceptance.length == pytest.approx(1 + 55 / 50)


def test_reuse_is_of_the_window():
    view = history(
        (0.0, exposition(queries=100, hits=100)), (5.0, exposition(queries=300, hits=150))
    ).view("none")
    assert view.prefix_hit_rate == 0.25


def test_an_engine_that_counts_anew_has_no_past():
    view = history(
        (0.0, exposition(generated=900, prompt=10)), (5.0, exposition(generated=20, prompt=10))
    ).view("none")
    assert view.generation_tokens_per_s is None
    assert view.window_seconds == 0.0


def test_the_window_moves():
    made = history(*((float(at), exposition(generated=at)) for at in range(0, 1000, 10)))
    assert made.view("none").window_seconds == WINDOW_SECONDS
    assert len(made.readings) == WINDOW_SECONDS / 10 + 1


def test_several_engines_are_summed():
    text = exposition(running=2) + 'vllm:num_requests_running{engine="1",model_name="glm"} 3\n'
    assert history((0.0, text)).view("none").running == 5


def test_what_is_no_exposition_is_refused():
    with pytest.raises(ValueError, match="could not convert"):
        read('vllm:num_requests_running{engine="0"} many\n', 0.0)


def test_of_the_heads_engine_the_others_hear_requests_and_pool():
    view = heard(Counters(running=2, waiting=1, kv_usage=0.5, generated_tokens=9))
    assert (view.running, view.waiting, view.kv_pool_used) == (2, 1, 0.5)
    assert view.kv_pool_tokens is None


def test_every_line_that_is_read_is_asked_for():
    """A name that the filter of lines lacks would read as 0 for ever."""
    names = {value for name, value in vars(engine).items() if str(value).startswith("vllm:")}
    assert names == set(engine.READ)
