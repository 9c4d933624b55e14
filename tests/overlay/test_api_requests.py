"""Bodies: carried out or refused with the reason, never accepted and ignored."""

import json
import threading

import api_bed
import pytest
from api_bed import CHAT, chat, error

from glm53_overlay.api import requests, window
from glm53_overlay.api.middleware import ON_LOOP_BYTES


@pytest.fixture
def bed():
    return api_bed.make()


ASKS = {
    CHAT: {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/completions": {"prompt": "hi"},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5},
}
"""What each route cannot do without."""


def ask(path, **more):
    return {"model": "m", **ASKS[path], **more}


def test_a_plain_request_arrives_as_it_was(bed):
    body = chat(temperature=0.5, stream=False, metadata={"a": "ü"})
    assert bed.post(body=body).status_code == 200
    assert bed.server.got == body


def test_a_literal_extra_body_is_refused_with_what_it_holds(bed):
    found = error(bed.post(body=chat(extra_body={"top_k": 3})), 400)
    assert (found["code"], found["param"]) == ("REQ_EXTRA_BODY", "extra_body")
    assert "top_k" in found["message"]
    assert bed.server.bodies == []


@pytest.mark.parametrize("path", [CHAT, "/v1/completions"])
@pytest.mark.parametrize(
    ("field", "value", "key"),
    [
        ("guided_json", {"type": "object"}, "json"),
        ("guided_json", '{"type": "object"}', "json"),
        ("guided_regex", "a+", "regex"),
        ("guided_choice", ["a", "b"], "choice"),
        ("guided_grammar", 'root ::= "a"', "grammar"),
    ],
)
def test_guided_fields_become_structured_outputs(bed, path, field, value, key):
    assert bed.post(path, ask(path, **{field: value})).status_code == 200
    assert bed.server.got["structured_outputs"] == {key: value}
    assert field not in bed.server.got


def test_the_whitespace_pattern_goes_along(bed):
    bed.post(body=chat(guided_json={}, guided_whitespace_pattern=" ?"))
    assert bed.server.got["structured_outputs"] == {"json": {}, "whitespace_pattern": " ?"}


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"guided_regex": "a", "guided_json": {}}, "guided_json and guided_regex"),
        ({"guided_regex": "a", "structured_outputs": {"regex": "b"}}, "structured_outputs"),
        ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "response_format"),
        ({"guided_json": {}, "guided_decoding_backend": "outlines"}, "guided_decoding_backend"),
        ({"guided_whitespace_pattern": " "}, "guided_whitespace_pattern"),
        ({"guided_json": 5}, "a JSON schema"),
        ({"guided_choice": []}, "a list of texts"),
        ({"guided_choice": [1]}, "a list of texts"),
        ({"guided_regex": {}}, "a text"),
    ],
)
def test_guided_fields_that_cannot_be_carried_out_are_refused(bed, more, named):
    found = error(bed.post(body=chat(**more)), 400)
    assert found["code"] == "REQ_GUIDED"
    assert named in found["message"]


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
@pytest.mark.parametrize("name", ["guided_regex", "guided_whitespace_pattern"])
def test_guided_fields_have_no_place_on_other_routes(bed, path, name):
    assert refused_code(bed.post(path, ask(path, **{name: "a"}))) == "REQ_GUIDED"
    assert bed.post(path, ask(path, **{name: None})).status_code == 200


def refused_code(answer):
    return error(answer, 400)["code"]


@pytest.mark.parametrize("value", ["auto", [], 5, "", 0, False])
def test_a_constraint_is_an_object(bed, value):
    found = error(bed.post(body=chat(structured_outputs=value)), 400)
    assert found["param"] == "structured_outputs"


@pytest.mark.parametrize("null", ["guided_json", "guided_regex", "guided_decoding_backend"])
def test_a_guided_null_is_nothing(bed, null):
    bed.post(body=chat(**{null: None}))
    assert bed.server.got == chat()


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("none", "none"),
        ("minimal", "low"),
        ("low", "low"),
        ("medium", "high"),
        ("high", "high"),
        ("xhigh", "max"),
        ("max", "max"),
    ],
)
def test_efforts_reach_the_template_as_one_that_it_knows(bed, asked, meant):
    bed.post(body=chat(reasoning_effort=asked))
    assert bed.server.got["reasoning_effort"] == meant
    for path in (CHAT, "/v1/responses", "/v1/messages"):
        bed.post(path, ask(path, chat_template_kwargs={"reasoning_effort": asked}))
        kwargs = bed.server.got["chat_template_kwargs"]
        assert kwargs == {"reasoning_effort": meant, "enable_thinking": meant != "none"}


