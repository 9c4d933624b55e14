"""`make pair-smoke`: the tests of this folder, and one closing line.

Where the bed cannot be made this fails, with the reason: a smoke test that is skipped proves
nothing.
"""

import os
import sys
from pathlib import Path

from again import run

from .conftest import REQUIRED_VARIABLE


def main(arguments: list[str]) -> int:
    os.environ[REQUIRED_VARIABLE] = "1"
    status, tally = run([str(Path(__file__).parent), *arguments])
    print(f"{len(tally.passed)} passed, {len(tally.failed)} failed")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
