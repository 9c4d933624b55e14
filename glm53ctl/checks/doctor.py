"""The doctor: facts of the nodes through every check, to one verdict."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue, ValidationError

from glm53ctl.checks import Node, judge
from glm53ctl.checks.registry import WORST_FIRST
from glm53ctl.checks.wanted import Wanted, from_config, from_texts
from glm53ctl.config.schema import Config
from glm53ctl.errors import UserError
from glm53ctl.facts import captures
from glm53ctl.facts.node import FORMAT, NodeFacts
from glm53ctl.findings import Finding, Severity


@dataclass(frozen=True)
class Report:
    """What the doctor says."""

    nodes: tuple[str, ...]
    findings: tuple[Finding, ...]
    unknown: Mapping[str, Mapping[str, str]]
    seconds: Mapping[str, Mapping[str, float]]
    """How long each probe took, by node."""

    @property
    def failures(self) -> int:
        """How many findings stop a start."""
        return sum(finding.severity is Severity.FAIL for finding in self.findings)

    def verdict(self) -> str:
        """Return the one sentence that everything comes down to."""
        warnings = sum(finding.severity is Severity.WARN for finding in self.findings)
        where = " and ".join(filter(None, self.nodes)) or "what was recorded"
        if self.failures:
            return f"{where}: {_count(self.failures, 'failure')}, {_count(warnings, 'warning')}"
        return f"{where}: nothing stops a start, {_count(warnings, 'warning')}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def examine(nodes: Sequence[Node]) -> Report:
    """Run every check over nodes that belong together."""
    unknown = {node.name: node.facts.unknowns() for node in nodes}
    seconds = {node.name: node.facts.seconds for node in nodes if node.facts.seconds}
    return Report(tuple(node.name for node in nodes), tuple(judge(nodes)), unknown, seconds)


# --- recorded facts ------------------------------------------------------------------------------


def read_facts(paths: Sequence[Path]) -> list[NodeFacts]:
    """Return recorded facts: bundles, folders or texts of tools' output.

    A folder holds one folder for each node; a text holds its files under lines `### node/name`.
    """
    nodes: list[NodeFacts] = []
    loose: dict[str, str] = {}
    for path in paths:
        if path.is_dir():
            loose.update(_folder(path))
            continue
        text = _text(path)
        if text.startswith("### "):
            loose.update(captures.split_sections(text))
        elif FORMAT in text[:4096]:
            nodes.append(_bundle(path, text))
        else:
            loose[_name_of(path)] = text
    try:
        nodes += [captures.facts_of(name, files) for name, files in _grouped(loose)]
    except ValueError as error:
        raise _refused(f"{paths[0]}: what was recorded is in disorder: {error}.") from error
    if all(node.is_empty() for node in nodes):
        raise _refused(f"{paths[0]} tells nothing that a check knows.")
    return nodes


def _grouped(files: Mapping[str, str]) -> Iterable[tuple[str, Mapping[str, str]]]:
    return captures.by_node(files).items() if files else ()


def _folder(path: Path) -> dict[str, str]:
    files = sorted(file for file in path.rglob("*") if file.is_file())
    found = {str(file.relative_to(path)): _text(file) for file in files}
    if not found:
        raise _refused(f"{path} is empty.")
    if path.name in (captures.HEAD, captures.WORKER):
        return {f"{path.name}/{name}": text for name, text in found.items()}
    return found


def _name_of(path: Path) -> str:
    beside = path.parent.name
    return f"{beside}/{path.name}" if beside in (captures.HEAD, captures.WORKER) else path.name


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise _refused(f"{path}: {error.strerror}.") from error


def _bundle(path: Path, text: str) -> NodeFacts:
    try:
        facts = NodeFacts.model_validate_json(text)
    except ValidationError as error:
        raise _refused(f"{path}: {_first(error)}.") from error
    _wanted(facts, str(path))  # refused while the file's name is known
    return facts


def _refused(message: str) -> UserError:
    return UserError(
        "FACTS_FILE",
        message,
        "Give files that `glm53ctl doctor record` made, or a folder of tools' output.",
    )


def recorded(facts: Sequence[NodeFacts]) -> list[list[Node]]:
    """Return recorded nodes in the groups that belong together.

    Bundles and what is called head and worker are a pair; other names are cases of their own.
    """
    nodes = [Node(one, _wanted(one)) for one in facts]
    names = {captures.HEAD, captures.WORKER}
    pair = [n for n in nodes if n.facts.config is not None or n.name in names]
    pair.sort(key=lambda node: node.wanted.rank)
    alone = [[node] for node in nodes if node not in pair]
    return [group for group in (pair, *alone) if group]


def _wanted_by(settings: dict[str, JsonValue], rank: int, place: str) -> Wanted:
    """Return what a recorded configuration asks; raise for one that this version does not take."""
    try:
        config = Config.model_validate(settings)
    except ValidationError as error:
        raise _refused(f"{place}: config.{_first(error)}.") from error
    if not 0 <= rank < config.world_size:
        raise _refused(f"{place}: it says rank {rank} of {config.world_size} nodes.")
    return from_config(config, rank)


def _first(error: ValidationError) -> str:
    """Return place and words of the first thing that is wrong."""
    problem = error.errors()[0]
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"


def _wanted(facts: NodeFacts, place: str = "") -> Wanted:
    if facts.config is not None and facts.rank is not None:
        return _wanted_by(facts.config, facts.rank, place or facts.node)
    return from_texts(facts.node, facts.texts)


def merged(reports: Sequence[Report]) -> Report:
    """Return several reports as one."""
    findings = [finding for report in reports for finding in report.findings]
    findings.sort(key=lambda finding: WORST_FIRST.index(finding.severity))
    return Report(
        tuple(name for report in reports for name in report.nodes),
        tuple(findings),
        {name: why for report in reports for name, why in report.unknown.items()},
        {name: took for report in reports for name, took in report.seconds.items()},
    )


# --- showing -------------------------------------------------------------------------------------

_SIGNS = {Severity.FAIL: "FAIL", Severity.WARN: "WARN", Severity.OK: "ok"}
_EVIDENCE_LINES = 8


def as_text(report: Report) -> str:
    """Return the report for a terminal: the verdict, then what matters most first."""
    lines = [report.verdict()]
    for finding in report.findings:
        node = f"{finding.node}: " if finding.node else ""
        lines += ["", f"{_SIGNS[finding.severity]:<4} {finding.code}  {node}{finding.message}"]
        lines += [f"       {line}" for line in finding.evidence[:_EVIDENCE_LINES] if line]
        if finding.fix:
            lines.append(f"     > {finding.fix}")
    return "\n".join(lines)


def as_json(report: Report) -> str:
    """Return the report for programs."""
    return json.dumps(
        {
            "verdict": report.verdict(),
            "failures": report.failures,
            "nodes": report.nodes,
            "findings": [finding.model_dump(mode="json") for finding in report.findings],
            "unknown": report.unknown,
            "seconds": report.seconds,
        },
        ensure_ascii=False,
    )
