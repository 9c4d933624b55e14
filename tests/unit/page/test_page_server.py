"""The server on real sockets: it comes, goes, limits, and never harms who started it."""

import gc
import json
import os
import socket
import threading
from urllib.parse import urlsplit

import httpx
import pytest
from page.views import ready
from pages import HOST, config, server
from waiting import wait_for

from glm53ctl.page import addresses as where
from glm53ctl.page import serve, stream
from glm53ctl.page.addresses import addresses, names
from glm53ctl.page.serve import PageServer


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    monkeypatch.setattr(stream, "LOOK_SECONDS", 0.02)


def got(url: str, **more: dict[str, str]) -> httpx.Response:
    return httpx.get(url, trust_env=False, timeout=30, **more)


def status(url: str) -> int | None:
    """What a request is answered with; None where it gets no answer at all."""
    try:
        # A stream has no end: its head is enough.
        with httpx.stream("GET", url, trust_env=False, timeout=30) as answer:
            return answer.status_code
    except httpx.TransportError:
        return None


def asked(made: PageServer) -> socket.socket:
    """Return a connection that has asked for the stream and reads nothing."""
    url = urlsplit(made.urls[HOST])
    talk = socket.create_connection((HOST, url.port))
    talk.sendall(f"GET /events HTTP/1.1\r\nHost: {url.netloc}\r\n\r\n".encode())
    return talk


def views(made: PageServer, count: int) -> list[dict]:
    found = []
    with httpx.stream("GET", f"{made.urls[HOST]}events", trust_env=False, timeout=30) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            if line.startswith('data: {"headline"'):
                found.append(json.loads(line.removeprefix("data: ")))
            if len(found) == count:
                return found
    return found


def test_it_streams_over_a_real_connection():
    with server() as made:
        assert [told["headline"]["word"] for told in views(made, 3)] == ["ready"] * 3


def test_a_reader_that_reads_nothing_does_not_keep_others_waiting():
    with server() as made:
        slow = [asked(made) for _ in range(5)]
        assert len(views(made, 5)) == 5
        for talk in slow:
            talk.close()


def test_the_kernel_drops_who_reads_nothing(monkeypatch):
    monkeypatch.setattr(where, "UNREAD_MILLISECONDS", 400)
    monkeypatch.setattr(stream, "LOOK_SECONDS", 0.0)
    big = ready().model_copy(update={"engine_unknown": "x" * 200_000})
    with server(lambda: big) as made:
        talk = asked(made)
        talk.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

        def dropped() -> bool:
            try:
                talk.sendall(b"x")
            except OSError:
                return True
            return False

        wait_for(dropped, "the server to give up on a reader")
        talk.close()


def test_the_places_of_browsers_that_left_are_free_again(monkeypatch):
    monkeypatch.setattr(stream, "MAX_CLIENTS", 2)
    with server() as made:
        open_ = [asked(made), asked(made)]
        url = f"{made.urls[HOST]}events"
        wait_for(lambda: status(url) == 503, "both places to be taken")
        for talk in open_:
            talk.close()
        wait_for(lambda: status(url) == 200, "a place to be free")


def test_more_connections_than_it_takes_are_refused(monkeypatch):
    monkeypatch.setattr(serve, "MAX_CONNECTIONS", 3)
    with server() as made:
        url = f"{made.urls[HOST]}healthz"
        idle = [socket.create_connection((HOST, urlsplit(url).port)) for _ in range(3)]
        wait_for(lambda: status(url) == 503, "the limit")
        for talk in idle:
            talk.close()
        wait_for(lambda: status(url) == 200, "room again")


