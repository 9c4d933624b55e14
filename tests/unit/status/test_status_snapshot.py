"""One picture of the pair from what its ranks say."""

import asyncio
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from pictures import NOW, config, finding, heard, loss, report, snapshot

from glm53ctl.errors import UserError
from glm53ctl.findings import Severity
from glm53ctl.status.snapshot import Snapshot, assemble, gather
from glm53ctl.supervise import control
from glm53ctl.supervise.orders import give_order
from glm53ctl.supervise.report import Phase

# --- the state of the pair -----------------------------------------------------------------------


def test_without_a_word_of_any_rank_the_pair_is_down():
    picture = snapshot()
    assert (picture.state, picture.ready, picture.epoch) == ("down", False, 0)
    assert (picture.ranks, picture.missing) == ((), (0, 1))
    assert "glm53ctl up" in picture.next_step


def test_a_pair_of_two_hosts_is_started_on_both():
    """`up` refuses it: it runs all ranks on one host."""
    nodes = [{"name": "a", "address": "192.0.2.1"}, {"name": "b", "address": "192.0.2.2"}]
    step = "`systemctl start glm53.target` on both."
    assert snapshot(nodes=nodes).next_step == f"Start the pair: {step}"
    assert snapshot(nodes=nodes[:1]).next_step == "Start the pair: `systemctl start glm53.target`."
    with pytest.raises(UserError) as refused:
        give_order(config(nodes=nodes), "resume")
    assert (refused.value.code, refused.value.fix) == ("PAIR_DOWN", f"Start it with {step}")


def test_the_pair_is_ready_when_every_rank_is():
    picture = snapshot(report(0, epoch=4), report(1, epoch=4))
    assert (picture.state, picture.ready, picture.epoch) == ("ready", True, 4)
    assert (picture.missing, picture.next_step) == ((), "")


def test_a_ready_rank_alone_is_no_ready_pair():
    picture = snapshot(report(0))
    assert (picture.state, picture.ready, picture.missing) == ("pairing", False, (1,))
    assert picture.next_step == "Start rank 1."


@pytest.mark.parametrize("other", [0, 1])
@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.READY])
def test_one_rank_that_is_not_ready_gives_the_pair_its_state(phase, other):
    picture = snapshot(report(other), report(1 - other, phase))
    assert (picture.state, picture.ready) == (phase.value, False)
    assert picture.next_step


@pytest.mark.parametrize(
    ("one", "two", "state"),
    [
        (Phase.WAITING, Phase.HELD, "held"),
        (Phase.PAIRING, Phase.BLOCKED, "blocked"),
        (Phase.PAIRING, Phase.REFUSED, "refused"),
        (Phase.ENDING, Phase.STARTING, "ending"),
        (Phase.STARTING, Phase.WAITING, "starting"),
        (Phase.WAITING, Phase.PAIRING, "pairing"),
        (Phase.STOPPED, Phase.PAIRING, "pairing"),
        (Phase.STOPPED, Phase.STOPPED, "stopped"),
    ],
)
def test_of_two_states_the_one_an_operator_must_know_counts(one, two, state):
    assert snapshot(report(0, one), report(1, two)).state == state
    assert snapshot(report(0, two), report(1, one)).state == state


def test_the_newest_epoch_of_any_rank_counts():
    assert snapshot(report(0, epoch=2), report(1, epoch=3)).epoch == 3


def test_four_nodes_are_a_pair_as_well():
    nodes = [{"name": name, "address": "127.0.0.1"} for name in "abcd"]
    picture = snapshot(report(0), report(2), nodes=nodes)
    assert (picture.ready, picture.missing) == (False, (1, 3))
    assert snapshot(*map(report, range(4)), nodes=nodes).ready


@pytest.mark.parametrize(
    ("host", "endpoint"),
    [
        ("127.0.0.1", "http://127.0.0.1:8888/v1"),
        ("spark.lan", "http://spark.lan:8888/v1"),
        ("::1", "http://[::1]:8888/v1"),
    ],
)
def test_the_endpoint_is_a_url_that_a_client_can_use(host, endpoint):
    picture = snapshot(api={"host": host})
    assert (picture.endpoint, picture.model) == (endpoint, "glm")


# --- what ranks heard of each other --------------------------------------------------------------


def test_a_peer_on_an_open_link_speaks_through_the_rank_of_this_host():
    there = report(1, Phase.STARTING, epoch=7)
    picture = snapshot(report(0, Phase.STARTING, peers={1: heard("connected", there)}))
    assert picture.ranks[1] == there
    assert (picture.missing, picture.epoch) == ((), 7)


@pytest.mark.parametrize("state", ["absent", "closed", "silent"])
def test_the_last_words_of_a_peer_that_is_gone_are_not_its_state(state):
    picture = snapshot(report(0, peers={1: heard(state, report(1))}))
    assert (picture.ready, picture.missing) == (False, (1,))
    assert [said.rank for said in picture.ranks] == [0]


