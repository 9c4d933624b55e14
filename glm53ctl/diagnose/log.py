"""Logs: the signatures at work."""

import io
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from glm53ctl.diagnose.acceptance import METRICS_LINE, Acceptance
from glm53ctl.diagnose.diagnosis import Diagnosis, redacted
from glm53ctl.diagnose.lines import Readable, telling
from glm53ctl.diagnose.signature import Confidence, Signature, fill, groups_of
from glm53ctl.diagnose.story import MILESTONES, PROGRESS, Story
from glm53ctl.diagnose.table import SIGNATURES
from glm53ctl.findings import Finding, Severity
from glm53ctl.redact import without_secrets
from glm53ctl.supervise.stages import Stage

EVIDENCE_LINES = 3

_BY_LITERAL: dict[str, list[Signature]] = {}
for _signature in SIGNATURES:
    for _text in _signature.literals:
        _BY_LITERAL.setdefault(_text, []).append(_signature)
_LITERALS = frozenset(text.encode() for text in _BY_LITERAL)
_UNTIL = {text for signature in SIGNATURES for text in signature.until}
_ALWAYS = frozenset(text.encode() for text in (*MILESTONES, *PROGRESS, METRICS_LINE, *_UNTIL))
_ORDER = {id(signature): place for place, signature in enumerate(SIGNATURES)}


@dataclass
class _Seen:
    """What was seen of one signature."""

    groups: dict[str, str] = field(default_factory=dict)
    evidence: list[str] = field(default_factory=list)
    stage: Stage | None = None
    log: str = ""
    main: bool = False
    further: set[int] = field(default_factory=set)

    def is_whole(self, signature: Signature) -> bool:
        """Say whether every line that the signature needs was there."""
        whole = not signature.needs_also or len(self.further) == len(signature.further)
        return self.main and whole

    def add(self, line: str, found: re.Match[str]) -> None:
        """Take what was found in a line, without its secrets; what the first one said stays."""
        full = len(self.evidence) == EVIDENCE_LINES
        if full and groups_of(found).keys() <= self.groups.keys():
            return  # one of a flood
        groups = groups_of(found.re.search(without_secrets(line)) or found)
        self.groups = {n: without_secrets(v) for n, v in groups.items()} | self.groups
        shown = redacted(line)
        if not full and shown not in self.evidence:
            self.evidence.append(shown)


class LogReader:
    """Reads the logs of one node, then says what they mean.

    Each log tells a start of its own (`stories`); what they betray is judged together, so that a
    kernel log explains the death in an engine's.
    """

    def __init__(self, stage: Stage | None = None) -> None:
        """`stage` is where the first log begins, when that is known."""
        self.stories: dict[str, Story] = {}
        self._stage = stage
        self._seen: dict[int, _Seen] = {}
        self._acceptance = Acceptance()

    def read(self, name: str, stream: Readable) -> None:
        """Read one log to its end; memory use does not grow with it."""
        story = self.stories.setdefault(name, Story())
        for line in telling(stream, _LITERALS, _ALWAYS):
            story.feed(line)
            if METRICS_LINE in line:
                self._acceptance.feed(line)
            for text in _UNTIL:
                if text in line:
                    self._forget(name, text)
            self._match(name, line, story.stage or self._stage)

    def _forget(self, name: str, text: str) -> None:
        for place in [place for place, seen in self._seen.items() if seen.log == name]:
            if text in SIGNATURES[place].until:
                del self._seen[place]

    def _match(self, name: str, line: str, stage: Stage | None) -> None:
        touched = {
            _ORDER[id(signature)]
            for text, signatures in _BY_LITERAL.items()
            if text in line
            for signature in signatures
        }
        claimed = False
        for place in sorted(touched):
            signature = SIGNATURES[place]
            seen = self._seen.setdefault(place, _Seen())
            for number, pattern in enumerate(signature.further):
                if found := pattern.search(line):
                    seen.further.add(number)
                    seen.add(line, found)
            if claimed or (signature.stages and stage and stage not in signature.stages):
                continue
            found = signature.main.search(line)
            if found and (signature.when is None or signature.when(groups_of(found))):
                # A line betrays one cause, the first in the table.
                claimed = not signature.needs_also
                seen.main = True
                seen.log = seen.log or name
                seen.stage = seen.stage or stage
                seen.add(line, found)

    def diagnoses(self) -> list[Diagnosis]:
        """Return what the logs betray, the likeliest cause first."""
        found = [
            _diagnosis(SIGNATURES[place], seen)
            for place, seen in sorted(self._seen.items())
            if seen.is_whole(SIGNATURES[place])
        ]
        if acceptance := self._acceptance.diagnose():
            found.append(acceptance)
        return [self._with_context(one, found) for one in _without_echoes(found)]

    def _with_context(self, one: Diagnosis, all_: list[Diagnosis]) -> Diagnosis:
        """Add to what systemd did the lines that say what it did it to."""
        if one.finding.code == "UNIT_TIMEOUT_SHORT":
            progress = [story.progress for story in self.stories.values() if story.progress]
            return _with_evidence(one, map(redacted, progress[-1:]))
        if one.finding.code == "UNIT_START_LIMIT":
            causes = [other for other in all_ if not other.finding.code.startswith("UNIT_")]
            return _with_evidence(one, causes[0].finding.evidence if causes else ())
        return one


def _with_evidence(one: Diagnosis, more: Iterable[str]) -> Diagnosis:
    finding = one.finding
    changed = finding.model_copy(update={"evidence": (*finding.evidence, *more)})
    return replace(one, finding=changed)


def _diagnosis(signature: Signature, seen: _Seen) -> Diagnosis:
    finding = Finding(
        code=signature.code,
        severity=signature.severity,
        message=fill(signature.message, seen.groups),
        fix=fill(signature.fix, seen.groups),
        evidence=tuple(seen.evidence),
    )
    return Diagnosis(finding, signature.confidence, seen.stage)


def _without_echoes(found: list[Diagnosis]) -> list[Diagnosis]:
    """Leave out symptoms of a named cause, and what only may be harmless beside a failure."""
    causes = [
        one
        for one in found
        if one.finding.severity is Severity.FAIL and one.confidence is not Confidence.SYMPTOM
    ]
    if not causes:
        return found
    return [
        one
        for one in found
        if one.confidence is not Confidence.SYMPTOM
        and not (one.finding.severity is Severity.OK and one.confidence is not Confidence.CERTAIN)
    ]


def explain_lines(lines: Iterable[str], stage: Stage | None = None) -> Finding | None:
    """Return the cause that a rank's last lines betray; None when they name none.

    `stage` is the stage that the lines were printed in. Verdicts that all is well are no cause,
    and neither are symptoms, but for the error of a start: that a process died is known to whoever
    asks.
    """
    reader = LogReader(stage)
    reader.read("", io.BytesIO("\n".join(lines).encode()))
    causes = [
        one
        for one in reader.diagnoses()
        if one.confidence is not Confidence.SYMPTOM or one.finding.code == "ENGINE_ERROR"
    ]
    for severity in (Severity.FAIL, Severity.WARN):
        for one in causes:
            if one.finding.severity is severity:
                return one.finding
    return None
