"""`make api-contract`: the API contract against a real pair; the last line counts.

python tests/engine/contract.py [pytest's arguments]
"""

import sys
from pathlib import Path

import pytest


class Count:
    """Counts tests; one that could not be set up or cleaned up has failed."""

    passed = failed = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed += 1
        elif report.passed and report.when == "call":
            self.passed += 1


def main() -> int:
    count = Count()
    suite = Path(__file__).with_name("test_api_contract.py")
    status = pytest.main(["-q", str(suite), *sys.argv[1:]], plugins=[count])
    print(f"{count.passed} passed, {count.failed} failed")
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
