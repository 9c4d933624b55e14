"""Ask the head for a switch, and follow it to its end."""

import time
from collections.abc import Callable

from glm53ctl.config.schema import Config
from glm53ctl.config.sources import digest
from glm53ctl.errors import UserError
from glm53ctl.status.snapshot import Snapshot, gather
from glm53ctl.supervise.orders import give_order
from glm53ctl.supervise.report import Trial

POLL_SECONDS = 0.5
BEGIN_SECONDS = 30.0
"""Beyond draining: until the head has put the switch on trial."""


def require_switchable(old: Config, new: Config) -> None:
    """Refuse what is no switch, or what only one node can do."""
    if old.paths != new.paths or old.nodes != new.nodes or old.link != new.link:
        raise UserError(
            "SWITCH_PLACE",
            "a switch cannot change `nodes`, `link` or `paths`, where it is kept and told.",
            "Change them in the file, on both nodes.",
        )
    if digest(old) == digest(new):
        raise UserError(
            "SWITCH_NOTHING",
            f"the pair runs with just that already (profile {new.profile}).",
            "Name another profile, or change settings with --set.",
        )


def order(config: Config, trial: Trial) -> None:
    """Give the order. UserError when no rank is here, or another switch is on trial."""
    other = trial_of(gather(config))
    if other is not None and other.running:
        raise UserError(
            "SWITCH_RUNNING",
            f"the pair is being switched to {other.to} already.",
            "Wait until `glm53ctl status` shows how that ended.",
        )
    give_order(config, "restart", trial=trial)


def trial_of(snapshot: Snapshot) -> Trial | None:
    """Return the last switch, as the head has told it."""
    return next((report.trial for report in snapshot.ranks if report.rank == 0), None)


def follow(
    config: Config, trial: Trial, show: Callable[[Snapshot], None], until: Callable[[Trial], bool]
) -> Trial | None:
    """Show the pair until the trial is where `until` says; None when the head does not tell.

    It has until the limits of the trial and a start are over: the head may be dead or rebooting.
    """
    drain = config.serve.drain_seconds + config.supervise.stop_grace_seconds
    began = time.monotonic()
    while True:
        snapshot = gather(config)
        show(snapshot)
        told, waited = trial_of(snapshot), time.monotonic() - began
        known = told is not None and told.id == trial.id
        if known and told is not None and until(told):
            return told
        patience = drain + BEGIN_SECONDS
        if known or snapshot.missing:
            patience += 2 * trial.ready_seconds
        if waited > patience:
            return None
        time.sleep(POLL_SECONDS)


def serves(config: Config, seconds: float, show: Callable[[Snapshot], None]) -> bool:
    """Show the pair until it serves; False when it does not within `seconds`."""
    limit = time.monotonic() + seconds
    while not (snapshot := gather(config)).ready:
        show(snapshot)
        if time.monotonic() > limit:
            return False
        time.sleep(POLL_SECONDS)
    show(snapshot)
    return True