def test_connections_that_ask_for_nothing_are_closed(monkeypatch):
    monkeypatch.setattr(serve, "MAX_CONNECTIONS", 3)
    monkeypatch.setattr(serve, "REQUEST_SECONDS", 0.3)
    with server() as made:
        url = f"{made.urls[HOST]}healthz"
        silent = [socket.create_connection((HOST, urlsplit(url).port)) for _ in range(4)]
        silent[1].sendall(b"GET /healthz HTTP/1.1\r\n")
        whole = f"GET /healthz HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n"
        silent[2].sendall(f"{whole}\r\n{whole}".encode())
        silent[3].sendall(f"{whole}Content-Length: 9\r\n\r\n".encode())
        wait_for(lambda: status(url) == 200, "the silent ones to be closed")
        for talk in silent:
            talk.settimeout(30)
            while talk.recv(4096):
                pass
            talk.close()


def test_a_stream_is_not_cut_off_for_want_of_another_request(monkeypatch):
    monkeypatch.setattr(serve, "REQUEST_SECONDS", 0.05)
    with server() as made:
        assert len(views(made, 10)) == 10


def test_a_connection_whose_other_end_is_gone_is_found_out():
    with where.listen(HOST, 0) as made, socket.create_connection(made.getsockname()):
        taken, _ = made.accept()
        with taken:
            assert taken.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30


def test_an_address_in_use_is_said_and_tried_again(monkeypatch, caplog):
    monkeypatch.setattr(serve, "AGAIN_SECONDS", 0.05)
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with server(port=port) as made:
            assert made.urls == {}
            assert f"{HOST}, port {port}" in caplog.text
            taken.close()
            wait_for(lambda: made.urls, "the address to be free")
            assert got(f"{made.urls[HOST]}healthz").text == "ok\n"


def test_one_address_that_is_missing_does_not_take_the_others_away(caplog):
    with server(host=(HOST, "192.0.2.7", "no-such-device")) as made:
        assert set(made.urls) == {HOST}
        assert "192.0.2.7" in caplog.text


def test_a_device_that_loses_its_address_loses_the_page_there(monkeypatch):
    monkeypatch.setattr(serve, "AGAIN_SECONDS", 0.05)
    there = [{HOST, "127.0.0.2"}]
    monkeypatch.setattr(serve, "addresses", lambda hosts: there[0])
    with server() as made:
        second = made.urls["127.0.0.2"]
        assert got(f"{second}healthz").status_code == 200
        there[0] = {HOST}

        wait_for(lambda: status(f"{second}healthz") is None, "the second address to be left")
        url = f"{made.urls[HOST]}healthz"
        host = {"host": urlsplit(second).netloc}
        assert got(url).status_code == 200
        assert got(url, headers=host).status_code == 421


@pytest.mark.parametrize("error", [OSError("no netlink"), RuntimeError("a mistake")])
def test_what_fails_in_it_stays_in_it(monkeypatch, caplog, error):
    def fails(hosts):
        raise error

    monkeypatch.setattr(serve, "addresses", fails)
    with server() as made:
        assert made.urls == {}
    assert caplog.records


def test_stopping_what_never_began_is_nothing():
    PageServer(config(), ready).stop()


def test_the_wildcard_is_no_address():
    assert addresses(("0.0.0.0", "::", "127.0.0.1")) == {"127.0.0.1"}


def test_a_device_stands_for_its_addresses():
    assert HOST in addresses(("lo",))


def test_names_are_this_hosts_the_pairs_and_the_owners():
    made = config(names=("Spark-Head.lan",))
    own = socket.gethostname().lower()
    assert names(made) == {
        "localhost",
        own,
        f"{own}.local",
        "spark-head",
        "spark-worker",
        "spark-head.lan",
    }


def test_it_leaves_no_descriptor_and_no_thread_behind():
    def descriptors() -> int:
        gc.collect()  # of other tests there may be garbage
        return len(os.listdir("/proc/self/fd"))

    def use() -> None:
        with server() as made:
            views(made, 1)

    use()  # what is opened once and kept is no leak
    before = descriptors()
    for _ in range(3):
        use()
    wait_for(lambda: descriptors() <= before + 1, "the descriptors to be closed")
    assert "page" not in {thread.name for thread in threading.enumerate()}
