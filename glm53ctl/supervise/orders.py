"""Orders for the pair, given from this host to any rank that runs on it."""

import time
from pathlib import Path
from typing import Literal

from glm53ctl.config.schema import Config
from glm53ctl.errors import EXIT_NOT_READY, UserError
from glm53ctl.supervise import control

STOP_MARGIN_SECONDS = 30.0
POLL_SECONDS = 0.2


def give_order(
    config: Config, action: Literal["stop", "restart", "resume"], overrides: tuple[str, ...] = ()
) -> None:
    """Give the order to the lowest rank here; the ranks hand it on among themselves."""
    request = control.Request(action=action, overrides=overrides)
    for rank in range(config.world_size):
        answer = control.ask(control.socket_path(Path(config.paths.run_dir), rank), request)
        if answer is not None:
            return
    raise UserError(
        "PAIR_DOWN",
        f"no rank runs on this host (no socket answers in {config.paths.run_dir}).",
        "Start it with `glm53ctl up`, or `systemctl start glm53.target`.",
        EXIT_NOT_READY,
    )


def wait_until_down(config: Config) -> None:
    """Wait until no rank of this host answers any more. Raises UserError at the deadline."""
    rules = config.supervise
    patience = config.serve.drain_seconds + rules.stop_grace_seconds + STOP_MARGIN_SECONDS
    limit = time.monotonic() + patience
    while True:
        paths = [
            control.socket_path(Path(config.paths.run_dir), r) for r in range(config.world_size)
        ]
        if all(control.ask(path, control.Request(action="report")) is None for path in paths):
            return
        if time.monotonic() > limit:
            raise UserError("STOP_SLOW", f"a rank still runs after {patience:.0f} s.")
        time.sleep(POLL_SECONDS)
