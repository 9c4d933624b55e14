"""Reads the lock just far enough to take one package out of it."""

import re
from collections.abc import Iterator

from glm53ctl.errors import UserError

PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)")


def entries(lock: str) -> Iterator[tuple[str, str, str]]:
    """Yield (name, version, text with hashes) of every locked package.

    An entry is its first line and the indented lines below it; comments belong to nobody.
    """
    for block in re.split(r"\n(?=\S)", lock):
        pin = PIN.match(block)
        if pin:
            yield pin["name"].lower(), pin["version"], block.rstrip() + "\n"


def split(lock: str, name: str) -> tuple[str, str]:
    """Return the entry of one package, and all the others as one text."""
    chosen = [text for entry, _, text in entries(lock) if entry == name]
    others = [text for entry, _, text in entries(lock) if entry != name]
    return "".join(chosen), "".join(others)


def version_in(lock: str, name: str) -> str:
    """Return the locked version of a package that the engine cannot be without."""
    for entry, version, _ in entries(lock):
        if entry == name:
            return version
    raise UserError("ENGINE_SOURCES", f"The engine's lock has no {name}.", "Run `make lock`.")
