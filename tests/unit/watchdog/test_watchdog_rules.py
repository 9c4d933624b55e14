"""When the watchdog acts, and when it keeps its hands off."""

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from looks import Watched, failed, report, unit

from glm53ctl.supervise.report import Phase
from glm53ctl.watchdog.rules import Look, Probe


@pytest.fixture
def watched(tmp_path):
    return Watched(tmp_path)


MINUTES = range(0, 3600, 20)
OWN_BUSINESS = sorted(set(Phase) - {Phase.READY})


# --- hands off -----------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", OWN_BUSINESS)
def test_a_supervisor_that_answers_is_believed(watched, phase):
    assert watched.acts(MINUTES, report=report(phase)) == []


@pytest.mark.parametrize("phase", OWN_BUSINESS)
def test_a_slow_start_is_not_touched(watched, phase):
    starting = unit("activating", "start", job="start")
    assert watched.acts(MINUTES, unit=starting, report=report(phase)) == []


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param({"unit": unit("inactive", "dead", pid=0)}, id="stopped, status 0"),
        pytest.param({"unit": unit("activating", "auto-restart", pid=0)}, id="systemd waits"),
        pytest.param({"unit": unit("deactivating", "stop-sigterm")}, id="on its way down"),
        pytest.param({"unit": failed(job="start")}, id="about to start"),
        pytest.param(
            {"unit": failed(result="protocol", exit_code=1, exit_status=0)},
            id="stopped on command before it was ready",
        ),
        pytest.param({"unit": unit(job="restart")}, id="being restarted"),
        pytest.param({"unit": unit(job="stop")}, id="being stopped"),
        pytest.param({"wanted": False, "unit": failed()}, id="target stopped, failed"),
        pytest.param({"wanted": False}, id="target stopped, silent"),
    ],
)
def test_what_systemd_or_an_operator_is_at_is_not_touched(watched, seen):
    assert watched.acts(MINUTES, **seen) == []


def test_a_commanded_stop_that_took_too_long_is_no_loss(watched):
    """systemd calls the unit failed then, as after a crash; only the job told them apart."""
    watched.see(0, unit=unit("deactivating", "stop-sigterm", job="stop"))
    assert watched.acts(MINUTES, unit=failed(result="timeout")) == []


def test_a_start_after_a_commanded_stop_is_watched_again(watched):
    watched.see(0, unit=unit("deactivating", "stop-sigterm", job="stop"))
    watched.see(1, unit=unit("activating", "start", job="start"), report=report(Phase.PAIRING))
    assert watched.acts([2], unit=failed()) == [(2, "restart")]


def test_a_useless_configuration_is_named_and_not_tried_again(watched):
    verdict = watched.see(0, unit=failed(result="exit-code", exit_code=1, exit_status=2))
    assert (verdict.remedy, verdict.trouble.code) == (None, "SUPERVISOR_REFUSED")


def test_killed_by_signal_2_is_not_the_exit_status_2(watched):
    assert watched.acts([0], unit=failed(exit_code=2, exit_status=2)) == [(0, "restart")]


def test_a_supervisor_that_starts_has_time_to_answer(watched):
    assert watched.acts(range(0, 120, 5)) == []


# --- gone, or stuck ------------------------------------------------------------------------------


def test_a_unit_that_systemd_has_given_up_is_restarted(watched):
    verdict = watched.see(0, unit=failed())
    assert (verdict.remedy, verdict.trouble.code) == ("restart", "SUPERVISOR_LOST")


def test_a_supervisor_that_does_not_answer_is_restarted(watched):
    assert watched.acts(range(0, 130, 5)) == [(120, "restart")]


def test_one_answer_in_between_is_an_answer(watched):
    watched.acts(range(0, 110, 5))
    watched.see(110, report=report(Phase.HELD))
    assert watched.acts(range(115, 230, 5)) == []


def test_another_process_has_time_of_its_own(watched):
    watched.acts(range(0, 110, 5))
    assert watched.acts(range(110, 225, 5), unit=unit(pid=101)) == []


def test_a_stuck_worker_is_restarted_too(tmp_path):
    assert Watched(tmp_path, rank=1).acts(range(0, 130, 5)) == [(120, "restart")]


# --- the limit -----------------------------------------------------------------------------------


