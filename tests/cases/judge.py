"""Compares what the product concludes with what a case expects."""

from collections.abc import Iterable
from dataclasses import dataclass

from glm53ctl.findings import Finding, Severity

from .case import NODES, Case, Expected
from .entries import ENTRIES


@dataclass(frozen=True)
class Outcome:
    """One verdict and why it was not reached; "" when it was."""

    case: Case
    expected: Expected
    problem: str

    def __str__(self) -> str:
        one = self.expected
        return f"{self.case.id} {one.variant} {one.phase} {one.code}: {self.problem}"


def conclude(case: Case, variant: str) -> list[Finding]:
    """Return what all ways in say about a variant of a case."""
    own, whole = case.of(variant), case.files
    found = []
    for name, enter in ENTRIES.items():
        if name == "doctor" and variant in NODES:  # some checks of a node compare it with the other
            found += [one for one in enter(whole) if one.node in ("", variant)]
        else:
            found += enter(own)
    return found


def said_of(finding: Finding) -> str:
    """Return everything that a finding prints."""
    parts = (finding.node, finding.where, finding.message, finding.fix, *finding.evidence)
    return "\n".join(parts)


def judge(case: Case) -> list[Outcome]:
    """Return an outcome for each verdict that a case expects.

    A way in that breaks fails the verdicts of its variant, and no others.
    """
    outcomes = []
    for variant in case.variants():
        wanted = [one for one in case.expected if one.variant == variant]
        try:
            found = conclude(case, variant)
        except Exception as error:
            why = f"it broke: {type(error).__name__}: {error}"
            outcomes += [Outcome(case, one, why) for one in wanted]
        else:
            outcomes += [Outcome(case, one, _problem(one, found, case)) for one in wanted]
    return outcomes


def _problem(expected: Expected, found: Iterable[Finding], case: Case) -> str:
    found = list(found)
    right = [one for one in found if (one.code, one.severity) == (expected.code, expected.severity)]
    if not right:
        codes = ", ".join(f"{one.code} {one.severity.value}" for one in found) or "nothing"
        return f"not concluded ({codes})"
    lacks = [
        [word for word in expected.mention if word.lower() not in said_of(one).lower()]
        for one in right
    ]
    if missing := min(lacks, key=len):
        return f"does not mention {', '.join(missing)}"
    if expected.action and not any(one.fix for one in right):
        return "says no next step"
    for word in expected.must_not:
        for one in found:
            if one.code == word or word.lower() in said_of(one).lower():
                return f"says {word}, which is wrong here ({one.code})"
    if all(one.severity == Severity.OK for one in case.expected if one.variant == expected.variant):
        blamed = [one.code for one in found if one.severity is Severity.FAIL]
        if blamed:
            return f"all is well here, and it blames {', '.join(blamed)}"
    return ""
