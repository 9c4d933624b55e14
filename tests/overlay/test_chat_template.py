"""Our chat template: whole renders as a person would read them, and what vLLM makes of it.

After a wanted change: GLM53_UPDATE_GOLDEN=1 make overlay-test, then read the difference.
"""

import json
import os
from pathlib import Path

import jinja2
import jinja2.ext
import jinja2.sandbox
import pytest
from vllm.parser import glm47_moe
from vllm.renderers import hf

from glm53_overlay import template
from glm53_overlay.api.requests import EFFORTS, ROLES
from glm53_overlay.errors import OverlayError
from glm53_overlay.settings import ApiSettings

GOLDEN = Path(__file__).with_name("golden") / "chat.txt"
USER = {"role": "user", "content": "Which one is larger?"}
IMAGE = {
    "role": "user",
    "content": [{"type": "text", "text": "See "}, {"type": "image"}, {"type": "video"}],
}
SYSTEM = {"role": "system", "content": "Be brief."}
TOOLS = [{"type": "function", "function": {"name": "wetter", "parameters": {"größe": 1}}}]
FUNCTION = '{"name": "wetter", "parameters": {"größe": 1}}'
CALL = {"function": {"name": "wetter", "arguments": {"stadt": "Köln", "tage": 3, "genau": True}}}
WORK = [
    USER,
    {"role": "assistant", "content": None, "reasoning": " I look. ", "tool_calls": [CALL, CALL]},
    {"role": "tool", "content": "rain"},
    {"role": "tool", "content": [{"type": "text", "text": "sun"}]},
]
PAST = [
    SYSTEM,
    USER,
    {"role": "assistant", "content": " The first. ", "reasoning_content": "I weigh."},
    {"role": "user", "content": "Why?"},
]
CASES = {
    "plain": ([USER], {}),
    "effort low": ([USER], {"reasoning_effort": "low", "enable_thinking": True}),
    "effort none": ([USER], {"reasoning_effort": "none", "enable_thinking": False}),
    "effort none, switch left out": ([USER], {"reasoning_effort": "none"}),
    "thinking off": ([USER], {"enable_thinking": False}),
    "unknown effort": ([USER], {"reasoning_effort": "huge"}),
    "system and an earlier turn": (PAST, {"reasoning_effort": "high"}),
    "earlier thoughts cleared": (PAST, {"clear_thinking": True}),
    "tools at work": (WORK, {"tools": TOOLS}),
    "image and video": ([IMAGE], {}),
    "nothing to generate": ([USER], {"add_generation_prompt": False}),
}