def test_an_explicit_switch_wins_over_the_effort(bed):
    kwargs = {"reasoning_effort": "high", "enable_thinking": False}
    bed.post(body=chat(chat_template_kwargs=kwargs))
    assert bed.server.got["chat_template_kwargs"] == kwargs


@pytest.mark.parametrize("path", [CHAT, "/v1/responses", "/v1/messages"])
@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ({"thinking": False}, {"thinking": False, "enable_thinking": False}),
        ({"thinking": True}, {"thinking": True, "enable_thinking": True}),
        (
            {"thinking": False, "enable_thinking": None},
            {"thinking": False, "enable_thinking": False},
        ),
        ({"thinking": True, "enable_thinking": False}, None),
        ({"thinking": None}, None),
        ({"enable_thinking": False}, None),
    ],
)
def test_both_names_of_the_switch_switch(bed, path, asked, meant):
    bed.post(path, ask(path, chat_template_kwargs=asked))
    assert bed.server.got["chat_template_kwargs"] == (meant or asked)


def test_the_other_name_of_the_switch_also_wins_over_the_effort(bed):
    kwargs = {"reasoning_effort": "high", "thinking": False}
    bed.post(body=chat(chat_template_kwargs=kwargs))
    assert bed.server.got["chat_template_kwargs"] == {**kwargs, "enable_thinking": False}


@pytest.mark.parametrize(
    ("path", "more", "code"),
    [(CHAT, {"reasoning_effort": effort}, "REQ_EFFORT") for effort in ("huge", 3, [])]
    + [
        (path, {"chat_template_kwargs": kwargs}, code)
        for path in (CHAT, "/v1/responses", "/v1/messages")
        for kwargs, code in (
            ({"reasoning_effort": "x"}, "REQ_EFFORT"),
            ('{"enable_thinking": false}', "REQ_KWARGS_NOT_OBJECT"),
        )
    ],
)
def test_what_the_template_would_misread_is_refused(bed, path, more, code):
    assert refused_code(bed.post(path, ask(path, **more))) == code
    assert bed.server.bodies == []


def test_a_forbidden_tool_call_cannot_be_decoded(bed):
    tools = [{"type": "function", "function": {"name": "f"}}]
    bed.post(body=chat(tools=tools, tool_choice="none"))
    assert bed.server.got["bad_words"] == ["<tool_call>"]
    bed.post(body=chat(tools=tools, tool_choice="auto"))
    assert "bad_words" not in bed.server.got
    bed.post(body=chat(tools=tools, tool_choice="none", bad_words=["x"]))
    assert bed.server.got["bad_words"] == ["x", "<tool_call>"]


def test_the_default_length_is_for_requests_that_name_none():
    bed = api_bed.make(default_max_tokens=70)
    bed.post(body=chat())
    assert bed.server.got["max_tokens"] == 70
    for name in ("max_tokens", "max_completion_tokens"):
        bed.post(body=chat(**{name: 900}))
        assert bed.server.got == chat(**{name: 900})
    bed.post("/v1/responses", {"model": "m", "input": "hi"})
    assert bed.server.got["max_output_tokens"] == 70


def test_the_default_length_never_makes_a_prompt_too_long():
    bed = api_bed.make(default_max_tokens=9000, window=1000)
    assert bed.post(body=chat()).status_code == 200


def test_the_same_request_has_the_same_seed_and_another_has_another():
    bed = api_bed.make(deterministic=True)

    def seed(**more):
        assert bed.post(body=chat(**more)).status_code == 200
        return bed.server.got["seed"]

    assert seed() == seed(temperature=0.3) == seed(stream=True)
    assert seed() != seed(messages=[{"role": "user", "content": "ho"}])
    assert seed() != seed(tools=[{"type": "function", "function": {"name": "f"}}])
    assert 0 <= seed() < 2**63
    assert seed(seed=5) == 5
    assert "seed" not in _got(api_bed.make(), chat())


