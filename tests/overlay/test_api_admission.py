"""Who gets in: the key, the size of a body, the number of requests, the watchdog's word."""

import asyncio
import json
import time
from types import SimpleNamespace

import api_bed
import httpx
import pytest
from api_bed import CHAT, KEY, chat, error
from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware

from glm53_overlay.api.load import REPORT_FRESH_SECONDS, Load
from glm53_overlay.api.middleware import API_KEY, Middleware
from glm53_overlay.api.plugin import ENGINE_SECONDS, EndpointPlugin
from glm53_overlay.settings import ApiSettings

HANGS = 120
"""Seconds after which what is waited for does not come."""
ROUTES = ("/v1/models", "/metrics", "/load", "/version", "/tokenize", "/openapi.json", "/docs", "/")


@pytest.mark.parametrize("path", ROUTES)
def test_every_route_wants_the_key(path):
    bed = api_bed.make(KEY)
    assert bed.get(path).status_code == 200
    answer = bed.get(path, headers={"Authorization": ""})
    assert error(answer, 401)["code"] == "invalid_api_key"
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "sent",
    [
        "",
        KEY,
        f"Basic {KEY}",
        f"Bearer {KEY}x",
        "Bearer ",
        f"Bearer x{KEY}",
        f"Bearer  {KEY}",
        "Bearer \xfc",
    ],
)
def test_another_key_is_none(sent):
    bed = api_bed.make(KEY)
    error(bed.post(body=chat(), headers={"Authorization": sent.encode("latin-1")}), 401)
    assert bed.server.bodies == []


def test_health_and_preflights_want_none():
    bed = api_bed.make(KEY)
    bed.key = None
    assert bed.get("/health").status_code == 200
    asks = {"Origin": "http://a.example", "Access-Control-Request-Method": "POST"}
    assert options(bed, CHAT, headers=asks).status_code == 200
    error(bed.get("/healthz"), 401)
    error(bed.get("/health/"), 401)


def options(bed, path, **more):
    return asyncio.run(bed.asked(bed.request("OPTIONS", path, **more)))[0]


def test_only_a_preflight_is_one():
    bed = api_bed.make(KEY)
    bed.key = None
    for headers in ({}, {"Origin": "http://a.example"}, {"Access-Control-Request-Method": "GET"}):
        error(options(bed, "/metrics", headers=headers), 401)
    assert bed.server.bodies == []


@pytest.mark.parametrize(
    "path",
    ["/invocations", "/v1/chat/completions/batch", "/inference/v1/generate", "/pause", f"{CHAT}/"],
)
def test_ways_around_the_rules_are_closed(path):
    bed = api_bed.make()
    assert error(bed.post(path, chat()), 404)["code"] == "not_found"
    assert bed.server.bodies == []


def test_without_a_key_everybody_is_served():
    assert api_bed.make().get("/v1/models").status_code == 200


def test_a_browser_may_read_why_it_is_refused():
    """The middleware stands outside vLLM's, which tells browsers what they may read."""
    app = FastAPI()
    app.state.glm53_load = load = Load(most=1)
    app.state.args = SimpleNamespace(
        allowed_origins=["http://a.example"],
        allow_credentials=False,
        allowed_methods=["*"],
        allowed_headers=["*"],
    )
    app.add_middleware(CORSMiddleware, allow_origins=["http://a.example"])
    app.add_middleware(Middleware, settings=ApiSettings(body_mib=0.1), environ={API_KEY: KEY})

    async def asked(path=CHAT, origin="http://a.example", key=KEY, **body):
        headers = {"Authorization": f"Bearer {key}", **({"Origin": origin} if origin else {})}
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://bed"
        ) as client:
            return await client.post(path, headers=headers, json=chat(**body))

    def allowed(answer):
        return answer.headers.get("access-control-allow-origin")

    async def all_of_them():
        refused = [
            await asked(key="x"),
            await asked(extra_body={}),
            await asked("/v1/nowhere"),
            await asked(user="x" * 200_000),
            await asked("/v1/messages", seed=1),
        ]
        other, plain = await asked(origin="http://b.example", key="x"), await asked("", "", "x")
        load.active = 1
        return [*refused, await asked()], other, plain

    refused, other, plain = asyncio.run(all_of_them())
    assert [answer.status_code for answer in refused] == [401, 400, 404, 413, 400, 429]
    assert {allowed(answer) for answer in refused} == {"http://a.example"}
    assert refused[-1].headers["access-control-expose-headers"] == "Retry-After"
    assert refused[-1].headers["retry-after"]
    assert (other.status_code, allowed(other)) == (401, None)
    assert (plain.status_code, allowed(plain)) == (401, None)


