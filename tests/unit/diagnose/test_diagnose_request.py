"""Requests: the client's faults, the server's, and nobody's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glm53ctl.diagnose import Answer, Side, judge_answer, lint_request, side_of
from glm53ctl.findings import Severity

ASK = {"model": "GLM-5.3-Flash-EXL3", "messages": [{"role": "user", "content": "hi"}]}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def codes(findings):
    return [one.code for one in findings]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({}, "REQ_OK"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "REQ_OK"),
        ({"reasoning_effort": "none"}, "REQ_OK"),
        ({"reasoning_effort": None, "guided_json": None}, "REQ_OK"),
        ({"extra_body": {"top_k": 1}}, "REQ_EXTRA_BODY"),
        ({"extra_body": "x"}, "REQ_EXTRA_BODY"),
        ({"chat_template_kwargs": "{}"}, "REQ_KWARGS_NOT_OBJECT"),
        ({"chat_template_kwargs": ["a"]}, "REQ_KWARGS_NOT_OBJECT"),
        ({"reasoning_effort": "medium"}, "REQ_EFFORT_COERCED"),
        ({"chat_template_kwargs": {"reasoning_effort": "none"}}, "REQ_EFFORT_COERCED"),
        ({"guided_choice": ["a", "b"]}, "REQ_GUIDED_IGNORED"),
    ],
)
def test_a_request_is_right_or_its_mistake_is_named(change, code):
    assert codes(lint_request({**ASK, **change})) == [code]


@pytest.mark.parametrize("body", [None, [], "text", 1, {}])
def test_what_is_no_request_is_said_to_be_none(body):
    assert codes(lint_request(body)) == ["REQ_SHAPE"]


def test_every_mistake_is_found_in_one_go():
    body = {**ASK, "extra_body": {}, "chat_template_kwargs": 1, "guided_regex": "a"}
    assert len(lint_request(body)) == 3


def answer(content=None, ended="stop", **message):
    choice = {"finish_reason": ended, "message": {"content": content, **message}}
    return Answer(200, {"choices": [choice], "usage": {"completion_tokens": 64}})


CALL = [{"type": "function", "function": {"name": "get_weather", "arguments": "{}"}}]


@pytest.mark.parametrize(
    ("got", "code"),
    [
        (answer("Four."), None),
        (answer("Four.", reasoning="2+2"), None),
        (answer("A long answer that was cut", ended="length"), None),
        (answer(None, ended="tool_calls", tool_calls=CALL), None),
        (answer("-" * 10), None),
        (answer(None, reasoning="It thought and ended"), None),
        (answer("Ha! " + "ha " * 12 + "That is funny."), None),
        (answer(None, ended="length", reasoning="Let me"), "REQ_BUDGET_SPENT"),
        (answer("", ended="length", reasoning_content="Let me"), "REQ_BUDGET_SPENT"),
        (answer("!" * 32, ended="length"), "OUTPUT_DEGENERATE"),
        (answer("ab" * 40, ended="length", reasoning="x"), "OUTPUT_DEGENERATE"),
        (answer(""), "OUTPUT_DEGENERATE"),
        (answer("<tool_call>f\n</tool_call>"), "CFG_TOOL_PARSER"),
        (answer("<arg_key>x</arg_key>", tool_calls=CALL), None),
    ],
)
def test_an_answer_is_judged_by_what_it_holds(got, code):
    assert codes(judge_answer(got, ASK)) == ([code] if code else [])


@pytest.mark.parametrize(
    ("status", "message", "code", "side"),
    [
        (400, "maximum context length is 900000 tokens.", "REQ_CONTEXT", Side.CLIENT),
        (400, "At most 4 image(s) may be provided.", "REQ_MM_LIMIT", Side.CLIENT),
        (400, "temperature must be a number", "REQ_REFUSED", Side.CLIENT),
        (401, "Unauthorized", "REQ_KEY", Side.CLIENT),
        (404, "The model `x` does not exist.", "REQ_MODEL", Side.CLIENT),
        (429, "slow down", "API_BUSY", Side.SERVER),
        (503, "queue is full", "API_BUSY", Side.SERVER),
        (500, "EngineCore encountered an issue.", "API_SERVER_ERROR", Side.SERVER),
    ],
)
def test_a_refusal_has_a_side(status, message, code, side):
    (one,) = judge_answer(Answer(status, {"error": {"message": message, "code": status}}))
    assert one.code == code
    assert side_of(one.code) is side


@pytest.mark.parametrize("status", [400, 404, 500])
def test_secrets_that_a_refusal_quotes_are_hidden(status):
    body = {"error": {"message": "bad input: {'api_key': 'hunter2secret'}"}}
    (one,) = judge_answer(Answer(status, body))
    assert "hunter2" not in one.message
    assert "bad input" in one.message


def test_a_client_s_fault_is_never_a_failure_of_the_pair():
    for status in range(400, 500):
        (one,) = judge_answer(Answer(status, {"error": {"message": "no"}}))
        assert one.severity is not Severity.FAIL


@given(body=JSON, status=st.integers(100, 599), request=JSON)
def test_nothing_that_can_be_sent_breaks_the_linter(body, status, request):
    for one in [*lint_request(request), *judge_answer(Answer(status, body), request)]:
        assert side_of(one.code) in Side


@given(
    choice=st.dictionaries(st.sampled_from(["message", "text", "finish_reason"]), JSON), usage=JSON
)
def test_nothing_that_can_be_answered_breaks_the_linter(choice, usage):
    judge_answer(Answer(200, {"choices": [choice], "usage": usage}), ASK)


@given(message=st.dictionaries(st.sampled_from(["content", "tool_calls", "reasoning"]), JSON))
def test_no_message_breaks_the_linter(message):
    judge_answer(Answer(200, {"choices": [{"finish_reason": "stop", "message": message}]}), ASK)


def test_thoughts_that_repeat_are_the_server_s_fault():
    choice = {"message": {"content": None, "reasoning": "!" * 200}, "finish_reason": "length"}
    (one,) = judge_answer(Answer(200, {"choices": [choice]}))
    assert (one.code, side_of(one.code)) == ("OUTPUT_DEGENERATE", Side.SERVER)
