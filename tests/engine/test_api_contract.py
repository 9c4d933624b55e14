"""The API as clients of both recipes know it, asked of a real pair: `make api-contract`.

One pair of two vLLM ranks on the CPU, started by the supervisors with the plan's command line: so
middleware, endpoint plugin and template are in vLLM as they are on the appliance. The model is the
demo's: it babbles, so what is asserted is form, limits and constraints, not sense.
"""

import base64
import json
import os
import socket
import subprocess
import textwrap
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count

import httpx
import pytest
import schemathesis
from conftest import COMMAND_SECONDS, ServingPair
from fuzz_bodies import FIELDS, bodies
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance
from waiting import wait_for

from glm53ctl.config.sources import load
from glm53ctl.supervise.local import LocalPair

KEY = "opensesame-0123456789"
WINDOW = 2048
MODEL = "GLM-5.3-Flash-EXL3"
FUZZED = int(os.environ.get("GLM53_FUZZ", "5000"))
FUZZ_SEED = int(os.environ.get("GLM53_FUZZ_SEED", "1"))
ANSWER_SECONDS = 180.0
"""For one answer. A server that hangs never gives it; one on a busy machine does."""

MOST = 6
"""Replies at work or waiting that the pair's settings allow."""

CHAT = "/v1/chat/completions"
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Bern", "Oslo"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


SERVED = os.environ.get("GLM53_API")
"""A server with the settings of `pair` that is up already, instead of a pair of our own."""


@pytest.fixture(scope="module")
def url(request):
    if SERVED:
        return SERVED
    pair = request.getfixturevalue("pair")
    pair.until_ready()
    return f"http://127.0.0.1:{pair.config.api.port}"


@pytest.fixture(scope="module")
def pair(demo_files, tmp_path_factory):
    made = ServingPair(tmp_path_factory.mktemp("api"), demo_files)
    key_file = made.root / "key"
    key_file.write_text(KEY)
    made.settings["api"] |= {
        "key_file": str(key_file),
        "reasoning_field": "both",
        "deterministic": True,
        "max_waiting": 2,
        "body_mib": 4,
    }
    # A supervisor that is held up for seconds is no loss here, and no connection is closed from
    # under a client's next request.
    made.settings["link"]["closed_grace_seconds"] = 60
    made.settings["engine"]["extra_env"] = {"VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "600"}
    made.settings |= {
        "serve": {
            "max_model_len": WINDOW,
            "max_num_seqs": 4,
            "default_max_tokens": 24,
            "drain_seconds": 600,  # the last test's stream, on a busy machine
        },
        "thinking": {"template": "appliance"},
        # The recorded answer is that to another template.
        "canary": {"prompt": "Hello?", "expect": "", "max_tokens": 4},
    }
    made.path = made.write("config.yaml")
    made.config = load(made.path).config
    made.pair = LocalPair(made.config, ["--config", str(made.path)])
    for rank in (0, 1):
        made.start_rank(rank)
    made.tend()
    yield made
    assert made.close() == 0, "processes were left behind"


@pytest.fixture(scope="module")
def api(url):
    with httpx.Client(
        base_url=url,
        headers={"Authorization": f"Bearer {KEY}"},
        timeout=ANSWER_SECONDS,
        trust_env=False,
    ) as client:
        yield client


def body(text: str = "What keeps two ranks in step?", **more) -> dict:
    messages = [{"role": "user", "content": text}]
    return {"model": "GLM-5.3-Flash-EXL3", "messages": messages, **more}


def until_idle(api) -> None:
    """The engine's gauges lag by a step, and a place is given back after the last byte."""
    wait_for(lambda: not api.get("/health").json()["busy"], "no reply to be under way")


def said(api, **more) -> dict:
    """The first choice's message."""
    answer = api.post(CHAT, json=body(**more))
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["message"]


def refused(answer, status: int = 400) -> dict:
    assert answer.status_code == status, answer.text
    return answer.json()["error"]


# --- routes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_tokenize_and_back(api, prefix):
    asked = {"model": "GLM-5.3-Flash-EXL3", "prompt": "two ranks"}
    answer = api.post(f"{prefix}/tokenize", json=asked)
    assert answer.status_code == 200, answer.text
    assert answer.json()["count"] == len(answer.json()["tokens"]) > 0
    assert answer.json()["max_model_len"] == WINDOW
    back = api.post(f"{prefix}/detokenize", json={"tokens": answer.json()["tokens"]})
    assert back.json()["prompt"].endswith("two ranks")
    assert api.post(f"{prefix}/tokenize", json={}).status_code == 400


def test_tokenize_takes_a_conversation_with_our_template(api):
    tokens = api.post("/v1/tokenize", json=body()).json()["tokens"]
    text = api.post("/v1/detokenize", json={"tokens": tokens}).json()["prompt"]
    assert "Reasoning Effort: Max" in text
    assert text.endswith("<think>")


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/completions", {"prompt": "two"}),
        ("/v1/responses", {"input": "two", "max_output_tokens": 4}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "two"}], "max_tokens": 4}),
        ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "two"}]}),
    ],
)
def test_the_other_ways_to_ask(api, path, asked):
    answer = api.post(path, json={"model": "GLM-5.3-Flash-EXL3", **asked})
    assert answer.status_code == 200, answer.text