def test_no_byte_of_a_stranger_is_read():
    bed = api_bed.make(KEY)

    async def receive():
        raise AssertionError("read")

    async def send(message):
        assert message.get("status", 401) == 401

    scope = {"type": "http", "method": "POST", "path": CHAT, "headers": []}
    asyncio.run(bed.app(scope, receive, send))


def test_a_websocket_wants_the_key():
    bed = api_bed.make(KEY)
    sent = []

    async def receive():
        return {"type": "websocket.connect"}

    async def send(message):
        sent.append(message)

    scope = {"type": "websocket", "path": "/v1/realtime", "headers": []}
    asyncio.run(bed.app(scope, receive, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]


@pytest.mark.parametrize("path", [CHAT, "/tokenize", "/v1/messages/count_tokens"])
@pytest.mark.parametrize("said", [b"99999999", b"9" * 5000, None])
def test_a_body_that_is_too_large_is_not_held(path, said):
    bed = api_bed.make(body_mib=0.5)
    read = 0

    async def receive():
        nonlocal read
        read += 1
        return {"type": "http.request", "body": b"x" * 100_000, "more_body": True}

    sent = []

    async def send(message):
        sent.append(message)

    headers = [(b"content-length", said)] if said else []
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
    asyncio.run(bed.app(scope, receive, send))
    assert sent[0]["status"] == 413
    assert json.loads(sent[1]["body"])["error"]["code"] == "body_too_large"
    # Then as much again, unseen: closed on bytes that come in, the client would see a reset.
    assert read == (6 if said else 12)
    assert sent[-1] == {"type": "http.response.body", "body": b""}
    load = bed.server.state.glm53_load
    assert (load.active, load.held) == (0, 0)


def posted(bed, receive, path=CHAT):
    """What is sent to a client whose messages come from `receive`."""
    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": []}
    asyncio.run(asyncio.wait_for(bed.app(scope, receive, send), HANGS))
    return sent


def test_who_is_turned_away_can_read_why_though_the_body_still_comes():
    """Not a stranger's, nor one that comes only when it is asked for."""
    left = []
    for headers in ([], [(b"expect", b"100-continue")]):
        bed = api_bed.make(load=Load(stopping=True))
        messages = [{"type": "http.request", "body": b"x", "more_body": n > 0} for n in range(3)]

        async def receive(messages=messages):
            return messages.pop()

        sent = []

        async def send(message, sent=sent):
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": CHAT, "headers": headers}
        asyncio.run(bed.app(scope, receive, send))
        assert sent[0]["status"] == 503
        assert not sent[-1].get("more_body", False)
        left.append(len(messages))
    assert left == [0, 3]


def test_a_body_that_pauses_gives_its_place_back(monkeypatch):
    monkeypatch.setattr("glm53_overlay.api.middleware.IDLE_SECONDS", 0.01)
    bed = api_bed.make(max_active=1)
    messages = [{"type": "http.request", "body": b"{", "more_body": True}]

    async def receive():
        return messages.pop() if messages else await asyncio.Event().wait()

    start, answer = posted(bed, receive)
    assert start["status"] == 408
    assert (b"connection", b"close") in start["headers"]
    assert json.loads(answer["body"])["error"]["code"] == "body_too_slow"
    load = bed.server.state.glm53_load
    assert (load.active, load.held) == (0, 0)


@pytest.mark.parametrize(("rate", "status"), [(1e-9, 200), (1e9, 408)])
def test_a_body_that_trickles_gives_its_place_back(monkeypatch, rate, status):
    monkeypatch.setattr("glm53_overlay.api.middleware.BODY_SECONDS", 0.0)
    monkeypatch.setattr("glm53_overlay.api.middleware.BODY_RATE", rate)
    bed = api_bed.make(max_active=1)
    raw = json.dumps(chat()).encode()
    left = list(raw)

    async def receive():
        if len(left) < len(raw):
            await asyncio.sleep(0.001)
        return {"type": "http.request", "body": bytes([left.pop(0)]), "more_body": bool(left)}

    start, answer = posted(bed, receive)[:2]
    assert start["status"] == status
    if status == 408:
        assert json.loads(answer["body"])["error"]["code"] == "body_too_slow"
    load = bed.server.state.glm53_load
    assert (load.active, load.held) == (0, 0)


@pytest.mark.parametrize("path", [CHAT, "/tokenize"])
def test_all_bodies_together_have_a_limit(path):
    bed = api_bed.make(load=Load(most_bytes=1000))
    assert bed.post(path, chat(user="x" * 800)).status_code == 200
    found = bed.post(path, chat(user="x" * 1000))
    assert error(found, 429)["code"] == "server_full"
    assert int(found.headers["retry-after"]) > 0
    assert bed.server.state.glm53_load.held == 0


def test_a_body_counts_as_long_as_its_request():
    bed = api_bed.make()
    load = bed.server.state.glm53_load

    async def watched():
        bed.server.gate = asyncio.Event()
        task = asyncio.create_task(bed.asked(bed.request("POST", CHAT, json=chat())))
        while not bed.server.bodies:
            await asyncio.sleep(0)
        during = load.held
        bed.server.gate.set()
        await task
        return during

    assert asyncio.run(asyncio.wait_for(watched(), HANGS)) > 40
    assert load.held == 0


def test_a_body_in_pieces_arrives_whole():
    bed = api_bed.make()
    raw = json.dumps(chat()).encode()
    pieces = [{"type": "http.request", "body": raw[i : i + 7]} for i in range(0, len(raw), 7)]
    messages = [{**piece, "more_body": True} for piece in pieces] + [{"type": "http.request"}]

    async def receive():
        return messages.pop(0)

    assert posted(bed, receive)[0]["status"] == 200
    assert bed.server.got == chat()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, chat(n=3)),
        ("/v1/completions", {"prompt": ["a", "b", "c"]}),
        ("/v1/completions", {"prompt": [[1], [2], [3]]}),
        ("/v1/completions", {"prompt": ["a"], "n": 3}),
        ("/v1/completions", {"prompt": ["a"] * 10**5, "n": 10**5}),
    ],
)
def test_every_reply_of_a_request_counts(path, body):
    found = error(api_bed.make(max_active=2).post(path, body), 400)
    assert found["code"] == "too_many_replies"
    if path == CHAT:
        busy = Load(most=4, active=2)
        assert error(api_bed.make(load=busy).post(path, body), 429)["code"] == "server_full"
        assert busy.active == 2
        assert api_bed.make(max_active=3).post(path, body).status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, chat(n=1)),
        ("/v1/completions", {"prompt": [1, 2, 3]}),
        ("/v1/completions", {"prompt": []}),
        ("/v1/completions", {"prompt": {"a": 1, "b": 2}, "n": 0}),
    ],
)
def test_one_reply_is_one(path, body):
    assert api_bed.make(max_active=1).post(path, body).status_code == 200


