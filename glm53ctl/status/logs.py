"""The engine's own words, from the files that the supervisor keeps of them."""

import os
import time
from collections import deque
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TextIO

from glm53ctl.config.schema import Config
from glm53ctl.errors import UserError

POLL_SECONDS = 0.3


def newest_log(config: Config, rank: int) -> Path | None:
    """Return the log of the rank's newest epoch on this host."""
    logs = sorted((Path(config.paths.state_dir) / "logs").glob(f"rank{rank}-*.log"))
    return logs[-1] if logs else None


def read_log(config: Config, rank: int, lines: int, *, follow: bool) -> Iterator[str]:
    """Yield the last lines of the newest log, then, with `follow`, all that comes.

    A new epoch has a new file; following goes on there.
    """
    if rank >= config.world_size:
        message = f"there is no rank {rank}: `nodes` lists {config.world_size}."
        raise UserError("RANK_UNKNOWN", message)
    path = newest_log(config, rank)
    if path is None:
        raise UserError(
            "LOG_NONE",
            f"no engine of rank {rank} has run on this host ({config.paths.state_dir}/logs).",
            "Logs of the other node are there: run this command on it.",
        )
    tail: int | None = lines
    while path is not None:
        try:
            with path.open(encoding="utf-8", errors="replace") as file:
                last = deque(file, maxlen=tail)
                begun = last.pop() if follow and last and not last[-1].endswith("\n") else ""
                yield from (line.rstrip("\n") for line in last)
                path = (yield from _to_the_end(file, begun, config, rank, path)) if follow else None
        except OSError as error:
            message = f"{path}: cannot read it: {error.strerror}."
            raise UserError("LOG_UNREADABLE", message) from error
        tail = None  # what a new epoch said before it was noticed is news as well


def _to_the_end(
    file: TextIO, begun: str, config: Config, rank: int, path: Path
) -> Generator[str, None, Path]:
    """Yield whole lines as they come; return the log that follows: of an epoch, or begun anew."""
    while True:
        # Both are looked for first: the old one is then complete.
        newer = max(newest_log(config, rank) or path, path)
        anew = _is_another(file, path)
        while part := file.readline():
            begun += part
            if begun.endswith("\n"):
                yield begun[:-1]
                begun = ""
        if anew or newer != path:
            break
        time.sleep(POLL_SECONDS)
    if begun:
        yield begun
    return newer


def _is_another(file: TextIO, path: Path) -> bool:
    """Say whether what was opened as `path` is no longer what is there; not while none is."""
    try:
        return not os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
