"""Checks of the weights' cache: room, revisions, ownership."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from glm53ctl.checks.registry import Node, fail, node_check, warn
from glm53ctl.facts.host import known
from glm53ctl.findings import Finding

SPARE_GIB = 10.0
_BYTES = 1 << 30


@node_check("FETCH_DISK_FULL")
def room(node: Node) -> Iterator[Finding]:
    """Check that the disk has room for the weights that are missing."""
    weights, disks = known(node.facts.weights), known(node.facts.disks)
    if weights is None or weights.total_bytes is None or not disks:
        return
    need = (weights.total_bytes - weights.valid_bytes) / _BYTES + SPARE_GIB
    free = disks[0].free / _BYTES
    if free >= need:
        return
    orphans = sum(weights.orphans.values()) / _BYTES
    yield fail(
        "FETCH_DISK_FULL",
        f"{need:.1f} GiB are needed on {disks[0].path} and {free:.1f} are free.",
        f"Make room; {orphans:.1f} GiB are in orphan .incomplete files, which can be removed."
        if orphans
        else "Make room.",
        *weights.orphans,
        where=disks[0].path,
    )


@node_check("CACHE_REVISION")
def revision(node: Node) -> Iterator[Finding]:
    """Check that the engine gets the pinned revision by its path, the same on both nodes."""
    weights = known(node.facts.weights)
    if weights is None:
        return
    by_name = weights.model and not weights.model.startswith("/") and weights.model.count("/") == 1
    if by_name and weights.offline and not weights.main and weights.snapshots:
        sha = weights.revision or weights.snapshots[0]
        yield fail(
            "CACHE_REVISION",
            f"with HF_HUB_OFFLINE=1 the name {weights.model} is looked up in refs/main, which a "
            "fetch by revision does not write.",
            f"Use the snapshot path: .../snapshots/{sha}.",
        )
    others = [sha for sha in weights.snapshots if sha != weights.main]
    if weights.main and others:
        yield warn(
            "CACHE_REVISION",
            f"refs/main names {weights.main}, and {', '.join(others)} is there as well: a program "
            "that asks by name gets other weights.",
            "Give the engine the path of the pinned snapshot; leave refs/main alone.",
        )
    if len(set(weights.drafts.values())) > 1:
        pairs = ", ".join(f"{sha} on {name}" for name, sha in weights.drafts.items())
        yield fail(
            "CACHE_REVISION",
            f"the draft differs: {pairs}.",
            "Fetch the pinned revision of the draft on both nodes.",
        )


@node_check("CACHE_NOT_WRITABLE")
def writable(node: Node) -> Iterator[Finding]:
    """Check that the service's user owns its directories."""
    uid, owners = known(node.facts.service_uid), known(node.facts.owners) or ()
    wrong = [one for one in owners if uid is not None and one.uid != uid]
    # Below a directory that is named already, more names say nothing new.
    top = [one for one in wrong if not any(_below(one.path, o.path) for o in wrong)]
    for one in top:
        inside = sum(_below(o.path, one.path) for o in wrong)
        yield fail(
            "CACHE_NOT_WRITABLE",
            f"{one.path} belongs to uid {one.uid} (mode {one.mode:04o}), the service runs as uid "
            f"{uid}" + (f"; {inside} more below it." if inside else "."),
            f"As root: chown -R {uid}:{uid} {one.path}",
            where=one.path,
        )


def _below(path: str, other: str) -> bool:
    return PurePosixPath(other) in PurePosixPath(path).parents