def test_models_and_an_unknown_one(api):
    (model,) = api.get("/v1/models").json()["data"]
    assert (model["id"], model["max_model_len"]) == ("GLM-5.3-Flash-EXL3", WINDOW)
    assert api.post(CHAT, json={**body(), "model": "other"}).status_code == 404


def test_health_says_what_the_pool_has(api):
    until_idle(api)
    answer = api.get("/health")
    assert answer.status_code == 200
    health = answer.json()
    assert health.items() >= {("status", "ok"), ("busy", False), ("active_streams", 0)}
    assert health["pool_tokens"] >= WINDOW
    assert 0 < health["pool_free_tokens"] <= health["pool_tokens"]


def test_health_counts_a_stream(api):
    """A server that was held up can say a whole reply at once: then it is asked again."""
    asked = body(max_tokens=1800, stream=True, ignore_eos=True)

    def counted() -> bool:
        until_idle(api)
        with api.stream("POST", CHAT, json=asked) as stream:
            next(stream.iter_lines())
            health = api.get("/health").json()
        return (health["busy"], health["active_streams"]) == (True, 1)

    wait_for(counted, "a stream that is counted")


def test_metrics(api):
    assert "vllm:kv_cache_usage_perc" in api.get("/metrics").text


# --- key ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models",
        "/tokenize",
        "/v1/tokenize",
        "/metrics",
        "/load",
        "/version",
        "/docs",
        "/openapi.json",
    ],
)
def test_every_route_but_health_wants_the_key(api, path):
    for key in ("", "Bearer wrong"):
        assert refused(api.get(path, headers={"Authorization": key}), 401)["code"]
        assert refused(api.options(path, headers={"Authorization": key}), 401)
    assert api.get("/health", headers={"Authorization": ""}).status_code == 200


def test_a_browser_is_told_without_a_key_that_it_may_not_ask(api):
    asks = {"Origin": "http://a.example", "Access-Control-Request-Method": "POST"}
    answer = api.options(CHAT, headers={"Authorization": "", **asks})
    assert (answer.status_code, answer.text) == (400, "Disallowed CORS origin")


@pytest.mark.parametrize("path", ["/invocations", "/v1/chat/completions/batch", "/pause"])
def test_ways_around_the_rules_are_closed(api, path):
    assert refused(api.post(path, json=body()), 404)["code"] == "not_found"


# --- refused, never ignored -----------------------------------------------------------------------


