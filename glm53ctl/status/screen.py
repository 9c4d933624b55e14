"""The snapshot as it changes: redrawn in place on a terminal, a line per change elsewhere."""

import io
import re
from pathlib import Path
from types import TracebackType

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.live import Live

from glm53ctl.status.snapshot import Snapshot
from glm53ctl.status.text import render
from glm53ctl.supervise.report import RankReport

REDRAWS_A_SECOND = 4
PICTURE_COLUMNS = 96
_OWN_FONTS_ONLY = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
"""Rich's template without the fonts it would fetch from elsewhere."""


def draw(snapshot: Snapshot, target: Path) -> None:
    """Write the snapshot as a picture (SVG), for a report or a README."""
    console = Console(record=True, width=PICTURE_COLUMNS, file=io.StringIO(), highlight=False)
    console.print(render(snapshot))
    console.save_svg(str(target), title="glm53ctl status", code_format=_OWN_FONTS_ONLY)


class Screen:
    """Shows one snapshot after the other on a console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = (
            Live(console=console, refresh_per_second=REDRAWS_A_SECOND)
            if console.is_interactive  # which a dumb terminal is not
            else None
        )
        self._said: dict[int, str] = {}

    def __enter__(self) -> "Screen":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, snapshot: Snapshot) -> None:
        """Show the newest snapshot."""
        if self._live is not None:
            self._live.update(render(snapshot))
            return
        lines = {report.rank: _line(report) for report in snapshot.ranks}
        lines |= dict.fromkeys(snapshot.missing, "no word")
        for rank, line in lines.items():
            if self._said.get(rank) != line:
                self._said[rank] = line
                self._console.print(f"rank {rank}: {line}", markup=False)


def _line(report: RankReport) -> str:
    """Return the state without what changes by itself, such as a number of seconds."""
    line = report.phase.value
    if report.stage is not None and report.phase.value == "starting":
        line += f", {report.stage.value}"
    codes = ", ".join(finding.code for finding in report.findings)
    return f"{line} ({codes})" if codes else line
