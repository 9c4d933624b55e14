"""A finding with how sure it is."""

from collections.abc import Iterable
from dataclasses import dataclass

from glm53ctl.diagnose.signature import Confidence
from glm53ctl.findings import Finding, Severity
from glm53ctl.redact import without_secrets
from glm53ctl.supervise.stages import Stage

EVIDENCE_COLUMNS = 300


def redacted(line: str) -> str:
    """Return a line without keys and tokens, cut to what a terminal can show."""
    return without_secrets(line.strip())[:EVIDENCE_COLUMNS]


@dataclass(frozen=True)
class Diagnosis:
    """One verdict, how sure it is, and the stage of the start that its lines were printed in."""

    finding: Finding
    confidence: Confidence = Confidence.CERTAIN
    stage: Stage | None = None

    def render(self) -> str:
        """Return the diagnosis as a few lines for a terminal: verdict, cause, fix, evidence."""
        finding = self.finding
        sure = "" if self.confidence is Confidence.CERTAIN else f" ({self.confidence.value})"
        stage = f", stage {self.stage.value}" if self.stage else ""
        place = "".join(f", {part}" for part in (finding.node, finding.where) if part)
        lines = [
            f"{finding.severity.value:<4} {finding.code}{sure}{place}{stage}",
            f"     {finding.message}",
        ]
        if finding.fix:
            lines.append(f"     -> {finding.fix}")
        return "\n".join([*lines, *(f"     | {line}" for line in finding.evidence)])


def diagnosis(
    code: str,
    severity: Severity,
    message: str,
    fix: str = "",
    evidence: Iterable[str] = (),
    confidence: Confidence = Confidence.CERTAIN,
) -> Diagnosis:
    """Make a diagnosis; its evidence is redacted."""
    shown = tuple(redacted(line) for line in evidence)
    finding = Finding(code=code, severity=severity, message=message, fix=fix, evidence=shown)
    return Diagnosis(finding, confidence)
