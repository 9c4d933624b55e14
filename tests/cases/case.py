"""Failure cases: what was seen, and what must be concluded from it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_SECTION = re.compile(r"^### (\S+)[ \t]*\n", re.MULTILINE)
NODES = ("head", "worker")
WHOLE = ("-", "pair")
"""Names of variants that mean the whole case."""


@dataclass(frozen=True)
class Expected:
    """One verdict that must be reached."""

    variant: str
    phase: str
    code: str
    severity: str
    mention: tuple[str, ...] = ()
    must_not: tuple[str, ...] = ()
    action: str = ""


@dataclass(frozen=True)
class Case:
    """One case: its files by name, and the verdicts."""

    id: str
    title: str
    files: dict[str, str]
    expected: tuple[Expected, ...]

    def variants(self) -> Iterator[str]:
        """Yield the names of what is judged, once each."""
        yield from dict.fromkeys(one.variant for one in self.expected)

    def of(self, variant: str) -> dict[str, str]:
        """Return the files that belong to a variant, without its name before theirs.

        What belongs to no variant belongs to all; the whole case keeps every name.
        """
        if variant in WHOLE:
            return self.files
        return {
            name.removeprefix(f"{variant}/"): text
            for name, text in self.files.items()
            if name.startswith(f"{variant}/") or "/" not in name
        }


@dataclass
class CaseFileError(Exception):
    """The file is no file of cases."""

    message: str
    detail: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.message


def split(text: str) -> dict[str, str]:
    """Split an input into its files: each begins with a line `### name`."""
    parts = _SECTION.split(text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _expected(raw: dict[str, Any]) -> Expected:
    return Expected(
        str(raw["variant"]),
        str(raw["phase"]),
        str(raw["code"]),
        str(raw["severity"]),
        tuple(str(word) for word in raw.get("mention") or ()),
        tuple(str(word) for word in raw.get("must_not") or ()),
        str(raw.get("action") or ""),
    )


def read_cases(path: Path) -> list[Case]:
    """Read a file of cases, schema version 1. Raises CaseFileError."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        if document.get("version") != 1:
            raise CaseFileError(f"{path}: version must be 1")
        return [
            Case(
                str(raw["id"]),
                str(raw["title"]),
                split(raw["input"]),
                tuple(_expected(one) for one in raw["expected"]),
            )
            for raw in document["cases"]
        ]
    except (OSError, yaml.YAMLError, AttributeError, KeyError, TypeError) as error:
        raise CaseFileError(f"{path}: no file of cases: {error}") from error