def test_a_prompt_beyond_the_window(api):
    found = refused(api.post(CHAT, json=body("word " * 4000)))
    assert found["code"] == "context_length_exceeded"


def test_prompt_and_reply_beyond_the_window(api):
    long = "word " * 100
    count = api.post("/tokenize", json=body(long)).json()["count"]
    fits = WINDOW - count
    asked = {"stop_token_ids": list(range(500)), "ignore_eos": False}
    assert api.post(CHAT, json=body(long, max_tokens=fits, **asked)).status_code == 200
    found = refused(api.post(CHAT, json=body(long, max_tokens=fits + 1)))
    assert found["code"] == "context_length_exceeded"
    assert str(WINDOW + 1) in found["message"]


def test_the_window_on_the_other_routes(api):
    long = "word " * 4000
    for asked in ({"input": long}, {"input": "two", "max_output_tokens": WINDOW}):
        found = refused(api.post("/v1/responses", json={"model": MODEL, **asked}))
        assert found["code"] == "context_length_exceeded"
    found = refused(api.post("/v1/completions", json={"model": MODEL, "prompt": long}))
    assert found["code"] == "context_length_exceeded"
    messages = [{"role": "user", "content": "two"}]
    asked = {"model": MODEL, "messages": messages, "max_tokens": WINDOW}
    assert refused(api.post("/v1/messages", json=asked))["code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"n": MOST + 1}, "too_many_replies"),
        ({"extra_body": {"chat_template_kwargs": {}}}, "REQ_EXTRA_BODY"),
        ({"chat_template_kwargs": "{}"}, "REQ_KWARGS_NOT_OBJECT"),
        ({"reasoning_effort": "huge"}, "REQ_EFFORT"),
        ({"guided_regex": "a", "guided_json": {}}, "REQ_GUIDED"),
    ],
)
def test_fields_that_would_be_ignored(api, more, code):
    assert refused(api.post(CHAT, json=body(**more)))["code"] == code


def test_media_where_none_are_served(api):
    url = "data:image/png;base64," + base64.b64encode(b"x").decode()
    for source in (url, "https://example.com/a.png", "http://169.254.169.254/"):
        part = {"type": "image_url", "image_url": {"url": source}}
        messages = [{"role": "user", "content": [part]}]
        assert refused(api.post(CHAT, json={**body(), "messages": messages}))["code"].startswith(
            "media_"
        )


def test_a_body_that_is_too_large(api):
    assert refused(api.post(CHAT, json=body("x" * (5 << 20))), 413)["code"] == "body_too_large"


# --- what a request says is done ------------------------------------------------------------------


def rendered(api, **more) -> str:
    """The prompt as the engine gets it: the ids that the completion echoes, as text."""
    asked = body(max_tokens=1, return_token_ids=True, **more)
    answer = api.post(CHAT, json=asked)
    assert answer.status_code == 200, answer.text
    tokens = answer.json()["prompt_token_ids"]
    return api.post("/detokenize", json={"tokens": tokens}).json()["prompt"]


@pytest.mark.parametrize(
    ("effort", "header"),
    [("low", "Low"), ("high", "High"), ("max", "Max"), ("medium", "High"), ("minimal", "Low")],
)
def test_an_effort_reaches_the_prompt(api, effort, header):
    prompt = rendered(api, reasoning_effort=effort)
    assert f"Reasoning Effort: {header}" in prompt
    assert prompt.endswith("<think>")


@pytest.mark.parametrize(
    "more",
    [
        {"reasoning_effort": "none"},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"chat_template_kwargs": {"thinking": False}},
        {"chat_template_kwargs": {"reasoning_effort": "none"}},
    ],
)
def test_thinking_off_is_off(api, more):
    assert rendered(api, **more).endswith("<think></think>")
    message = said(api, **more)
    assert message["content"]
    assert not message.get("reasoning")


