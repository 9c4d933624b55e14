"""Where facts come from: files below a root, and programs. Neither raises: see `Unknown`."""

import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict

PROGRAM_SECONDS = 2.0
"""How long a program may take to tell a fact; a doctor that hangs is no doctor."""


class Fact(BaseModel):
    """Something that was read. Facts never change and travel as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Unknown(Fact):
    """Nothing could be read, and why. By itself this is never a failure."""

    unknown: str


F = TypeVar("F")
Runner = Callable[[Sequence[str]], str | Unknown]
"""Runs a program and returns what it printed."""


def run_program(argv: Sequence[str], seconds: float = PROGRAM_SECONDS) -> str | Unknown:
    """Run a program with a limit of time, that of one that only looks, and return its output."""
    try:
        done = subprocess.run(
            argv,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except FileNotFoundError:
        return Unknown(unknown=f"{argv[0]} is not installed")
    except (OSError, subprocess.TimeoutExpired) as error:
        return Unknown(unknown=f"{argv[0]}: {error}")
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip().splitlines()
        return Unknown(unknown=f"{argv[0]} ended with {done.returncode}: {' '.join(words[-1:])}")
    return done.stdout


@dataclass(frozen=True)
class Host:
    """The machine that probes look at: this one, or a tree and a stand-in for its programs."""

    root: Path = Path("/")
    run: Runner = run_program

    def path(self, name: str) -> Path:
        """Return where an absolute path of the machine is."""
        return self.root / name.lstrip("/")

    def read(self, name: str) -> str | Unknown:
        """Return the text of a file. Entries of sysfs may refuse to be read at any time."""
        try:
            return self.path(name).read_text(errors="replace")
        except OSError as error:
            return Unknown(unknown=f"{name}: {error.strerror}")

    def line(self, name: str) -> str:
        """Return the one line of a small file, "" where it cannot be read."""
        text = self.read(name)
        return "" if isinstance(text, Unknown) else text.strip()

    def names(self, name: str) -> tuple[str, ...] | Unknown:
        """Return the sorted entries of a directory."""
        try:
            return tuple(sorted(os.listdir(self.path(name))))
        except OSError as error:
            return Unknown(unknown=f"{name}: {error.strerror}")


HERE = Host()
"""This machine."""


def known(fact: F | Unknown) -> F | None:
    """Return a fact, or None where it is unknown."""
    return None if isinstance(fact, Unknown) else fact
