"""The template renders GLM's turns, and greedy answers are words, decided by a clear margin.

Needs the engine's transformers, but starts no server.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from glm53ctl.demo.model import make_model
from glm53ctl.demo.story import OPENERS, THOUGHT

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[3]
ENGINE = Path(os.environ.get("GLM53_ENGINE") or ROOT / ".engine").absolute()
USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
CALL = {"type": "function", "function": {"name": "look", "arguments": {"at": "é", "n": 2}}}
THINKING = {"role": "assistant", "content": " Yes. ", "reasoning_content": "Hm."}

CONVERSATIONS: list[tuple[dict[str, Any], str]] = [
    ({"conversation": [USER]}, "<|user|>\nhi<|assistant|>\n<think>"),
    (
        {"conversation": [USER], "enable_thinking": False},
        "<|user|>\nhi<|assistant|>\n<think></think>",
    ),
    (
        {"conversation": [{"role": "system", "content": [{"type": "text", "text": "Be."}]}, USER]},
        "<|system|>\nBe.<|user|>\nhi<|assistant|>\n<think>",
    ),
    (
        {"conversation": [USER, THINKING, USER]},
        "<|user|>\nhi<|assistant|>\n<think></think>Yes.<|user|>\nhi<|assistant|>\n<think>",
    ),
    (
        {
            "conversation": [
                USER,
                {"role": "assistant", "reasoning_content": "Hm.", "tool_calls": [CALL]},
                {"role": "tool", "content": "seen"},
                {"role": "tool", "content": "twice"},
            ]
        },
        "<|user|>\nhi<|assistant|>\n<think>Hm.</think><tool_call>look"
        "<arg_key>at</arg_key><arg_value>é</arg_value>"
        "<arg_key>n</arg_key><arg_value>2</arg_value></tool_call>"
        "<|observation|>\n<tool_response>\nseen\n</tool_response>"
        "\n<tool_response>\ntwice\n</tool_response><|assistant|>\n<think>",
    ),
    (
        {"conversation": [USER], "tools": [TOOL]},
        "<|system|>\nYou may call these functions, described in JSON, one per line:\n<tools>\n"
        f"{json.dumps(TOOL)}\n</tools>\nCall one in this form:\n<tool_call>NAME<arg_key>KEY"
        "</arg_key><arg_value>VALUE</arg_value></tool_call>"
        "<|user|>\nhi<|assistant|>\n<think>",
    ),
]
QUESTIONS = ["hi", "What keeps two ranks in step?", "Write a poem", "1+1="]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    model = tmp_path_factory.mktemp("demo") / "model"
    make_model(model)
    order = {
        "model": str(model),
        "conversations": [conversation for conversation, _ in CONVERSATIONS],
        "questions": QUESTIONS,
    }
    done = subprocess.run(
        [ENGINE / "bin/python", "-I", Path(__file__).with_name("answers_in_engine.py")],
        input=json.dumps(order),
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env={"PATH": os.environ["PATH"], "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_conversations_are_written_as_glm_writes_them(results: dict[str, Any]) -> None:
    for rendered, (_, expected) in zip(results["rendered"], CONVERSATIONS, strict=True):
        assert rendered == f"[gMASK]<sop>{expected}"


def test_an_answer_is_a_thought_and_then_words_until_its_limit(results: dict[str, Any]) -> None:
    for answer in results["answers"]:
        thought, _, words = answer["text"].partition("</think>")
        assert thought == "".join(THOUGHT)
        assert words.startswith(OPENERS)
        assert set(words) <= set("abcdefghijklmnopqrstuvwxyzASTEWRIM .,;"), words
        assert answer["tokens"] == 64


def test_different_questions_get_different_answers(results: dict[str, Any]) -> None:
    assert len({answer["text"] for answer in results["answers"]}) == len(QUESTIONS)


def test_no_choice_is_so_close_that_rounding_could_turn_it(results: dict[str, Any]) -> None:
    # One rank and two have been seen to differ by 2e-5.
    assert min(answer["margin"] for answer in results["answers"]) > 2e-3
