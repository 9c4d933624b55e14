"""What is made of a view: the state in a word, the progress of a start, the points of a line."""

import pytest
from page.views import NOW, STATES, degraded, loading, node, ready, report, snapshot, view
from page.views import rails as rails_of

from glm53ctl.page.progress import Starts
from glm53ctl.page.told import headline, point
from glm53ctl.supervise.report import Phase
from glm53ctl.supervise.stages import Stage
from glm53ctl.view.model import RailView


@pytest.mark.parametrize(
    ("state", "word", "tone"),
    [
        ("ready", "ready", "ok"),
        ("loading", "starting", "busy"),
        ("degraded", "degraded", "warn"),
        ("held", "held", "bad"),
    ],
)
def test_the_state_has_a_word_and_a_tone(state, word, tone):
    said = headline(STATES[state](0))
    assert (said.word, said.tone) == (word, tone)
    assert said.sentence


def test_a_held_pair_says_why_and_what_to_do():
    said = headline(STATES["held"](0))
    assert "Xid 79" in said.sentence
    assert "glm53ctl resume" in said.fix


def test_a_rail_without_carrier_degrades_a_pair_that_serves():
    bare = view(snapshot(report(0), report(1)), nodes=(node(rails=rails_of(up=False)),))
    assert headline(bare).word == "degraded"
    assert "enP2p1s0f0np0" in headline(bare).sentence


def test_a_port_without_a_cable_degrades_nothing():
    spare = RailView(name="enp1s0f1np1", carrier=False)
    bare = view(snapshot(report(0), report(1)), nodes=(node(rails=(*rails_of(), spare)),))
    assert headline(bare).word == "ready"


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_has_a_tone(phase):
    assert headline(view(snapshot(report(0, phase), report(1, phase)))).tone


def test_without_any_rank_the_pair_is_down():
    assert headline(view(snapshot())).tone == "bad"


def test_points_are_what_is_known():
    full, empty = point(ready()), point(loading())
    assert full["kv"] == pytest.approx(0.31)
    assert full["requests"] == 4
    assert (full["memory0"], full["memory1"]) == (14.6, 15.1)
    assert full["heat0"] == 67
    assert "decode" not in empty
    assert point(degraded())["at"] == NOW


# --- progress -------------------------------------------------------------------------------------


def starting(at, percent=None, stage=Stage.LOAD, epoch=2, since=NOW):
    one = report(0, Phase.STARTING, stage=stage, percent=percent, epoch=epoch, since=since)
    return view(snapshot(one), at - NOW)


def served(took):
    return view(snapshot(report(0, start_seconds=took, epoch=1)))


def test_the_pace_of_a_stage_tells_what_is_left_of_it():
    starts = Starts()
    (first,) = starts.feed(starting(NOW, 10))
    assert first.seconds_left is None
    (then,) = starts.feed(starting(NOW + 20, 30))  # one percent a second
    assert (then.seconds_left, then.left_of) == (70, "stage")
    (later,) = starts.feed(starting(NOW + 25, 30))  # it stands still
    assert later.seconds_left == 65


def test_it_is_never_less_than_nothing():
    starts = Starts()
    starts.feed(starting(NOW, 10))
    starts.feed(starting(NOW + 20, 30))
    (late,) = starts.feed(starting(NOW + 500, 30))
    assert late.seconds_left == 0


def test_the_start_before_tells_what_is_left_of_this_one():
    starts = Starts()
    starts.feed(served(400.0))
    (now,) = starts.feed(starting(NOW + 100, 50))
    assert (now.seconds_left, now.left_of) == (300, "start")


def test_a_start_that_takes_longer_than_the_last_promises_nothing():
    starts = Starts()
    starts.feed(served(400.0))
    (now,) = starts.feed(starting(NOW + 401, 50))
    assert (now.seconds_left, now.left_of) == (None, None)


def test_another_epoch_begins_anew():
    starts = Starts()
    starts.feed(starting(NOW, 10))
    starts.feed(starting(NOW + 20, 30))
    (anew,) = starts.feed(starting(NOW + 30, 40, epoch=3))
    assert anew.seconds_left is None
    assert anew.began == {Stage.LOAD: NOW + 30}


def test_stages_are_dated_as_they_are_seen():
    starts = Starts()
    starts.feed(starting(NOW, stage=Stage.BOOT))
    (now,) = starts.feed(starting(NOW + 9, 0))
    assert now.began == {Stage.BOOT: NOW, Stage.LOAD: NOW + 9}


def test_only_ranks_that_start_have_progress():
    assert Starts().feed(ready()) == ()
