"""What a set must consist of: names, sizes and digests, and the lock that keeps them.

`pins.json` holds what is publicly known of a commit, by its id. The rest is taken from the Hub's
own metadata once, written to a lock file, and never changes by itself afterwards.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from glm53ctl.errors import UserError
from glm53ctl.files import replace_durably
from glm53ctl.findings import Finding, Severity
from glm53ctl.weights.verdicts import UNREADABLE_FIX

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Sha1 = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}")
Name = Annotated[str, Field(pattern=rf"^{NAME.pattern}$")]
"""Files at the top of a repository only: that is what the engine reads, and no `..` fits in."""

_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.safetensors")


class Entry(BaseModel):
    """One file. The Hub knows the sha256 of large files and git's own digest of small ones."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Name
    size: Annotated[int, Field(ge=0)]
    sha256: Sha256 | None = None
    git_sha1: Sha1 | None = None

    def contradicts(self, other: "Entry") -> bool:
        """Say whether the two cannot be the same file; a digest that one lacks says nothing."""
        pairs = ((self.sha256, other.sha256), (self.git_sha1, other.git_sha1))
        return self.size != other.size or any(a and b and a != b for a, b in pairs)


class Pin(BaseModel):
    """What is known of a commit without asking the Hub."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    shards: int
    shard_bytes: int | None = None
    sha256: dict[Name, Sha256] = {}


class Manifest(BaseModel):
    """All files of one commit of a repository."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    repo: str
    revision: str
    files: tuple[Entry, ...]

    @property
    def digest(self) -> str:
        """Digest of the content, whichever repository it came from."""
        rows = [[e.path, e.size, e.sha256, e.git_sha1] for e in sorted(self.files, key=_path)]
        return hashlib.sha256(json.dumps([self.revision, rows]).encode()).hexdigest()

    @property
    def total_bytes(self) -> int:
        """Size of all files."""
        return sum(entry.size for entry in self.files)

    def entry(self, path: str) -> Entry | None:
        """Return the entry of a file."""
        return next((entry for entry in self.files if entry.path == path), None)


def _path(entry: Entry) -> str:
    return entry.path


@cache
def pins() -> dict[str, Pin]:
    """Return what is known of commits, by their ids."""
    text = (files("glm53ctl.weights") / "pins.json").read_text(encoding="utf-8")
    return {commit: Pin.model_validate(pin) for commit, pin in json.loads(text).items()}


def with_pins(manifest: Manifest, pin: Pin | None) -> Manifest:
    """Add the digests that are pinned to entries of which the Hub gave none."""
    known = pin.sha256 if pin else {}
    entries = tuple(
        e if e.sha256 else e.model_copy(update={"sha256": known.get(e.path)})
        for e in manifest.files
    )
    return manifest.model_copy(update={"files": entries})


def check(manifest: Manifest, pin: Pin | None) -> list[Finding]:
    """Return what is wrong with a manifest by itself: shards missing, or not what is pinned."""
    problems = [*_incomplete(manifest), *(_unpinned(manifest, pin) if pin else ())]
    at = f"{manifest.repo} at {manifest.revision}"
    return [
        Finding(
            code="FETCH_REPO_INCOMPLETE",
            severity=Severity.WARN,
            message=f"{at}: {problem}.",
            fix="Another repository with the same bytes is tried: weights.fallback_repo.",
        )
        for problem in problems
    ]


def _shards(manifest: Manifest) -> list[Entry]:
    return [entry for entry in manifest.files if entry.path.endswith(".safetensors")]


def _incomplete(manifest: Manifest) -> Iterator[str]:
    present = {entry.path for entry in manifest.files}
    if "config.json" not in present:
        yield "it has no config.json"
    groups: dict[tuple[str, int], set[int]] = {}
    for match in filter(None, map(_SHARD.fullmatch, sorted(present))):
        groups.setdefault((match[1], int(match[3])), set()).add(int(match[2]))
    for (stem, count), numbers in groups.items():
        if lacking := sorted(set(range(1, count + 1)) - numbers):
            some = ", ".join(map(str, lacking[:3])) + (", ..." if len(lacking) > 3 else "")
            yield f"{stem} has {count - len(lacking)} of {count} shards (no {some})"


def _unpinned(manifest: Manifest, pin: Pin) -> Iterator[str]:
    shards = _shards(manifest)
    size = sum(entry.size for entry in shards)
    if len(shards) != pin.shards:
        yield f"it has {len(shards)} safetensors files, pinned are {pin.shards}"
    elif pin.shard_bytes not in (None, size):
        yield f"its shards have {size} bytes, pinned are {pin.shard_bytes}"
    for path, digest in pin.sha256.items():
        entry = manifest.entry(path)
        if entry is None:
            yield f"{path} is missing"
        elif entry.sha256 not in (None, digest):
            yield f"{path} has sha256 {entry.sha256}, pinned is {digest}"


def differences(locked: Manifest, offered: Manifest) -> list[str]:
    """Return what `offered` lacks or has otherwise; files that only it has do not matter."""
    found = []
    for entry in locked.files:
        other = offered.entry(entry.path)
        if other is None:
            found.append(f"{entry.path} is missing")
        elif entry.contradicts(other):
            found.append(
                f"{entry.path} is {other.size} bytes {other.sha256 or other.git_sha1}, locked "
                f"{entry.size} bytes {entry.sha256 or entry.git_sha1}"
            )
    return found


# --- the lock file -------------------------------------------------------------------------------


def read_lock(file: Path, revision: str) -> Manifest | None:
    """Return the locked manifest; None when there is none yet.

    Raises UserError when it cannot be read, and when it was changed: it carries the digest of its
    own content.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(
            "WEIGHTS_UNREADABLE",
            f"{file} cannot be read ({error.strerror}).",
            UNREADABLE_FIX,
            exit_code=1,
        ) from error
    except UnicodeDecodeError:
        raise _tampered(file, "is no lock file") from None
    try:
        raw = json.loads(text)
        digest = raw.pop("digest")
        manifest = Manifest.model_validate(raw)
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
        raise _tampered(file, "is no lock file") from None
    if manifest.digest != digest:
        raise _tampered(file, "was changed after it was written")
    if manifest.revision != revision:
        raise _tampered(file, f"is of commit {manifest.revision}, not of {revision}")
    problems = check(manifest, pins().get(revision))
    if problems:
        raise _tampered(file, f"contradicts what is pinned: {problems[0].message}")
    return manifest


def write_lock(file: Path, manifest: Manifest) -> bool:
    """Write the lock; False when it says the same already.

    Raises UserError, and writes nothing, when a lock of other content exists.
    """
    locked = read_lock(file, manifest.revision)
    if locked is not None:
        changed = differences(locked, manifest)
        if changed:
            raise UserError(
                "WEIGHTS_LOCKED",
                f"{file} is not what {manifest.repo} offers: {'; '.join(changed[:3])}.",
                "A commit never changes its files, so do not trust the offer. If the lock is "
                "what is wrong, remove it by hand.",
            )
        return False
    replace_durably(
        file,
        json.dumps({**manifest.model_dump(exclude_none=True), "digest": manifest.digest}, indent=1),
    )
    return True


def _tampered(file: Path, what: str) -> UserError:
    return UserError(
        "WEIGHTS_MANIFEST",
        f"{file} {what}.",
        "Restore it (the other node has the same one), or remove it and run `glm53ctl weights "
        "lock`.",
    )
