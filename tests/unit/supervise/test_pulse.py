import asyncio

import httpx
import pytest

from glm53ctl.supervise.pulse import ProgressWatch, parse_counters, read_counters
from glm53ctl.supervise.report import Counters

METRICS = """
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="glm"} 2.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="glm"} 1.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="glm"} 0.25
# TYPE vllm:prompt_tokens counter
vllm:prompt_tokens_total{engine="0",model_name="glm"} 1200.0
vllm:prompt_tokens_created{engine="0",model_name="glm"} 1.7e+09
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{engine="0",model_name="glm"} 34.0
# TYPE vllm:spec_decode_num_draft_tokens counter
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="glm"} 70.0
# TYPE vllm:spec_decode_num_accepted_tokens counter
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="glm"} 41.0
# TYPE vllm:spec_decode_num_drafts counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="glm"} 10.0
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos counter
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="glm",position="1"} 14.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="glm",position="0"} 27.0
"""


def busy(**counters: float) -> Counters:
    return Counters(**({"in_flight": 1, "running": 1} | counters))


def test_counters_are_read_from_an_exposition():
    assert parse_counters(METRICS) == Counters(
        running=2,
        waiting=1,
        kv_usage=0.25,
        prompt_tokens=1200,
        generated_tokens=34,
        drafted_tokens=70,
        accepted_tokens=41,
        drafts=10,
        accepted_at=(27, 14),
    )


def test_a_gauge_that_is_no_number_is_not_known():
    told = METRICS.replace("2.0\n", "NaN\n").replace("0.25\n", "NaN\n").replace("10.0", "+Inf")
    seen = parse_counters(told)
    assert (seen.running, seen.kv_usage, seen.drafts, seen.waiting) == (0, 0.0, 0, 1)


@pytest.mark.parametrize(
    ("metrics", "load"),
    [
        (METRICS, '{"server_load": null}'),
        (METRICS, "[]"),
        (METRICS, "{}"),
        (METRICS, "no json"),
        ("vllm:num_requests_running no number\n", '{"server_load": 1}'),
        (METRICS.replace('position="1"', 'place="1"'), '{"server_load": 1}'),
    ],
)
def test_what_is_no_answer_is_not_known(metrics, load):
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, text=load if request.url.path == "/load" else metrics)

    async def read() -> Counters | None:
        transport = httpx.MockTransport(answer)
        async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
            return await read_counters(client)

    assert asyncio.run(read()) is None


def test_requests_that_stand_still_are_a_wedge():
    watch = ProgressWatch(limit=60)
    assert [watch.feed(busy(), now) for now in (0, 30, 60, 61)] == [False, False, False, True]


def test_an_idle_engine_is_never_wedged():
    watch = ProgressWatch(limit=60)
    assert not any(watch.feed(Counters(), now) for now in range(0, 1000, 50))


def test_a_long_prefill_moves_the_kv_gauge_and_is_no_wedge():
    watch = ProgressWatch(limit=60)
    readings = (busy(kv_usage=step / 1000) for step in range(20))
    assert not any(watch.feed(reading, 50.0 * step) for step, reading in enumerate(readings))


def test_a_request_to_an_engine_that_is_stuck_already_shows_only_in_the_load():
    watch = ProgressWatch(limit=60)
    watch.feed(Counters(), 0)
    stuck = Counters(in_flight=1)
    assert [watch.feed(stuck, now) for now in (10, 60, 100)] == [False, False, True]


def test_further_requests_that_arrive_are_no_progress():
    watch = ProgressWatch(limit=60)
    watch.feed(Counters(), 0)
    readings = [watch.feed(Counters(in_flight=n), 10 * n) for n in range(1, 9)]
    assert readings[-1] is True


def test_an_engine_without_an_answer_is_judged_like_one_that_stands_still():
    watch = ProgressWatch(limit=60)
    watch.feed(busy(), 0)
    assert [watch.feed(None, now) for now in (30, 61)] == [False, True]


def test_progress_after_a_pause_starts_the_clock_again():
    watch = ProgressWatch(limit=60)
    watch.feed(busy(generated_tokens=1), 0)
    watch.feed(busy(generated_tokens=2), 59)
    assert not watch.feed(busy(generated_tokens=2), 110)
