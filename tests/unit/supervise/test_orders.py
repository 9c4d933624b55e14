"""An order that was taken reaches everybody: over a link that breaks, twice or late, it holds once.

One process, the real link over loopback TCP; what goes wrong is done to its connections.
"""

import asyncio
import contextlib
import os
import time

import pytest
from pairs import identity, pair_config, report, supervisor

from glm53ctl.supervise import control
from glm53ctl.supervise import link as link_module
from glm53ctl.supervise import post as post_module
from glm53ctl.supervise import rank as rank_module
from glm53ctl.supervise.epoch import Epoch
from glm53ctl.supervise.link import PairLink
from glm53ctl.supervise.post import REACH_SECONDS, Post
from glm53ctl.supervise.report import EngineReport, Phase
from glm53ctl.supervise.wire import Beat, Command, Launch, Leave, Taken

DEADLINE = 60.0
STOP = Command(action="stop")


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Both ends are this process: who is held up for seconds is not to hang up on itself."""
    monkeypatch.setattr(link_module, "RECONNECT_AFTER_SECONDS", DEADLINE)


def link_of(config, rank) -> PairLink:
    return PairLink(
        config, rank, b"t" * 32, identity(config, rank), lambda: report(rank), asyncio.Event()
    )


async def until(condition, what):
    async with asyncio.timeout(DEADLINE):
        while not condition():
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def linked(*links):
    for link in links:
        await link.open()
    try:
        await until(lambda: all(link.complete for link in links), "the link")
        yield
    finally:
        for link in reversed(links):
            await link.close()


def cut(link: PairLink) -> None:
    """End the connection to the first peer: what comes over it from now on is lost."""
    next(iter(link.peers.values())).channel.writer.transport.abort()


def orders(link: PairLink) -> list[Command]:
    """Take the orders out of the inbox of a link."""
    taken = [link.inbox.get_nowait()[1] for _ in range(link.inbox.qsize())]
    return [message for message in taken if isinstance(message, Command)]


# --- over the link ---


@pytest.mark.parametrize("sender", [0, 1])
def test_an_order_over_a_connection_that_is_gone_is_said_over_the_next(tmp_path, sender):
    async def scenario():
        config = pair_config(tmp_path)
        links = link_of(config, 0), link_of(config, 1)
        here, there = links[sender], links[1 - sender]
        async with linked(*links):
            cut(there)
            await here.order(STOP)  # this side has not noticed
            await until(lambda: not here.is_owing(), "the confirmation")
            assert STOP in orders(there)

    asyncio.run(scenario())


def test_words_that_came_while_this_process_was_held_up_are_read(tmp_path, monkeypatch):
    """They and the end of its patience are found at once, when it goes on."""
    monkeypatch.setattr(link_module, "RECONNECT_AFTER_SECONDS", 0.5)

    async def scenario():
        config = pair_config(tmp_path, link={"beat_seconds": 0.05})
        head, worker = link_of(config, 0), link_of(config, 1)
        async with linked(head, worker):
            known = worker.peers[0].channel
            await head.broadcast(Launch(epoch=7))
            time.sleep(1.0)  # the fault: all of this process stands still, with the word unread
            assert await asyncio.wait_for(worker.inbox.get(), DEADLINE) == (0, Launch(epoch=7))
            assert worker.peers[0].channel is known

    asyncio.run(scenario())


def test_an_order_is_owed_to_the_run_that_was_there_and_to_none_much_later():
    post = Post({STOP.id: STOP}, "run-1", heard_at=100.0)
    post.meet("run-1", 100.0 + 5 * REACH_SECONDS)  # a cable that was out
    assert post.owed
    post.meet("run-2", 100.0 + 5.5 * REACH_SECONDS)  # a supervisor that was replaced meanwhile
    assert post.owed
    post.meet("run-3", 100.0 + 9 * REACH_SECONDS)  # a node that was away, and has read all anew
    assert not post.owed


def test_a_rank_that_left_for_good_is_out_of_reach_at_once():
    post = Post()
    assert not post.in_reach(100.0)
    post.hear(Beat(report=report(1)), 100.0)
    post.hear(Leave(returns=True), 100.0)
    assert post.in_reach(100.0 + REACH_SECONDS - 1)
    assert not post.in_reach(100.0 + REACH_SECONDS)
    post.hear(Leave(), 100.0)
    assert not post.in_reach(100.0)


def test_only_the_order_that_was_confirmed_is_owed_no_longer():
    other = Command(action="restart")
    post = Post({STOP.id: STOP, other.id: other})
    post.hear(Taken(id=STOP.id), 100.0)
    post.hear(Taken(id="unknown"), 100.0)
    assert list(post.owed) == [other.id]


# --- on the head ---


def test_a_head_ends_only_after_the_worker_has_its_order(tmp_path):
    async def scenario():
        config = pair_config(tmp_path)
        head, worker = supervisor(config, 0), link_of(config, 1)
        async with linked(head.link, worker):
            cut(worker)
            await head._carry_out(STOP)
            assert head.stopping
            assert STOP in orders(worker)

    asyncio.run(scenario())


@pytest.mark.parametrize("worker", ["never came", "left for good", "is long gone", "cannot come"])
def test_a_head_waits_for_no_worker_that_will_not_come(tmp_path, worker):
    async def scenario():
        head = supervisor(pair_config(tmp_path), 0)
        post = head.link.peers[1].post
        if worker == "is long gone":
            post.meet("run-1", time.monotonic() - REACH_SECONDS)
        elif worker == "left for good":
            post.hear(Leave(), time.monotonic())
        elif worker == "cannot come":
            post.meet("run-1", time.monotonic())
        if worker != "cannot come":
            await head.link.open()
        head._tick = None  # to wait is to fail
        await head._carry_out(STOP)
        assert head.stopping
        await head.link.close()

    asyncio.run(scenario())


def test_a_head_waits_no_longer_than_a_worker_is_counted_on(tmp_path, monkeypatch):
    monkeypatch.setattr(rank_module, "REACH_SECONDS", 0.2)

    async def scenario():
        config = pair_config(tmp_path)
        head, worker = supervisor(config, 0), link_of(config, 1)
        async with linked(head.link, worker):
            await worker.close()
            head.link.peers[1].post.meet("run-1", time.monotonic())
            async with asyncio.timeout(REACH_SECONDS / 2):
                await head._carry_out(STOP)
            assert head.stopping

    asyncio.run(scenario())


def test_a_launch_is_ordered_again_over_a_link_that_was_made_anew(tmp_path):
    async def scenario():
        config = pair_config(tmp_path)
        head, worker = link_of(config, 0), link_of(config, 1)
        said = {}
        async with linked(head, worker):
            cut(worker)
            await head.broadcast(Launch(epoch=7), said)
            before = said[1]
            await until(lambda: head.peers[1].channel not in (None, before), "a new link")
            for _ in range(3):
                await head.broadcast(Launch(epoch=7), said)
            await head.order(STOP)
            await until(lambda: not head.is_owing(), "all of it")
            taken = [worker.inbox.get_nowait()[1] for _ in range(worker.inbox.qsize())]
            assert taken == [Launch(epoch=7), STOP]

    asyncio.run(scenario())


def test_a_worker_that_missed_its_launch_starts_all_the_same(tmp_path):
    async def scenario():
        config = pair_config(tmp_path, link={"beat_seconds": 0.05, "closed_grace_seconds": 60})
        head, worker = supervisor(config, 0), link_of(config, 1)
        async with linked(head.link, worker):
            cut(worker)
            epoch = Epoch.prepare(config, 0, 7, head.link, os.environ, ())
            join = asyncio.create_task(head._join(Launch(epoch=7), epoch))
            sender, message = await asyncio.wait_for(worker.inbox.get(), DEADLINE)
            assert (sender, message) == (0, Launch(epoch=7))
            started = report(1, Phase.STARTING, epoch=7, engine=EngineReport(pid=1))
            worker.report = lambda: started
            assert await join is None

    asyncio.run(scenario())


# --- on the worker ---


def test_a_launch_that_comes_again_begins_nothing_anew(tmp_path):
    worker = supervisor(pair_config(tmp_path), 1)
    worker.ledger.begin_epoch(7, "boot")
    for epoch in (8, 7):
        worker.link.inbox.put_nowait((0, Launch(epoch=epoch)))
    worker._take_messages()
    assert worker.launch == Launch(epoch=8)


def test_an_order_is_the_head_s_also_while_the_link_is_made_anew(tmp_path):
    async def scenario():
        config = pair_config(tmp_path)
        head, worker = link_of(config, 0), supervisor(config, 1)
        async with linked(head, worker.link):
            cut(worker.link)
            await until(lambda: not worker.link.complete, "the end of the connection")
            await worker._answer(control.Request(id="one", action="restart"))
            assert worker.order is None
            await until(lambda: not worker.link.is_owing(), "the confirmation")
            assert [order.id for order in orders(head)] == ["one"]

    asyncio.run(scenario())


@pytest.mark.parametrize("was_there", [True, False])
def test_an_order_is_carried_out_alone_where_the_head_is_gone(tmp_path, monkeypatch, was_there):
    """At once, or after the patience with a head that was there a moment ago."""

    async def scenario():
        worker = supervisor(pair_config(tmp_path), 1)
        if was_there:
            worker.link.peers[0].post.meet("run-0", time.monotonic())
        await worker._answer(control.Request(action="restart"))
        assert (worker.order is None) is was_there
        monkeypatch.setattr(post_module, "REACH_SECONDS", 0.0)
        await worker._tick()
        assert worker.order.action == "restart"
        assert not worker.link.peers[0].post.owed

    asyncio.run(scenario())


def test_a_worker_that_is_blocked_without_a_link_hands_nothing_over(tmp_path):
    worker = supervisor(pair_config(tmp_path), 1)
    worker.link.peers[0].post.meet("run-0", time.monotonic())
    worker.phase = Phase.BLOCKED
    asyncio.run(worker._answer(control.Request(action="stop")))
    assert worker.order.action == "stop"


def test_a_worker_that_stops_waits_for_no_confirmation_of_its_own_orders(tmp_path):
    async def scenario():
        config = pair_config(tmp_path)
        head, worker = link_of(config, 0), supervisor(config, 1)
        async with linked(head, worker.link):
            worker.link.peers[0].post.owed["one"] = Command(id="one", action="restart")
            worker._tick = None  # to wait is to fail
            await worker._carry_out(STOP)
            assert worker.stopping

    asyncio.run(scenario())


# --- on either ---


def test_an_order_that_comes_through_two_ranks_holds_once(tmp_path):
    """Who asks asks the next rank, when one has not answered in time."""
    head = supervisor(pair_config(tmp_path), 0)
    request = control.Request(action="restart")
    asyncio.run(head._answer(request))
    assert head.order.id == request.id
    again, head.order = head.order, None
    head.link.inbox.put_nowait((1, again))
    head._take_messages()
    assert head.order is None


@pytest.mark.parametrize("less", [{"action": "resume"}, {"action": "restart", "follows": True}])
def test_an_order_that_waits_is_not_replaced_by_one_that_is_less(tmp_path, less):
    rank = supervisor(pair_config(tmp_path), 1)
    rank.phase = Phase.ENDING
    rank._receive(STOP)
    rank._receive(Command(**less))
    assert rank.order is STOP
    rank._receive(Command(action="restart"))
    assert rank.order.action == "restart"


def test_an_order_that_came_over_a_link_that_is_given_up_holds(tmp_path, monkeypatch):
    """It was confirmed: whoever reads the configuration anew may not forget it."""
    (tmp_path / "token").write_text("a" * 32)
    worker = supervisor(pair_config(tmp_path, link={"token_file": str(tmp_path / "token")}), 1)

    async def one_round():
        worker.link.inbox.put_nowait((0, Launch(epoch=7)))
        worker.link.inbox.put_nowait((0, STOP))
        worker.reload = True

    monkeypatch.setattr(worker, "_round", one_round)
    before = worker.posts[0]
    asyncio.run(worker._session())
    assert worker.order is STOP
    assert worker.launch is None
    assert worker.link.peers[0].post is before


@pytest.mark.parametrize("stopping", [True, False])
def test_a_rank_that_only_reads_its_configuration_anew_says_that_it_returns(
    tmp_path, monkeypatch, stopping
):
    """Orders for it wait a moment then; for one that ends, nobody waits."""
    (tmp_path / "token").write_text("a" * 32)
    rank = supervisor(pair_config(tmp_path, link={"token_file": str(tmp_path / "token")}), 1)
    said = []

    async def one_round():
        monkeypatch.setattr(rank.link, "broadcast", note)
        rank.reload, rank.stopping = not stopping, stopping

    async def note(message):
        said.append(message)

    monkeypatch.setattr(rank, "_round", one_round)
    asyncio.run(rank._session())
    assert said == [Leave(returns=not stopping)]
