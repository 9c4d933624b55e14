"""Answers: errors that clients know, thoughts under the wanted name, streams as they come."""

import asyncio
import json

import api_bed
import pytest
from api_bed import CHAT, chat, error

from glm53_overlay.api import window
from glm53_overlay.api.answers import Events, rename
from glm53_overlay.api.refusal import RefusedError

VLLM_SAYS = [
    "This model's maximum context length is 256 tokens. However, your prompt contains 300 input "
    "tokens, which exceeds this limit even without any output tokens.",
    "Input length (300) exceeds model's maximum context length (256).",
]


def refusal(message):
    body = {"message": message, "type": "BadRequestError", "param": "input_tokens", "code": 400}
    return 400, {"error": body}


@pytest.mark.parametrize("message", VLLM_SAYS)
def test_a_prompt_beyond_the_window_has_openais_code(message):
    bed = api_bed.make(window=256)
    bed.server.answers[CHAT] = refusal(message)
    found = error(bed.post(body=chat()), 400)
    assert found["code"] == "context_length_exceeded"
    assert found["type"] == "invalid_request_error"
    assert found["message"] == message


@pytest.mark.parametrize(
    "message", ["The model `max_model_len` does not exist.", "Bad role: maximum context length"]
)
def test_what_an_error_quotes_is_no_error(message):
    bed = api_bed.make(window=256)
    bed.server.answers[CHAT] = refusal(message)
    assert bed.post(body=chat()).json() == refusal(message)[1]


def test_other_errors_stay_vllms():
    bed = api_bed.make(window=256)
    bed.server.answers[CHAT] = refusal("temperature must be non-negative.")
    assert bed.post(body=chat()).json() == bed.server.answers[CHAT][1]


def test_the_anthropic_route_keeps_its_own_errors():
    bed = api_bed.make(window=256)
    bed.server.answers["/v1/messages"] = refusal(VLLM_SAYS[0])
    assert bed.post("/v1/messages", chat()).json() == bed.server.answers["/v1/messages"][1]


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens", "/v1/messages/x"])
def test_the_anthropic_routes_refuse_in_their_own_form(path):
    bed = api_bed.make("key")
    answer = bed.post(path, content=b"{", headers={"Authorization": "Bearer other"})
    assert answer.status_code == 401
    assert int(answer.headers["content-length"]) == len(answer.content)
    found = answer.json()
    assert (found["type"], found["error"]["type"]) == ("error", "authentication_error")
    assert found["error"]["code"] == "invalid_api_key"
    assert found["error"]["message"]
    assert "type" not in bed.post(CHAT, content=b"{").json()
    assert "type" not in bed.post("/v1/messagesx", content=b"{").json()


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (404, "not_found_error"),
        (408, "invalid_request_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (503, "overloaded_error"),
    ],
)
def test_a_status_has_anthropics_word(status, word):
    """As `translate_error_type` of vLLM 0.33 (entrypoints/anthropic/protocol.py)."""
    refusal = RefusedError(status, "code", "No.")
    assert json.loads(refusal.body("/v1/messages"))["error"]["type"] == word


def tokenized(count, **more):
    bed = api_bed.make(window=1000)
    bed.server.answers["/tokenize"] = (200, {"count": count})
    return bed, bed.post(body=chat(**more))


@pytest.mark.parametrize(
    ("path", "name", "prompt"),
    [
        (CHAT, "max_tokens", "messages"),
        ("/v1/completions", "max_tokens", "prompt"),
        ("/v1/responses", "max_output_tokens", "input"),
        ("/v1/messages", "max_tokens", "messages"),
    ],
)
def test_a_refusal_says_only_what_was_counted_and_where_to_shorten(path, name, prompt):
    bed = api_bed.make(window=1000)
    found = error(bed.post(path, {prompt: [], name: 1000}), 400)
    assert found["param"] == prompt
    assert "You asked for a reply of 1000 tokens." in found["message"]
    assert "in the prompt" not in found["message"]
    if path != "/v1/messages":
        bed.server.answers[path] = refusal(VLLM_SAYS[0])
        assert error(bed.post(path, {prompt: []}), 400)["param"] == prompt


def test_only_the_prompt_of_the_route_is_counted():
    async def tokenize(body):
        assert "prompt" not in body
        return 900

    asked = {**chat(), "prompt": [1]}
    assert asyncio.run(window.count(CHAT, asked, tokenize)) == 900


def test_prompt_and_reply_beyond_the_window_are_refused_before_the_engine():
    bed, answer = tokenized(200, max_tokens=900)
    found = error(answer, 400)
    assert found["code"] == "context_length_exceeded"
    assert "1100" in found["message"]
    assert [path for path, _ in bed.server.bodies] == ["/tokenize"]


def test_the_prompt_is_counted_with_its_effort():
    bed, _ = tokenized(1, max_tokens=900, reasoning_effort="none", tools=[])
    kwargs = {"reasoning_effort": "none", "enable_thinking": False}
    assert bed.server.bodies[0] == (
        "/tokenize",
        {**chat(), "tools": [], "chat_template_kwargs": kwargs},
    )


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_a_full_window_is_no_refusal(name):
    assert tokenized(100, **{name: 900})[1].status_code == 200
    assert tokenized(101, **{name: 900})[1].status_code == 400