def test_a_peer_that_has_not_spoken_yet_is_missing():
    assert snapshot(report(0, peers={1: heard("connected", None)})).missing == (1,)


def test_a_rank_of_this_host_speaks_for_itself():
    old = report(1, Phase.STARTING)
    picture = snapshot(report(0, peers={1: heard("connected", old)}), report(1))
    assert picture.ranks[1].phase is Phase.READY
    assert picture.ready


def test_ranks_stand_in_order_whoever_spoke_first():
    picture = snapshot(report(1, peers={0: heard("connected", report(0))}))
    assert [said.rank for said in picture.ranks] == [0, 1]


# --- findings, incidents, the next step ----------------------------------------------------------


def test_a_finding_that_both_ranks_have_stands_once():
    both, own = finding("PAIR_CONFIG"), finding("PORT_IN_USE")
    picture = snapshot(report(0, findings=(both,)), report(1, findings=(own, both)))
    assert picture.findings == (both, own)


def test_the_same_trouble_on_two_nodes_stands_twice():
    one, two = finding(node="a"), finding(node="b")
    picture = snapshot(report(0, findings=(one,)), report(1, findings=(two,)))
    assert picture.findings == (one, two)


def test_the_newest_loss_of_any_rank_counts():
    older, newer = loss(10), loss(20)
    assert snapshot(report(0, last_loss=newer), report(1, last_loss=older)).last_loss == newer
    assert snapshot(report(0, last_loss=older), report(1, last_loss=newer)).last_loss == newer
    assert snapshot(report(0), report(1)).last_loss is None


def test_the_next_step_is_the_way_out_of_a_finding():
    bad = finding(fix="Free some memory.")
    picture = snapshot(report(0, Phase.BLOCKED, findings=(bad,)), report(1, Phase.PAIRING))
    assert picture.next_step == "Free some memory."


def test_what_failed_comes_before_what_only_waits_for_it():
    waits = finding("PEER_ABSENT", severity=Severity.WARN, fix="Start it.")
    failed = finding("PAIR_TOKEN", fix="Make a token.")
    picture = snapshot(
        report(0, Phase.PAIRING, findings=(waits,)), report(1, Phase.BLOCKED, findings=(failed,))
    )
    assert picture.next_step == "Make a token."


def test_a_finding_without_a_way_out_leaves_the_step_to_the_next():
    picture = snapshot(
        report(0, Phase.BLOCKED, findings=(finding(), finding("X", fix="Do this."))), report(1)
    )
    assert picture.next_step == "Do this."


def test_a_pair_that_serves_asks_for_nothing():
    hint = finding("HINT", severity=Severity.WARN, fix="Tidy up one day.")
    assert snapshot(report(0, findings=(hint,)), report(1)).next_step == ""


def test_a_pair_on_its_way_asks_for_patience():
    picture = snapshot(report(0, Phase.STARTING), report(1, Phase.STARTING))
    assert picture.next_step.startswith("Wait")


def test_a_stopped_pair_is_not_on_its_way():
    picture = snapshot(report(0, Phase.STOPPED), report(1, Phase.STOPPED))
    assert "glm53ctl up" in picture.next_step


def test_a_snapshot_survives_json():
    said = report(1, Phase.STARTING, findings=(finding(),), last_loss=loss(5))
    picture = snapshot(report(0, peers={1: heard("connected", said)}))
    assert Snapshot.model_validate_json(picture.model_dump_json()) == picture


# --- asking the ranks of this host ---------------------------------------------------------------


@contextmanager
def answering(path: Path, answer: control.Answer):
    """Let a rank's control socket answer as given."""
    started, over = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def life() -> None:
        async def handle(_request: control.Request) -> control.Answer:
            return answer

        async with await control.serve(path, handle):
            started.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(life(),))
    thread.start()
    try:
        assert started.wait(30)
        yield
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


def test_the_ranks_of_this_host_are_asked_through_their_sockets(tmp_path):
    settings = config(str(tmp_path))
    before = time.time()
    with (
        answering(tmp_path / "run/rank0.sock", control.Answer(report=report(0))),
        answering(tmp_path / "run/rank1.sock", control.Answer(report=report(1))),
    ):
        picture = gather(settings)
    assert picture.ready
    assert before <= picture.time <= time.time()


def test_a_rank_that_answers_with_an_error_is_missing(tmp_path):
    with answering(tmp_path / "run/rank1.sock", control.Answer(error="no")):
        assert gather(config(str(tmp_path))).missing == (0, 1)


def test_a_socket_that_a_dead_rank_left_is_nobody_s_word(tmp_path):
    path = tmp_path / "run/rank0.sock"
    with answering(path, control.Answer(report=report(0))):
        pass
    path.touch()
    picture = gather(config(str(tmp_path)))
    assert (picture.state, picture.missing) == ("down", (0, 1))


def test_assembling_asks_nobody_for_the_time():
    assert assemble(config(), {}, NOW).time == NOW
