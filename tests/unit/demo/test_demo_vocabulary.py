"""Words are single tokens, and of all tokens only words can be the likeliest."""

import numpy as np
import pytest

from glm53ctl.demo.shape import SHAPE
from glm53ctl.demo.story import OPENERS, SENTENCES, THOUGHT
from glm53ctl.demo.tokenizer import (
    CONTROL_TOKENS,
    END,
    MARKUP_TOKENS,
    THINK,
    THINK_END,
    DemoTokenizer,
    train,
)
from glm53ctl.demo.vocabulary import CERTAIN, embeddings, followers, output_rows


@pytest.fixture(scope="module")
def tokenizer() -> DemoTokenizer:
    return train()


def test_training_twice_gives_the_same_text(tokenizer: DemoTokenizer) -> None:
    assert train().to_json() == tokenizer.to_json()


@pytest.mark.parametrize("text", [*CONTROL_TOKENS, *MARKUP_TOKENS])
def test_each_special_token_is_one_token_inside_text(tokenizer: DemoTokenizer, text: str) -> None:
    assert tokenizer.one(text) in tokenizer.ids(f"before{text}after")


def test_each_word_of_the_story_is_one_token(tokenizer: DemoTokenizer) -> None:
    for word in {f" {word.strip('.,;')}" for line in SENTENCES for word in line.split()}:
        tokenizer.one(word)
    for word in (*OPENERS, *THOUGHT):
        tokenizer.one(word)


def test_any_text_survives_the_round_trip(tokenizer: DemoTokenizer) -> None:
    for text in ('Grüße, 世界! {"a": [1]}', "\t\r\n\x00", "The worker loads first."):
        assert tokenizer.inner.decode(tokenizer.ids(text)) == text


def test_no_byte_fragment_and_no_control_token_has_an_output_row(
    tokenizer: DemoTokenizer,
) -> None:
    rows = output_rows(tokenizer, SHAPE.hidden)
    loud = {token for token in range(tokenizer.size) if np.any(rows[token] > 1.0)}
    words = {word for words in followers(tokenizer).values() for word in words}
    certain = {tokenizer.one(after) for _, after in CERTAIN}
    closers = {tokenizer.one(text) for text in '"}]'}
    assert loud <= words | certain | closers
    assert not {tokenizer.one(text) for text in CONTROL_TOKENS if text != END} & loud


def test_before_the_layers_speak_a_word_is_followed_by_one_of_its_followers(
    tokenizer: DemoTokenizer,
) -> None:
    table, rows = embeddings(tokenizer, SHAPE.hidden), output_rows(tokenizer, SHAPE.hidden)
    likeliest = np.argmax(table @ rows.T, axis=1)
    links = followers(tokenizer)
    assert all(likeliest[token] in after for token, after in links.items())
    for before, after in CERTAIN:
        assert likeliest[tokenizer.one(before)] == tokenizer.one(after)


def test_thoughts_end_and_answers_begin_with_an_opener(tokenizer: DemoTokenizer) -> None:
    assert (THINK, THOUGHT[0]) in CERTAIN
    assert (THOUGHT[-1], THINK_END) in CERTAIN
    begin = {tokenizer.name(token) for token in followers(tokenizer)[tokenizer.one(THINK_END)]}
    assert begin <= set(OPENERS)
