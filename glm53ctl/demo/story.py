"""All the words that the demo model knows: what it is trained on, so to say.

Its answers are walks through these sentences: from each word to a word that follows it somewhere
below, chosen by the random layers. So an answer reads like text, yet every word of it depends on
the whole prompt and on every weight of both ranks.
"""

SENTENCES = (
    "Two machines share one model and answer with one voice.",
    "The head takes your question and the worker carries half of every layer.",
    "The worker holds the other half of the weights and never speaks to you.",
    "The cable between them carries sums, many small sums, all day long.",
    "When one rank stops, the other must stop too, and both begin again together.",
    "A rank alone can never answer; a pair can.",
    "The supervisor watches tokens, not promises, and writes down every cause once.",
    "A long prompt is not a fault, so the watchdog is patient while numbers move.",
    "The shards are checked by their digests before the engine may read them.",
    "Memory is counted first, because the machine keeps its cache and its weights in one place.",
    "Experts sleep until the router calls two of them for a token.",
    "A prompt seen before is answered sooner, for its prefix waits in the cache.",
    "When the cable comes back, the pair meets again and the worker loads first.",
    "Two ranks start, meet, load, warm up and then say that they are ready.",
    "The engine says that it is well; the canary asks for proof.",
    "Every error should name its cause and the next thing to do.",
    "Random weights speak nonsense, but both halves must speak the same nonsense.",
    "If these words are equal on one rank and on two, then the sums are right.",
    "A small model on your laptop shows how the large one is kept alive.",
    "So the demo ends, and the real machines may begin.",
)

THOUGHT = ("Small", " random", " brains", " cannot", " ponder")
"""What the model thinks before every answer when it is asked to think; no word of it is above."""

OPENERS = ("Two", "The", "When", "A", "Every", "So", "If", "Random")
"""How an answer may begin."""


def training_text() -> list[str]:
    """Return the lines from which the tokenizer learns its merges.

    Each sentence stands twice, with and without a blank before it: inside an answer the first
    word of a sentence carries one, at its beginning it does not, and both must be one token.
    """
    return [line for sentence in SENTENCES for line in (sentence, f" {sentence}")] + [
        "".join(THOUGHT)
    ]
