"""`python -m tests.again ARGUMENTS`: pytest, and the few tests that failed once more by themselves.

Many of our tests run real processes against deadlines, on machines that others hold up. A fault of
ours fails again; a test that then passes is named, to be mended. Where more fail than chance
explains nothing is repeated.
"""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

MOST = 3
"""As many may have failed by chance."""


@dataclass(eq=False)  # pytest keeps its plugins in sets
class Tally:
    """Which tests passed and which failed; one that could not be set up has failed."""

    passed: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take down one test's outcome: pytest calls this."""
        if report.failed:
            self.failed.add(report.nodeid)
            self.passed.discard(report.nodeid)
        elif report.when == "call" and report.passed:
            self.passed.add(report.nodeid)


def run(arguments: Sequence[str]) -> tuple[int, Tally]:
    """Run pytest, what failed once more, and return its exit status and every test's outcome."""
    tally = Tally()
    status = int(pytest.main(["-q", *arguments], plugins=[tally]))
    again = sorted(tally.failed)
    if status != pytest.ExitCode.TESTS_FAILED or not 0 < len(again) <= MOST:
        return status, tally
    print("once more, by themselves:", *again, sep="\n  ", flush=True)
    # A process of its own: nothing of the first run is left in it.
    status = subprocess.run([sys.executable, "-m", "pytest", "-q", *again], check=False).returncode
    if status == 0:
        print("passed by themselves; what held them up is to be mended:", *again, sep="\n  ")
        tally.passed |= tally.failed
        tally.failed.clear()
    return status, tally


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:])[0])
