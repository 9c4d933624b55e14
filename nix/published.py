"""Asks the registry's index whether it has every wheel that Nix installs.

    python nix/published.py lock/*.wheels

A wheel is there when its index page lists the file with the sha256 and the size of the lock. Which
index that is, is what pip was told (its configuration, the environment, else its default). Builds
with a local version (`+cpu`) are on no public index; they are named, and not asked for.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from packaging.utils import canonicalize_name, parse_wheel_filename

JSON = "application/vnd.pypi.simple.v1+json"
"""PEP 691: the index as data, with sizes."""

WORKERS = 8
SECONDS = 60


class Wheel(NamedTuple):
    """One line of a lock, as nix/wheels.py writes it."""

    name: str
    sha256: str
    size: int


def index() -> str:
    """Return the index that pip asks, as its help says it once configuration is taken in."""
    words = [sys.executable, "-m", "pip", "install", "--help"]
    wide = {**os.environ, "COLUMNS": "1000"}
    text = subprocess.run(words, env=wide, capture_output=True, text=True, check=True).stdout
    found = re.search(r"--index-url.*?\(default\s+(\S+)\)", text, re.DOTALL)
    if found is None:
        raise SystemExit("pip does not say which index it asks")
    return found[1].rstrip("/")


def listed(wheels: Iterable[str]) -> list[Wheel]:
    """Return the wheels of the locks' lines."""
    rows = (line.split() for line in wheels)
    return [Wheel(name, sha256, int(size)) for name, sha256, size in rows]


def page(client: httpx.Client, project: str) -> list[dict[str, Any]]:
    """Return the files of a project; none when the index does not know it."""
    answer = client.get(f"{project}/")
    if answer.status_code == httpx.codes.NOT_FOUND:
        return []
    files: list[dict[str, Any]] = answer.raise_for_status().json()["files"]
    return files


def complaint(wheel: Wheel, files: Iterable[dict[str, Any]]) -> str | None:
    """Return what an index page says against a wheel."""
    for file in files:
        if file["filename"] == wheel.name:
            if file["hashes"].get("sha256") != wheel.sha256:
                return "another sha256"
            if file.get("size", wheel.size) != wheel.size:
                return f"{file['size']} bytes"
            return f"yanked: {file['yanked']}" if file.get("yanked") else None
    return "no such file"


def missing(base: str, wheels: Iterable[Wheel]) -> Iterator[tuple[Wheel, str]]:
    """Yield every wheel that the index does not have as it is locked, and why."""
    everything = list(wheels)
    with (
        httpx.Client(
            base_url=base, headers={"Accept": JSON}, timeout=SECONDS, follow_redirects=True
        ) as client,
        ThreadPoolExecutor(WORKERS) as pool,
    ):

        def ask(wheel: Wheel) -> str | None:
            project = canonicalize_name(wheel.name.partition("-")[0])
            return complaint(wheel, page(client, project))

        for wheel, said in zip(everything, pool.map(ask, everything), strict=True):
            if said:
                yield wheel, said


def main() -> int:
    """Ask for every lock; 1 when something is not there."""
    base, wrong = index(), 0
    for path in map(Path, sys.argv[1:]):
        every = listed(path.read_text().splitlines())
        local = [wheel for wheel in every if parse_wheel_filename(wheel.name)[1].local]
        absent = list(missing(base, (wheel for wheel in every if wheel not in local)))
        size = sum(wheel.size for wheel in every)
        print(f"{path}: {len(every)} wheels, {size:,} bytes, {len(absent)} not in the index")
        for wheel, said in absent:
            print(f"  {wheel.name}: {said}")
        for wheel in local:
            print(f"  {wheel.name}: a local build, not asked for")
        wrong += len(absent)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
