"""The one place that starts programs of this machine, and the one kind of error."""

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

TIMEOUT_SECONDS = 60.0
_SHOWN_CHARACTERS = 600


@dataclass
class BedError(Exception):
    """What went wrong, and what to do about it."""

    message: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()


def run(
    *words: object, check: bool = True, stdin: bytes = b"", timeout: float = TIMEOUT_SECONDS
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and return what it said; BedError on failure unless told not to."""
    command = [str(word) for word in words]
    try:
        done = subprocess.run(
            command, input=stdin, capture_output=True, timeout=timeout, check=False
        )
    except FileNotFoundError as error:
        raise BedError(f"{command[0]} is not installed.") from error
    except subprocess.TimeoutExpired as error:
        raise BedError(f"`{' '.join(command)}` did not end in {timeout:.0f} s.") from error
    said, complaint = (stream.decode(errors="replace") for stream in (done.stdout, done.stderr))
    if check and done.returncode:
        last = (complaint or said).strip()[-_SHOWN_CHARACTERS:]
        raise BedError(f"`{' '.join(command)}` ended with {done.returncode}: {last}")
    return subprocess.CompletedProcess(command, done.returncode, said, complaint)


def until(condition: Callable[[], bool], seconds: float, pause: float = 0.02) -> bool:
    """Wait until the condition holds, `seconds` at most, and return whether it does."""
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(pause)
    return True
