"""What an operator reads in a second."""

import time

import pytest
from pictures import NOW, finding, heard, loss, report, shown, snapshot

from glm53ctl.findings import Severity
from glm53ctl.status.screen import draw
from glm53ctl.status.text import duration
from glm53ctl.supervise.report import Counters, EngineReport, Phase, RankReport
from glm53ctl.supervise.stages import Stage


def line_of(text: str, *words: str) -> str:
    """Return the one line that holds all the words."""
    found = [line for line in text.splitlines() if all(word in line for word in words)]
    assert len(found) == 1, (words, text)
    return found[0]


def serving(**counters: float) -> str:
    return shown(snapshot(report(0, counters=Counters(**counters)), report(1)))


def test_a_pair_that_is_down_says_so_and_how_to_start_it():
    text = shown(snapshot())
    assert text.splitlines()[0].split()[:2] == ["glm53", "down"]
    assert line_of(text, "0", "no word")
    assert line_of(text, "1", "no word")
    assert "glm53ctl up" in line_of(text, "next step")


def test_the_headline_has_state_model_and_endpoint():
    headline = shown(snapshot(report(0), report(1))).splitlines()[0].split()
    assert headline[:4] == ["glm53", "ready", "glm", "http://127.0.0.1:8888/v1"]


def test_each_rank_has_a_line_of_its_own():
    there = report(
        1,
        epoch=12,
        since=NOW - 75,
        engine=EngineReport(pid=4711, version="0.33.0"),
        memory_available_gib=11.25,
    )
    text = shown(snapshot(report(0, peers={1: heard("connected", there)})))
    row = line_of(text, "4711").split()
    assert row[:3] == ["1", "b", "ready"]
    assert "1m 15s" in line_of(text, "4711")
    assert {"12", "11.2"} <= set(row)
    assert "0.33.0" in text


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_can_be_shown(phase):
    text = shown(snapshot(report(0, phase), report(1)))
    assert line_of(text, "0  ", " a ", phase.value, "5s")


@pytest.mark.parametrize(
    ("percent", "bar"),
    [
        (0, "load ╌╌╌╌ 0%"),
        (24, "load ╌╌╌╌ 24%"),
        (50, "load ━━╌╌ 50%"),
        (99, "load ━━━╌ 99%"),
        (100, "load ━━━━ 100%"),
    ],
)
def test_a_stage_that_counts_has_a_bar(percent, bar):
    text = shown(snapshot(report(0, Phase.STARTING, stage=Stage.LOAD, percent=percent)))
    assert bar in text


def loading(stage: Stage, **changes: object) -> RankReport:
    return report(
        1,
        Phase.STARTING,
        node="spark-worker",
        since=NOW - 3599,
        epoch=12_345,
        stage=stage,
        engine=EngineReport(pid=4_194_304, version="0.33.0"),
        memory_available_gib=116.2,
        **changes,
    )


def test_a_load_fits_into_80_columns():
    row = line_of(shown(snapshot(loading(Stage.LOAD, percent=100)), width=80), "4194304")
    words = ["1", "spark-worker", "starting", "59m", "59s", "12345", "4194304", "116.2", "GiB"]
    assert row.split() == [*words, "load", "━━━━", "100%"]


@pytest.mark.parametrize(
    "said", [{"stage": Stage.GRAPHS, "percent": 99}, {"stage": Stage.KV, "compiling": "k" * 24}]
)
def test_what_is_too_long_for_the_line_is_not_cut(said):
    text = shown(snapshot(loading(**said)), width=80)
    assert {"spark-worker", "starting", "4194304"} <= set(line_of(text, "4194304").split())
    assert "…" not in text
    assert text.count("99%") == 1 or text.count("k") >= 24


def test_a_stage_that_counts_nothing_has_its_name_only():
    text = shown(snapshot(report(0, Phase.STARTING, stage=Stage.NCCL)))
    assert line_of(text, "starting", "nccl")
    assert "%" not in text


