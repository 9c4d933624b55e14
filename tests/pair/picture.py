"""The table's medians as a picture: what both sides make of the faults that both can have."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glm53ctl.plot import figure, save

from .faults import FAULTS, Fault

ROW_INCHES = 0.22
SIDES = {"plain": {"color": "#d1662b", "marker": "s"}, "glm53": {"color": "#2a6fbb", "marker": "o"}}
"""How each side is drawn; the product above the other."""


@dataclass(frozen=True)
class Panel:
    """One measured time on an axis in seconds, at whose right end stands what never came."""

    field: str
    title: str
    scale: str
    ticks: tuple[float, ...]
    limits: tuple[float, float]
    never: tuple[float, float]
    """Where that end begins, and where its dots are."""

    def place(self, seconds: float | None) -> float:
        """Return where a time is drawn; one below the axis at its beginning."""
        return self.never[1] if seconds is None else max(seconds, self.ticks[0])


PANELS = (
    Panel(
        "detect_s", "seconds until noticed", "log",
        ticks=(0.1, 0.3, 1, 3, 10, 30), limits=(0.07, 180), never=(55, 100),
    ),
    Panel(
        "serving_s", "seconds until serving again", "linear",
        ticks=(0, 30, 60, 90, 120), limits=(-6, 160), never=(130, 145),
    ),
)  # fmt: skip


def draw(results: dict[str, Any], target: Path) -> None:
    """Write the picture; its name says PNG or SVG."""
    measured = {(e["fault"], e["side"]): e for e in results["faults"] if e["runs"]}
    faults = [
        fault
        for fault in FAULTS
        if fault.follows != "serve" and all((fault.name, side) in measured for side in SIDES)
    ]
    canvas = figure(9.0, 1.0 + ROW_INCHES * len(faults))
    panels = canvas.subplots(1, len(PANELS), sharey=True)
    for axes, panel in zip(panels, PANELS, strict=True):
        for side, style in SIDES.items():
            places = [_place(panel, fault, measured[fault.name, side]) for fault in faults]
            axes.plot(
                places, range(len(faults)), linestyle="", markersize=5, label=side, **style
            )  # fmt: skip
        _frame(axes, panel)
    panels[0].set_yticks(range(len(faults)), [fault.phrase for fault in faults])
    panels[0].set_ylim(len(faults) - 0.5, -0.5)
    marks = panels[-1].get_legend_handles_labels()
    canvas.legend(*marks, loc="outside upper right", ncols=len(SIDES), frameon=False, fontsize=9)
    save(canvas, target)


def _place(panel: Panel, fault: Fault, entry: dict[str, Any]) -> float | None:
    """Return where a dot goes; none where no host is left that could notice."""
    unseen = panel.field == "detect_s" and not fault.survivors
    return None if unseen else panel.place(entry[panel.field])


def _frame(axes: Any, panel: Panel) -> None:
    axes.set(xscale=panel.scale, xlim=panel.limits)
    axes.axvspan(panel.never[0], panel.limits[1], color="0.92", zorder=0)
    axes.set_xticks([*panel.ticks, panel.never[1]], [*(f"{t:g}" for t in panel.ticks), "never"])
    axes.minorticks_off()
    axes.set_title(panel.title, fontsize=9)
    axes.grid(linewidth=0.4)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8, length=0)