def test_thoughts_stand_under_both_names(api):
    message = said(api)
    assert message["reasoning"]
    assert message["reasoning_content"] == message["reasoning"]


def events(stream) -> list[str]:
    """What a stream says, `[DONE]` at its end included."""
    return [line[6:] for line in stream.iter_lines() if line.startswith("data: ")]


def test_a_stream_comes_event_by_event(api):
    """What a server that was held up had to say meanwhile is one event: then it is asked again."""
    asked = body(
        stream=True, max_tokens=400, stream_options={"include_usage": True}, ignore_eos=True
    )

    def in_pieces() -> list[bytes] | None:
        with api.stream("POST", CHAT, json=asked) as stream:
            chunks = list(stream.iter_raw())
        return chunks if len(chunks) > 20 else None

    chunks = wait_for(in_pieces, "a stream in pieces")
    events = [
        line[6:] for line in b"".join(chunks).decode().split("\n") if line.startswith("data: ")
    ]
    assert events[-1] == "[DONE]"
    parsed = [json.loads(event) for event in events[:-1]]
    assert parsed[-1]["usage"]["completion_tokens"] == 400
    deltas = [choice["delta"] for event in parsed for choice in event["choices"]]
    thoughts = [delta["reasoning"] for delta in deltas if delta.get("reasoning")]
    assert thoughts
    assert thoughts == [d["reasoning_content"] for d in deltas if d.get("reasoning_content")]


def test_the_same_request_has_the_same_answer(api):
    once, again = (said(api, temperature=1.0) for _ in range(2))
    assert once == again
    assert said(api, temperature=1.0, seed=7) != once


def test_the_default_length(api):
    answer = api.post(CHAT, json=body(ignore_eos=True)).json()
    assert answer["usage"]["completion_tokens"] == 24


@pytest.mark.parametrize(
    ("more", "allowed"),
    [
        ({"guided_choice": ["left", "right"]}, {"left", "right"}),
        ({"guided_regex": "(7|8)9"}, {"79", "89"}),
        ({"guided_grammar": 'root ::= "up" | "down"'}, {"up", "down"}),
        ({"structured_outputs": {"choice": ["left", "right"]}}, {"left", "right"}),
    ],
)
def test_constraints_hold(api, more, allowed):
    message = said(api, reasoning_effort="none", max_tokens=12, temperature=0, **more)
    assert message["content"] in allowed


def test_guided_json_holds(api):
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Bern", "Oslo"]}},
        "required": ["city"],
        "additionalProperties": False,
    }
    wanted = {"guided_json": schema, "guided_whitespace_pattern": ""}
    message = said(api, reasoning_effort="none", max_tokens=40, temperature=0, **wanted)
    assert json.loads(message["content"])["city"] in ("Bern", "Oslo")


@pytest.mark.parametrize("kind", ["json_object", "json_schema"])
def test_the_response_format_holds(api, kind):
    schema = WEATHER["function"]["parameters"]
    asked = {"type": kind, "json_schema": {"name": "w", "schema": schema, "strict": True}}
    if kind == "json_object":
        del asked["json_schema"]
    more = {"reasoning_effort": "none", "max_tokens": 200, "temperature": 0}
    answer = api.post(CHAT, json=body(response_format=asked, **more)).json()
    (choice,) = answer["choices"]
    assert choice["message"]["content"].lstrip().startswith("{")
    if choice["finish_reason"] == "stop":  # a model that babbles may fill it with blanks
        json.loads(choice["message"]["content"])


def test_a_named_tool_is_called(api):
    choice = {"type": "function", "function": {"name": "weather"}}
    more = {"tools": [WEATHER], "tool_choice": choice, "reasoning_effort": "none"}
    message = said(api, max_tokens=60, temperature=0, **more)
    (call,) = message["tool_calls"]
    assert call["function"]["name"] == "weather"


