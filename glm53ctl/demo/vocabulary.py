"""The first and the last tensor: which word may follow which.

Every word of the story has a code, a row of signs. A token's embedding is the sum of the codes of
the words that may follow it, plus a part of its own by which the layers know it. The output row
of a word is its code. So the words that may follow stand far above the rest, and the layers decide
between them. All other output rows are near zero: no byte fragment, no special token and no end of
text is ever the likeliest, so an answer is words until its length limit.

The sums are of whole numbers and therefore exact: their order, and with it the processor, does
not matter.
"""

from itertools import pairwise
from math import sqrt

import numpy as np

from glm53ctl.demo.story import OPENERS, SENTENCES, THOUGHT
from glm53ctl.demo.streams import Floats, signs
from glm53ctl.demo.tokenizer import END, THINK, THINK_END, DemoTokenizer

MOST_FOLLOWERS = 6
"""Beyond that the codes of the followers drown in each other."""

OWN_PART = 0.3
LOUDNESS = 1.5
SHARPNESS = 0.5
"""Nats per matching sign: high enough for readable text even at temperature 1."""

CERTAIN = (('"', '"'), ("</tool_call>", END), *pairwise((THINK, *THOUGHT, THINK_END)))
"""Pairs of tokens of which the second follows the first for sure, and follows nothing else."""

BIAS_DIMENSION = 0
"""The same in every embedding, which makes it a bias for output rows that use it."""

RESERVED_DIMENSIONS = tuple(range(1 + len(CERTAIN)))
"""The bias, and one dimension for each certain pair; the layers write nothing here."""

CLOSERS = {"}": 4.0, '"': 3.0, "]": 2.0, ":": 1.0, "</tool_call>": 1.0, "0": -38.0}
DELAYERS = " \t\r\n-123456789eE"
DELAY = -40.0
"""Where a JSON schema leaves no word free, the likeliest token is the one that ends it soonest
(no blanks, 0 for a number, empty strings): so a structured answer is finished in a few tokens
instead of running to its length limit."""

Followers = dict[int, list[int]]


def followers(tokenizer: DemoTokenizer) -> Followers:
    """Return for each token the tokens that may come after it, in the order of the story."""
    found: Followers = {}

    def link(before: int, after: int) -> None:
        known = found.setdefault(before, [])
        if after not in known and len(known) < MOST_FOLLOWERS:
            known.append(after)

    for sentence in SENTENCES:
        for opening in (sentence, f" {sentence}"):
            for before, after in pairwise(tokenizer.ids(opening)):
                link(before, after)
    for opener in OPENERS:
        link(tokenizer.one(THINK_END), tokenizer.one(opener))
        link(tokenizer.one("."), tokenizer.one(f" {opener}"))
    return found


def embeddings(tokenizer: DemoTokenizer, hidden: int) -> Floats:
    """Return the embedding matrix, one row per token."""
    links = followers(tokenizer)
    table = np.empty((tokenizer.size, hidden), np.float32)
    for token in range(tokenizer.size):
        own = signs(f"own {tokenizer.name(token)}", hidden).astype(np.float32)
        after = links.get(token, [])
        row = own * OWN_PART + _sum_of_codes(tokenizer, after, hidden) if after else own
        row *= LOUDNESS
        row[list(RESERVED_DIMENSIONS)] = 0.0
        row[BIAS_DIMENSION] = 1.0
        table[token] = row
    for dimension, (before, _) in enumerate(CERTAIN, start=1):
        table[tokenizer.one(before), dimension] = 16.0
    return table


def output_rows(tokenizer: DemoTokenizer, hidden: int) -> Floats:
    """Return the output matrix, one row per token."""
    table = np.zeros((tokenizer.size, hidden), np.float32)
    for after in sorted({word for words in followers(tokenizer).values() for word in words}):
        table[after] = _code(tokenizer, after, hidden) * SHARPNESS
    for text, bias in (dict.fromkeys(DELAYERS, DELAY) | CLOSERS).items():
        table[tokenizer.one(text), BIAS_DIMENSION] = bias
    for dimension, (_, certain) in enumerate(CERTAIN, start=1):
        table[tokenizer.one(certain), dimension] = 4.0
    return table


def _code(tokenizer: DemoTokenizer, token: int, hidden: int) -> Floats:
    code = signs(f"code {tokenizer.name(token)}", hidden)
    code[list(RESERVED_DIMENSIONS)] = 0
    return code.astype(np.float32)


def _sum_of_codes(tokenizer: DemoTokenizer, tokens: list[int], hidden: int) -> Floats:
    total = np.zeros(hidden, np.float32)
    for token in tokens:
        total += _code(tokenizer, token, hidden)
    scaled: Floats = total / np.float32(sqrt(len(tokens)))
    return scaled
