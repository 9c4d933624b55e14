"""`python -m tests.cases FILE...`: do the product's verdicts agree with recorded failures?

Prints one line for each check that fails, and ends with `N passed, N failed`; exit status 1 when
one failed.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from .case import CaseFileError, read_cases
from .judge import judge


def main(words: Sequence[str]) -> int:
    """Judge the cases of each file; return the exit status."""
    passed = failed = 0
    try:
        for word in words:
            for case in read_cases(Path(word)):
                outcomes = judge(case)
                for outcome in outcomes:
                    if outcome.problem:
                        print(outcome, flush=True)
                wrong = sum(bool(outcome.problem) for outcome in outcomes)
                failed += wrong
                passed += len(outcomes) - wrong
    except CaseFileError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