def test_a_full_server_says_when_to_come_back():
    bed = api_bed.make(max_active=2)

    async def crowd():
        bed.server.gate = asyncio.Event()
        asked = [
            asyncio.create_task(bed.asked(bed.request("POST", CHAT, json=chat()))) for _ in "ab"
        ]
        while bed.server.state.glm53_load.active < 2:
            await asyncio.sleep(0)
        refused = (await bed.asked(bed.request("POST", CHAT, json=chat())))[0]
        health = (await bed.asked(bed.request("GET", "/metrics")))[0]
        bed.server.gate.set()
        return refused, health, [(await task)[0] for task in asked]

    refused, health, served = asyncio.run(asyncio.wait_for(crowd(), HANGS))
    assert error(refused, 429)["code"] == "server_full"
    assert int(refused.headers["retry-after"]) > 0
    assert health.status_code == 200
    assert [one.status_code for one in served] == [200, 200]
    assert bed.post(body=chat()).status_code == 200


@pytest.mark.parametrize("raw", [b"{", b'{"extra_body": 1}'])
def test_refused_requests_leave_no_trace(raw):
    bed = api_bed.make(max_active=1)
    for _ in range(3):
        error(bed.post(content=raw), 400)
    assert bed.server.state.glm53_load.active == 0


def test_a_client_that_leaves_early_is_counted_out():
    bed = api_bed.make(max_active=1)

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        raise AssertionError(message)

    scope = {"type": "http", "method": "POST", "path": CHAT, "headers": []}
    asyncio.run(bed.app(scope, receive, send))
    assert bed.server.state.glm53_load.active == 0


def report(path, age=0.0, refuses=True):
    reason = {"reason": "memory is short", "retry_after_seconds": 30} if refuses else None
    path.write_text(json.dumps({"pid": 1, "beat": time.monotonic() - age, "refuses": reason}))
    return path


