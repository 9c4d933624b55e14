import pytest

from glm53ctl.config.schema import Supervise
from glm53ctl.supervise.ledger import Ledger, next_backoff
from glm53ctl.supervise.report import Loss


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path, rank=1, rules=Supervise())


def loss(rank: int = 1, at: float = 1000.0, commanded: bool = False) -> Loss:
    return Loss(
        code="RANK_LOST", message="worker gone", rank=rank, epoch=3, at=at, commanded=commanded
    )


def test_three_own_crashes_in_an_hour_hold_the_pair_and_say_why(ledger):
    for at in (0.0, 1000.0, 3599.0):
        assert ledger.held is None
        ledger.record(loss(at=at))
    assert "3 crashes within 60 minutes; the last: worker gone" in ledger.held


def test_crashes_that_are_further_apart_do_not_hold(ledger):
    for at in (0.0, 3000.0, 6000.0, 9000.0):
        ledger.record(loss(at=at))
    assert ledger.held is None


def test_losses_of_the_peer_and_commanded_ends_are_no_crashes(ledger):
    for at in range(9):
        ledger.record(loss(rank=0, at=at))
        ledger.record(loss(at=at, commanded=True))
    assert ledger.held is None
    assert ledger.crashes(10.0) == 0


def test_the_memory_survives_the_supervisor(ledger, tmp_path):
    ledger.begin_epoch(7, "boot-a")
    ledger.record(loss())
    again = Ledger(tmp_path, rank=1, rules=Supervise())
    assert (again.epoch, again.crashes(1000.0)) == (7, 1)
    assert [incident.message for incident in again.incidents()] == ["worker gone"]


def test_resume_forgets(ledger):
    for at in (0.0, 1.0, 2.0):
        ledger.record(loss(at=at))
    ledger.resume()
    assert ledger.held is None
    assert ledger.crashes(3.0) == 0


def test_two_boots_that_ended_while_loading_hold(ledger):
    ledger.begin_epoch(1, "boot-a")
    ledger.note_start("boot-b")
    assert ledger.held is None
    ledger.begin_epoch(2, "boot-b")
    ledger.note_start("boot-c")
    assert ledger.held.startswith("HOST_RESET_LOOP")


def test_a_supervisor_that_died_while_loading_is_no_unclean_boot(ledger):
    for epoch in range(5):
        ledger.begin_epoch(epoch, "boot-a")
        ledger.note_start("boot-a")
    assert ledger.held is None
    ledger.note_start("boot-b")  # rebooted in order, hours after that load was over
    ledger.note_start("boot-c")
    assert ledger.held is None


def test_loads_that_ended_before_an_orderly_reboot_are_no_reset_loop(ledger):
    for boot, following in (("boot-a", "boot-b"), ("boot-b", "boot-c")):
        ledger.begin_epoch(1, boot)
        ledger.note_start(boot)  # the supervisor died while loading; the machine did not
        ledger.note_stop(boot)
        ledger.note_start(following)
    assert ledger.held is None


def test_crashes_of_a_clock_that_ran_ahead_count_no_longer_than_others(ledger):
    year = 365 * 86400.0
    ledger.record(loss(at=1000.0 + year))
    assert ledger.crashes(1000.0) == 0
    for at in (1000.0, 1000.0 + 20 * 86400):
        ledger.record(loss(at=at))
    assert (ledger.crashes(1000.0 + 20 * 86400), ledger.held) == (1, None)


def test_a_clock_set_back_by_seconds_loses_no_crash(ledger):
    for at in (1000.0, 998.0, 999.0):
        ledger.record(loss(at=at))
    assert ledger.held is not None


def test_a_load_that_succeeded_clears_the_count(ledger):
    ledger.begin_epoch(1, "boot-a")
    ledger.note_start("boot-b")
    ledger.begin_epoch(2, "boot-b")
    ledger.loaded()
    ledger.begin_epoch(3, "boot-b")
    ledger.note_start("boot-c")
    assert ledger.held is None


@pytest.mark.parametrize(
    ("stopped_in", "starts_in", "held"),
    [
        (None, "boot-a", True),  # it died and systemd started it again
        ("boot-a", "boot-a", False),  # somebody restarted it
        ("boot-a", "boot-b", True),  # the machine was rebooted
    ],
)
def test_who_stops_a_held_rank_and_starts_it_again_has_looked(
    ledger, tmp_path, stopped_in, starts_in, held
):
    ledger.hold("3 crashes")
    if stopped_in is not None:
        ledger.note_stop(stopped_in)
    again = Ledger(tmp_path, 1, ledger.rules)
    again.note_start(starts_in)
    assert (again.held is not None) is held
    again.hold("3 crashes")
    again.note_start(starts_in)  # the stop counts once
    assert again.held is not None


@pytest.mark.parametrize("text", ["", "{", '{"epoch": "many"}'])
def test_a_torn_file_costs_counters_and_no_start(tmp_path, text):
    (tmp_path / "rank1.json").write_text(text)
    (tmp_path / "incidents.jsonl").write_text('{"code": "RANK_L')
    ledger = Ledger(tmp_path, rank=1, rules=Supervise())
    assert (ledger.epoch, ledger.held, ledger.incidents()) == (0, None, [])


def test_the_pause_doubles_up_to_its_maximum():
    rules = Supervise(backoff_seconds=2, backoff_max_seconds=10)
    assert [next_backoff(rules, n) for n in range(6)] == [0, 2, 4, 8, 10, 10]


def test_the_pause_stays_finite_after_a_year_of_losses():
    assert next_backoff(Supervise(), 100_000) == Supervise().backoff_max_seconds
