"""`make rdma`: the tests of this folder, and what they ran on and how long it took.

Where the guests cannot be had this ends with 2 and says what is missing.
"""

import os
import sys
import time
from pathlib import Path

import pytest
from pair.bed.run import BedError

from .conftest import REQUIRED_VARIABLE
from .guests import accelerator, default_state, why_not
from .guests.root import Root

CANNOT_RUN = 2


def main(arguments: list[str]) -> int:
    """Return pytest's status, or 2."""
    started = time.monotonic()
    if reason := why_not():
        print(f"rdma: {reason}.", file=sys.stderr)
        return CANNOT_RUN
    try:
        Root(default_state() / "root").build()
    except BedError as error:
        print(f"rdma: {error}", file=sys.stderr)
        return CANNOT_RUN
    print(f"guests run by QEMU with {accelerator()}")
    os.environ[REQUIRED_VARIABLE] = "1"
    status = pytest.main(["-q", "-p", "no:cacheprovider", str(Path(__file__).parent), *arguments])
    print(f"{time.monotonic() - started:.0f} s in all")
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
