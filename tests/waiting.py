"""How tests wait: on a condition, with a deadline, never for a time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(condition: Callable[[], T], what: str, seconds: float = 120.0) -> T:
    """Return the condition's first true value; fail, naming `what`, at the deadline."""
    limit = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < limit, f"waited {seconds:.0f} s for {what}"
        time.sleep(0.03)
    return value