@pytest.mark.parametrize(
    ("path", "name"), [("/v1/responses", "max_output_tokens"), ("/v1/messages", "max_tokens")]
)
def test_a_reply_as_long_as_the_window_fits_nowhere(path, name):
    bed = api_bed.make(window=1000)
    assert error(bed.post(path, {name: 1000}), 400)["code"] == "context_length_exceeded"
    assert bed.post(path, {name: 999}).status_code == 200


def test_what_surely_fits_is_not_counted():
    bed, answer = tokenized(10**6, max_tokens=300)
    assert answer.status_code == 200
    assert [path for path, _ in bed.server.bodies] == [CHAT]


@pytest.mark.parametrize("reply", [None, 0, -1])
def test_lengths_that_are_none_are_left_to_vllm(reply):
    assert tokenized(10**6, max_tokens=reply)[1].status_code == 200


@pytest.mark.parametrize("name", ["n", "max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("value", ["9000", "1", 2.5, True, [1], 1e300, -1e300])
def test_a_number_by_which_a_request_is_admitted_is_a_number(name, value):
    """vLLM takes "1000" as 1000, and would do what nobody counted."""
    bed = api_bed.make(max_active=1, window=1000)
    found = bed.post(body=chat(**{name: value}))
    assert error(found, 400)["code"] in ("invalid_type", "too_many_replies", "invalid_json")
    assert bed.server.bodies == []


def test_a_whole_number_may_have_a_point():
    bed = api_bed.make(window=1000)
    assert error(bed.post(body=chat(max_tokens=2000.0)), 400)["code"] == "context_length_exceeded"
    assert bed.post(body=chat(max_tokens=20.0)).status_code == 200
    assert bed.server.got["max_tokens"] == 20
    assert isinstance(bed.server.got["max_tokens"], int)


def test_token_ids_are_counted_without_a_tokenizer():
    bed = api_bed.make(window=1000)
    body = {"model": "m", "prompt": [7] * 200, "max_tokens": 900}
    assert error(bed.post("/v1/completions", body), 400)["code"] == "context_length_exceeded"
    body["prompt"] = [[7] * 50, [7] * 60]
    assert bed.post("/v1/completions", body).status_code == 200


def test_a_prompt_that_cannot_be_counted_is_left_to_vllm():
    bed = api_bed.make(window=1000)
    bed.server.answers["/tokenize"] = (400, {"error": {}})
    bed.server.answers[CHAT] = refusal("no")
    assert bed.post(body=chat(max_tokens=900)).json() == refusal("no")[1]


MESSAGE = {"role": "assistant", "content": 'say "reasoning":', "reasoning": "why"}


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("reasoning", {"reasoning": "why"}),
        ("reasoning_content", {"reasoning_content": "why"}),
        ("both", {"reasoning": "why", "reasoning_content": "why"}),
    ],
)
def test_the_field_of_thoughts(field, expected):
    bed = api_bed.make(reasoning_field=field)
    bed.server.answers[CHAT] = (200, {"choices": [{"index": 0, "message": MESSAGE}]})
    answer = bed.post(body=chat())
    assert int(answer.headers["content-length"]) == len(answer.content)
    message = answer.json()["choices"][0]["message"]
    assert message["content"] == MESSAGE["content"]
    thoughts = {name: message[name] for name in message if name.startswith("reasoning")}
    assert thoughts == expected


def event(**delta):
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta}]})}\n\n".encode()


STREAM = [
    event(role="assistant"),
    event(reasoning="h\u00fcm"),
    event(content="x"),
    b"data: [DONE]\n\n",
]


@pytest.mark.parametrize("field", ["reasoning", "both"])
def test_a_stream_leaves_chunk_by_chunk(field):
    bed = api_bed.make(reasoning_field=field)
    bed.server.answers[CHAT] = STREAM
    seen = []

    async def ask():
        sent = {"type": "http.request", "body": json.dumps(chat(stream=True)).encode()}
        scope = {"type": "http", "method": "POST", "path": CHAT, "headers": []}

        async def receive():
            return sent

        async def send(message):
            if message["type"] == "http.response.body":
                seen.append((bed.server.sent, message["body"]))

        await bed.app(scope, receive, send)

    asyncio.run(ask())
    # Each chunk was out before the stand-in was asked for the next.
    assert [count for count, _ in seen] == [0, 1, 2, 3, 4]
    lines = b"".join(body for _, body in seen).decode().split("\n\n")
    delta = json.loads(lines[1].removeprefix("data: "))["choices"][0]["delta"]
    assert delta == (
        {"reasoning": "h\u00fcm"} | ({"reasoning_content": "h\u00fcm"} if field == "both" else {})
    )
    assert lines[2:4] == [STREAM[2].decode().strip(), "data: [DONE]"]


@pytest.mark.parametrize("size", [1, 2, 7, 50, 10_000])
def test_events_may_be_cut_anywhere(size):
    whole = b"".join(STREAM)
    events = Events(lambda data: rename(data, "reasoning_content"))
    pieces = [whole[n : n + size] for n in range(0, len(whole), size)]
    out = b"".join(map(events.feed, pieces)) + events.feed(b"", last=True)
    assert out == whole.replace(b'"reasoning":', b'"reasoning_content":')


@pytest.mark.parametrize(
    "data", [b'{"reasoning": 1', b'{"reasoning":1}', b'{"choices":5,"reasoning":1}']
)
def test_what_is_no_chat_answer_is_left_alone(data):
    assert rename(data, "both") == data
