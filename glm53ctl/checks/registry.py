"""What a check is, what it sees, and the list of all of them.

A check is a pure function that yields findings. It says nothing about what it does not know: a
fact that is unknown is never a failure by itself.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from glm53ctl.checks.wanted import Wanted
from glm53ctl.facts.node import NodeFacts
from glm53ctl.findings import Finding, Severity


@dataclass(frozen=True)
class Node:
    """One node: its facts, and what the settings ask of it. `serving`: its engine is at work."""

    facts: NodeFacts
    wanted: Wanted
    serving: bool = False

    @property
    def name(self) -> str:
        """What findings call the node."""
        return self.facts.node


NodeCheck = Callable[[Node], Iterator[Finding]]
PairCheck = Callable[[tuple[Node, ...]], Iterator[Finding]]


@dataclass(frozen=True)
class Check:
    """A check with the codes that it may report."""

    name: str
    codes: tuple[str, ...]
    says: str
    of_node: NodeCheck | None = None
    of_pair: PairCheck | None = None


CHECKS: list[Check] = []
"""Every check, in the order of definition."""


def node_check(*codes: str) -> Callable[[NodeCheck], NodeCheck]:
    """Register a check that looks at one node."""

    def register(function: NodeCheck) -> NodeCheck:
        CHECKS.append(Check(_name(function), codes, _says(function), of_node=function))
        return function

    return register


def pair_check(*codes: str) -> Callable[[PairCheck], PairCheck]:
    """Register a check that compares the nodes; its findings name the node themselves."""

    def register(function: PairCheck) -> PairCheck:
        CHECKS.append(Check(_name(function), codes, _says(function), of_pair=function))
        return function

    return register


WORST_FIRST = (Severity.FAIL, Severity.WARN, Severity.OK)


def judge(nodes: Sequence[Node], checks: Iterable[Check] = CHECKS) -> list[Finding]:
    """Run checks over nodes that belong together; the worst findings first, each once."""
    findings: list[Finding] = []
    for check in checks:
        if check.of_node is not None:
            for node in nodes:
                found = check.of_node(node)
                findings += [f.model_copy(update={"node": f.node or node.name}) for f in found]
        elif check.of_pair is not None and len(nodes) > 1:
            findings += check.of_pair(tuple(nodes))
    return sorted(_once(findings), key=lambda finding: WORST_FIRST.index(finding.severity))


def _once(findings: Iterable[Finding]) -> list[Finding]:
    """Drop what two checks found alike: the same code at the same place."""
    kept: dict[tuple[str, str, str], Finding] = {}
    for finding in findings:
        kept.setdefault((finding.code, finding.node, finding.where or finding.message), finding)
    return list(kept.values())


def _name(function: Callable[..., object]) -> str:
    return function.__name__.strip("_").replace("_", "-")


def _says(function: Callable[..., object]) -> str:
    """Return what a check is about: the first line of its docstring."""
    return (function.__doc__ or "").partition("\n")[0].removeprefix("Check that ")


def fail(code: str, message: str, fix: str, *evidence: str, where: str = "") -> Finding:
    """Return a finding that stops a start."""
    return _finding(Severity.FAIL, code, message, fix, evidence, where)


def warn(code: str, message: str, fix: str, *evidence: str, where: str = "") -> Finding:
    """Return a finding that is shown."""
    return _finding(Severity.WARN, code, message, fix, evidence, where)


def ok(code: str, message: str, *evidence: str, where: str = "") -> Finding:
    """Return a finding that is on record."""
    return _finding(Severity.OK, code, message, "", evidence, where)


def _finding(
    severity: Severity, code: str, message: str, fix: str, evidence: tuple[str, ...], where: str
) -> Finding:
    return Finding(
        code=code, severity=severity, message=message, fix=fix, evidence=evidence, where=where
    )