def test_a_response_has_the_seed_of_its_prompt():
    bed = api_bed.make(deterministic=True)

    def seed(**more):
        body = {"model": "m", "input": "hi", "instructions": "Be brief.", **more}
        assert bed.post("/v1/responses", body).status_code == 200
        return bed.server.got["seed"]

    assert seed() == seed(temperature=0.3) == seed(stream=True)
    for more in ({"input": "ho"}, {"instructions": "Be long."}, {"tools": [{"type": "function"}]}):
        assert seed() != seed(**more)
    assert seed(seed=5) == 5


def test_a_message_has_no_seed():
    # vLLM's route has no field for it, and would not honour one.
    bed = api_bed.make(deterministic=True)
    assert bed.post("/v1/messages", chat(max_tokens=5)).status_code == 200
    assert "seed" not in bed.server.got


def _got(bed, body):
    bed.post(body=body)
    return bed.server.got


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        b'{"a": NaN}',
        b'{"a": 1e999999}',
        b'{"a": Infinity}',
        b'{"a": {"b": [9223372036854775808]}}',
        b'{"a": -9223372036854775809}',
        b'{"messages": "\\ud800"}',
        b'{"messages": "\\uDFFF"}',
        b'{"messages": "\xed\xa0\x80"}',
        '{"a": 9223372036854775808}'.encode("utf-16"),
        '{"messages": "\\ud800"}'.encode("utf-32-le"),
        b"\xef\xbb\xbf",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"max_tokens": ' + b"9" * 5000 + b"}",
    ],
)
def test_no_json_object_no_engine(bed, raw):
    assert error(bed.post(content=raw), 400)["code"] == "invalid_json"
    assert bed.server.bodies == []


DEEP_CALL = {"function": {"arguments": '{"a":' * 9000}}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"input": [{"type": "function_call", "arguments": "[" * 9000}]}),
        ("/v1/responses", {"input": "x", "structured_outputs": {"json": "[" * 9000}}),
        ("/v1/messages", {"messages": [], "structured_outputs": {"json": "[" * 9000}}),
        ("/tokenize", {"messages": [{"role": "assistant", "tool_calls": [DEEP_CALL]}]}),
    ],
)
def test_depth_in_a_text_ends_in_a_refusal_on_every_route(path, body):
    bed = api_bed.make()
    assert error(bed.post(path, body), 400)["code"] in ("invalid_json", "REQ_FOREIGN")
    assert bed.server.bodies == []


@pytest.mark.parametrize(
    ("path", "name", "here"),
    [
        (CHAT, "max_output_tokens", "max_tokens"),
        (CHAT, "reasoning", "reasoning_effort"),
        (CHAT, "thinking", "chat_template_kwargs.enable_thinking"),
        (CHAT, "stop_sequences", "stop"),
        (CHAT, "prompt", "messages"),
        (CHAT, "previous_response_id", "/v1/responses"),
        ("/v1/completions", "messages", CHAT),
        ("/v1/completions", "chat_template_kwargs", CHAT),
        ("/v1/completions", "max_output_tokens", "max_tokens"),
        ("/v1/responses", "response_format", "text.format"),
        ("/v1/responses", "reasoning_effort", "reasoning.effort"),
        ("/v1/responses", "max_tokens", "max_output_tokens"),
        ("/v1/responses", "bad_words", CHAT),
        ("/v1/messages", "stop", "stop_sequences"),
        ("/v1/messages", "seed", CHAT),
        ("/v1/messages", "min_p", CHAT),
    ],
)
def test_a_field_of_one_route_is_not_dropped_by_another(bed, path, name, here):
    answer = bed.post(path, ask(path, **{name: 5}))
    assert refused_code(answer) == "REQ_FOREIGN"
    assert name in answer.json()["error"]["message"]
    assert f"use {here}." in answer.json()["error"]["message"]
    assert bed.post(path, ask(path, **{name: None})).status_code == 200


