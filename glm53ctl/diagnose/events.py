"""Records of what units did and how far a start came: one JSON object a line."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from glm53ctl.config.schema import StageLimits
from glm53ctl.diagnose.diagnosis import Diagnosis, diagnosis
from glm53ctl.findings import Severity
from glm53ctl.jsontext import json_or_none
from glm53ctl.supervise.stages import STALL_CODES, Stage

Record = Mapping[str, Any]

_MOST_SECONDS = 1e15


def parse_records(text: str) -> list[Record]:
    """Read JSON lines; a line that is none, or has no time `t`, is left out."""
    records: list[Record] = []
    for line in text.splitlines():
        record = json_or_none(line)
        if isinstance(record, dict) and _is_time(record.get("t")):
            records.append(record)
    return records


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) < _MOST_SECONDS  # and no NaN


def _rank(record: Record) -> str:
    found = re.search(r"rank(\d+)", str(record.get("unit", "")))
    return f"rank {found[1]}" if found else "a rank"


def judge_events(records: Iterable[Record]) -> Diagnosis | None:
    """Return which rank went first and what became of the other; None when none went.

    Records hold `t`, `node`, `unit`, `event` (exit, start, running), `generation`, and for an exit
    `code` and `status`.
    """
    told = sorted(records, key=lambda one: float(one["t"]))
    gone = next((one for one in told if one.get("event") == "exit"), None)
    if gone is None:
        return None
    who, epoch = _rank(gone), gone.get("generation")
    ended = f"signal {gone.get('status')}"
    if gone.get("code") != "signal":
        ended = f"status {gone.get('status')}"
    message = f"{who} on {gone.get('node')} ended first ({ended}), in generation {epoch}."
    alone = next((one for one in told if one.get("event") == "start"), None)
    if alone is not None and _rank(alone) == who:
        message += f" It was started by itself as generation {alone.get('generation')}, and cannot "
        message += "rejoin the other rank."
    known = [one["generation"] for one in told if isinstance(one.get("generation"), int)]
    following = max(known) + (0 if alone is not None else 1) if known else "the next one"
    others = {_rank(one) for one in told if one.get("event") == "running"} - {who}
    return diagnosis(
        "RANK_LOST",
        Severity.FAIL,
        message,
        f"Stop {' and '.join([*sorted(others), *([f'the new {who}'] if alone else [])])}, then "
        f"start both as generation {following}.",
        [json.dumps(one) for one in told if one is gone or "log" in one or "error" in one],
    )


def judge_progress(
    records: Sequence[Record], limits: StageLimits | None = None
) -> Diagnosis | None:
    """Judge the progress of a start by its `stage` and `shard`, never by /health.

    `t` is in seconds. None when the records hold no stage.
    """
    told = [one for one in records if "stage" in one]
    if not told:
        return None
    last = told[-1]
    since = last
    for one in reversed(told):
        if (one["stage"], one.get("shard")) != (last["stage"], last.get("shard")):
            break
        since = one
    quiet = float(last["t"]) - float(since["t"])
    at = f"shard {last['shard']}" if "shard" in last else "no shard"
    try:
        stage = Stage(last["stage"])
    except ValueError:
        return None
    limit = getattr(limits or StageLimits(), stage.value, float("inf"))
    if quiet <= limit:
        said = f"the start moves: stage {stage.value}, {at}."
        return diagnosis("START_PROGRESS", Severity.OK, said)
    return diagnosis(
        STALL_CODES.get(stage, "LOAD_STALLED"),
        Severity.FAIL,
        f"stage {stage.value} stands at {at} for {quiet:.0f} s (limit {limit:.0f} s).",
        "Stop both ranks, look at disk and memory with `glm53ctl doctor`, then start both.",
    )
