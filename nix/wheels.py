"""Chooses the wheel of every package that Nix installs, as Nix cannot choose by itself.

    python nix/wheels.py aarch64 PYLOCK LOCK > lock/engine-cuda-aarch64.wheels
    python nix/wheels.py x86_64 PYLOCK LOCK 3.11 > lock/engine-cpu-x86_64.wheels

PYLOCK is what `uv pip compile --format pylock.toml` says about the registry's index (PEP 751), LOCK
the requirements with all digests that are allowed. The result has a line a wheel: file name,
sha256, size in bytes. No address: the file name is all that nixpkgs' `fetchPypi` needs. The last
word is the version of Python, 3.12 if it is left out.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote
from urllib.request import Request, urlopen

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
    old = ("manylinux2014", "manylinux2010", "manylinux1", "linux")
    return [*new, *(f"{name}_{machine}" for name in old)]


def ranks(machine: str, python: tuple[int, int] = PYTHON) -> dict[Tag, int]:
    """Return the place of every tag that a machine can run, 0 the best."""
    tags = [
        *cpython_tags(python, platforms=platforms(machine)),
        *compatible_tags(python, f"cp{python[0]}{python[1]}", platforms(machine)),
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


def size(wheel: dict[str, Any]) -> int:
    """Return the bytes of a wheel: what the index says, or else the place where the file is."""
    if "size" in wheel:
        return int(wheel["size"])
    request = Request(wheel["url"], method="HEAD")  # noqa: S310 — a file, or what the index names
    with urlopen(request, timeout=60) as answer:  # noqa: S310
        return int(answer.headers["Content-Length"])


def best(package: dict[str, Any], order: dict[Tag, int]) -> Wheel:
    """Return the wheel of a package that an installer would take."""
    ranked = []
    for wheel in package.get("wheels", ()):
        name = wheel.get("name") or unquote(wheel["url"].rpartition("/")[2])
        places = [order[tag] for tag in parse_wheel_filename(name)[3] if tag in order]
        if places:
            ranked.append((min(places), Wheel(name, wheel["hashes"]["sha256"], size(wheel))))
    if not ranked:
        raise SystemExit(f"{package['name']}: no wheel for this machine")
    return min(ranked)[1]


def choose(
    machine: str, pylock: str, lock: str, python: tuple[int, int] = PYTHON
) -> Iterator[Wheel]:
    """Yield a wheel for each package; fail when one is missing or not allowed."""
    allowed, order = digests(lock), ranks(machine, python)
    for package in tomllib.loads(pylock)["packages"]:
        if package["name"] in FROM_NIXPKGS:
            continue
        wheel = best(package, order)
        if wheel.sha256 not in allowed.get(f"{package['name']}=={package['version']}", ()):
            raise SystemExit(f"{wheel.name}: its digest is not in the lock")
        yield wheel


if __name__ == "__main__":
    pylock, lock = (Path(name).read_text() for name in sys.argv[2:4])
    major, minor = map(int, sys.argv[4].split(".")) if sys.argv[4:] else PYTHON
    print(*choose(sys.argv[1], pylock, lock, (major, minor)), sep="\n")