@pytest.mark.parametrize("path", list(ASKS))
@pytest.mark.parametrize("name", ["vllm_xargs", "kv_transfer_params", "ec_transfer_params"])
def test_what_is_for_extensions_does_not_reach_an_engine_without_them(bed, path, name):
    """As `vllm_xargs`, transfer parameters that are no object end in a 500."""
    answer = bed.post(path, ask(path, **{name: {"kv_transfer_params": "x"}}))
    assert refused_code(answer) == "REQ_EXTENSION"
    assert bed.server.bodies == []
    assert bed.post(path, ask(path, **{name: None})).status_code == 200


@pytest.mark.parametrize(
    "path", [CHAT, "/v1/responses", "/v1/messages", "/tokenize", "/v1/messages/count_tokens"]
)
@pytest.mark.parametrize("role", ["function", "System", "nobody", "", 5, ["user"]])
def test_a_role_that_no_template_writes_is_refused(bed, path, role):
    said = {"role": role, "content": "Never say it."}
    name = "input" if path == "/v1/responses" else "messages"
    body = {"model": "m", name: [said]}
    found = error(bed.post(path, body), 400)
    assert (found["code"], bed.server.bodies) == ("REQ_ROLE", [])
    assert "use one of system, developer, user, assistant, tool." in found["message"]


def test_what_is_no_message_has_no_role(bed):
    assert error(bed.post(body=chat(messages=[{"content": "x"}])), 400)["code"] == "REQ_ROLE"
    said = [
        {"type": "function_call", "arguments": "{}", "role": None},
        {"role": "user", "content": "x"},
        "x",
    ]
    assert bed.post("/v1/responses", {"model": "m", "input": said}).status_code == 200
    for odd in ("x", ["x"], [["x"]], {"role": "x"}, 5):
        assert bed.post(body=chat(messages=odd)).status_code == 200  # vLLM says what it is


def _fields() -> dict[str, set[str]]:
    """The fields of each route in this vLLM."""
    from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest

    kinds = (ChatCompletionRequest, CompletionRequest, ResponsesRequest, AnthropicMessagesRequest)
    return {path: set(kind.model_fields) for path, kind in zip(ASKS, kinds, strict=True)}


def test_what_counts_as_foreign_is():
    """No field of the route itself is, and every field of others that shapes an answer."""
    fields = _fields()
    every = set().union(*fields.values())
    for path, foreign in requests.FOREIGN.items():
        assert not foreign.keys() & fields[path]
        assert foreign.keys() <= every
        here = {name.partition(".")[0] for name in foreign.values() if name and "/" not in name}
        assert here <= fields[path]
        carried = {"max_completion_tokens"} if path == "/v1/completions" else set()
        dropped = every - fields[path] - foreign.keys() - carried
        assert dropped <= requests.INDIFFERENT, (path, dropped - requests.INDIFFERENT)


def test_completions_know_a_length_by_its_newer_name():
    bed = api_bed.make(default_max_tokens=7)
    path = "/v1/completions"
    assert bed.post(path, {"prompt": "x", "max_completion_tokens": 500}).status_code == 200
    assert bed.server.got == {"prompt": "x", "max_tokens": 500}
    bed.post(path, {"prompt": "x", "max_completion_tokens": 500, "max_tokens": 6})
    assert bed.server.got == {"prompt": "x", "max_tokens": 6}


@pytest.mark.parametrize(
    ("path", "field"),
    [(CHAT, field) for field in ("messages", "tools", "metadata")]
    + [("/v1/completions", field) for field in ("prompt", "metadata")]
    + [("/v1/responses", field) for field in ("prompt", "input", "tools", "metadata")]
    + [("/v1/tokenize", field) for field in ("messages", "prompt", "tools", "metadata")],
)
@pytest.mark.parametrize("shape", ["list", "content"])
def test_depth_ends_in_a_refusal_and_not_in_a_stack(path, field, shape):
    bed = api_bed.make(deterministic=True, window=10**6, default_max_tokens=5)
    bed.server.answers["/tokenize"] = (200, {"count": 10})
    for depth in (10, 60, 90, 150, 300, 480, 700, 900, 960, 990):
        inner: object = "x"
        for _ in range(depth):
            inner = [inner] if shape == "list" else {"content": [inner]}
        most = b"max_output_tokens" if path == "/v1/responses" else b"max_tokens"
        raw = b'{"model": "m", "%s": 5, "%s": ' % (most, field.encode())
        body = raw + dumps(inner) + b"}"
        answer = bed.post(path, content=body)
        if depth * (1 if shape == "list" else 2) < 98:
            assert answer.status_code == 200
        else:
            assert error(answer, 400)["code"] == "invalid_json"


