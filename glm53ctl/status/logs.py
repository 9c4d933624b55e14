"""The engine's own words, from the files that the supervisor keeps of them."""

import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

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
    path = newest_log(config, rank)
    if path is None:
        raise UserError(
            "LOG_NONE",
            f"no engine of rank {rank} has run on this host ({config.paths.state_dir}/logs).",
            "Logs of the other node are there: run this command on it.",
        )
    while path is not None:
        with path.open(encoding="utf-8", errors="replace") as file:
            yield from (line.rstrip("\n") for line in deque(file, maxlen=lines))
            if not follow:
                return
            while (newer := newest_log(config, rank)) == path:
                if line := file.readline():
                    yield line.rstrip("\n")
                else:
                    time.sleep(POLL_SECONDS)
            yield from (line.rstrip("\n") for line in file)
        path, lines = newer, 0 if newer is None else 1 << 30