def render(messages, **kwargs):
    """Render as transformers does: sandboxed, with its way of writing JSON."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )
    environment.policies["json.dumps_kwargs"] = {}
    environment.filters["tojson"] = _tojson
    kwargs = {"add_generation_prompt": True, "tools": None, **kwargs}
    return environment.from_string(template.PATH.read_text()).render(messages=messages, **kwargs)


def _tojson(value, ensure_ascii=True):
    return json.dumps(value, ensure_ascii=ensure_ascii)


def test_renders_are_as_written_down():
    parts = [
        f"=== {name}\n{render(messages, **kwargs)}\n" for name, (messages, kwargs) in CASES.items()
    ]
    text = "\n".join(parts)
    if os.environ.get("GLM53_UPDATE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text(), "see the head of this file"


def test_nothing_stands_between_the_marks():
    # The golden file is rewritten on request; the format of the checkpoint is not.
    assert render([{"role": "user", "content": "hi"}]) == (
        "[gMASK]<sop><|system|>Reasoning Effort: Max<|user|>hi<|assistant|><think>"
    )
    call = {"function": {"name": "f", "arguments": {"a": 1}}}
    talk = [
        {"role": "system", "content": "S"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "one"},
        {"role": "tool", "content": "two"},
    ]
    assert render(talk, enable_thinking=False) == (
        "[gMASK]<sop><|system|>S<|assistant|><think></think>"
        "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>"
        "<|observation|><tool_response>one</tool_response><tool_response>two</tool_response>"
        "<|assistant|><think></think>"
    )


def test_a_tool_is_the_function_alone():
    function = {**TOOLS[0]["function"], "strict": True, "defer_loading": False}
    for tool in (*TOOLS, {"type": "function", "function": function}, function):
        assert f"<tools>\n{FUNCTION}\n{FUNCTION}\n</tools>" in render([USER], tools=[tool, tool])


@pytest.mark.parametrize(
    ("kwargs", "ending"),
    [
        ({}, "<think>"),
        ({"reasoning_effort": "low"}, "<think>"),
        ({"enable_thinking": True}, "<think>"),
        ({"enable_thinking": None}, "<think>"),
        ({"enable_thinking": False}, "<think></think>"),
        ({"reasoning_effort": "none"}, "<think></think>"),
        ({"reasoning_effort": "low", "enable_thinking": False}, "<think></think>"),
        ({"thinking": False}, "<think></think>"),
        ({"thinking": None, "enable_thinking": False}, "<think></think>"),
        ({"reasoning_effort": "high", "thinking": False}, "<think></think>"),
        ({"reasoning_effort": "none", "thinking": True}, "<think>"),
        ({"thinking": True, "enable_thinking": False}, "<think>"),
        ({"thinking": False, "enable_thinking": True}, "<think>"),
    ],
)
def test_thinking_is_on_unless_it_is_off(kwargs, ending):
    assert render([USER], **kwargs).endswith(f"<|assistant|>{ending}")
    assert ("Reasoning Effort" in render([USER], **kwargs)) == (ending == "<think>")


def test_every_effort_is_another_prompt():
    prompts = {render([USER], reasoning_effort=e) for e in ("none", "low", "high", "max")}
    assert len(prompts) == 4
    assert render([USER]) == render([USER], reasoning_effort="max")


@pytest.mark.parametrize("effort", ["huge", 3, {"a": 1}, ["low"], None])
def test_what_is_no_effort_is_the_longest(effort):
    assert render([USER], reasoning_effort=effort) == render([USER])


@pytest.mark.parametrize(("asked", "meant"), list(EFFORTS.items()))
def test_routes_without_our_map_mean_the_same_efforts(asked, meant):
    assert render([USER], reasoning_effort=asked) == render([USER], reasoning_effort=meant)


@pytest.mark.parametrize("role", ROLES)
def test_every_role_that_is_served_is_written(role):
    assert "Mind this." in render([{"role": role, "content": "Mind this."}, USER])


HEAD = "[gMASK]<sop><|system|>Reasoning Effort: Max"
ASKED = f"{HEAD}<|user|>Why?<|assistant|>"


@pytest.mark.parametrize(
    ("said", "thought", "answer"),
    [
        ({"content": "B.", "reasoning": "A?"}, "A?", "B."),
        ({"content": "B.", "reasoning_content": "A?"}, "A?", "B."),
        ({"content": "B."}, "", "B."),
        # As it was generated: another blank is another prompt.
        ({"content": " B. ", "reasoning": "\nA?\n"}, "\nA?\n", "B."),
        ({"content": "<think>A?</think>\n\nB."}, "A?", "B."),
        ({"content": [{"type": "text", "text": "<think>A?</think>B."}]}, "A?", "B."),
        ({"content": "<think>A?</think>B.", "reasoning": ""}, "A?", "B."),
        ({"content": "<think>A?</think>"}, "A?", ""),
        # Words about the marks are an answer.
        ({"content": "It ends with </think>."}, "", "It ends with </think>."),
        ({"content": "<think> opens"}, "", "<think> opens"),
    ],
)
def test_thoughts_that_are_sent_again_are_kept(said, thought, answer):
    why, then = {"role": "user", "content": "Why?"}, {"role": "user", "content": "And?"}
    talk = [why, {"role": "assistant", **said}, then]
    kept = f"{ASKED}<think>{thought}</think>{answer}"
    for keeps in ({}, {"clear_thinking": False}, {"clear_thinking": None}):
        assert render(talk, **keeps) == f"{kept}<|user|>And?<|assistant|><think>"
    cleared = f"{ASKED}<think></think>{answer}<|user|>And?<|assistant|><think>"
    assert render(talk, clear_thinking=True) == cleared
    # Those since the last question belong to the work on it.
    assert render(talk[:2], clear_thinking=True) == f"{kept}<|assistant|><think>"


@pytest.mark.parametrize("tools", [None, TOOLS])
def test_a_turn_continues_the_prompt_of_the_last(tools):
    before = render(PAST[:2], tools=tools)
    assert render(PAST, tools=tools).startswith(f"{before}I weigh.</think>The first.")


def test_the_effort_stands_once_and_at_the_head():
    for effort in ("low", "high", "max"):
        prompt = render(PAST, tools=TOOLS, reasoning_effort=effort)
        assert prompt.startswith(f"[gMASK]<sop><|system|>Reasoning Effort: {effort.capitalize()}<|")
        assert prompt.count("Reasoning Effort") == 1


def test_vllm_hands_over_parts_of_content_in_their_order():
    detected = hf._detect_content_format(template.PATH.read_text(), default="string")
    assert detected == "openai"


def test_the_parser_reads_a_call_that_the_template_writes():
    """vLLM's parser cuts at these marks; what is between two is its converter's."""
    text = render(WORK, tools=TOOLS)
    call = text.split(glm47_moe.TOOL_CALL_START)[-1].partition(glm47_moe.TOOL_CALL_END)[0]
    name, mark, arguments = call.partition(glm47_moe.ARG_KEY_START)
    read = glm47_moe.glm47_moe_config().arg_converter(mark + arguments, False)
    assert name == "wetter"
    assert json.loads(read) == {"stadt": "Köln", "tage": "3", "genau": "true"}


def test_the_parser_believes_that_ours_can_be_silent(monkeypatch):
    class Stock:
        chat_template = "[gMASK]<sop>Reasoning Effort: <tool_call><arg_key><arg_value>"

    monkeypatch.setattr(glm47_moe, "_glm53_always_thinks", glm47_moe._glm53_always_thinks)
    template.install(ApiSettings(template="checkpoint"))
    assert glm47_moe._glm53_always_thinks(Stock()) is True
    template.install(ApiSettings(template="appliance"))
    assert glm47_moe._glm53_always_thinks(Stock()) is False


class _Tokens:
    """As much of a tokenizer as the parser asks for."""

    chat_template = None

    def get_vocab(self):
        return {mark: i for i, mark in enumerate(("<think>", "</think>", "<tool_call>"))}


@pytest.mark.parametrize("thinking", [None, True, False])
@pytest.mark.parametrize("enabled", [None, True, False])
def test_template_and_parser_agree_on_both_names_of_the_switch(thinking, enabled):
    kwargs = {"thinking": thinking, "enable_thinking": enabled}
    parser = glm47_moe.Glm47MoeParser(_Tokens(), chat_template_kwargs=kwargs)
    assert parser.thinking_enabled == render([USER], **kwargs).endswith("<think>")


def test_a_parser_without_that_question_is_refused(monkeypatch):
    monkeypatch.delattr(glm47_moe, "_glm53_always_thinks")
    with pytest.raises(OverlayError, match="OVERLAY_CONTRACT"):
        template.install(ApiSettings(template="appliance"))
