"""How far the weights are, for who sits in front of it."""

import io

import pytest
from rich.console import Console

from glm53ctl.weights import commands
from glm53ctl.weights.progress import Progress

MOMENT = Progress(
    activity="fetch", role="model", done_bytes=1, total_bytes=2, done_files=0, total_files=1
)


@pytest.mark.parametrize("terminal", [False, True])
def test_where_nothing_can_be_redrawn_there_are_lines(terminal, tmp_path, monkeypatch):
    """A file, and a terminal that is dumb, on which a bar never shows."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=120, _environ={"TERM": "dumb"})
    monkeypatch.setattr(commands, "err", console)
    monkeypatch.setattr(commands, "LINE_SECONDS", 0.0)
    commands.Terminal(tmp_path).show(MOMENT)
    assert file.getvalue().strip() == MOMENT.sentence()
