"""The jobs behind the commands and the unit: make sets complete, verify, lock, prune."""

import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from glm53ctl.config.schema import Config
from glm53ctl.errors import UserError
from glm53ctl.findings import Finding, Severity
from glm53ctl.plan import SecretSource
from glm53ctl.plan.credentials import read_secret
from glm53ctl.supervise.secrets import pair_token
from glm53ctl.weights.fetch import Fetch, disk_finding
from glm53ctl.weights.head import HeadSource
from glm53ctl.weights.hub import HubSource, Source
from glm53ctl.weights.layout import COMMIT, INCOMPLETE, WeightSet, only_one, weight_sets
from glm53ctl.weights.manifest import Manifest, read_lock, write_lock
from glm53ctl.weights.patience import Rules, refuse
from glm53ctl.weights.progress import Progress, Watcher, read_progress
from glm53ctl.weights.record import RecordBook
from glm53ctl.weights.state import judge_set, look
from glm53ctl.weights.verdicts import GIB
from glm53ctl.weights.verify import verify_files, verify_quickly

MB = 1_000_000


def rules_of(config: Config) -> Rules:
    """Return the rules of a transfer."""
    weights = config.weights
    return Rules(
        streams=weights.streams,
        stall_seconds=weights.stall_seconds,
        reserve_bytes=int(weights.reserve_gib * GIB),
    )


def hub_sources(
    config: Config, weight_set: WeightSet, environ: Mapping[str, str] = os.environ
) -> list[Source]:
    """Return the repositories that hold a set, in the order of trying."""
    source = SecretSource("hf-token", config.weights.token_file, "weights.token_file")
    token = read_secret(source, environ) or environ.get("HF_TOKEN") or None
    endpoint = environ.get("HF_ENDPOINT") or None
    following = [repo for repo, _ in weight_set.origins[1:]]
    return [
        HubSource(repo, revision, token, fallback, endpoint)
        for (repo, revision), fallback in zip(weight_set.origins, [*following, None], strict=True)
    ]


def require_licence(config: Config, weight_set: WeightSet) -> None:
    """Refuse to fetch what was not agreed to, before the first byte."""
    if weight_set.licence not in config.licenses.accept:
        raise UserError(
            "LICENSE_NOT_ACCEPTED",
            f"the {weight_set.role} ({weight_set.repo}) is under {weight_set.licence}.",
            f"Read it, then add {weight_set.licence} to licenses.accept.",
        )


def fetch_set(
    config: Config,
    weight_set: WeightSet,
    watcher: Watcher,
    stop: threading.Event,
    *,
    refresh: bool = False,
) -> bool:
    """Make a set complete from the Hub and switch to it; False when it was so already.

    With `refresh` nothing is taken on trust: the Hub is asked, every file is hashed.
    """
    require_licence(config, weight_set)
    if not refresh and _is_complete(weight_set):
        return _activate(weight_set)
    with _alone(weight_set):
        sources = hub_sources(config, weight_set)
        Fetch(weight_set, sources, watcher, rules_of(config), stop=stop, refresh=refresh).run()
        _switch(weight_set)
    return True


def sync_set(
    config: Config, weight_set: WeightSet, watcher: Watcher, stop: threading.Event
) -> bool:
    """Make a set complete from the head and switch to it; False when it was so already."""
    if _is_complete(weight_set):
        return _activate(weight_set)
    limit = config.weights.sync_mb_per_second
    source = HeadSource(
        weight_set,
        str(config.head.address),
        config.weights.sync_port,
        pair_token(config, os.environ),
    )
    rules = rules_of(config)
    with _alone(weight_set):
        Fetch(
            weight_set,
            [source],
            watcher,
            Rules(
                rules.streams,
                rules.stall_seconds,
                rules.reserve_bytes,
                rate=limit * MB if limit else None,
            ),
            "sync",
            stop,
        ).run()
        _switch(weight_set)
    return True


@contextmanager
def _said(weight_set: WeightSet) -> Iterator[None]:
    """Make what the disk refuses a UserError."""
    try:
        yield
    except OSError as error:
        raise refuse(disk_finding(error, weight_set.directory)) from error


@contextmanager
def _alone(weight_set: WeightSet) -> Iterator[None]:
    """Change a set as the only one who does. Raises UserError, also for what the disk refuses."""
    with only_one(weight_set), _said(weight_set):
        yield


def _activate(weight_set: WeightSet) -> bool:
    with _said(weight_set):
        return weight_set.activate()


def _is_complete(weight_set: WeightSet) -> bool:
    facts = look(weight_set)
    return facts.manifest is not None and not facts.wrong


def _switch(weight_set: WeightSet) -> None:
    """Switch to a set that has just been completed; look again first."""
    if not _is_complete(weight_set):  # stopped, or damaged meanwhile
        raise refuse(next(judge_set(weight_set)))
    weight_set.activate()