def test_new_work_is_refused_while_the_watchdog_says_so(tmp_path):
    path = report(tmp_path / "watchdog.json")
    bed = api_bed.make(load=Load(report=path))
    answer = bed.post(body=chat())
    found = error(answer, 503)
    assert found["code"] == "server_refuses"
    assert "memory is short" in found["message"]
    assert answer.headers["retry-after"] == "30"
    assert bed.get("/metrics").status_code == 200
    assert bed.post("/tokenize", {"prompt": "x"}).status_code == 200


def test_a_server_that_drains_takes_no_new_work():
    bed = api_bed.make(load=Load(stopping=True))
    answer = bed.post(body=chat())
    assert error(answer, 503)["code"] == "server_refuses"
    assert int(answer.headers["retry-after"]) > 0
    assert bed.server.bodies == []


class Engine:
    """Stand-in for vLLM's client of the engine: stops, and remembers how."""

    def __init__(self):
        self.stopped = []

    def shutdown(self, timeout=None):
        self.stopped.append(timeout)


def test_a_stop_waits_for_what_was_admitted_and_admits_no_more():
    """Else the engine, stopped already, answers it with status 200 and nothing."""
    bed, engine = api_bed.make(), Engine()

    async def stop():
        bed.server.gate = asyncio.Event()
        await EndpointPlugin().init_state(engine, bed.server.state, None)
        admitted = asyncio.create_task(bed.asked(bed.request("POST", CHAT, json=chat())))
        while not bed.server.state.glm53_load.active:
            await asyncio.sleep(0)
        stopping = asyncio.create_task(asyncio.to_thread(engine.shutdown, timeout=HANGS))
        while not bed.server.state.glm53_load.stopping:
            await asyncio.sleep(0)
        late = (await bed.asked(bed.request("POST", CHAT, json=chat())))[0]
        assert engine.stopped == []
        bed.server.gate.set()
        await stopping
        return late, (await admitted)[0]

    late, admitted = asyncio.run(asyncio.wait_for(stop(), HANGS))
    assert error(late, 503)["code"] == "server_refuses"
    assert admitted.status_code == 200
    assert 0 < engine.stopped[0] < HANGS


@pytest.mark.parametrize("timeout", [0.05, 0, None])
def test_a_reply_that_does_not_end_holds_a_stop_no_longer_than_it_may(timeout):
    load, engine = Load(active=1), Engine()

    async def stop():
        await EndpointPlugin().init_state(engine, SimpleNamespace(glm53_load=load), None)
        await asyncio.to_thread(engine.shutdown, timeout=timeout)

    asyncio.run(asyncio.wait_for(stop(), HANGS))
    assert engine.stopped == [timeout and ENGINE_SECONDS]
    assert load.stopping


def test_the_end_of_the_server_waits_for_nobody():
    """vLLM stops its client once more on the loop itself, where waiting would be for ever."""
    load, engine = Load(active=1), Engine()

    async def stop():
        await EndpointPlugin().init_state(engine, SimpleNamespace(glm53_load=load), None)
        engine.shutdown(timeout=20)

    asyncio.run(stop())
    assert engine.stopped == [20]


def test_the_watchdogs_word_is_looked_up_once_a_second(tmp_path):
    path = report(tmp_path / "watchdog.json")
    clock = [time.monotonic()]
    load = Load(report=path, now=lambda: clock[0])
    assert load.refusal() is not None
    report(path, refuses=False)
    assert load.refusal() is not None
    clock[0] += 1.1
    assert load.refusal() is None


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"refuses": 1, "beat": 1}', '{"refuses": {}, "beat": "x"}']
)
def test_what_is_no_report_keeps_nobody_out(tmp_path, content):
    path = tmp_path / "watchdog.json"
    assert Load(report=path).refusal() is None
    path.write_text(content)
    assert Load(report=path).refusal() is None


@pytest.mark.parametrize("age", [REPORT_FRESH_SECONDS + 1, -3600.0])
def test_a_dead_watchdog_keeps_nobody_out(tmp_path, age):
    assert Load(report=report(tmp_path / "watchdog.json", age)).refusal() is None


def test_a_server_without_our_plugin_does_not_start():
    bed = api_bed.make()
    del bed.server.state.glm53_load
    with pytest.raises(RuntimeError, match="glm53_api"):
        asyncio.run(bed.app({"type": "lifespan"}, None, None))
