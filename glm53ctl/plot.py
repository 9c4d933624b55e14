"""The edge to matplotlib: an extra that only pictures need, imported when one is asked for."""

from pathlib import Path
from typing import TYPE_CHECKING

from glm53ctl.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg")


def figure(width: float, height: float) -> "Figure":
    """Return an empty figure, in inches. Raises UserError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise UserError(
            "PLOT_UNAVAILABLE",
            "Pictures need matplotlib, which is not installed here.",
            "Install it (pip install matplotlib); the same figures are in --json.",
        ) from None
    return Figure(figsize=(width, height), layout="constrained")


def save(canvas: "Figure", target: Path) -> None:
    """Write a figure. Raises UserError when its name is no picture's or the place refuses it."""
    if target.suffix not in SUFFIXES:
        message = f"{target} is neither a .png nor an .svg."
        raise UserError("PLOT_FORMAT", message, "Name the file with one of the two endings.")
    from matplotlib import rc_context

    # The same figures make the same file, whose text stays text.
    metadata = {"Date": None} if target.suffix == ".svg" else None
    try:
        with rc_context({"svg.hashsalt": "glm53ctl", "svg.fonttype": "none"}):
            canvas.savefig(target, dpi=150, metadata=metadata)
    except OSError as error:
        raise UserError(
            "FILE_REFUSED", f"{target}: {error.strerror}.", "Name another place."
        ) from error
