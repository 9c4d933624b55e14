"""The demo model's tokenizer: byte-level BPE learned from the story, with GLM's special tokens."""

from dataclasses import dataclass
from functools import cached_property

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from glm53ctl.demo.story import training_text

MERGED_TOKENS = 900
"""More than the story has merges for, so each of its words ends up as one token."""

END = "<|endoftext|>"
USER = "<|user|>"
OBSERVATION = "<|observation|>"
THINK = "<think>"
THINK_END = "</think>"

CONTROL_TOKENS = (
    END, "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>",
    "<|system|>", USER, "<|assistant|>", OBSERVATION,
)  # fmt: skip
"""Never part of a decoded answer."""

MARKUP_TOKENS = (
    THINK, THINK_END, "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>",
    "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "/nothink",
)  # fmt: skip
"""One token each, yet part of the text: vLLM's parsers look for them there."""


@dataclass(frozen=True)
class DemoTokenizer:
    """The trained tokenizer and the questions that the weights ask it."""

    inner: Tokenizer

    @cached_property
    def size(self) -> int:
        """The number of tokens, special ones included."""
        return int(self.inner.get_vocab_size())

    def ids(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        return list(self.inner.encode(text, add_special_tokens=False).ids)

    def one(self, text: str) -> int:
        """Return the single token that a text is; anything else is a mistake in the story."""
        ids = self.ids(text)
        if len(ids) != 1:
            raise ValueError(f"{text!r} is {len(ids)} tokens, not one")
        return ids[0]

    def name(self, token: int) -> str:
        """Return the token's own spelling, by which its random stream is named."""
        return str(self.inner.id_to_token(token))

    def to_json(self) -> str:
        """Return the text of tokenizer.json."""
        return str(self.inner.to_str(pretty=True)) + "\n"


def train() -> DemoTokenizer:
    """Learn the tokenizer; the same story gives the same tokenizer, byte for byte."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=MERGED_TOKENS,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(training_text(), trainer)
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in CONTROL_TOKENS]
    )
    tokenizer.add_tokens(
        [AddedToken(text, special=False, normalized=False) for text in MARKUP_TOKENS]
    )
    return DemoTokenizer(tokenizer)
