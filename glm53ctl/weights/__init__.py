"""The checkpoint and the draft on disk: fetched once, verified, pulled by the worker.

What other rooms call:

    verdict(config)           findings that forbid a start, cheap enough for every few seconds
    resolved(config)          the configuration with the real directories of the verified sets
    read_progress(run_dir)    what a running fetch, sync or verification is at, or None
    quick_digest(directory)   names and sizes, for the pair's handshake

The judgements below are pure, in `weights.verdicts`; the same functions judge the real transfer and
the texts of the failure cases (S14 to S18 and the log of S28):

    judge_response(status, headers, repo, revision, had_token=, fallback=)      S15
    judge_stall(samples, stalls, client=)                                       S14
    judge_space(missing_bytes, free_bytes, directory, orphans, reserve_bytes=)  S16, before
    judge_owner(entries, uid, gid)                                              S18, before
    judge_reference(model, environ, tree)                                       S17 a and b
    judge_pair(role, head, worker)                                              S17 c

All return findings with the codes of the fetcher (FETCH_*, CACHE_*, TIME_SKEW, WEIGHTS_*).
"""

from glm53ctl.weights.local import quick_digest
from glm53ctl.weights.progress import read_progress
from glm53ctl.weights.state import resolved, verdict
from glm53ctl.weights.verdicts import (
    judge_owner,
    judge_pair,
    judge_reference,
    judge_response,
    judge_space,
    judge_stall,
)

__all__ = [
    "judge_owner",
    "judge_pair",
    "judge_reference",
    "judge_response",
    "judge_space",
    "judge_stall",
    "quick_digest",
    "read_progress",
    "resolved",
    "verdict",
]
