"""What the two recipes published, to be shown beside a measurement: never a promise."""

SEED_1, SEED_2 = "vllm-recipe", "tensorfold"

DECODE_TOKENS = 400
DECODE = {
    ("structured", 1): {SEED_1: 62.9, SEED_2: 114.7},
    ("structured", 2): {SEED_1: 103.3},
    ("structured", 4): {SEED_1: 146.5, SEED_2: 227.9},
    ("prose", 1): {SEED_1: 26.9, SEED_2: 60.4},
    ("prose", 4): {SEED_2: 108.8},
}
"""tok/s of all streams. Recipe 1: warm, empty KV, temperature 0, no thinking, DECODE_TOKENS."""


def decode(kind: str, streams: int, max_tokens: int, *, think: bool) -> dict[str, float]:
    """Return what was published for a case; nothing where it was asked otherwise."""
    alike = max_tokens == DECODE_TOKENS and not think
    return DECODE.get((kind, streams), {}) if alike else {}


PREFILL = {8_192: {SEED_2: 1952.0}, 982_000: {SEED_2: 1015.0}}
"""tok/s, by the step of the ladder; measured with 8,219 and 981,841 tokens."""

PREFIX_TTFT = {65_536: {SEED_2: 0.07}, 7_900: {SEED_2: 0.13}}
"""Seconds to the first token of a prompt that was asked before."""
PREFIX_REUSE = {7_900: {SEED_1: 0.46}}
"""Share of a continued prompt that came from the cache, by its length before."""
