"""Two links over loopback TCP, in one process: the real protocol, no stand-ins."""

import asyncio
import contextlib
import time

import pytest
from pairs import identity, pair_config, report

from glm53ctl.config.schema import Link as LinkRules
from glm53ctl.config.switched import Switched
from glm53ctl.supervise import link as link_module
from glm53ctl.supervise.link import PairLink, Peer
from glm53ctl.supervise.wire import Command, Launch

DEADLINE = 60.0


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Both ends are this process: who is held up for seconds is not to hang up on itself."""
    monkeypatch.setattr(link_module, "RECONNECT_AFTER_SECONDS", DEADLINE)


def make(config, rank, token=b"t" * 32, **identity_changes):
    return PairLink(
        config,
        rank,
        token,
        identity(config, rank, **identity_changes),
        lambda: report(rank),
        asyncio.Event(),
    )


async def until(condition, what):
    async with asyncio.timeout(DEADLINE):
        while not condition():
            await asyncio.sleep(0.01)


async def until_lost(head, reason):
    """Wait until the head names this as the reason why the worker is lost."""

    def named():
        return head.peers[1].lost(head.config.link, "run-1", time.monotonic()) == reason

    await until(named, f"the loss: {reason}")


@contextlib.asynccontextmanager
async def linked(*links):
    for link in links:
        await link.open()
    try:
        yield
    finally:
        for link in reversed(links):
            await link.close()


def run(scenario):
    asyncio.run(scenario())


def test_two_that_fit_find_each_other_and_beat(tmp_path):
    async def scenario():
        config = pair_config(tmp_path)
        head, worker = make(config, 0), make(config, 1)
        async with linked(head, worker):
            await until(lambda: head.peers[1].report and worker.peers[0].report, "beats")
            assert head.complete
            assert worker.complete
            assert head.peers[1].view(time.monotonic()).state == "connected"

    run(scenario)


def test_the_order_of_starting_does_not_matter(tmp_path):
    async def scenario():
        config = pair_config(tmp_path)
        head, worker = make(config, 0), make(config, 1)
        async with linked(worker):
            await until(lambda: worker.peers[0].closed_at, "a refused connection")
            async with linked(head):
                await until(lambda: worker.complete, "the pair")

    run(scenario)


def test_a_wrong_token_is_refused_and_both_sides_say_so(tmp_path):
    async def scenario():
        config = pair_config(tmp_path)
        head, worker = make(config, 0), make(config, 1, token=b"x" * 32)
        async with linked(head, worker):
            await until(lambda: head.stranger and worker.stranger, "the refusal")
            assert head.stranger.code == worker.stranger.code == "PAIR_TOKEN"
            assert not head.complete
            assert not worker.complete

    run(scenario)


@pytest.mark.parametrize(
    ("changes", "code", "both_values"),
    [
        ({"engine_version": "0.32.0"}, "PAIR_ENGINE", ("0.33.0", "0.32.0")),
        ({"closure": "old"}, "PAIR_CLOSURE", ("'c'", "'old'")),
        ({"weights_digest": "other"}, "PAIR_WEIGHTS", ("'w'", "'other'")),
        ({"version": "9.9"}, "PAIR_VERSION", ("9.9",)),
    ],
)
def test_a_mismatch_is_refused_with_both_values_on_both_sides(tmp_path, changes, code, both_values):
    async def scenario():
        config = pair_config(tmp_path)
        head, worker = make(config, 0), make(config, 1, **changes)
        async with linked(head, worker):
            await until(lambda: head.peers[1].refusal and worker.peers[0].refusal, "refusals")
            for link in (head, worker):
                (finding,) = next(iter(link.peers.values())).refusal
                assert finding.code == code
                assert all(value in finding.message for value in both_values)
                assert not link.complete

    run(scenario)


def test_a_node_that_has_no_weights_yet_is_linked_all_the_same(tmp_path):
    """It is blocked by itself, and can say how far its weights are."""

    async def scenario():
        config = pair_config(tmp_path)
        head, worker = make(config, 0), make(config, 1, weights_digest="")
        async with linked(head, worker):
            await until(lambda: head.complete and worker.complete, "the link")

    run(scenario)


def test_another_configuration_is_refused_naming_the_key(tmp_path):
    async def scenario():
        config = pair_config(tmp_path)
        other = config.model_copy(
            update={"serve": config.serve.model_copy(update={"max_model_len": 4096})}
        )
        head, worker = make(config, 0), make(other, 1)
        async with linked(head, worker):
            await until(lambda: head.peers[1].refusal, "the refusal")
            (finding,) = head.peers[1].refusal
            assert finding.code == "PAIR_CONFIG"
            assert "serve.max_model_len" in finding.message
            assert "900000" in finding.message
            assert "4096" in finding.message

    run(scenario)


def test_a_second_rank_of_the_same_number_is_refused(tmp_path):
    async def scenario():
        config = pair_config(tmp_path)
        head, impostor = make(config, 0), make(config, 1)
        impostor.identity = impostor.identity.model_copy(update={"rank": 0})
        async with linked(head, impostor):
            await until(lambda: impostor.peers[0].refusal, "the refusal")
            assert impostor.peers[0].refusal[0].code == "PAIR_RANK"

    run(scenario)


@pytest.mark.parametrize(
    ("head_has", "worker_has"),
    [(("serve.max_num_seqs=2",), ()), ((), ("serve.max_num_seqs=2",))],
    ids=["the worker has none", "the worker has an old one"],
)
def test_the_head_s_settings_of_one_run_hold_for_the_worker(tmp_path, head_has, worker_has):
    """After a reboot of one node, only the other still has them."""

    async def scenario():
        config = pair_config(tmp_path)
        head, worker = make(config, 0), make(config, 1)
        head.overrides, worker.overrides = head_has, worker_has
        async with linked(head, worker):
            async with asyncio.timeout(DEADLINE):
                _, order = await worker.inbox.get()
            assert order == Command(
                id=order.id,
                action="restart",
                overrides=head_has,
                switched=Switched(),
                follows=True,
            )
            assert head.inbox.empty()

    run(scenario)


def test_messages_arrive_with_their_sender(tmp_path):
    async def scenario():
        config = pair_config(tmp_path)
        head, worker = make(config, 0), make(config, 1)
        async with linked(head, worker):
            await until(lambda: head.complete and worker.complete, "the pair")
            await head.broadcast(Launch(epoch=7))
            sender, message = await asyncio.wait_for(worker.inbox.get(), DEADLINE)
            assert (sender, message) == (0, Launch(epoch=7))

    run(scenario)


def test_a_dead_supervisor_is_noticed_after_the_short_grace(tmp_path):
    async def scenario():
        config = pair_config(tmp_path)
        head, worker = make(config, 0), make(config, 1)
        async with linked(head):
            await worker.open()
            await until(lambda: head.complete and worker.complete, "the pair")
            for task in worker._tasks:  # as the kernel does for a killed process: close, no words
                task.cancel()
            worker.peers[0].channel.writer.transport.abort()
            await until_lost(head, "its supervisor is gone")

    run(scenario)


def test_a_peer_that_leaves_on_command_says_so(tmp_path):
    async def scenario():
        config = pair_config(tmp_path)
        head, worker = make(config, 0), make(config, 1)
        async with linked(head):
            await worker.open()
            await until(lambda: head.complete and worker.complete, "the pair")
            await worker.close()
            await until_lost(head, "it was stopped")
            assert head.peers[1].left

    run(scenario)


def test_the_head_hangs_up_on_a_peer_that_stays_silent(tmp_path, monkeypatch):
    """TCP would keep the connection for a quarter of an hour, and nobody counts as absent."""
    monkeypatch.setattr(link_module, "RECONNECT_AFTER_SECONDS", 1.0)
    rules = {"beat_seconds": 0.05, "silence_grace_seconds": 1.0}

    async def scenario():
        config = pair_config(tmp_path, link=rules)
        head, worker = make(config, 0), make(config, 1)
        worker._beat = lambda _: asyncio.sleep(3600)
        worker._patience = lambda: DEADLINE  # it is the head's turn, also after a pause of both
        async with linked(head, worker):
            await until(lambda: head.complete, "the pair")
            begun = time.monotonic()
            await until(lambda: not head.complete, "the head to hang up")
            assert time.monotonic() - begun > 1.2  # after the loss, whose word goes over it
            assert head.peers[1].closed_at is None  # silence is no death
            await until(lambda: head.complete, "the pair again")

    run(scenario)


def test_a_connection_that_comes_while_the_link_is_made_anew_is_none_of_the_old_one(tmp_path):
    """The head would answer it over a link whose messages nobody reads any more."""

    async def scenario():
        for steps in range(8):
            config = pair_config(tmp_path)
            head, worker = make(config, 0), make(config, 1)
            await head.open()
            async with linked(worker):
                for _ in range(steps):
                    await asyncio.sleep(0)
                await head.close(returns=True)
                fresh = make(config, 0)
                async with linked(fresh):
                    await until(lambda fresh=fresh: fresh.complete, f"the pair ({steps})")

    run(scenario)


def test_garbage_on_the_port_does_not_disturb_the_pair(tmp_path):
    async def scenario():
        config = pair_config(tmp_path)
        head, worker = make(config, 0), make(config, 1)
        async with linked(head, worker):
            await until(lambda: head.complete, "the pair")
            for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 4096 + b"\n", b""):
                _, writer = await asyncio.open_connection("127.0.0.1", config.fabric.link_port)
                writer.write(garbage)
                writer.close()
            heard = head.peers[1].heard_at
            await until(lambda: head.peers[1].heard_at > heard + 0.2, "further beats")
            assert head.complete

    run(scenario)


def test_a_stranger_and_a_peer_that_did_not_fit_are_forgotten_when_they_come_no_more(tmp_path):
    """One look at the port, while the other node is off, is not why the pair does not start."""

    async def scenario():
        config = pair_config(tmp_path)
        head, misfit = make(config, 0), make(config, 1, closure="old")
        async with linked(head):
            async with linked(misfit):
                await until(lambda: head.peers[1].refusal, "the refusal")
            _, writer = await asyncio.open_connection("127.0.0.1", config.fabric.link_port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await until(lambda: head.stranger, "the stranger")
            writer.close()
            now = time.monotonic()
            found = [finding.code for finding in head.refusals(now)]
            assert found == ["PAIR_TOKEN", "PAIR_CLOSURE"]
            assert head.peers[1].view(now).state == "refused"
            later = now + link_module.REFUSAL_SECONDS
            assert head.refusals(later) == ()
            assert head.peers[1].view(later).state == "absent"

    run(scenario)


# --- the patience with a peer, without a network ---

RULES = LinkRules(closed_grace_seconds=1.0, silence_grace_seconds=90.0)


def peer(config, **changes) -> Peer:
    known = Peer(1, identity=identity(config, 1), heard_at=100.0)
    for name, value in changes.items():
        setattr(known, name, value)
    return known


def test_a_minute_without_a_word_is_no_loss_and_two_are(tmp_path):
    silent = peer(pair_config(tmp_path))
    assert silent.lost(RULES, "run-1", 160.0) is None
    assert "nothing was heard of it for 91 s" in silent.lost(RULES, "run-1", 191.0)


def test_a_closed_connection_may_come_back_within_a_second(tmp_path):
    closed = peer(pair_config(tmp_path), closed_at=100.0)
    assert closed.lost(RULES, "run-1", 100.9) is None
    assert closed.lost(RULES, "run-1", 101.0) == "its supervisor is gone"


def test_a_peer_that_comes_back_as_another_run_is_lost_at_once(tmp_path):
    restarted = peer(pair_config(tmp_path))
    assert "started anew" in restarted.lost(RULES, "an older run", 100.0)
