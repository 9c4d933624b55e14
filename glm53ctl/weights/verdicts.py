"""What a fault of fetching or of the files means. Text and numbers in, findings out."""

import email.utils
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from glm53ctl.findings import Finding, Severity

GIB = 1 << 30
RESERVE_BYTES = 10 * GIB
"""Room that a fetch leaves on the file system: logs, kernels and the ledger live there too."""
PAUSE_SECONDS = 60.0
PAUSE_MAX_SECONDS = 300.0
"""Pause that a server asks for without saying how long, and the longest one that is obeyed."""
PAUSE_JITTER = 1.1
"""A pause is up to so many times longer: else all streams of both nodes come back at once."""
LONGEST_PAUSE_SECONDS = PAUSE_MAX_SECONDS * PAUSE_JITTER
UNREADABLE_FIX = (
    "Give it to the service's user (`chown -R`), or look at the kernel's log and at the disk."
)
XET_FIXED = (1, 5, 3)
"""hf-xet before this version can freeze for good (xet-core issue 898)."""

_RESET = re.compile(r";\s*t=(\d+)")
_XET = re.compile(r"hf-xet\D*(\d+)\.(\d+)\.(\d+)")
_REPO_ID = re.compile(r"[\w.-]+/[\w.-]+")
_SNAPSHOT = re.compile(r"models--([^/]+)/snapshots/([0-9a-f]{40})(?:/|$)")
_MAIN = re.compile(r"models--([^/]+)/refs/main\s*->\s*([0-9a-f]{40})")


def _fail(code: str, message: str, fix: str = "", where: str = "") -> Finding:
    return Finding(code=code, severity=Severity.FAIL, message=message, fix=fix, where=where)


def _warn(code: str, message: str, fix: str = "", where: str = "") -> Finding:
    return Finding(code=code, severity=Severity.WARN, message=message, fix=fix, where=where)


def gib(count: float) -> str:
    """Return a number of bytes as people say it."""
    for unit, size in (("GiB", GIB), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} bytes"


# --- the Hub -------------------------------------------------------------------------------------


def pause_seconds(headers: Mapping[str, str], default: float = PAUSE_SECONDS) -> float:
    """Return how long a 429 or 503 asks to wait: Retry-After, else the rate-limit window.

    A date is compared with the server's own clock, not with this machine's, which may be wrong.
    """
    low = {name.lower(): value for name, value in headers.items()}
    after = low.get("retry-after", "").strip()
    if after.isascii() and after.isdigit():
        return min(float(after), PAUSE_MAX_SECONDS)
    try:
        until = email.utils.parsedate_to_datetime(after)
        span = (until - email.utils.parsedate_to_datetime(low["date"])).total_seconds()
        return min(max(span, 0.0), PAUSE_MAX_SECONDS)
    except (ValueError, KeyError, TypeError):
        reset = _RESET.search(low.get("ratelimit", ""))
        return min(float(reset[1]), PAUSE_MAX_SECONDS) if reset else default


def judge_response(
    status: int,
    headers: Mapping[str, str],
    repo: str,
    revision: str,
    *,
    had_token: bool = False,
    fallback: str | None = None,
) -> Finding:
    """Say what an HTTP error of the Hub means (X-Error-Code: huggingface_hub utils/_http.py)."""
    low = {name.lower(): value for name, value in headers.items()}
    error = low.get("x-error-code", "")
    said = low.get("x-error-message", "").strip().rstrip(".")
    at = f"{repo} at {revision}"
    if status == 429:
        seconds = f"{pause_seconds(headers):.0f} s"
        return _warn(
            "FETCH_RATE_LIMITED",
            f"the Hub asks to wait {seconds} before more of {repo} is fetched.",
            f"Nothing: the fetch goes on after {seconds}; this is not counted as a failed attempt.",
        )
    if error == "GatedRepo" or status == 403:
        why = "without a token that may read it" if not had_token else "with the token given"
        return _fail(
            "FETCH_GATED",
            f"{repo} cannot be read {why}{f': {said}' if said else ''}.",
            f"Accept its terms on the Hub's page of {repo}, and give a token of that account "
            "(weights.token_file or the credential hf-token).",
        )
    if status == 401 and had_token:
        return _warn(
            "FETCH_BAD_TOKEN",
            "the Hub does not accept the token (HF_TOKEN, weights.token_file or the credential "
            "hf-token).",
            "Replace or remove it. One try without the token follows: a public repository needs "
            "none.",
        )
    if error == "RevisionNotFound":
        return _fail(
            "FETCH_REVISION_MISSING",
            f"{repo} has no commit {revision}.",
            "Correct weights.revision; no other commit is ever taken in its place.",
        )
    if error == "EntryNotFound":
        return _warn("FETCH_FILE_MISSING", f"{at} lacks a file of the manifest.")
    if status in (401, 404):
        fix = (
            f"The fallback {fallback} at its own commit is tried next (MODEL_FALLBACK of the "
            "recipe is weights.fallback_repo)."
            if fallback
            else "Correct weights.repo, or name weights.fallback_repo (MODEL_FALLBACK of the "
            "recipe)."
        )
        return _warn("FETCH_REPO_MISSING", f"the Hub has no repository {repo}.", fix)
    return _warn("FETCH_FAILED", f"the Hub answered {status} for {at}.", "The fetch tries again.")


