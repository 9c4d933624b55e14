"""A budget as a picture: memory of one rank, and where the time of a decode step goes."""

from pathlib import Path
from typing import Any

from glm53ctl.budget.machine import GIB
from glm53ctl.budget.memory import Budget
from glm53ctl.budget.report import STREAMS
from glm53ctl.budget.speed import decode
from glm53ctl.plot import figure, save

SMALL = 0.015
"""Parts of memory below this share of it are drawn as one."""


def draw(made: Budget, target: Path) -> None:
    """Write the picture; its name says PNG or SVG. Raises UserError when it cannot be made."""
    canvas = figure(9.0, 5.2)
    left, right = canvas.subplots(1, 2, width_ratios=[1, 1.35])
    _memory(made, left)
    _steps(made, right)
    settings = made.settings
    canvas.suptitle(
        f"{made.machine.name}, {settings.ranks} ranks, {settings.context:,} tokens, "
        f"{settings.method}, dense {settings.dense}: "
        f"{made.pool.nbytes / GIB:.1f} GiB of KV, {made.pool.concurrency:.2f} full requests"
        + ("" if made.fits else " (does not fit)"),
        fontsize=10,
    )
    save(canvas, target)


def _memory(made: Budget, axes: Any) -> None:
    total = made.machine.memory
    parts = [(line.name, line.nbytes) for line in made.lines]
    small = sum(size for _, size in parts if size < SMALL * total)
    shown = [(name, size) for name, size in parts if size >= SMALL * total]
    shown += [("all else", small), ("KV pool", made.pool.nbytes), ("host", max(made.host, 0))]
    base = 0.0
    for name, size in shown:
        axes.bar([0], [size / GIB], bottom=base, width=0.5)
        axes.text(0.3, base + size / GIB / 2, f"{name} {size / GIB:.1f}", va="center", fontsize=8)
        base += size / GIB
    axes.set(xlim=(-0.3, 1.1), xticks=[], ylabel="GiB of one rank", title="memory")


def _steps(made: Budget, axes: Any) -> None:
    paces = [decode(made.settings, made.machine, streams) for streams in STREAMS]
    names = [part.name for part in paces[-1].parts]
    base = [0.0] * len(paces)
    places = range(len(paces))
    for name in names:
        spent = [
            sum(part.expected for part in pace.parts if part.name == name) * 1e3 for pace in paces
        ]
        axes.bar(places, spent, bottom=base, width=0.6, label=name)
        base = [low + more for low, more in zip(base, spent, strict=True)]
    for place, pace in zip(places, paces, strict=True):
        axes.plot([place - 0.38, place + 0.38], [pace.floor * 1e3] * 2, color="black")
    axes.set(ylabel="ms", title="decode step; black: floor")
    axes.set_xticks(list(places), [f"x{streams}" for streams in STREAMS])
    axes.legend(fontsize=8, frameon=False)
