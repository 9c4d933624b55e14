"""The worker pulls from the head: a real server and a real receiver, over loopback."""

import contextlib
import os
import shutil
import signal
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from waiting import wait_for
from weight_world import Ears, World, make_repo, shard

from glm53ctl.errors import UserError
from glm53ctl.weights import head as head_source
from glm53ctl.weights import work
from glm53ctl.weights.layout import weight_sets
from glm53ctl.weights.serve import WeightServer, key_of
from glm53ctl.weights.state import judge_set, verdict
from glm53ctl.weights.work import sync_set

TOKEN = "t" * 32
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
SHARD = "model-00002-of-00004.safetensors"


@pytest.fixture
def head(world: World) -> World:
    """A node that has everything."""
    world.fetch()
    return world


@pytest.fixture
def server(head: World) -> Iterator[WeightServer]:
    running = WeightServer(("127.0.0.1", 0), TOKEN.encode(), lambda: weight_sets(head.config))
    running.start()
    yield running
    running.shutdown()
    running.server_close()


class Worker(World):
    """A second node on this machine."""

    server: WeightServer
    token: str = TOKEN

    def pull(self, **weights) -> bool:
        (self.root / "token").write_text(self.token)
        config = self.config
        section = {"sync_port": self.server.server_port, **weights}
        config = config.model_copy(
            update={
                "weights": config.weights.model_copy(update=section),
                "link": config.link.model_copy(update={"token_file": str(self.root / "token")}),
            }
        )
        return sync_set(config, weight_sets(config)[0], self.ears, threading.Event())


@pytest.fixture
def worker(tmp_path: Path, head: World, server: WeightServer) -> Worker:
    (tmp_path / "worker").mkdir()
    node = Worker(tmp_path / "worker", head.hub, Ears())
    node.server = server
    return node


def test_a_pull_brings_the_same_set_and_both_ends_have_verified_it(head, worker):
    assert worker.pull()
    assert worker.is_right()
    assert verdict(worker.config) == []
    locks = {node.weight_set.lock_file.read_text() for node in (head, worker)}
    assert len(locks) == 1


def test_a_second_pull_needs_no_head(worker, server):
    worker.pull()
    server.shutdown()
    server.server_close()
    assert not worker.pull()


def test_a_pull_goes_on_where_it_stopped(worker):
    worker.weight_set.directory.mkdir(parents=True)
    content = worker.hub.repos[next(iter(worker.hub.repos))][SHARD].content
    part = worker.file.with_name(f"{SHARD}.incomplete")
    part.write_bytes(content[:70_001])
    worker.pull()
    assert worker.is_right()


def test_only_the_pair_token_opens_the_head(head, worker, server):
    worker.token = "u" * 32
    with pytest.raises(UserError, match="SYNC_DENIED"):
        worker.pull()
    assert not worker.file.exists()