# --- stalls and space ----------------------------------------------------------------------------


def judge_stall(
    samples: Sequence[tuple[float, int]],
    stalls: int,
    *,
    client: str = "",
    limit: float = 120.0,
    last: int = 3,
) -> Finding | None:
    """Say whether a transfer stands still.

    `samples` are (seconds, bytes on disk), oldest first; `stalls` counts earlier ones. Progress
    bars lie and processes stay alive, so only bytes on disk count. None while they grow, or not
    yet for `limit` seconds.
    """
    if not samples:
        return None
    end, size = samples[-1]
    since = end
    for at, count in reversed(samples):
        if count != size:
            break
        since = at
    if end - since < limit:
        return None
    xet = _XET.search(client)
    who = f" ({client})" if client else ""
    message = f"no byte reached the disk for {end - since:.0f} s{who}, stall {stalls + 1}."
    if stalls + 1 >= last:
        return _fail("FETCH_STALLED", message, "Look at the network; what is here stays.")
    if xet and tuple(map(int, xet.groups())) < XET_FIXED:
        fix = (
            "Kill the child and retry with HF_HUB_DISABLE_XET=1, keeping the finished blobs; "
            f"hf-xet before {'.'.join(map(str, XET_FIXED))} freezes."
        )
    else:
        fix = "The connections are opened anew; finished and partial files are kept."
    return _warn("FETCH_STALLED", message, fix)


def judge_space(
    missing_bytes: int,
    free_bytes: int,
    directory: str,
    orphans: Mapping[str, int] | None = None,
    *,
    reserve_bytes: int = RESERVE_BYTES,
) -> Finding | None:
    """Say whether what is missing fits, with the reserve; `orphans` could be removed."""
    need = missing_bytes + reserve_bytes
    if missing_bytes == 0 or free_bytes >= need:
        return None
    fix = "Make room"
    if orphans:
        names = ", ".join(sorted(orphans))
        fix += f"; {gib(sum(orphans.values()))} are in leftovers (*.incomplete): {names}"
    return _fail(
        "FETCH_DISK_FULL",
        f"{need / GIB:.1f} GiB are needed for what is missing, {free_bytes / GIB:.1f} are free.",
        f"{fix}.",
        directory,
    )


# --- the directory -------------------------------------------------------------------------------


def judge_owner(entries: Iterable[tuple[str, int, int, int]], uid: int, gid: int) -> Finding | None:
    """Find what the user `uid` cannot write to; entries are (path, mode, owner, group)."""
    foreign = []
    for path, mode, owner, group in entries:
        writable = (
            uid == 0
            or (owner == uid and mode & 0o200)
            or (owner != uid and group == gid and mode & 0o020)
            or (owner != uid and group != gid and mode & 0o002)
        )
        if not writable:
            foreign.append((path, mode, owner, group))
    if not foreign:
        return None
    path, mode, owner, group = foreign[0]
    more = f", and {len(foreign) - 1} more" if len(foreign) > 1 else ""
    return _fail(
        "CACHE_NOT_WRITABLE",
        f"uid {owner} gid {group} owns {path} (mode {mode & 0o777:04o}){more}; the service is "
        f"uid {uid} and cannot write there.",
        f"chown -R {uid}:{gid} {path}",
        path,
    )


# --- revisions -----------------------------------------------------------------------------------


def judge_reference(
    model: str, environ: Mapping[str, str], tree: Sequence[str] = ()
) -> Finding | None:
    """Judge what the engine is given as its model, and a Hub cache that it may lie in.

    `tree` are lines of the cache: snapshot files, and `models--X/refs/main -> COMMIT`.
    """
    snapshots = {match[2]: match[0] for line in tree if (match := _SNAPSHOT.search(line))}
    pinned = environ.get("MODEL_REVISION", "")
    if _REPO_ID.fullmatch(model) and not model.startswith("/"):
        offline = " with HF_HUB_OFFLINE set" if environ.get("HF_HUB_OFFLINE") else ""
        path = snapshots.get(pinned) or next(iter(snapshots.values()), "the snapshot")
        return _fail(
            "CACHE_REVISION",
            f"{model} is a repository id, which means its default revision{offline}, and no "
            "pinned commit.",
            f"Give the absolute path of the pinned commit instead: {path.rstrip('/')}.",
        )
    within = _SNAPSHOT.search(model)
    used = within[2] if within else pinned or next(iter(snapshots), "")
    for line in tree:
        main = _MAIN.search(line)
        if main and used and main[2] != used:
            return _warn(
                "CACHE_REVISION",
                f"refs/main is {main[2]}, the pinned commit is {used}.",
                "Nothing as long as the path of the commit is used, as it is here.",
                str(PurePosixPath(f"models--{main[1]}/refs/main")),
            )
    return None


def judge_pair(role: str, head: str, worker: str) -> Finding | None:
    """Compare the commits of one set on both nodes."""
    if head == worker:
        return None
    return _fail(
        "CACHE_REVISION",
        f"the {role}'s commit differs: {head} on the head, {worker} on the worker.",
        "Put the same configuration on both nodes, then `glm53ctl weights sync` on the worker.",
    )