def test_pauses_double_and_there_is_an_end(watched):
    day = range(0, 86_400, 10)
    acted = [now for now, _ in watched.acts(day, unit=failed())]
    assert acted == [0, 60, 180, 420, 900]
    verdict = watched.see(86_400, unit=failed())
    assert verdict.trouble.code == "WATCHDOG_GAVE_UP"
    assert "systemd has given" in verdict.trouble.message


def test_service_for_long_gives_the_attempts_back(watched):
    watched.acts(range(0, 1000, 10), unit=failed())
    counters = ({"generated_tokens": now} for now in range(1000, 1700, 10))
    for now, moved in zip(range(1000, 1700, 10), counters, strict=True):
        watched.see(now, report=report(**moved))
    assert watched.acts([1700], unit=failed()) == [(1700, "restart")]


def test_service_for_a_moment_does_not(watched):
    watched.acts(range(0, 1000, 10), unit=failed())
    for now in range(1000, 1500, 10):
        watched.see(now, report=report())
    assert watched.acts([1500], unit=failed()) == []


# --- tokens --------------------------------------------------------------------------------------


def bad(watched, now, epoch=1, error="no tokens"):
    return watched.see(now, report=report(epoch=epoch), probe=Probe.BAD, probe_error=error)


def test_probes_that_fail_in_a_row_end_the_epoch_and_then_the_supervisor(watched):
    watched.see(0, report=report())
    assert [bad(watched, now).remedy for now in (60, 110, 160)] == [None, None, "order"]
    assert watched.acts(range(162, 218, 2), report=report()) == []  # time to end it
    assert watched.acts(range(220, 224, 2), report=report()) == [(220, "restart")]


def test_why_probes_failed_is_known_until_one_is_good(watched):
    watched.see(0, report=report())
    for now in (60, 110, 160):
        bad(watched, now, error="the canary answered '!!!!'")
    later = [watched.see(now, report=report()) for now in range(162, 224, 2)]
    assert {verdict.trouble.message for verdict in later} == {
        "the pair says ready, and 3 probes in a row failed: the canary answered '!!!!'"
    }
    assert "restart" in [verdict.remedy for verdict in later]


def test_an_order_that_helped_is_followed_by_no_restart(watched):
    watched.see(0, report=report())
    for now in (60, 110, 160):
        bad(watched, now)
    watched.see(170, report=report(Phase.STARTING, epoch=2))
    assert watched.acts(range(200, 800, 20), report=report(epoch=2)) == []


def test_a_later_epoch_that_fails_too_is_ordered_first(watched):
    watched.see(0, report=report())
    for now in (60, 110, 160):
        bad(watched, now)
    watched.see(400, report=report(epoch=2))  # started within one look
    assert [bad(watched, now, epoch=2).remedy for now in (401, 402, 403)] == [None, None, "order"]


@pytest.mark.parametrize("between", [Probe.GOOD, "tokens"])
def test_a_sign_of_life_starts_the_count_anew(watched, between):
    watched.see(0, report=report())
    bad(watched, 1)
    bad(watched, 2)
    if between == "tokens":
        watched.see(3, report=report(generated_tokens=7))
        assert watched.see(4, report=report(generated_tokens=7), probe=Probe.BAD).remedy is None
    else:
        watched.see(3, report=report(), probe=between)
        assert bad(watched, 4).remedy is None


def test_a_probe_that_shows_nothing_counts_for_nothing(watched):
    verdicts = [watched.see(n, report=report(), probe=Probe.UNCLEAR) for n in range(9)]
    assert not any(v.trouble for v in verdicts)


def test_requests_that_stand_still_are_a_wedge_after_the_supervisor_s_own_rule(watched):
    stuck = report(running=1, in_flight=1, generated_tokens=5)
    (first, *_) = watched.acts(range(0, 400, 2), report=stuck)
    assert first == (182, "order")


def test_a_gpu_that_draws_power_is_at_work(watched):
    """S08: the counters of a long prefill may stand still, its power does not."""
    stuck = report(running=1, in_flight=1)
    assert watched.acts(range(0, 3600, 2), report=stuck, watts=46.0) == []
    assert watched.acts(range(3600, 4000, 2), report=stuck, watts=21.0)[0] == (3782, "order")


def test_a_prefill_of_five_minutes_moves_the_kv_gauge(watched):
    for now in range(0, 300, 2):
        seen = report(running=1, in_flight=1, kv_usage=now / 1000)
        assert watched.see(now, report=seen).trouble is None


