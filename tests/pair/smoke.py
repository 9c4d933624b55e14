"""`make pair-smoke`: the tests of this folder, and one closing line.

Where the bed cannot be made this fails, with the reason: a smoke test that is skipped proves
nothing.
"""

import os
import sys
from pathlib import Path

import pytest

from .conftest import REQUIRED_VARIABLE


class Count:
    """Counts tests as people do: one that could not be set up has failed."""

    def __init__(self) -> None:
        self.passed: set[str] = set()
        self.failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)
        elif report.when == "call" and report.passed:
            self.passed.add(report.nodeid)


def main(arguments: list[str]) -> int:
    os.environ[REQUIRED_VARIABLE] = "1"
    count = Count()
    status = pytest.main(["-q", str(Path(__file__).parent), *arguments], plugins=[count])
    print(f"{len(count.passed - count.failed)} passed, {len(count.failed)} failed")
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
