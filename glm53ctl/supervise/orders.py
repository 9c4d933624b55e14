"""Orders for the pair, given from this host to any rank that runs on it."""

import time
from pathlib import Path
from typing import Literal

from glm53ctl.config.schema import Config
from glm53ctl.errors import EXIT_NOT_READY, UserError
from glm53ctl.supervise import control
from glm53ctl.supervise.report import Trial

STOP_MARGIN_SECONDS = 30.0
POLL_SECONDS = 0.5


def how_to_start(config: Config) -> str:
    """Return what starts a pair that is down: `up` is for one host, a target for its own half."""
    if config.spans_hosts:
        return f"`systemctl start glm53.target`{' on both' if config.world_size > 1 else ''}"
    return "`glm53ctl up`, or `systemctl start glm53.target`"


def give_order(
    config: Config,
    action: Literal["stop", "restart", "resume", "keep", "undo"],
    overrides: tuple[str, ...] = (),
    *,
    trial: Trial | None = None,
    reason: str = "",
) -> None:
    """Give the order to the lowest rank here; the ranks hand it on among themselves."""
    request = control.Request(action=action, overrides=overrides, trial=trial, reason=reason)
    for rank in range(config.world_size):
        answer = control.ask(control.socket_path(Path(config.paths.run_dir), rank), request)
        if answer is not None:
            return
    raise UserError(
        "PAIR_DOWN",
        f"no rank runs on this host (no socket answers in {config.paths.run_dir}).",
        f"Start it with {how_to_start(config)}.",
        EXIT_NOT_READY,
    )


def stop(config: Config) -> None:
    """Stop the pair and wait until no rank of this host answers any more.

    The order is repeated to every rank that still answers: two that have been parted for long take
    it each alone. Raises UserError when no rank runs, or at the deadline.
    """
    give_order(config, "stop")
    rules = config.supervise
    patience = config.serve.drain_seconds + rules.stop_grace_seconds + STOP_MARGIN_SECONDS
    limit = time.monotonic() + patience
    again = control.Request(action="stop")
    while _tell_all(config, again):
        if time.monotonic() > limit:
            raise UserError("STOP_SLOW", f"a rank still runs after {patience:.0f} s.")
        time.sleep(POLL_SECONDS)


def _tell_all(config: Config, request: control.Request) -> int:
    """Make a request of every rank of this host; return how many answered."""
    run_dir = Path(config.paths.run_dir)
    answers = [
        control.ask(control.socket_path(run_dir, rank), request)
        for rank in range(config.world_size)
    ]
    return sum(answer is not None for answer in answers)
