"""The one type of verdict that rules, checks, the supervisor and the doctor all speak."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict


class Severity(StrEnum):
    """How much a finding matters: `fail` stops a start, `warn` is shown, `ok` is on record."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(BaseModel):
    """One verdict about one thing.

    `where` is a file:key, a device or a path; `node` the host it was seen on ("" = the pair);
    `evidence` what was read that shows it, one line each.
    """

    model_config = ConfigDict(frozen=True)

    code: str
    severity: Severity
    message: str
    fix: str = ""
    node: str = ""
    where: str = ""
    evidence: tuple[str, ...] = ()

    def sentence(self) -> str:
        """Return the finding as one line for a terminal or a log."""
        place = f"{self.where}: " if self.where else ""
        return f"{self.code}: {place}{self.message}" + (f" {self.fix}" if self.fix else "")
