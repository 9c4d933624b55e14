"""`glm53ctl plan`: what fits and how fast it can be."""

import json
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from glm53ctl.errors import UserError
from glm53ctl.options import ConfigOption, JsonOption


class MachineName(StrEnum):
    """Machines that are known."""

    GB10 = "gb10"
    H200 = "h200"


class Speculation(StrEnum):
    """What may draft."""

    DFLASH = "dflash"
    MTP = "mtp"
    NONE = "none"


ANY_PAIR = 'nodes=[{"name": "a", "address": "192.0.2.1"}, {"name": "b", "address": "192.0.2.2"}]'
"""A profile has no nodes; what fits does not depend on their addresses."""


def plan_command(
    context: typer.Context,
    config: ConfigOption = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Override one setting: dense=fp8.")
    ] = None,
    profile: Annotated[str | None, typer.Option(help="Plan this profile as it is.")] = None,
    machine: Annotated[MachineName, typer.Option(help="What the ranks run on.")] = MachineName.GB10,
    spec: Annotated[
        Speculation | None,
        typer.Option(help="Plan with this speculation, whatever licence is accepted."),
    ] = None,
    as_json: JsonOption = False,
    plot: Annotated[Path | None, typer.Option(help="Draw it into this .png or .svg.")] = None,
) -> None:
    """Show what fits and how fast it can be. Exit status 2 when it does not fit."""
    if context.invoked_subcommand is not None:
        return
    from glm53ctl.budget.draw import draw
    from glm53ctl.budget.machine import MACHINES
    from glm53ctl.budget.memory import budget, nearest
    from glm53ctl.budget.report import DRAFTED, advice, as_data, as_text
    from glm53ctl.budget.settings import from_config
    from glm53ctl.config.sources import load

    words = list(set_ or ())
    if profile is not None:
        words = [f"profile={profile}", *([] if config else [ANY_PAIR]), *words]
    loaded = load(config, overrides=words, rules=False).config
    if loaded.engine.platform == "cpu":
        message = "This configuration is of the CPU engine, whose model is not GLM-5.3-Flash."
        raise UserError("PLAN_NO_GPU", message, "Name a profile: --profile vllm-recipe.")
    settings = from_config(loaded)
    if spec is not None and spec.value != settings.method:
        settings = replace(settings, method=spec.value, drafted=DRAFTED[spec.value])
    made = budget(settings, MACHINES[machine.value])
    near = None if made.fits else nearest(settings, made.machine)
    if plot is not None:
        draw(made, plot)
    print(json.dumps(as_data(made, near)) if as_json else as_text(made))
    if not made.fits:
        raise UserError(
            "PLAN_NO_ROOM", f"It does not fit: {'; '.join(made.problems)}.", advice(made, near)
        )