def test_the_gpu_is_asked_only_when_requests_stand_still(watched):
    moving = [report(running=1, generated_tokens=n) for n in (1, 2)]
    watched.see(0, report=moving[0])
    assert not watched.rules.suspects(moving[1])
    assert watched.rules.suspects(moving[0])
    watched.see(2, report=report())
    assert not watched.rules.suspects(report())


# --- probing -------------------------------------------------------------------------------------


def wants(watched, now, seen, **more):
    look = Look(now=now, **({"wanted": True, "unit": unit(), "report": seen} | more))
    watched.rules.judge(look)
    return watched.rules.wants_probe(look)


def test_an_idle_pair_is_asked_now_and_then(watched):
    assert [wants(watched, now, report()) for now in (0, 30, 60)] == [False, False, True]
    watched.see(61, report=report(), probe=Probe.GOOD)
    assert [wants(watched, now, report()) for now in (62, 120, 121)] == [False, False, True]


def test_after_a_failure_it_is_asked_again_soon(watched):
    wants(watched, 0, report())
    bad(watched, 100)
    assert [wants(watched, now, report()) for now in (102, 105)] == [False, True]


@pytest.mark.parametrize("busy", ["running", "waiting", "in_flight"])
def test_a_pair_at_work_is_not_asked(watched, busy):
    assert not any(wants(watched, now, report(**{busy: 1})) for now in MINUTES)


def test_tokens_for_clients_are_proof_enough(watched):
    asked = [wants(watched, now, report(generated_tokens=now)) for now in range(0, 600, 30)]
    assert not any(asked)


@pytest.mark.parametrize("phase", OWN_BUSINESS)
def test_only_a_ready_pair_is_asked(watched, phase):
    assert not any(wants(watched, now, report(phase)) for now in MINUTES)


def test_only_the_head_asks(tmp_path):
    watched = Watched(tmp_path, rank=1)
    assert not any(wants(watched, now, report()) for now in MINUTES)


# --- whatever happens ----------------------------------------------------------------------------

STATES = st.sampled_from(
    [
        unit(),
        unit("activating", "start", job="start"),
        unit("activating", "auto-restart", pid=0),
        unit("deactivating", "stop-sigterm", job="stop"),
        unit("inactive", "dead", pid=0),
        failed(),
    ]
)
REPORTS = st.one_of(
    st.none(),
    st.builds(report, phase=st.sampled_from(OWN_BUSINESS)),
    st.builds(
        report,
        epoch=st.integers(1, 3),
        running=st.integers(0, 1),
        generated_tokens=st.integers(0, 3),
    ),
)
LOOKS = st.lists(
    st.tuples(st.integers(1, 300), STATES, REPORTS, st.booleans(), st.sampled_from([None, *Probe])),
    max_size=60,
)
PROPERTY = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@PROPERTY
@given(LOOKS)
def test_it_acts_only_where_it_may_and_never_more_often_than_it_may(tmp_path, looks):
    (tmp_path / "watchdog.json").unlink(missing_ok=True)
    watched = Watched(tmp_path)
    now, acted = 0.0, []
    for seconds, state, said, wanted, probe in looks:
        now += seconds
        seen = said if state.pid else None
        verdict = watched.see(now, unit=state, report=seen, wanted=wanted, probe=probe)
        if verdict.remedy is None:
            continue
        acted.append(now)
        assert wanted
        assert state.job != "stop"
        assert state.active in ("active", "activating", "failed")
        assert seen is None or seen.phase is Phase.READY
    for before, after in itertools.pairwise(acted):
        assert after - before >= 60
    assert len(acted) <= 5 or now >= watched.config.supervise.stable_seconds


@PROPERTY
@given(LOOKS)
def test_a_held_or_recovering_pair_is_never_touched_whatever_was_before(tmp_path, looks):
    (tmp_path / "watchdog.json").unlink(missing_ok=True)
    watched = Watched(tmp_path)
    now = 0.0
    for seconds, state, said, wanted, probe in looks:
        now += seconds
        watched.see(now, unit=state, report=said, wanted=wanted, probe=probe)
    for phase in OWN_BUSINESS:
        now += 300
        assert watched.see(now, report=report(phase)).remedy is None
