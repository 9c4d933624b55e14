"""Read-only probes of this node."""

import os
import socket
import subprocess
import sys
from ipaddress import IPv4Address

import psutil
import pytest

from glm53ctl.facts.memory import GIB, available_gib
from glm53ctl.facts.network import device_of
from glm53ctl.facts.ports import PortHolder, can_listen, holder
from glm53ctl.weights.local import quick_digest


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def port_of(server: socket.socket) -> int:
    return int(server.getsockname()[1])


# --- ports ---------------------------------------------------------------------------------------


def test_a_port_on_which_somebody_listens_is_taken(listener):
    assert not can_listen("127.0.0.1", port_of(listener))


def test_who_listens_on_every_address_has_the_port_of_each():
    with socket.create_server(("0.0.0.0", 0)) as everywhere:
        assert not can_listen("127.0.0.1", port_of(everywhere))


def test_a_port_whose_connections_only_linger_can_be_listened_on(listener):
    port = port_of(listener)
    with socket.create_connection(("127.0.0.1", port)) as client:
        server, _ = listener.accept()
        server.close()  # first: this side keeps TIME_WAIT
        client.recv(1)
    listener.close()
    assert can_listen("127.0.0.1", port)


def test_looking_at_a_port_does_not_take_it(listener):
    port = port_of(listener)
    listener.close()
    assert can_listen("127.0.0.1", port)
    assert can_listen("127.0.0.1", port)


@pytest.mark.parametrize("address", ["192.0.2.1", "no such host", f"{'a' * 70}.b"])
def test_nobody_can_listen_where_this_host_is_not(address):
    assert not can_listen(address, 0)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_an_ipv6_address_is_understood():
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        assert not can_listen("::1", port_of(server))
        assert holder("::1", port_of(server)).pid == os.getpid()


def test_the_holder_of_a_port_is_a_process_with_a_name(listener):
    found = holder("127.0.0.1", port_of(listener))
    assert found == PortHolder(os.getpid(), psutil.Process().name())
    assert str(found) == f"{psutil.Process().name()} (pid {os.getpid()})"


def test_the_holder_may_be_another_program():
    script = (
        "import socket; s = socket.create_server(('127.0.0.1', 0));"
        "print(s.getsockname()[1], flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        found = holder("127.0.0.1", int(other.stdout.readline()))
        other.stdin.close()
        assert found.pid == other.pid


def test_a_port_that_nobody_holds_has_no_holder(listener):
    port = port_of(listener)
    listener.close()
    assert holder("127.0.0.1", port) == PortHolder(None, None)


def test_a_holder_that_may_not_be_seen_is_another_process(listener, monkeypatch):
    def forbidden(_kind: str) -> list[object]:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil, "net_connections", forbidden)
    assert str(holder("127.0.0.1", port_of(listener))) == "another process"


def test_a_holder_that_ends_while_it_is_looked_at_is_another_process(listener, monkeypatch):
    def gone(pid: int) -> psutil.Process:
        raise psutil.NoSuchProcess(pid)

    monkeypatch.setattr(psutil, "Process", gone)
    assert str(holder("127.0.0.1", port_of(listener))) == "another process"


# --- network and memory --------------------------------------------------------------------------


def test_the_device_of_an_address_is_found_by_the_address_alone():
    assert device_of(IPv4Address("127.0.0.1")) == "lo"
    assert device_of(IPv4Address("192.0.2.1")) is None


def test_available_memory_is_counted_in_gib():
    total = psutil.virtual_memory().total / GIB
    assert 0 < available_gib() < total


# --- weights in a directory ----------------------------------------------------------------------


@pytest.fixture
def checkpoint(tmp_path):
    (tmp_path / "config.json").write_text('{"layers": 2}')
    (tmp_path / "model.safetensors").write_bytes(b"12345678")
    return tmp_path


def test_two_nodes_with_the_same_files_agree(checkpoint, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    for file in sorted(checkpoint.iterdir(), reverse=True):
        (other / file.name).write_bytes(file.read_bytes())
    assert quick_digest(other) == quick_digest(checkpoint)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", b'{"layers": 3}'),  # as long as before
        ("model.safetensors", b"1234567"),
        ("tokenizer.json", b"{}"),
        ("more.safetensors", b""),
        ("name with \xff".encode("latin-1").decode("utf-8", "surrogateescape"), b""),
    ],
)
def test_another_file_or_another_size_is_another_checkpoint(checkpoint, name, content):
    before = quick_digest(checkpoint)
    (checkpoint / name).write_bytes(content)
    assert quick_digest(checkpoint) != before


def test_the_contents_of_shards_are_not_read(checkpoint):
    before = quick_digest(checkpoint)
    (checkpoint / "model.safetensors").write_bytes(b"87654321")
    assert quick_digest(checkpoint) == before


def test_hidden_files_and_folders_are_no_part_of_a_checkpoint(checkpoint):
    before = quick_digest(checkpoint)
    (checkpoint / ".cache").write_text("x")
    (checkpoint / "folder").mkdir()
    assert quick_digest(checkpoint) == before


@pytest.mark.parametrize("path", ["/nowhere/at/all", "x" * 5000])
def test_a_directory_that_is_not_there_has_an_empty_digest(tmp_path, path):
    assert quick_digest(tmp_path / path) == ""
    assert quick_digest(tmp_path) != ""
