"""`glm53ctl switch`: parse, order, follow, prove, print."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glm53ctl.errors import EXIT_BAD_INPUT, UserError
from glm53ctl.options import ConfigOption

if TYPE_CHECKING:
    from glm53ctl.config.schema import Config
    from glm53ctl.config.sources import Switched
    from glm53ctl.supervise.report import Trial
    from glm53ctl.switch.bench import Proof

# The rest is imported where it is used: other commands shall not pay for it.

EXIT_BACK = 1
"""Exit status when the pair runs with what it ran before (or nobody can tell)."""


def switch_command(
    profile: Annotated[str, typer.Argument(help="The profile to run from now on.")],
    config: ConfigOption = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Beside it, one setting: dense=fp8.")
    ] = None,
    deadline: Annotated[float, typer.Option(min=1, help="Seconds it has until READY.")] = 1800.0,
    bench: Annotated[
        str | None, typer.Option(help="Prove it by a bench: decode, or 'decode --runs 5'.")
    ] = None,
    min_ratio: Annotated[
        float, typer.Option(min=0, help="Share of the old result that each case must reach.")
    ] = 0.9,
    bench_deadline: Annotated[float, typer.Option(min=1, help="Seconds it may take.")] = 3600.0,
) -> None:
    """Switch the pair to another profile, and back if that does not serve.

    Exit status 0 when it was switched, 1 when it went back, 2 when it was refused.
    """
    from uuid import uuid4

    from glm53ctl.supervise.report import Trial
    from glm53ctl.switch.order import order

    try:
        old, target = _judged(config, profile, set_ or [])
        proof = _proof(bench, min_ratio, old)
        trial = Trial(
            id=uuid4().hex,
            to=target,
            ready_seconds=deadline,
            proof_seconds=bench_deadline if proof is not None else 0.0,
        )
        order(old, trial)
    except UserError as error:
        error.exit_code = EXIT_BAD_INPUT
        raise
    raise typer.Exit(_see_through(old, trial, proof, config))


def _judged(path: Path | None, profile: str, words: list[str]) -> "tuple[Config, Switched]":
    """Return what runs now and what to switch to; every mistake in that is told at once."""
    from glm53ctl.config.sources import Switched, configured, load
    from glm53ctl.facts.here import rank_here
    from glm53ctl.plan import check_argv, plan_rank
    from glm53ctl.switch.order import require_switchable

    here = configured(path)
    target = Switched(instead_of=here, settings=(f"profile={json.dumps(profile)}", *words))
    old = load(path, rules=False).config
    new = load(path, switched=target, rank=rank_here(old)).config
    require_switchable(old, new)
    check_argv(plan_rank(new, 0), os.environ)
    return old, target if profile != here or words else Switched()


def _proof(bench: str | None, min_ratio: float, old: "Config") -> "Proof | None":
    from glm53ctl.switch.bench import Proof

    return None if bench is None else Proof.of(bench, min_ratio, old)


def _see_through(old: "Config", trial: "Trial", proof: "Proof | None", path: Path | None) -> int:
    """Follow the switch to its end, prove it on the way, and return the exit status."""
    from rich.console import Console

    from glm53ctl.status.screen import Screen
    from glm53ctl.supervise.orders import give_order
    from glm53ctl.supervise.report import TrialState
    from glm53ctl.switch.order import follow, serves

    out = Console(highlight=False, emoji=False, soft_wrap=True)
    options = [] if path is None else ["--config", str(path)]
    out.print(f"switching to {trial.to}; streams may finish first", markup=False)
    with Screen(out) as screen:
        told = follow(old, trial, screen.show, lambda seen: seen.state is not TrialState.TRYING)
    if told is not None and told.state is TrialState.PROVING and proof is not None:
        out.print(f"it serves; measuring: bench {' '.join(proof.words)}", markup=False)
        fault = proof.fault(options)
        give_order(old, "undo" if fault else "keep", trial=trial, reason=fault or "")
        with Screen(out) as screen:
            told = follow(old, trial, screen.show, lambda seen: not seen.running)
    if told is None:
        out.print("nobody can tell how it ended: see `glm53ctl status` on the head", markup=False)
        return EXIT_BACK
    if told.state is TrialState.KEPT:
        out.print(
            f"switched to {trial.to}{f': {told.reason}' if told.reason else ''}", markup=False
        )
        return 0
    out.print(f"rolled back: {told.reason}", markup=False)
    with Screen(out) as screen:
        again = serves(old, trial.ready_seconds, screen.show)
    out.print("the pair serves as before" if again else "the pair does not serve yet", markup=False)
    return EXIT_BACK
