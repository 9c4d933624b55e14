"""What an engine is made of: the lock of its packages and the sources of our overlay."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from glm53ctl.errors import UserError

CHECKOUT = Path(__file__).resolve().parents[2]
BUILD_LEFTOVERS = ("build", "__pycache__", "*.egg-info", "*.pyc")


@dataclass(frozen=True)
class Sources:
    """The two inputs of an engine, wherever they lie."""

    lock: Path
    overlay: Path

    def lock_digest(self) -> str:
        """Return the digest of the locked packages."""
        return hashlib.sha256(self.lock.read_bytes()).hexdigest()

    def overlay_digest(self) -> str:
        """Return one digest over the path and the text of every overlay source."""
        digest = hashlib.sha256()
        for source in self._overlay_files():
            name = source.relative_to(self.overlay).as_posix().encode()
            content = source.read_bytes()
            digest.update(b"%d %s %d\n" % (len(name), name, len(content)))
            digest.update(content)
        return digest.hexdigest()

    def _overlay_files(self) -> Iterator[Path]:
        for path in sorted(self.overlay.rglob("*")):
            inside = path.relative_to(self.overlay)
            leftover = any(Path(p).match(glob) for p in inside.parts for glob in BUILD_LEFTOVERS)
            if path.is_file() and not leftover:
                yield path


def of_checkout(checkout: Path = CHECKOUT) -> Sources:
    """Return the sources in the project's checkout, the only place they are kept."""
    sources = Sources(lock=checkout / "lock/engine-cpu.txt", overlay=checkout / "overlay")
    if sources.lock.is_file() and (sources.overlay / "pyproject.toml").is_file():
        return sources
    raise UserError(
        "ENGINE_SOURCES",
        f"{checkout} has no lock/engine-cpu.txt or no overlay/ to build an engine from.",
        "Run this from a checkout of the project (installed with `pip install -e .`).",
    )
