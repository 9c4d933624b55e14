"""Where a set lies: one directory for each commit, and a link to the one that serves.

`weights/model` is the link that the engine is given; it points to `model.sets/COMMIT/`, where the
files are, and NAME.incomplete. In the state directory, `weights/model-COMMIT.lock.json` is the
manifest and `weights/model-COMMIT.verified.json` what this node has verified of it.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from glm53ctl.config.schema import Config
from glm53ctl.errors import UserError
from glm53ctl.files import locked

Role = Literal["model", "draft"]

INCOMPLETE = ".incomplete"
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class WeightSet:
    """One set of files: the checkpoint or the draft, at one commit.

    `origins` are (repository, commit) pairs that hold the same bytes, in the order of trying.
    """

    role: Role
    link: Path
    state: Path
    origins: tuple[tuple[str, str], ...]
    licence: str

    @property
    def repo(self) -> str:
        """The first repository."""
        return self.origins[0][0]

    @property
    def revision(self) -> str:
        """The commit that the configuration pins."""
        return self.origins[0][1]

    @property
    def home(self) -> Path:
        """Directory of all commits."""
        return self.link.with_name(f"{self.link.name}.sets")

    @property
    def directory(self) -> Path:
        """Directory of this commit."""
        return self.home / self.revision

    @property
    def lock_file(self) -> Path:
        """The manifest of this commit."""
        return self.state / f"{self.role}-{self.revision}.lock.json"

    @property
    def record_file(self) -> Path:
        """What this node has verified of this commit."""
        return self.state / f"{self.role}-{self.revision}.verified.json"

    @property
    def active(self) -> Path | None:
        """What the link points to; None when there is no link (a directory is none)."""
        try:
            return (self.link.parent / os.readlink(self.link)).absolute()
        except OSError:
            return None

    def activate(self) -> bool:
        """Point the link to this commit in one step; False when it does so already."""
        if self.active == self.directory.absolute():
            return False
        fresh = self.link.with_name(f".{self.link.name}.{os.getpid()}.new")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(self.directory.relative_to(self.link.parent))
        try:
            os.replace(fresh, self.link)
        except OSError:
            fresh.unlink()
            raise
        return True

    def adopt(self) -> bool:
        """Make a plain directory, in which weights were put by hand, this commit's own."""
        if self.link.is_symlink() or not self.link.is_dir() or self.directory.exists():
            return False
        self.home.mkdir(exist_ok=True)
        if not any(self.link.iterdir()):
            self.link.rmdir()
            return False
        self.link.rename(self.directory)
        return True


def weight_sets(config: Config) -> tuple[WeightSet, ...]:
    """Return the sets that a configuration needs from the Hub; none for local weights."""
    weights = config.weights
    if weights.source == "local":
        return ()
    state = Path(config.paths.state_dir) / "weights"
    fallback = (
        ((weights.fallback_repo, weights.fallback_revision),)
        if weights.fallback_repo and weights.fallback_revision
        else ()
    )
    found = [
        WeightSet(
            "model",
            Path(weights.model_dir),
            state,
            ((weights.repo, weights.revision), *fallback),
            "ShapleyMCG-1.0",
        )
    ]
    if config.effective_spec_method == "dflash":
        origin = (weights.draft_repo, weights.draft_revision)
        found.append(
            WeightSet("draft", Path(weights.draft_dir), state, (origin,), "CC-BY-NC-ND-4.0")
        )
    for weight_set in found:
        _require_commits(weight_set)
    return tuple(found)


def _require_commits(weight_set: WeightSet) -> None:
    for repo, revision in weight_set.origins:
        if not _COMMIT.fullmatch(revision):
            raise UserError(
                "WEIGHTS_REVISION",
                f"the {weight_set.role}'s revision {revision!r} of {repo} is not a commit.",
                "Give the 40 hexadecimal digits: a branch may move, and weights must not.",
            )


@contextmanager
def only_one(weight_set: WeightSet) -> Iterator[None]:
    """Let one process at a time change a set. Raises UserError when another one does."""
    file = weight_set.state / f"{weight_set.role}.busy"
    fd = _lock(file, weight_set.role)
    try:
        with contextlib.suppress(OSError):  # of another user: the lock holds, its name is missed
            file.write_text(str(os.getpid()))
        yield
    finally:
        with contextlib.suppress(OSError):
            os.truncate(file, 0)
        os.close(fd)


def _lock(file: Path, role: Role) -> int:
    try:
        return locked(file)
    except BlockingIOError:
        process = file.read_text().strip() or "?"
        raise UserError(
            "FETCH_BUSY",
            f"process {process} works on the {role} already.",
            "Wait for it: `glm53ctl weights status` shows how far it is.",
            exit_code=1,
        ) from None
    except OSError as error:
        raise UserError(
            "CACHE_NOT_WRITABLE",
            f"{file} cannot be opened and locked ({error.strerror}).",
            f"chown -R {os.geteuid()}:{os.getegid()} {file.parent}",
            exit_code=1,
        ) from error
