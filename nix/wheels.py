"""Chooses the wheel of every package that Nix installs, as Nix cannot choose by itself.

    python nix/wheels.py aarch64 PYLOCK LOCK > lock/engine-cuda-aarch64.wheels

PYLOCK is what `uv pip compile --format pylock.toml` says about the registry's index (PEP 751), LOCK
the requirements with all digests that are allowed. The result has a line a wheel: file name,
sha256, size in bytes. No address: the file name is all that nixpkgs' `fetchPypi` needs.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

PYTHON = (3, 12)
GLIBC = 39
FROM_NIXPKGS = frozenset({"sdnotify"})
"""Packages without a wheel, which are the same in nixpkgs."""


class Wheel(NamedTuple):
    """One file of the registry."""

    name: str
    sha256: str
    size: int

    def __str__(self) -> str:
        return f"{self.name} {self.sha256} {self.size}"


def platforms(machine: str) -> list[str]:
    """Return the platform tags of a machine, best first."""
    new = [f"manylinux_2_{minor}_{machine}" for minor in range(GLIBC, 4, -1)]
    return [*new, f"manylinux2014_{machine}", f"manylinux2010_{machine}", f"linux_{machine}"]


def ranks(machine: str) -> dict[Tag, int]:
    """Return the place of every tag that a machine can run, 0 the best."""
    tags = [
        *cpython_tags(PYTHON, platforms=platforms(machine)),
        *compatible_tags(PYTHON, f"cp{PYTHON[0]}{PYTHON[1]}", platforms(machine)),
    ]
    return {tag: place for place, tag in enumerate(tags)}


def digests(lock: str) -> dict[str, set[str]]:
    """Return what a requirements lock allows: `name==version` -> sha256."""
    found: dict[str, set[str]] = {}
    current: set[str] = set()
    for line in lock.splitlines():
        if pin := re.match(r"([a-z0-9._-]+)==([^ ;]+)", line):
            current = found.setdefault(pin[0], set())
        elif digest := re.search(r"--hash=sha256:([0-9a-f]{64})", line):
            current.add(digest[1])
    return found


def best(package: dict[str, Any], order: dict[Tag, int]) -> Wheel:
    """Return the wheel of a package that an installer would take."""
    ranked = []
    for wheel in package.get("wheels", ()):
        name = wheel.get("name") or wheel["url"].rpartition("/")[2]
        places = [order[tag] for tag in parse_wheel_filename(name)[3] if tag in order]
        if places:
            ranked.append((min(places), Wheel(name, wheel["hashes"]["sha256"], wheel["size"])))
    if not ranked:
        raise SystemExit(f"{package['name']}: no wheel for this machine")
    return min(ranked)[1]


def choose(machine: str, pylock: str, lock: str) -> Iterator[Wheel]:
    """Yield a wheel for each package; fail when one is missing or not allowed."""
    allowed, order = digests(lock), ranks(machine)
    for package in tomllib.loads(pylock)["packages"]:
        if package["name"] in FROM_NIXPKGS:
            continue
        wheel = best(package, order)
        if wheel.sha256 not in allowed.get(f"{package['name']}=={package['version']}", ()):
            raise SystemExit(f"{wheel.name}: its digest is not in the lock")
        yield wheel


if __name__ == "__main__":
    texts = [Path(name).read_text() for name in sys.argv[2:4]]
    print(*choose(sys.argv[1], *texts), sep="\n")
