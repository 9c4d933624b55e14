"""A client's stop strings count in the answer, with vLLM's own detokenizer."""

from types import SimpleNamespace as Facts

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from vllm.v1.engine import detokenizer

from glm53_overlay import stops
from glm53_overlay.errors import OverlayError

WORDS = ("<unk>", "<think>", "</think>", "ask", "plan", "STOP", "then", "answer", "more")
ID = {word: number for number, word in enumerate(WORDS)}


@pytest.fixture(scope="module")
def tokenizer():
    made = Tokenizer(models.WordLevel(ID, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>")


@pytest.fixture
def made(tokenizer, monkeypatch):
    """Makes a detokenizer of vLLM's for a prompt, with the overlay in place."""
    plain = detokenizer.IncrementalDetokenizer.__dict__["from_new_request"]
    monkeypatch.setattr(detokenizer.IncrementalDetokenizer, "from_new_request", plain)
    stops.install()
    stops.install()  # a second call of the plugin

    def make(prompt, *, stop=("STOP",), **parameters):
        wanted = {
            "stop": list(stop),
            "min_tokens": 0,
            "include_stop_str_in_output": False,
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
            "detokenize": True,
        }
        request = Facts(
            request_id="r",
            prompt_token_ids=[ID[word] for word in prompt.split()],
            prompt_embeds=None,
            sampling_params=Facts(**wanted | parameters),
        )
        return detokenizer.IncrementalDetokenizer.from_new_request(tokenizer, request)

    return make


def feed(reader, *steps):
    """The stop string that was found, and all text."""
    for step in steps:
        found = reader.update([ID[word] for word in step.split()], False)
        if found is not None:
            return found, reader.output_text
    return None, reader.output_text


def test_a_thought_is_not_stopped(made):
    reader = made("ask <think>")
    assert feed(reader, "plan", "STOP", "then", "</think>", "answer")[0] is None
    assert "STOP" in reader.output_text
    assert "answer" in reader.output_text


def test_the_answer_after_it_is(made):
    reader = made("ask <think>")
    found, text = feed(reader, "STOP", "</think>", "answer", "STOP", "more")
    assert found == "STOP"
    assert text.endswith("answer")


@pytest.mark.parametrize("step", ["STOP </think> answer STOP more", "</think> STOP"])
def test_thought_and_answer_may_come_in_one_step(made, step):
    """Speculation brings several tokens at once."""
    reader = made("ask <think>")
    found, text = feed(reader, step)
    assert found == "STOP"
    assert "more" not in text


def test_without_thoughts_nothing_changes(made):
    assert feed(made("ask <think> </think>"), "answer", "STOP")[0] == "STOP"
    assert feed(made("ask"), "plan", "STOP")[0] == "STOP"


def test_a_request_without_strings_is_left_alone(made):
    reader = made("ask <think>", stop=())
    assert "update" not in vars(reader)
    assert feed(reader, "plan", "</think>", "answer")[0] is None


def test_without_the_overlay_a_thought_is_stopped(made, monkeypatch):
    """What this is for; also that the stand-in tokenizer reaches vLLM's own code."""
    owner = detokenizer.IncrementalDetokenizer
    monkeypatch.setattr(owner, "from_new_request", owner.from_new_request.__wrapped__)
    assert feed(made("ask <think>"), "plan", "STOP", "</think>", "answer")[0] == "STOP"


def test_a_model_that_does_not_think_is_left_alone(made, tokenizer):
    unknown = Facts(unk_token_id=0, convert_tokens_to_ids=lambda words: [0, 0])
    assert stops.open_until(unknown, Facts(prompt_token_ids=[0])) is None
    nothing = Facts(unk_token_id=None, convert_tokens_to_ids=lambda words: [None, None])
    assert stops.open_until(nothing, Facts(prompt_token_ids=[1])) is None


def test_another_detokenizer_is_refused(monkeypatch):
    monkeypatch.setattr(detokenizer.BaseIncrementalDetokenizer, "update", lambda self, ids: None)
    with pytest.raises(OverlayError, match=r"STOPS_CONTRACT: .*update takes"):
        stops.install()
