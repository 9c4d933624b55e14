"""The snapshot as it changes, on a terminal and in a file."""

import io

import pytest
from pictures import NOW, finding, report, snapshot
from rich.console import Console

from glm53ctl.status.screen import Screen
from glm53ctl.status.snapshot import Snapshot
from glm53ctl.supervise.report import Phase
from glm53ctl.supervise.stages import Stage


def lines(*pictures: Snapshot) -> list[str]:
    """Return what a file gets of some snapshots."""
    file = io.StringIO()
    with Screen(Console(file=file, width=120, highlight=False, _environ={})) as screen:
        for picture in pictures:
            screen.show(picture)
    return file.getvalue().splitlines()


def starting(stage: Stage, **changes: object) -> Snapshot:
    return snapshot(report(0, Phase.STARTING, stage=stage, **changes), report(1, Phase.WAITING))


def test_a_file_gets_a_line_for_every_rank_at_first():
    assert lines(snapshot(report(0), report(1, Phase.PAIRING))) == [
        "rank 0: ready",
        "rank 1: pairing",
    ]


def test_a_file_gets_a_line_only_when_something_changed():
    assert lines(
        starting(Stage.LOAD),
        starting(Stage.LOAD, percent=10),
        starting(Stage.LOAD, percent=90, since=NOW - 99, memory_available_gib=1.0),
        starting(Stage.KV),
        starting(Stage.KV),
    ) == ["rank 0: starting, load", "rank 1: waiting", "rank 0: starting, kv"]


def test_findings_that_come_and_go_are_changes():
    blocked, reworded = finding("PORT_IN_USE"), finding("PORT_IN_USE", message="new words.")
    assert lines(
        snapshot(report(0, Phase.BLOCKED, findings=(blocked, finding()))),
        snapshot(report(0, Phase.BLOCKED, findings=(blocked,))),
        snapshot(report(0, Phase.BLOCKED, findings=(reworded,))),
        snapshot(report(0, Phase.PAIRING)),
    ) == [
        "rank 0: blocked (PORT_IN_USE, MEM_FOREIGN)",
        "rank 1: no word",
        "rank 0: blocked (PORT_IN_USE)",
        "rank 0: pairing",
    ]


def test_a_pair_that_is_down_is_said_once():
    assert lines(snapshot(), snapshot()) == ["rank 0: no word", "rank 1: no word"]


def test_a_dumb_terminal_gets_lines():
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=120, _environ={"TERM": "dumb"})
    with Screen(console) as screen:
        screen.show(snapshot())
    assert file.getvalue().splitlines() == ["rank 0: no word", "rank 1: no word"]


def test_a_rank_that_falls_silent_is_news_and_so_is_its_return():
    both = snapshot(report(0), report(1))
    assert lines(both, snapshot(report(0)), snapshot(report(0)), both) == [
        "rank 0: ready",
        "rank 1: ready",
        "rank 1: no word",
        "rank 1: ready",
    ]


def test_a_terminal_shows_the_newest_snapshot_in_place():
    file = io.StringIO()
    with Screen(Console(file=file, force_terminal=True, width=120, _environ={})) as screen:
        screen.show(starting(Stage.LOAD, percent=50))
        screen.show(snapshot(report(0), report(1)))
    drawn = file.getvalue()
    assert "next step" not in drawn.rsplit("glm53", 1)[1]
    assert "ready" in drawn.rsplit("glm53", 1)[1]


def test_a_terminal_is_given_back_when_something_goes_wrong():
    file = io.StringIO()

    with (
        pytest.raises(KeyboardInterrupt),
        Screen(Console(file=file, force_terminal=True, width=120, _environ={})),
    ):
        raise KeyboardInterrupt
    assert file.getvalue().rstrip().endswith("\x1b[?25h")  # the cursor is visible again
