"""Reads `engine.extra_args` the way vLLM's parser would, without vLLM."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Flag:
    """One option: its full name, its values, and the words that wrote it."""

    name: str
    values: tuple[str, ...]
    words: tuple[str, ...]

    def means(self, *options: str) -> bool:
        """Say whether it is one of these; like the engine's parser it takes a beginning for all."""
        whole = self.name.startswith("--") and len(self.name) > len("--x")
        return any(o == self.name or (whole and o.startswith(self.name)) for o in options)

    @property
    def text(self) -> str:
        """Everything that was written for it, in one line."""
        return " ".join(self.words)


def _full_name(word: str) -> str:
    """Return `--kv_cache_dtype` or `--speculative-config.method` as the option they mean."""
    option = word.split(".", 1)[0]
    return option.replace("_", "-") if word.startswith("--") else option


def _is_option(word: str) -> bool:
    """Say whether a word starts an option; `-1` is a value."""
    return word.startswith("-") and not word[1:2].isdigit() and word != "-"


def flags(words: Sequence[str]) -> list[Flag]:
    """Group words into options with their values (`--x y`, `--x=y`, `--x a b c`)."""
    found: list[Flag] = []
    for word in words:
        if _is_option(word):
            head, equals, value = word.partition("=")
            found.append(Flag(_full_name(head), (value,) if equals else (), (word,)))
        elif found:
            last = found[-1]
            found[-1] = Flag(last.name, (*last.values, word), (*last.words, word))
        else:
            found.append(Flag(word, (), (word,)))
    return found
