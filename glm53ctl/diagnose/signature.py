"""What a signature is: the trace that one cause leaves in a log."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from glm53ctl.findings import Severity
from glm53ctl.supervise.stages import Stage

Groups = Mapping[str, str]
"""Named groups of the matched lines."""


class Confidence(StrEnum):
    """How much a log alone can say."""

    CERTAIN = "certain"
    """The line names the cause itself."""
    LIKELY = "likely"
    """The usual cause of such a line; the fix says how to make sure."""
    SYMPTOM = "symptom"
    """The line says that something broke, not why: shown only when nothing better is known."""


@dataclass(frozen=True)
class Signature:
    """One cause and the lines that betray it.

    `literals` are fixed texts; every line that counts holds at least one, which makes reading
    fast. `pattern` is searched in such a line; `also` are patterns of further lines that add
    groups and evidence, and must be seen too when `needs_also` is set. `when` looks at the groups.
    `stages` are the stages of the start in which the line means this (empty: any), `until` texts of
    later lines of the same log by which it meant nothing. `message` and `fix` are templates over
    the groups (see `fill`).
    """

    code: str
    literals: tuple[str, ...]
    pattern: str
    message: str
    fix: str = ""
    severity: Severity = Severity.FAIL
    confidence: Confidence = Confidence.CERTAIN
    also: tuple[str, ...] = ()
    needs_also: bool = False
    stages: frozenset[Stage] = frozenset()
    until: tuple[str, ...] = ()
    when: Callable[[Groups], bool] | None = None

    @cached_property
    def main(self) -> re.Pattern[str]:
        """The pattern, compiled."""
        return re.compile(self.pattern)

    @cached_property
    def further(self) -> tuple[re.Pattern[str], ...]:
        """The patterns of further lines, compiled."""
        return tuple(re.compile(pattern) for pattern in self.also)


_OPTIONAL = re.compile(r"<([^<>]*)>")


def fill(template: str, groups: Groups) -> str:
    """Return a template with groups put in.

    A part in <angle brackets> is left out when a group in it is unknown; a group `x_kb` also
    gives `{x_gib}`.
    """
    sizes = {
        f"{name.removesuffix('_kb')}_gib": f"{float(value) / (1 << 20):.1f}"
        for name, value in groups.items()
        if name.endswith("_kb")
    }
    known = {**groups, **sizes}

    def part(found: re.Match[str]) -> str:
        names = re.findall(r"\{(\w+)\}", found[1])
        return found[1] if all(name in known for name in names) else ""

    return _OPTIONAL.sub(part, template).format_map(known)


def groups_of(found: re.Match[str]) -> dict[str, str]:
    """Return the named groups that took part; `port_` stands for `port` in another alternative."""
    return {name.rstrip("_"): value for name, value in found.groupdict().items() if value}
