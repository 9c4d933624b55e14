"""The edge to pip: one run, its lines as they come, its own words when it fails."""

import os
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

TAIL_LINES = 20

# Settings of the caller's shell that would send the packages elsewhere or shadow them.
MISLEADING = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_ROOT")


@dataclass
class PipFailedError(Exception):
    """Pip ended with an error; `tail` is the end of what it said."""

    tail: list[str]

    def reason(self) -> str:
        """Return pip's own last error in one line."""
        errors = [line for line in self.tail if line.lower().startswith("error")]
        return (errors or self.tail or ["pip said nothing"])[-1].strip()


def _unheard(_line: str) -> None:
    """Take a line and drop it."""


def run(python: Path, arguments: Sequence[str], on_line: Callable[[str], None] = _unheard) -> None:
    """Run the pip of an environment; raise PipFailedError when it fails.

    pip's own configuration (mirrors, proxies, certificates) is honoured: it is how a site says
    where packages come from, and the hashes in the lock make every source equally trusted.
    """
    environment = {key: value for key, value in os.environ.items() if key not in MISLEADING}
    environment |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    with subprocess.Popen(
        [str(python), "-I", "-m", "pip", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        for line in process.stdout or ():
            tail.append(line.rstrip())
            on_line(line.rstrip())
    if process.returncode != 0:
        raise PipFailedError(list(tail))
