"""What a rule is."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from glm53ctl.config import argv
from glm53ctl.config.schema import Config
from glm53ctl.findings import Finding, Severity

Broken = Callable[[Config], Iterator[str]]


@dataclass(frozen=True)
class Rule:
    """One forbidden, doubtful or noteworthy combination.

    `broken` yields what is wrong, one sentence start for each instance. `waived_by` names a
    systemd credential whose presence answers the rule.
    """

    name: str
    code: str
    paths: tuple[str, ...]
    broken: Broken
    reason: str
    fix: str = ""
    severity: Severity = Severity.FAIL
    waived_by: str = ""

    def about(self, what: str) -> tuple[str, ...]:
        """Return the rule's settings, those first that one instance names."""
        return tuple(sorted(self.paths, key=lambda path: path not in what))

    def finding(self, what: str, where: str = "") -> Finding:
        """Return the verdict for one instance."""
        return Finding(
            code=self.code,
            severity=self.severity,
            where=where or self.paths[0],
            message=f"{what}: {self.reason}",
            fix=self.fix,
        )


def on_cuda(config: Config) -> bool:
    """Say whether the rule's hardware is in play; the CPU engine of the demo has its own limits."""
    return config.engine.platform == "cuda"


def flags_of(config: Config) -> list[argv.Flag]:
    """Return the options in `engine.extra_args`."""
    return argv.flags(config.engine.extra_args)