def opener(api) -> int:
    """The token that opens a call."""
    asked = {"model": MODEL, "prompt": "<tool_call>", "add_special_tokens": False}
    (token,) = api.post("/tokenize", json=asked).json()["tokens"]
    return token


def test_a_call_comes_in_pieces(api):
    choice = {"type": "function", "function": {"name": "weather"}}
    more = {"tools": [WEATHER], "tool_choice": choice, "reasoning_effort": "none"}
    # A model that babbles spells the opening tag in letters, which only the whole answer's parser
    # takes for one; a trained one uses the token.
    more["logit_bias"] = {str(opener(api)): 100}
    asked = body(stream=True, max_tokens=60, temperature=0, **more)
    with api.stream("POST", CHAT, json=asked) as stream:
        parsed = [json.loads(event) for event in events(stream) if event != "[DONE]"]
    calls = [
        call for event in parsed for call in event["choices"][0]["delta"].get("tool_calls", [])
    ]
    functions = [call["function"] for call in calls]
    assert [name for one in functions if (name := one.get("name"))] == ["weather"]
    assert len("".join(one.get("arguments") or "" for one in functions)) > 0


def test_a_forbidden_tool_is_not_called(api):
    token = opener(api)
    pushed = {
        "tools": [WEATHER],
        "logit_bias": {str(token): 100},
        "reasoning_effort": "none",
        "max_tokens": 3,
        "return_token_ids": True,
    }

    def tokens(**more):
        answer = api.post(CHAT, json=body(**pushed, **more))
        assert answer.status_code == 200, answer.text
        return answer.json()["choices"][0]["token_ids"]

    assert token in tokens(tool_choice="auto")
    assert token not in tokens(tool_choice="none")


# --- full, fuzzed, and through OpenAI's client ----------------------------------------------------


def test_a_full_server_says_when_to_come_back(api):
    """Clients that were held up may come one after the other: then they come again."""
    asked = body(max_tokens=300, ignore_eos=True)

    def turned_away() -> list[httpx.Response]:
        until_idle(api)
        with ThreadPoolExecutor(12) as crowd:
            answers = list(crowd.map(lambda _: api.post(CHAT, json=asked), range(12)))
        full = [answer for answer in answers if answer.status_code != 200]
        assert 12 - len(full) >= MOST, [answer.status_code for answer in answers]
        return full

    for answer in wait_for(turned_away, "twelve at once to be too many where six may be"):
        assert refused(answer, 429)["code"] == "server_full"
        assert int(answer.headers["retry-after"]) > 0
    until_idle(api)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_gives_its_place_back(api, stream):
    asked = body(max_tokens=1500, stream=stream, ignore_eos=True)
    for _ in range(MOST + 2):
        if stream:
            with api.stream("POST", CHAT, json=asked) as answer:
                assert answer.status_code == 200
                next(answer.iter_lines())
        else:
            with suppress(httpx.ReadTimeout):  # a client that was held up finds its answer there
                answer = api.post(CHAT, json=asked, timeout=httpx.Timeout(ANSWER_SECONDS, read=0.3))
                assert answer.status_code == 200, answer.text
        until_idle(api)
    wait_for(lambda: api.post(CHAT, json=body()).status_code == 200, "a place")


def test_32_streams_at_once_are_served_or_told_to_come_back(api):
    asked = body(max_tokens=40, stream=True, ignore_eos=True)

    def served(_) -> bool:
        with api.stream("POST", CHAT, json=asked) as answer:
            if answer.status_code == 200:
                said = events(answer)
                assert said[-1] == "[DONE]"
                assert json.loads(said[-2])["choices"][0]["finish_reason"] == "length"
                return True
            assert int(answer.headers["retry-after"]) > 0
            answer.read()
            return refused(answer, 429)["code"] != "server_full"

    until_idle(api)
    with ThreadPoolExecutor(32) as crowd:
        found = list(crowd.map(served, range(32)))
    assert sum(found) >= MOST
    until_idle(api)


