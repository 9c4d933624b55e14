"""Whether the weights may be served: the verdict that a start asks for."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from glm53ctl.config.schema import Config
from glm53ctl.errors import UserError
from glm53ctl.findings import Finding, Severity
from glm53ctl.weights.layout import WeightSet, weight_sets
from glm53ctl.weights.manifest import Manifest, read_lock
from glm53ctl.weights.progress import read_progress
from glm53ctl.weights.record import change, read_record
from glm53ctl.weights.verdicts import UNREADABLE_FIX, judge_reference

_FETCH = (
    "Run `systemctl restart --no-block glm53-weights.service`, or `glm53ctl weights fetch` (on a "
    "worker `weights sync`)."
)
"""A restart: the unit is active once it was done, and a start of an active unit does nothing."""


def verdict(config: Config) -> list[Finding]:
    """Return what forbids serving these weights; empty when nothing does.

    Compares sizes and times of every file with what was verified, and reads none: a call costs
    milliseconds and needs no network.
    """
    if config.weights.source == "local":
        return list(_local(config))
    try:
        found = [finding for each in weight_sets(config) for finding in judge_set(each)]
    except UserError as error:
        return [_fail(error.code, error.message, error.fix)]
    progress = read_progress(Path(config.paths.run_dir))
    if found and progress is not None:
        note = f"{found[0].message} Under way: {progress.sentence()}."
        found[0] = found[0].model_copy(update={"message": note})
    return found


def _local(config: Config) -> Iterator[Finding]:
    directory = config.weights.model_dir
    if not os.path.exists(Path(directory) / "config.json"):
        by_id = judge_reference(directory, os.environ)
        yield by_id or _fail(
            "WEIGHTS_MISSING",
            f"{directory} holds no checkpoint (no config.json).",
            "Fetch the weights, or set weights.model_dir to where they are.",
        )


def judge_set(weight_set: WeightSet) -> Iterator[Finding]:
    """Judge one set: locked, all verified, unchanged since, and the one that the link names."""
    facts = look(weight_set)
    if facts.manifest is None:
        if os.path.isdir(weight_set.link) and not os.path.islink(weight_set.link):
            message = f"{weight_set.link} was put here by hand and has not been verified."
            yield _fail("WEIGHTS_UNVERIFIED", message, _FETCH)
            return
        message = f"the {weight_set.role} ({weight_set.repo}) was never fetched to this node."
        yield _fail("WEIGHTS_MISSING", message, _FETCH)
        return
    if facts.wrong:
        code, path, words = facts.wrong[0]
        more = f" ({len(facts.wrong) - 1} more files are not right)" if facts.wrong[1:] else ""
        fix = UNREADABLE_FIX if code == "WEIGHTS_UNREADABLE" else _FETCH
        yield _fail(code, f"{words}{more}.", fix, path)
        return
    if weight_set.active != weight_set.directory.absolute():
        yield _fail(
            "CACHE_REVISION",
            f"{weight_set.link} is not commit {weight_set.revision}, which the configuration pins.",
            "Run `glm53ctl weights fetch` (on a worker `weights sync`); it has all files and "
            "only switches.",
        )


@dataclass(frozen=True)
class SetFacts:
    """What is known of one set on this node. `wrong` are (code, path, words)."""

    manifest: Manifest | None
    verified_files: int = 0
    verified_bytes: int = 0
    wrong: tuple[tuple[str, str, str], ...] = ()


def look(weight_set: WeightSet) -> SetFacts:
    """Look at a set without reading its files. Raises UserError for a lock that says nothing."""
    manifest = read_lock(weight_set.lock_file, weight_set.revision)
    if manifest is None:
        return SetFacts(None)
    record = read_record(weight_set.record_file)
    files = record.files if record and record.manifest == manifest.digest else {}
    wrong, count, size = [], 0, 0
    for entry in manifest.files:
        path, state = weight_set.directory / entry.path, files.get(entry.path)
        if state is not None:
            problem = change(path, state)
        elif os.path.exists(path):  # unlike Path.exists, for whoever may not look
            problem = ("WEIGHTS_UNVERIFIED", "it was not verified here")
        else:
            problem = ("WEIGHTS_MISSING", "it is missing")
        if problem is None:
            count, size = count + 1, size + entry.size
        else:
            wrong.append((problem[0], str(path), problem[1]))
    return SetFacts(manifest, count, size, tuple(wrong))


def resolved(config: Config) -> Config:
    """Return the configuration with the real directories of the sets, for one launch.

    A link that is switched while the engine loads would give it shards of two commits.
    """
    weights = config.weights
    if weights.source == "local":
        return config
    paths = {
        "model_dir": os.path.realpath(weights.model_dir),
        "draft_dir": os.path.realpath(weights.draft_dir),
    }
    return config.model_copy(update={"weights": weights.model_copy(update=paths)})


def _fail(code: str, message: str, fix: str, where: str = "") -> Finding:
    return Finding(code=code, severity=Severity.FAIL, message=message, fix=fix, where=where)


__all__ = ["SetFacts", "judge_set", "look", "resolved", "verdict"]
