"""The stream: one look for all, the newest for each, and an end."""

import asyncio
import json
import threading

import pytest
from page.views import ready
from starlette.testclient import TestClient

from glm53ctl.page import stream as module
from glm53ctl.page.app import make_app
from glm53ctl.page.stream import MAX_CLIENTS, Stream


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.02)


class Pair:
    """A source that counts how often it is looked at; it can be made to hang."""

    def __init__(self) -> None:
        self.looks = 0
        self.free = threading.Event()
        self.free.set()

    def __call__(self):
        self.looks += 1
        assert self.free.wait(120)
        return ready(self.looks)


async def take(events, count):
    return [await anext(events) for _ in range(count)]


def data(event):
    name, text, *end = event.split("\n")
    assert end == ["", ""]
    return name.removeprefix("event: "), json.loads(text.removeprefix("data: "))


def play(scene):
    return asyncio.run(asyncio.wait_for(scene, 120))


def test_a_browser_first_hears_what_was_and_then_each_new_view():
    async def scene():
        stream = Stream(Pair())
        await stream.told()
        events = [data(event) for event in await take(stream.events(), 4)]
        assert [name for name, _ in events] == ["history", "view", "view", "view"]
        assert [point["at"] for point in events[0][1]] == [ready(1).at]
        seen = [told["view"]["at"] for _, told in events[1:]]
        assert seen == sorted(set(seen))
        assert events[-1][1]["point"]["decode"] > 0

    play(scene())


def test_ten_browsers_cost_one_look():
    async def scene():
        pair = Pair()
        pair.free.clear()
        stream = Stream(pair)
        browsers = [asyncio.create_task(take(stream.events(), 2)) for _ in range(10)]
        while not pair.looks:
            await asyncio.sleep(0)
        pair.free.set()
        told = {events[1] for events in await asyncio.gather(*browsers)}
        assert len(told) == 1
        assert pair.looks == 1

    play(scene())


def test_a_slow_browser_gets_the_newest_and_keeps_nobody_waiting():
    async def scene():
        stream = Stream(Pair())
        slow, quick = stream.events(), stream.events()
        await take(slow, 2)
        last = data((await take(quick, 30))[-1])[1]["view"]["at"]
        (next_of_slow,) = await take(slow, 1)
        assert data(next_of_slow)[1]["view"]["at"] >= last

    play(scene())


def test_a_long_look_sends_signs_of_life(monkeypatch):
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.01)

    async def scene():
        pair = Pair()
        pair.free.clear()
        events = Stream(pair).events()
        assert (await take(events, 3))[1:] == [": still looking\n\n"] * 2
        pair.free.set()

    play(scene())


def test_the_past_is_kept_for_ten_minutes_while_nobody_looks(monkeypatch):
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(module, "HISTORY_SECONDS", 3.0)  # each look of this pair is a second later

    async def scene():
        pair = Pair()
        stream = Stream(pair)
        watching = asyncio.create_task(stream.watch())
        while pair.looks < 9:
            await asyncio.sleep(0.005)
        stream.close()
        await watching
        assert 3 <= len(stream.history) <= 4

    play(scene())


def test_closing_ends_every_stream():
    async def scene():
        stream = Stream(Pair())
        async for event in stream.events():
            if event.startswith("event: view"):
                stream.close()

    play(scene())


def test_trouble_is_logged_once_until_it_is_over(caplog):
    moods = iter([False, False, True, False])

    def moody():
        if not next(moods):
            raise OSError
        return ready()

    async def scene():
        stream = Stream(moody)
        for _ in range(4):
            await stream.told()
            await asyncio.sleep(module.LOOK_SECONDS * 2)

    play(scene())
    assert caplog.text.count("cannot be looked at (OSError)") == 2


def test_more_browsers_than_fit_are_told_to_come_back():
    full = make_app(Stream(ready, clients=MAX_CLIENTS), {"testserver"})
    answer = TestClient(full).get("/events")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")


def test_a_clock_that_is_set_back_does_not_make_the_past_grow():
    async def scene():
        stream = Stream(Pair())
        for now in (*range(86_400, 86_410), *range(5_000)):
            stream._keep({"at": float(now)}, float(now))
        assert stream.history[0]["at"] >= 5_000 - module.HISTORY_SECONDS - 1
        for _ in range(5_000):  # a clock that stands still
            stream._keep({"at": 4_999.0}, 4_999.0)
        assert len(stream.history) <= module.HISTORY_SECONDS

    play(scene())
