"""Results that are kept: one line each, by what was measured."""

import json
from collections.abc import Sequence
from errno import ENOSPC
from os import strerror
from pathlib import Path

from pydantic import ValidationError

from glm53ctl.bench.result import Identity, Kind, Result
from glm53ctl.errors import UserError
from glm53ctl.files import append_line

NAME = "bench.jsonl"


def append(path: Path, result: Result) -> None:
    """Add one result. Raises UserError when the place refuses it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not append_line(path, result.model_dump_json(), 0o644):
            raise OSError(ENOSPC, strerror(ENOSPC))
    except OSError as error:
        message = f"{path}: {error.strerror}."
        raise UserError("FILE_REFUSED", message, "Name another ledger with --ledger.") from error


def read(path: Path) -> tuple[Result, ...]:
    """Return all results, oldest first; a line that is cut short (a full disk) is left out."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except FileNotFoundError:
        return ()
    except OSError as error:
        message = f"{path}: {error.strerror}."
        raise UserError("FILE_UNREADABLE", message, "Name another ledger.") from error
    found = []
    for line in lines:
        try:
            found.append(Result.model_validate_json(line))
        except ValidationError:
            continue
    return tuple(found)


def pick(results: Sequence[Result], kind: Kind, word: str) -> tuple[Result, ...]:
    """Return the results of a kind whose identity or date begins with `word`."""
    return tuple(
        result
        for result in results
        if result.kind == kind
        and any(part.startswith(word) for part in (result.at, *_parts(result.identity)))
    )


def _parts(identity: Identity) -> tuple[str, ...]:
    return (identity.closure, identity.config_digest, identity.engine, identity.tool)


Group = tuple[Identity, tuple[Result, ...]]


def groups(results: Sequence[Result], kind: Kind) -> list[Group]:
    """Return the results of a kind by what was measured and how, the latest measured last."""
    return _grouped([result for result in results if result.kind == kind])


def _grouped(results: Sequence[Result]) -> list[Group]:
    found: dict[tuple[Identity, str], list[Result]] = {}
    for result in results:
        key = result.identity, json.dumps(result.parameters, sort_keys=True)
        found[key] = [*found.pop(key, []), result]
    return [(identity, tuple(members)) for (identity, _), members in found.items()]


Pair = tuple[tuple[Result, ...], tuple[Result, ...]]


def last_two(results: Sequence[Result], kind: Kind) -> Pair | None:
    """Return what was measured last, and before it the last other thing measured alike."""
    found = groups(results, kind)
    for identity, members in reversed(found[:-1]):
        newest, latest = found[-1]
        if identity != newest and members[0].parameters == latest[0].parameters:
            return members, latest
    return None


def alike(before: Sequence[Result], after: Sequence[Result]) -> Pair | None:
    """Return of both the latest group of those that were measured alike."""
    for _, latest in reversed(_grouped(after)):
        for _, earlier in reversed(_grouped(before)):
            if earlier[0].parameters == latest[0].parameters:
                return earlier, latest
    return None
