"""The units as the tests read them: sections, keys in order, spans of time."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SERVICES = ROOT / "services"
RANKS = ("glm53-rank0.service", "glm53-rank1.service")
WATCHING = ("glm53-watchdog.service", "glm53-bus@.service")
WEIGHTS = ("glm53-weights.service", "glm53-weights-scrub.service")
UNITS = (
    *RANKS,
    *WATCHING,
    *WEIGHTS,
    "glm53-weights-scrub.timer",
    "glm53-bus.socket",
    "glm53-prepare.service",
    "glm53-reclaim.path",
    "glm53-reclaim.service",
    "glm53.target",
)

_SPAN = re.compile(r"(\d+)\s*(h|min|s|)")
_SECONDS = {"h": 3600, "min": 60, "s": 1, "": 1}


class Unit:
    """One unit file: its text, and its keys by section."""

    def __init__(self, name: str) -> None:
        self.text = (SERVICES / name).read_text()
        self.keys: dict[str, list[tuple[str, str]]] = {}
        for line in self.text.splitlines():
            if line.startswith("["):
                section = self.keys.setdefault(line.strip("[]"), [])
            elif line and not line.startswith("#"):
                key, equals, value = line.partition("=")
                assert equals, line
                section.append((key, value))

    def all(self, section: str, key: str) -> list[str]:
        """Return every value that a section gives a key."""
        return [value for name, value in self.keys[section] if name == key]

    def one(self, key: str, section: str = "Service") -> str:
        """Return the value of a key that stands once."""
        (value,) = self.all(section, key)
        return value

    def seconds(self, key: str, section: str = "Service") -> float:
        """Return a span of time in seconds."""
        spans = _SPAN.findall(self.one(key, section))
        return float(sum(int(count) * _SECONDS[unit] for count, unit in spans))


def entries(name: str) -> list[list[str]]:
    """Return the lines of a sysusers or tmpfiles file as words."""
    lines = (SERVICES / name).read_text().splitlines()
    return [line.split() for line in lines if line and not line.startswith("#")]


def systemd(program: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run one of systemd's programs; skip the test where this machine has none."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    return subprocess.run(
        [program, *words],
        env={**os.environ, "LC_ALL": "C", **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