def dumps(value) -> bytes:
    """As json.dumps, which has a stack of its own to lose."""
    opened, closed = b"", b""
    while not isinstance(value, str):
        is_list = isinstance(value, list)
        opened += b"[" if is_list else b'{"content": '
        closed = (b"]" if is_list else b"}") + closed
        value = value[0] if is_list else value["content"]
    return opened + json.dumps(value).encode() + closed


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("guided_json", "TEXT"),
        ("structured_outputs", {"json": "TEXT"}),
        ("messages", [{"role": "assistant", "tool_calls": [{"function": {"arguments": "TEXT"}}]}]),
    ],
)
def test_json_within_texts_has_the_same_depth(bed, field, value):
    def asked(depth):
        text = '{"items": ' * depth + "{}" + "}" * depth
        body = json.dumps({**chat(), field: value}).replace('"TEXT"', json.dumps(text))
        return bed.post(content=body)

    assert asked(90).status_code == 200
    assert error(asked(101), 400)["code"] == "invalid_json"
    assert error(asked(100_000), 400)["code"] == "invalid_json"


def test_a_text_with_brackets_is_a_text(bed):
    call = {"function": {"arguments": "[" * 200}}
    body = chat(messages=[{"role": "assistant", "tool_calls": [call, None, {}, {"function": 1}]}])
    assert bed.post(body=body).status_code == 200
    assert bed.server.got == body


def test_a_mark_at_the_start_is_ignored_and_the_last_of_two_keys_counts(bed):
    raw = b'\xef\xbb\xbf{"reasoning_effort": "huge", "reasoning_effort": "low"}'
    assert bed.post(content=raw).status_code == 200
    assert bed.server.got == {"reasoning_effort": "low"}


@pytest.mark.parametrize("large", [False, True])
def test_a_large_body_is_worked_on_beside_the_streams(monkeypatch, large):
    here = []

    def noting(module, name):
        step = getattr(module, name)

        def noted(*args):
            here.append((name, threading.current_thread() is threading.main_thread()))
            return step(*args)

        monkeypatch.setattr(module, name, noted)

    for name in ("parse", "adapt", "finish", "dump"):
        noting(requests, name)
    noting(window, "at_most")
    bed = api_bed.make(deterministic=True, window=ON_LOOP_BYTES * 9)
    text = "x" * (ON_LOOP_BYTES if large else 10)
    asked = [{"role": "user", "content": text}]
    assert bed.post(body=chat(messages=asked, max_tokens=5)).status_code == 200
    steps = ["parse", "adapt", "at_most", "finish", "dump"]
    assert here == [(name, not large) for name in steps]


def test_the_largest_numbers_are_numbers(bed):
    edges = [2**63 - 1, -(2**63)]
    assert bed.post(body=chat(stop_token_ids=edges, user="9" * 40)).status_code == 200
    assert bed.server.got["stop_token_ids"] == edges


def test_pairs_of_surrogates_are_text(bed):
    raw = b'{"messages": [{"role": "user", "content": "\\ud83d\\ude00"}]}'
    assert bed.post(content=raw).status_code == 200
    assert bed.server.got["messages"][0]["content"] == "\U0001f600"


def test_other_routes_get_their_bodies_unchanged(bed):
    raw = json.dumps({"prompt": "x", "extra_body": 1}).encode() + b" "
    assert bed.post("/tokenize", content=raw).status_code == 200
    assert bed.server.got == {"prompt": "x", "extra_body": 1}


@pytest.mark.parametrize("path", ["/tokenize", "/v1/detokenize", "/v1/messages/count_tokens"])
@pytest.mark.parametrize("raw", [b"[]", b'{"prompt": "\\ud800"}', b'{"tokens": [1e999]}'])
def test_no_json_object_no_tokenizer(bed, path, raw):
    assert error(bed.post(path, content=raw), 400)["code"] == "invalid_json"
    assert bed.server.bodies == []