# --- what no client library sends -----------------------------------------------------------------


def spoken(url: str, head: str, content: bytes, *, hang_up: bool = False) -> int:
    """The status that a server answers to these bytes; 0 if it only closes the connection."""
    host, _, port = url.removeprefix("http://").partition(":")
    common = f"POST {CHAT} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
    with socket.create_connection((host, int(port)), 10) as link:
        link.settimeout(ANSWER_SECONDS)
        link.sendall((common + head.replace("\n", "\r\n") + "\r\n\r\n").encode() + content)
        if hang_up:
            link.shutdown(socket.SHUT_WR)
        said = b""
        while not said.endswith(b"\r\n") and (piece := link.recv(4096)):
            said += piece
    return int(said.split()[1]) if said else 0


JSON = f"Authorization: Bearer {KEY}\nContent-Type: application/json"


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)


ASK = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}).encode()


@pytest.mark.parametrize(
    ("head", "content", "statuses"),
    [
        (f"aUTHORIZATION: bEARER {KEY}\ncontent-TYPE: application/json", ASK, {200}),
        (JSON, b"\xef\xbb\xbf" + ASK, {200}),
        (JSON, ASK[:-1] + b"," + ASK[1:], {200}),
        (JSON, ASK.decode().encode("utf-16"), {400}),
        (JSON, ASK.replace(b'"hi"', b'"\xed\xa0\x80"'), {400}),
        (JSON, ASK.replace(b'"hi"', b'"\xff"'), {400}),
        (JSON, ASK.replace(b'"hi"', b"NaN"), {400}),
        (JSON, b"", {400}),
        (JSON.replace("application/json", "text/plain"), ASK, {400, 415}),
        (f"{JSON}\nAuthorization: Bearer x", ASK, {200, 400, 401}),
    ],
)
def test_odd_bodies(url, head, content, statuses):
    assert spoken(url, f"{head}\nContent-Length: {len(content)}", content) in statuses


SHOWN = {
    "type": "tool_result",
    "tool_use_id": "a",
    "content": [{"type": "image", "source": "x"}],
}


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/messages", {"messages": [{"role": "user", "content": [SHOWN]}], "max_tokens": 4}),
        (CHAT, {**body(), "vllm_xargs": {"kv_transfer_params": "x"}}),
        ("/v1/completions", {"prompt": "hi", "vllm_xargs": {"kv_transfer_params": "x"}}),
        ("/v1/responses", {"input": "hi", "vllm_xargs": {"kv_transfer_params": "x"}}),
    ],
)
def test_odd_bodies_that_vllm_fails_on(api, path, asked):
    assert api.post(path, json={"model": MODEL, **asked}).status_code == 400


@pytest.mark.parametrize(
    ("head", "content", "hang_up", "statuses"),
    [
        ("Transfer-Encoding: chunked", chunked(ASK[:9], ASK[9:], b""), False, {200}),
        ("Transfer-Encoding: chunked", chunked(ASK), True, {0, 400}),
        ("Transfer-Encoding: chunked", b"zz\r\n" + ASK, False, {0, 400}),
        ("Transfer-Encoding: chunked", chunked(*[b"x" * (1 << 20)] * 5, b""), False, {413}),
        (f"Content-Length: {len(ASK) + 9}", ASK, True, {0, 400}),
        (f"Content-Length: {len(ASK) - 9}", ASK, False, {0, 400}),
        ("Content-Length: 99999999999", ASK, False, {413}),
        (f"Content-Length: {'9' * 5000}", ASK, False, {0, 400, 413}),
        ("Content-Length: -1", ASK, False, {0, 400}),
        ("Content-Length: 5\nContent-Length: 6", ASK, False, {0, 400}),
    ],
)
def test_lengths_that_are_not_so(api, url, head, content, hang_up, statuses):
    assert spoken(url, f"{JSON}\n{head}", content, hang_up=hang_up) in statuses
    until_idle(api)


