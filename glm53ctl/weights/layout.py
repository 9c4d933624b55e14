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
COMMIT = re.compile(r"[0-9a-f]{40}")


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
        """Point the link to this commit in one step; False when it does so already.

        Raises UserError when a directory with files has the link's place, and OSError.
        """
        if self.active == self.directory.absolute():
            return False
        if self._is_plain():
            self._clear_place()
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
        """Make a plain directory, in which weights were put by hand, this commit's own.

        What a fetch has begun goes on in it. Raises UserError when both directories hold finished
        files: which of them is meant is the operator's to say.
        """
        if not self._is_plain():
            return False
        self.home.mkdir(exist_ok=True)
        begun = sorted(self.directory.iterdir()) if self.directory.exists() else []
        if not any(self.link.iterdir()) or any(path.suffix != INCOMPLETE for path in begun):
            self._clear_place()
            return False
        for part in begun:
            if (self.link / part.stem).exists():
                part.unlink()
            else:
                part.replace(self.link / part.name)
        if self.directory.exists():
            self.directory.rmdir()
        self.link.rename(self.directory)
        return True

    def _is_plain(self) -> bool:
        return self.link.is_dir() and not self.link.is_symlink()

    def _clear_place(self) -> None:
        """Remove an empty directory that has the link's place."""
        if any(self.link.iterdir()):
            raise UserError(
                "WEIGHTS_TWICE",
                f"{self.link} was filled by hand, and {self.directory} holds files already.",
                f"Keep one: move {self.link} away, or remove {self.directory}. What is right in "
                "the one that stays is not fetched again.",
                exit_code=1,
            )
        self.link.rmdir()


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
        if not COMMIT.fullmatch(revision):
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
