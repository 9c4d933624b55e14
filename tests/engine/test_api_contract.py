"""The API as clients of both recipes know it, asked of a real pair: `make api-contract`.

One pair of two vLLM ranks on the CPU, started by the supervisors with the plan's command line: so
middleware, endpoint plugin and template are in vLLM as they are on the appliance. The model is the
demo's: it babbles, so what is asserted is form, limits and constraints, not sense.
"""

import base64
import json
import os
import subprocess
import textwrap
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from conftest import ServingPair
from fuzz_bodies import bodies
from waiting import wait_for

from glm53ctl.config.sources import load
from glm53ctl.supervise.local import LocalPair

KEY = "opensesame-0123456789"
WINDOW = 2048
READY_SECONDS = 400.0
FUZZED = int(os.environ.get("GLM53_FUZZ", "300"))
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
    wait_for(lambda: pair.snapshot().ready, "the pair to be ready", READY_SECONDS)
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
    made.settings |= {
        "serve": {"max_model_len": WINDOW, "max_num_seqs": 4, "default_max_tokens": 24},
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
        timeout=60,
        trust_env=False,
    ) as client:
        yield client


def body(text: str = "What keeps two ranks in step?", **more) -> dict:
    messages = [{"role": "user", "content": text}]
    return {"model": "GLM-5.3-Flash-EXL3", "messages": messages, **more}


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
    answer = api.get("/health")
    assert answer.status_code == 200
    health = answer.json()
    assert health.items() >= {("status", "ok"), ("busy", False), ("active_streams", 0)}
    assert health["pool_tokens"] >= WINDOW
    assert 0 < health["pool_free_tokens"] <= health["pool_tokens"]


def test_health_counts_a_stream(api):
    asked = body(max_tokens=400, stream=True, ignore_eos=True)
    with api.stream("POST", CHAT, json=asked) as stream:
        next(stream.iter_lines())
        health = api.get("/health").json()
    assert (health["busy"], health["active_streams"]) == (True, 1)


def test_metrics(api):
    assert "vllm:kv_cache_usage_perc" in api.get("/metrics").text


# --- key ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/v1/models", "/tokenize", "/v1/tokenize", "/metrics", "/load", "/version", "/docs"]
)
def test_every_route_but_health_wants_the_key(api, path):
    for key in ("", "Bearer wrong"):
        assert refused(api.get(path, headers={"Authorization": key}), 401)["code"]
    assert api.get("/health", headers={"Authorization": ""}).status_code == 200


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


@pytest.mark.parametrize(
    ("more", "code"),
    [
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


def test_a_stream_comes_event_by_event(api):
    asked = body(
        stream=True, max_tokens=40, stream_options={"include_usage": True}, ignore_eos=True
    )
    with api.stream("POST", CHAT, json=asked) as stream:
        chunks = list(stream.iter_raw())
    events = [
        line[6:] for line in b"".join(chunks).decode().split("\n") if line.startswith("data: ")
    ]
    assert len(chunks) > 20
    assert events[-1] == "[DONE]"
    parsed = [json.loads(event) for event in events[:-1]]
    assert parsed[-1]["usage"]["completion_tokens"] == 40
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


def test_a_named_tool_is_called(api):
    choice = {"type": "function", "function": {"name": "weather"}}
    more = {"tools": [WEATHER], "tool_choice": choice, "reasoning_effort": "none"}
    message = said(api, max_tokens=60, temperature=0, **more)
    (call,) = message["tool_calls"]
    assert call["function"]["name"] == "weather"


def test_a_forbidden_tool_is_not_called(api):
    asked = {"model": "GLM-5.3-Flash-EXL3", "prompt": "<tool_call>", "add_special_tokens": False}
    (opener,) = api.post("/tokenize", json=asked).json()["tokens"]
    pushed = {
        "tools": [WEATHER],
        "logit_bias": {str(opener): 100},
        "reasoning_effort": "none",
        "max_tokens": 3,
        "return_token_ids": True,
    }

    def tokens(**more):
        answer = api.post(CHAT, json=body(**pushed, **more))
        assert answer.status_code == 200, answer.text
        return answer.json()["choices"][0]["token_ids"]

    assert opener in tokens(tool_choice="auto")
    assert opener not in tokens(tool_choice="none")


# --- full, fuzzed, and through OpenAI's client ----------------------------------------------------


def test_a_full_server_says_when_to_come_back(api):
    asked = body(max_tokens=300, ignore_eos=True)
    with ThreadPoolExecutor(12) as crowd:
        answers = list(crowd.map(lambda _: api.post(CHAT, json=asked), range(12)))
    full = [answer for answer in answers if answer.status_code != 200]
    assert 12 - len(full) >= 6, [answer.status_code for answer in answers]
    for answer in full:
        assert refused(answer, 429)["code"] == "server_full"
        assert int(answer.headers["retry-after"]) > 0
    assert full, "twelve at once found room where six may be"
    assert api.get("/health").json()["active_streams"] == 0


ROUTES = (
    CHAT,
    "/v1/completions",
    "/v1/responses",
    "/v1/tokenize",
    "/v1/detokenize",
    "/v1/messages",
)


def test_fuzzed_bodies_are_the_clients_fault(api):
    seen: dict[int, int] = {}
    for number, raw in enumerate(bodies(FUZZED, "GLM-5.3-Flash-EXL3", seed=1)):
        path = ROUTES[number % len(ROUTES)]
        answer = api.post(path, content=raw, headers={"Content-Type": "application/json"})
        assert answer.status_code < 500, (path, raw, answer.text)
        seen[answer.status_code] = seen.get(answer.status_code, 0) + 1
    assert seen[200] > 0, seen
    assert seen[400] > 0, seen
    assert api.get("/health").json()["active_streams"] == 0


CLIENT = """
import json, sys
import openai
client = openai.OpenAI(base_url=sys.argv[1], api_key=sys.argv[2], max_retries=0)
model = client.models.list().data[0].id
ask = {"model": model, "messages": [{"role": "user", "content": "Hello?"}]}
quiet = client.chat.completions.create(**ask, reasoning_effort="none")
out = {"text": quiet.choices[0].message.content}
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
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    out = json.loads(done.stdout)
    assert out["text"]
    assert out["pieces"] > 3
    assert out["extra"] in ("left", "right")
    assert out["response"] in ("completed", "incomplete")
    assert out["code"] == "context_length_exceeded"
    assert out["key"] == "invalid_api_key"