ROUTES = (
    CHAT,
    "/v1/completions",
    "/v1/responses",
    "/v1/tokenize",
    "/v1/detokenize",
    "/v1/messages",
)


@pytest.fixture(scope="module")
def document(api) -> dict:
    answer = api.get("/openapi.json")
    assert answer.status_code == 200
    return answer.json()


def fields(document: dict) -> list[str]:
    """All fields that a body may have, as the server names them, and those it was known by."""
    named = {
        name
        for kind, schema in document["components"]["schemas"].items()
        if kind.endswith("Request")
        for name in schema.get("properties", ())
    }
    assert "chat_template_kwargs" in named
    return sorted(named | set(FIELDS))


def fault(answer: httpx.Response) -> bool:
    """Say whether the server takes the blame, in its status or within a stream."""
    if answer.status_code >= 500:
        return True
    if not answer.headers["content-type"].startswith("text/event-stream"):
        return False
    lines = [line for line in answer.text.split("\n") if '"error"' in line]
    errors = [json.loads(line.removeprefix("data: ")).get("error") for line in lines]
    return any(isinstance(one, dict) and str(one.get("code"))[:1] == "5" for one in errors)


@pytest.mark.timeout(3600)
def test_fuzzed_bodies_are_the_clients_fault(api, document):
    def asked(number: int, raw: bytes) -> int:
        path = ROUTES[number % len(ROUTES)]
        headers = {"Content-Type": "application/json"}
        answer = api.post(path, content=raw, headers=headers)
        assert not fault(answer), (path, raw[:2000], answer.text[:2000])
        return answer.status_code

    made = bodies(FUZZED, MODEL, FUZZ_SEED, fields(document))
    with ThreadPoolExecutor(4) as crowd:
        seen = Counter(crowd.map(asked, count(), made))
    print(f"fuzzed, seed {FUZZ_SEED}: {dict(sorted(seen.items()))}")
    assert seen.total() == FUZZED
    assert min(seen[200], seen[400]) > FUZZED / 20, seen
    until_idle(api)


def test_the_document_describes_what_is_served(document):
    paths = document["paths"]
    assert "/invocations" not in paths
    assert set(paths[CHAT]["post"]["responses"]) >= {"200", "400", "401", "413", "429", "503"}
    assert all("422" not in one["responses"] for item in paths.values() for one in item.values())
    assert "security" not in paths["/health"]["get"]
    assert all("security" in one for one in paths["/v1/models"].values())


