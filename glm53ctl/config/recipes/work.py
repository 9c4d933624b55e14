"""An import in progress: what was taken so far, and the notes."""

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from pydantic import JsonValue

from glm53ctl.config.recipes.names import Recipe
from glm53ctl.config.recipes.shell import Assigned


class Verdict(StrEnum):
    """What became of a line."""

    TAKEN = "taken"
    NO_COUNTERPART = "no counterpart"
    SECRET = "secret"  # noqa: S105 - the word, not one
    INVALID = "invalid"
    FORBIDDEN = "forbidden"
    UNKNOWN = "unknown"
    CHANGED = "changed"
    NOT_READ = "not read"


class Note(NamedTuple):
    """What became of one line of the recipe; line 0 is the file as a whole."""

    line: int
    key: str
    verdict: Verdict
    reason: str


@dataclass(frozen=True)
class Taken:
    """One setting that lines of the recipe made."""

    value: JsonValue
    line: int
    key: str


def number(text: str) -> JsonValue:
    """Return a number as vLLM's parser reads it; anything else stays text, for the schema."""
    with contextlib.suppress(ValueError):
        return int(text)
    with contextlib.suppress(ValueError):
        if math.isfinite(value := float(text)):
            return value
    return text


@dataclass
class Work:
    """Work in progress."""

    recipe: Recipe
    variables: Mapping[str, Assigned]
    taken: dict[str, Taken] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    credentials: set[str] = field(default_factory=set)
    """Those that the recipe's secrets will be: rules that ask for them are answered."""

    def text(self, name: str) -> str:
        """Return a variable's value, "" when it is not set."""
        self.used.add(name)
        found = self.variables.get(name)
        return found.value if found else ""

    def take(self, variable: Assigned, path: str, value: JsonValue) -> None:
        """Make a variable a setting."""
        self.taken[path] = Taken(value, variable.line, variable.name)

    def note(self, variable: Assigned, verdict: Verdict, reason: str) -> None:
        """Say what became of a variable."""
        self.notes.append(Note(variable.line, variable.name, verdict, reason))
