"""What is asked: the recipes' questions, fillers of any length, and whether answers are sane."""

import random
import re
from collections import Counter

STRUCTURED = "Count from 1 to 200. Write only the numbers, separated by a comma and a space."
PROSE = "Explain how a hash map works, for a programmer who has never written one."
PROMPTS = {"structured": STRUCTURED, "prose": PROSE}

COHERENCE = "Write the first five prime numbers, separated by a comma and a space. Nothing else."
COHERENT = re.compile(r"2\D+3\D+5\D+7\D+11")

_WORDS = (
    "stone", "river", "lamp", "winter", "seven", "garden", "letter", "quiet", "engine", "copper",
    "market", "shadow", "window", "orchard", "signal", "timber", "harbour", "basket", "meadow",
    "thread", "candle", "bridge", "ladder", "mirror", "pocket", "saddle",
)  # fmt: skip
NEEDLE = "The access code of the lighthouse is {code}."
QUESTION = "\n\nWhat is the access code of the lighthouse? Answer with the code alone."


def filler(words: int, salt: str) -> str:
    """Return plain text of so many words. Another salt differs from the first word on.

    So no block of one prompt is in the prefix cache because of another.
    """
    draw = random.Random(salt)  # noqa: S311
    said = [salt, *(draw.choice(_WORDS) for _ in range(words - 1))]
    lines = (" ".join(said[start : start + 12]) + "." for start in range(0, len(said), 12))
    return "\n".join(lines)


def haystack(words: int, salt: str, depth: float) -> tuple[str, str]:
    """Return a filler with a code at `depth` (0 to 1) and a question for it; and the code."""
    code = f"{random.Random(salt).randrange(10**6):06d}"  # noqa: S311
    lines = filler(words, salt).split("\n")
    lines.insert(round(depth * len(lines)), NEEDLE.format(code=code))
    return "\n".join(lines) + QUESTION, code


def degenerate(text: str) -> bool:
    """Say whether an answer is one thing over and over, as of a broken kernel.

    Counting is not: its words differ. Too short an answer is not judged.
    """
    words = text.split()
    if len(words) < 8:
        return len(text) >= 16 and max(Counter(text).values()) > 0.8 * len(text)
    return max(Counter(words).values()) > 0.6 * len(words)
