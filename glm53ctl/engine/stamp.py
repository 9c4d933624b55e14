"""How a whole engine is told from a half-made one: a stamp written last, a mark set first."""

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from glm53ctl.engine.sources import Sources

INSTALLER_VERSION = "1"
"""Raise it when an engine made by the older installer must be made anew."""

STAMP = "glm53-engine.json"
INCOMPLETE = ".incomplete"


class Stamp(BaseModel):
    """What the environment was made from; equal stamps mean nothing is left to do."""

    model_config = ConfigDict(frozen=True)

    installer: str
    place: str
    lock: str
    overlay: str

    def same_packages(self, other: "Stamp") -> bool:
        """Tell whether at most the overlay differs, which takes seconds to replace."""
        return self.model_copy(update={"overlay": other.overlay}) == other


def wanted(prefix: Path, sources: Sources) -> Stamp:
    """Return the stamp of an engine made here and now from these sources.

    The place belongs to it: the scripts in bin/ name their interpreter by its full path, so an
    environment that was moved looks whole and is not.
    """
    return Stamp(
        installer=INSTALLER_VERSION,
        place=str(prefix),
        lock=sources.lock_digest(),
        overlay=sources.overlay_digest(),
    )


def read(prefix: Path) -> Stamp | None:
    """Return the stamp of a whole engine; None when there is none, or only half of one."""
    # A stamped environment whose interpreter was removed (`apt remove`) is no engine either:
    # bin/python is a link, and `exists` follows it.
    if is_incomplete(prefix) or not (prefix / "bin/python").exists():
        return None
    try:
        return Stamp.model_validate_json((prefix / STAMP).read_bytes())
    except (OSError, ValidationError):
        return None


def is_incomplete(prefix: Path) -> bool:
    """Tell whether an installation began here and did not end."""
    return (prefix / INCOMPLETE).exists()


def begin(prefix: Path) -> None:
    """Mark the environment as half made before the first change to it."""
    (prefix / INCOMPLETE).touch()
    (prefix / STAMP).unlink(missing_ok=True)


def finish(prefix: Path, stamp: Stamp) -> None:
    """Write the stamp, then take the mark away: in this order no kill can leave a lie."""
    fresh = prefix / f"{STAMP}.new"
    fresh.write_text(stamp.model_dump_json(indent=1) + "\n", encoding="utf-8")
    os.replace(fresh, prefix / STAMP)
    (prefix / INCOMPLETE).unlink()