def test_a_kernel_that_is_built_is_named():
    """It can take minutes in which nothing else is said."""
    building = report(0, Phase.STARTING, stage=Stage.KV, compiling="topk")
    assert line_of(shown(snapshot(building)), "starting", "kv, compiling topk")
    assert building.status_line() == "epoch 0: kv, compiling topk"


@pytest.mark.parametrize("phase", [Phase.ENDING, Phase.WAITING, Phase.HELD])
def test_a_stage_of_an_epoch_that_is_over_is_not_shown(phase):
    assert "load" not in shown(snapshot(report(0, phase, stage=Stage.LOAD, percent=10)))


def test_findings_stand_with_code_and_message():
    warned = finding("PEER_ABSENT", severity=Severity.WARN)
    fine = finding("CLOCK_CAPPED", severity=Severity.OK)
    text = shown(snapshot(report(0, Phase.BLOCKED, findings=(finding(), warned, fine))))
    assert line_of(text, "MEM_FOREIGN", "this is MEM_FOREIGN.")
    assert line_of(text, "PEER_ABSENT", "this is PEER_ABSENT.")
    assert line_of(text, "CLOCK_CAPPED", "this is CLOCK_CAPPED.")


def test_words_in_brackets_and_colons_are_shown_as_they_are():
    odd = finding(message="[red]stop[/red] :bug: [/]", fix="Open [link].")
    text = shown(snapshot(report(0, Phase.BLOCKED, findings=(odd,))))
    assert "[red]stop[/red] :bug: [/]" in text
    assert "Open [link]." in text


def test_a_long_message_is_wrapped_and_not_cut():
    words = [f"word{number}" for number in range(60)]
    bad = finding(message=" ".join(words))
    text = shown(snapshot(report(0, Phase.BLOCKED, findings=(bad,))), width=60)
    assert [word for word in text.split() if word in words] == words
    assert max(map(len, text.splitlines())) <= 60


def test_the_last_incident_stays_in_sight_after_the_pair_is_back():
    lost = loss(NOW - 60, message="rank 1 was killed")
    text = shown(snapshot(report(0, last_loss=lost), report(1)))
    clock = time.strftime("%H:%M:%S", time.localtime(NOW - 60))
    assert line_of(text, "last incident", clock, "epoch 3", "RANK_LOST: rank 1 was killed")


def test_an_incident_of_another_day_says_which():
    for days, shape in ((0, "%H:%M:%S"), (3, "%Y-%m-%d %H:%M:%S")):
        lost = loss(NOW - 86400 * days, message="rank 1 was killed")
        text = shown(snapshot(report(0, last_loss=lost), report(1)))
        when = time.strftime(shape, time.localtime(lost.at))
        assert line_of(text, f"last incident  {when}, epoch 3")


def test_a_serving_pair_shows_its_traffic():
    text = serving(running=2, waiting=1, prompt_tokens=1_234_567, generated_tokens=89, kv_usage=0.5)
    requests = line_of(text, "requests")
    assert "2 running, 1 waiting" in requests
    assert "1,234,567 tokens read, 89 written" in requests
    assert "KV cache 50.0 % used" in requests
    assert "drafts" not in requests


def test_acceptance_is_shown_once_something_was_drafted():
    assert "25 % of drafts taken" in serving(drafted_tokens=8, accepted_tokens=2)


def test_traffic_of_a_pair_that_does_not_serve_is_old_news():
    counters = Counters(running=1)
    assert "requests" not in shown(snapshot(report(0, counters=counters), report(1, Phase.ENDING)))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0s"),
        (0, "0s"),
        (59.9, "59s"),
        (60, "1m 0s"),
        (3599, "59m 59s"),
        (3600, "1h 0m"),
        (86_399, "23h 59m"),
        (86_400, "1d 0h"),
        (1_000_000, "11d 13h"),
    ],
)
def test_a_duration_has_the_two_units_that_matter(seconds, text):
    assert duration(seconds) == text


def test_the_picture_holds_what_the_terminal_shows(tmp_path):
    draw(snapshot(report(0), report(1)), tmp_path / "status.svg")
    svg = (tmp_path / "status.svg").read_text()
    assert svg.startswith("<svg")
    assert "ready" in svg