ADDED = ("/tokenize", "/detokenize", "/v1/tokenize", "/v1/detokenize")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("mode", "method", "path"),
    [(GenerationMode.POSITIVE, "GET", "/health")]  # which takes nothing that could be wrong
    + [(mode, "POST", path) for mode in GenerationMode for path in ADDED],
)
def test_our_routes_are_as_the_document_says(url, document, mode, method, path):
    operation = schemathesis.openapi.from_dict(document)[path][method]

    @settings(
        max_examples=100,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def asked(case):
        case.call_and_validate(
            base_url=url,
            headers={"Authorization": f"Bearer {KEY}"},
            # A schema cannot say that a conversation fits the template, nor numbers 64 bits.
            excluded_checks=[positive_data_acceptance],
            timeout=ANSWER_SECONDS,
        )

    asked()


CLIENT = """
import json, sys
import openai
client = openai.OpenAI(base_url=sys.argv[1], api_key=sys.argv[2], max_retries=0)
model = client.models.list().data[0].id
ask = {"model": model, "messages": [{"role": "user", "content": "Hello?"}]}
quiet = client.chat.completions.create(**ask, reasoning_effort="none")
out = {"text": quiet.choices[0].message.content}
tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object",
    "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}}}
call = client.chat.completions.create(**ask, tools=[tool], max_tokens=60, temperature=0,
    tool_choice={"type": "function", "function": {"name": "f"}}, reasoning_effort="none")
out["tool"] = call.choices[0].message.tool_calls[0].function.name
stream = client.chat.completions.create(**ask, stream=True, max_tokens=8)
out["pieces"] = sum(1 for chunk in stream if chunk.choices)
out["extra"] = client.chat.completions.create(
    **ask, temperature=0, extra_body={"guided_choice": ["left", "right"],
    "chat_template_kwargs": {"enable_thinking": False}}).choices[0].message.content
out["response"] = client.responses.create(model=model, input="Hello?", max_output_tokens=4).status
try:
    client.chat.completions.create(**ask, max_tokens=5000)
except openai.BadRequestError as error:
    out["code"] = error.code
try:
    openai.OpenAI(base_url=sys.argv[1], api_key="x", max_retries=0).models.list()
except openai.AuthenticationError as error:
    out["key"] = error.code
print(json.dumps(out))
"""


def test_openais_own_client(api, url, engine_prefix):
    done = subprocess.run(
        [
            str(engine_prefix / "bin/python"),
            "-c",
            textwrap.dedent(CLIENT),
            f"{url}/v1",
            KEY,
        ],
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    out = json.loads(done.stdout)
    assert out["text"]
    assert out["tool"] == "f"
    assert out["pieces"] > 1  # whose turn it is comes on its own, all else may come at once
    assert out["extra"] in ("left", "right")
    assert out["response"] in ("completed", "incomplete")
    assert out["code"] == "context_length_exceeded"
    assert out["key"] == "invalid_api_key"


# --- the last: it stops the pair ------------------------------------------------------------------


@contextmanager
def unfinished(api, url: str):
    """The connection of a request that has its place and whose body is still to come."""
    until_idle(api)
    host, _, port = url.removeprefix("http://").partition(":")
    head = f"POST {CHAT} HTTP/1.1\nHost: {host}\nConnection: close\nTransfer-Encoding: chunked"
    with socket.create_connection((host, int(port)), 10) as link:
        link.settimeout(ANSWER_SECONDS)
        link.sendall(f"{head}\n{JSON}\n\n".replace("\n", "\r\n").encode())
        wait_for(lambda: api.get("/health").json()["active_streams"], "its place")
        yield link


def test_a_stop_lets_replies_finish_and_begins_none(api, url, request):
    """The unfinished request holds the stop up, however fast the stream and slow the supervisors.

    It goes on by a blank at a time, as one that pauses for long would lose its place.
    """
    if SERVED:
        pytest.skip("the server is not ours to stop")
    pair = request.getfixturevalue("pair")
    asked = body(max_tokens=1800, stream=True, ignore_eos=True)
    with (
        ThreadPoolExecutor(2) as stopping,
        unfinished(api, url) as late,
        api.stream("POST", CHAT, json=asked) as stream,
    ):
        lines = stream.iter_lines()
        next(lines)
        stopped = stopping.submit(pair.close)

        def turned_away():
            late.sendall(chunked(b" "))
            answer = api.post(CHAT, json=body(max_tokens=1))
            if answer.status_code == 200:
                assert answer.json()["choices"][0]["finish_reason"] != "abort"
                return None
            return answer

        found = wait_for(turned_away, "new work to be refused")
        assert refused(found, 503)["code"] == "server_refuses"
        assert int(found.headers["retry-after"]) > 0
        late.sendall(chunked(ASK, b""))
        head, _, answer = b"".join(iter(lambda: late.recv(4096), b"")).partition(b"\r\n\r\n")
        assert head.split()[1] == b"200", answer
        assert json.loads(answer)["choices"][0]["finish_reason"] in ("length", "stop")
        said = [line[6:] for line in lines if line.startswith("data: ")]
        assert said[-1] == "[DONE]"
        assert json.loads(said[-2])["choices"][0]["finish_reason"] == "length"
        assert stopped.result() == 0