@pytest.mark.parametrize("authorization", ["", "Bearer", f"Bearer {TOKEN}"])
def test_a_stranger_gets_nothing(server, authorization):
    asked = urllib.request.Request(
        f"http://127.0.0.1:{server.server_port}/model", headers={"Authorization": authorization}
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        OPENER.open(asked, timeout=60)
    assert caught.value.code == 401


@pytest.mark.parametrize(
    "path", ["/model/{commit}/../../state", "/model/{commit}/%2e%2e/x", "/other", "/model/0/a"]
)
def test_the_head_serves_its_verified_files_and_nothing_else(head, server, path):
    asked = urllib.request.Request(
        f"http://127.0.0.1:{server.server_port}" + path.format(commit=head.weight_set.revision),
        headers={"Authorization": f"Bearer {key_of(TOKEN.encode())}"},
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        OPENER.open(asked, timeout=60)
    assert caught.value.code == 404


def test_the_head_does_not_serve_what_it_has_not_verified(head, worker):
    head.file.write_bytes(shard(99))
    with pytest.raises(UserError, match="SYNC_NOT_READY"):
        worker.pull()


def test_a_head_with_another_commit_is_refused_with_both(head, worker):
    config = worker.config
    other = config.weights.model_copy(update={"revision": "9" * 40})
    worker_config = config.model_copy(update={"weights": other})
    with pytest.raises(UserError, match="CACHE_REVISION") as caught:
        Worker.pull(_with(worker, worker_config))
    assert "9" * 40 in str(caught.value)
    assert head.weight_set.revision in str(caught.value)


def _with(worker: Worker, config) -> Worker:
    class Other(Worker):
        @property
        def config(self):
            return config

    other = Other(worker.root, worker.hub, worker.ears)
    other.server = worker.server
    return other


def test_bytes_that_flip_on_the_way_or_on_the_head_s_disk_are_not_accepted(head, worker):
    stat = head.file.stat()
    content = bytearray(head.file.read_bytes())
    content[50_000] ^= 1
    head.file.write_bytes(content)
    os.utime(head.file, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # the head does not notice
    with pytest.raises(UserError, match="FETCH_WRONG_BYTES"):
        worker.pull()
    assert not worker.file.exists()
    assert not worker.weight_set.link.exists()


def test_a_head_that_goes_away_and_comes_back_costs_no_byte(head, worker, tmp_path):
    """The head's process is killed in the middle of the pull; the next pull goes on."""
    big = {n: b for n, b in make_repo(size=3 << 20).items() if "/" not in n}
    for repo in head.hub.repos.values():
        repo.clear()
        repo.update(big)
    shutil.rmtree(head.weight_set.home)
    shutil.rmtree(head.root / "state")
    head.fetch()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            serving = WeightServer(
                ("127.0.0.1", 0), TOKEN.encode(), lambda: weight_sets(head.config)
            )
            os.write(writer, str(serving.server_port).encode())
            serving.serve_forever()
        os._exit(0)
    os.close(writer)
    port = int(os.read(reader, 10))
    os.close(reader)
    done: list[str] = []

    def pull() -> None:
        try:
            worker.pull(sync_port=port, sync_mb_per_second=4.0, streams=2, stall_seconds=2.0)
        except UserError as error:
            done.append(error.code)

    thread = threading.Thread(target=pull)
    thread.start()
    wait_for(lambda: list(worker.weight_set.directory.glob("*.incomplete")), "the pull to begin")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    kept = {p.name: p.stat().st_size for p in worker.weight_set.directory.iterdir()}
    assert list(judge_set(worker.weight_set))
    thread.join(120)
    assert done in (["FETCH_FAILED"], ["FETCH_STALLED"])
    for name, size in kept.items():
        final = worker.weight_set.directory / name.removesuffix(".incomplete")
        part = worker.weight_set.directory / f"{final.name}.incomplete"
        assert max(p.stat().st_size for p in (final, part) if p.exists()) >= size
    worker.pull()
    assert worker.is_right()


@contextlib.contextmanager
def answering(answer: bytes | None) -> Iterator[int]:
    """A host that takes connections and says one thing, or nothing; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)

        def answers() -> None:
            held = []
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    held.append(connection)
                    if answer is not None:
                        connection.recv(65536)
                        connection.sendall(answer)
                        held.pop().close()
            for connection in held:
                connection.close()

        thread = threading.Thread(target=answers, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(20)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{",
    ],
    ids=["silence", "another protocol", "cut short", "a chunk cut short"],
)
def test_what_listens_there_and_is_no_head_is_given_up_with_a_reason(worker, monkeypatch, answer):
    monkeypatch.setattr(head_source, "METADATA_SECONDS", 0.1)
    monkeypatch.setattr(work, "Rules", partial(work.Rules, backoff_seconds=0.01))
    with answering(answer) as port, pytest.raises(UserError) as caught:
        worker.pull(sync_port=port)
    assert caught.value.code == "FETCH_FAILED"
    assert f"127.0.0.1:{port}" in caught.value.message


def test_the_address_may_come_later_than_the_server():
    running = WeightServer(("192.0.2.77", 0), TOKEN.encode(), lambda: ())
    running.server_close()