def lock_set(config: Config, weight_set: WeightSet) -> tuple[Manifest, bool]:
    """Lock what the Hub says of a set; return it, and whether the lock is new.

    Raises UserError when another process changes the set, and when nothing can be written.
    """
    require_licence(config, weight_set)
    fetch = Fetch(weight_set, hub_sources(config, weight_set), _Silent(), rules_of(config))
    with _alone(weight_set):
        manifest = fetch.ask()
        return manifest, write_lock(weight_set.lock_file, manifest)


def verify_set(
    weight_set: WeightSet, watcher: Watcher, stop: threading.Event, *, quick: bool = False
) -> list[Finding]:
    """Verify a set against its manifest; return a finding for each file that is not right.

    Raises UserError when it can be neither read nor noted what is right.
    """
    with _alone(weight_set):
        manifest = read_lock(weight_set.lock_file, weight_set.revision)
        if manifest is None:
            return list(judge_set(weight_set))
        weight_set.adopt()
        book = RecordBook(weight_set.record_file, manifest)
        if quick:
            return verify_quickly(weight_set.directory, manifest, book)
        return verify_files(weight_set, manifest.files, book, watcher, stop)


class SetStatus(BaseModel):
    """One set, as `weights status` shows it."""

    role: str
    repo: str
    revision: str
    directory: str
    active: str | None
    files: int
    verified_files: int
    bytes: int
    verified_bytes: int
    kept: tuple[str, ...]
    leftover_bytes: int
    findings: tuple[Finding, ...]

    @property
    def right(self) -> bool:
        """Whether it may be served."""
        return not self.findings


class WeightsStatus(BaseModel):
    """All sets of this node, and what is being done to them."""

    sets: tuple[SetStatus, ...]
    progress: Progress | None


def status_of(config: Config) -> WeightsStatus:
    """Look at all sets. Raises UserError for a configuration without commits."""
    return WeightsStatus(
        sets=tuple(map(_status_of_set, weight_sets(config))),
        progress=read_progress(Path(config.paths.run_dir)),
    )


def _status_of_set(weight_set: WeightSet) -> SetStatus:
    try:
        facts, findings = look(weight_set), tuple(judge_set(weight_set))
    except UserError as error:
        facts, findings = None, (_as_finding(error),)
    manifest = facts.manifest if facts else None
    return SetStatus(
        role=weight_set.role,
        repo=weight_set.repo,
        revision=weight_set.revision,
        directory=str(weight_set.directory),
        active=str(weight_set.active) if weight_set.active else None,
        files=len(manifest.files) if manifest else 0,
        verified_files=facts.verified_files if facts else 0,
        bytes=manifest.total_bytes if manifest else 0,
        verified_bytes=facts.verified_bytes if facts else 0,
        kept=tuple(path.name for path in _old(weight_set)),
        leftover_bytes=sum(path.stat().st_size for path in _leftovers(weight_set)),
        findings=findings,
    )


def _as_finding(error: UserError) -> Finding:
    return Finding(code=error.code, severity=Severity.FAIL, message=error.message, fix=error.fix)


@dataclass(frozen=True)
class Pruned:
    """Something that was, or would be, removed."""

    path: Path
    size: int


def prune_set(weight_set: WeightSet, *, dry_run: bool = False) -> list[Pruned]:
    """Remove commits that are neither pinned nor active, and parts of files that are not wanted.

    Raises UserError when another process changes the set, and when something cannot be removed.
    """
    found = []
    with _alone(weight_set):
        for path in [*_old(weight_set), *_leftovers(weight_set)]:
            tree = path.is_dir() and not path.is_symlink()  # of a link, only the link
            within = path.rglob("*") if tree else [path]
            found.append(Pruned(path, sum(p.lstat().st_size for p in within if not p.is_dir())))
            if dry_run:
                continue
            if tree:
                shutil.rmtree(path)
            else:
                path.unlink()
            for file in weight_set.state.glob(f"{weight_set.role}-{path.name}.*.json"):
                file.unlink()
    return found


def _old(weight_set: WeightSet) -> list[Path]:
    """Return commits that are neither pinned nor active; other names are not ours to remove."""
    keep = {weight_set.directory.name, weight_set.active.name if weight_set.active else ""}
    commits = [path for path in _within(weight_set.home) if COMMIT.fullmatch(path.name)]
    return [path for path in commits if path.name not in keep]


def _within(directory: Path) -> list[Path]:
    """Return what lies in a directory, nothing where there is none or nobody may look."""
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _leftovers(weight_set: WeightSet) -> list[Path]:
    """Partial files that no fetch will go on with."""
    try:
        manifest = read_lock(weight_set.lock_file, weight_set.revision)
    except UserError:
        return []
    names = {f"{entry.path}{INCOMPLETE}" for entry in manifest.files} if manifest else set()
    parts = [path for path in _within(weight_set.directory) if path.suffix == INCOMPLETE]
    return [path for path in parts if path.name not in names] if manifest else []


class _Silent:
    def show(self, progress: Progress) -> None:
        """Nobody looks."""

    def tell(self, finding: Finding) -> None:
        """Nobody listens."""
