"""The bed does what it says: hosts boot, faults are the faults they are named after."""

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from waiting import wait_for

from .bed import (
    CHECKOUT,
    CLIENT_ADDRESS,
    HEAD,
    LAN,
    PAYLOAD,
    PORTS,
    RAIL1,
    RAIL2,
    SOURCE,
    SPARKS,
    TOOL,
    WORKER,
    Bed,
    BedError,
    Host,
    Port,
    Product,
)

LISTENER_PORT = 5000
SILENCE_SECONDS = 1.5


def ping(source: Host, target: str, *options: str) -> bool:
    """Say whether one ping is answered within a second."""
    words = ("ping", "-q", "-c1", "-W1", *options, target)
    return source.exec(*words, check=False).returncode == 0


def carrier(host: Host, port: Port) -> bool:
    return host.output("cat", f"/sys/class/net/{port.name}/carrier") == "1"


def reaches(bed: Bed, port: Port) -> bool:
    return ping(bed.head, port.address(WORKER))


def wait_until_reached(bed: Bed, *ports: Port) -> None:
    """Wait until packets flow: the kernel forgets only slowly that it found nobody."""
    wait_for(lambda: all(reaches(bed, port) for port in ports), "packets to flow", 60)


def boot_id(host: Host) -> str:
    return host.output("cat", "/proc/sys/kernel/random/boot_id")


# --- hosts and networks -------------------------------------------------------------------------


def test_both_hosts_boot_with_their_own_systemd(bed):
    assert boot_id(bed.head) != boot_id(bed.worker)
    for host in bed.hosts.values():
        assert host.output("hostname") == host.name
        assert host.output("cat", "/proc/1/comm") == "systemd"
        assert host.exec("systemctl", "is-system-running", "--wait").stdout.strip() == "running"


@pytest.mark.parametrize("port", [RAIL1, RAIL2], ids=lambda port: port.network)
def test_the_rails_carry_packets_of_the_full_mtu(bed, port):
    whole = ("-M", "do", "-s", str(PAYLOAD))
    assert ping(bed.head, port.address(WORKER), *whole)
    assert ping(bed.worker, port.address(HEAD), *whole)
    beyond = ("-M", "do", "-s", str(PAYLOAD + 1))
    assert not ping(bed.head, port.address(WORKER), *beyond)


def test_the_tests_are_clients_on_the_lan(bed):
    for spark, host in bed.hosts.items():
        assert ping(host, CLIENT_ADDRESS)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((LAN.address(spark), 9), timeout=2)


def test_networks_do_not_leak_into_each_other(bed):
    bed.network.pull(RAIL1)
    assert not reaches(bed, RAIL1)
    assert reaches(bed, RAIL2)


# --- ports and cables ---------------------------------------------------------------------------


def test_a_cut_port_has_no_carrier_and_keeps_its_address(bed):
    bed.network.cut(WORKER, RAIL1)
    assert not carrier(bed.worker, RAIL1)
    assert carrier(bed.head, RAIL1)
    assert not reaches(bed, RAIL1)
    assert RAIL1.address(WORKER) in bed.network.addresses(WORKER)
    bed.network.plug(WORKER, RAIL1)
    assert carrier(bed.worker, RAIL1)
    wait_until_reached(bed, RAIL1)


def test_a_pulled_cable_takes_the_carrier_from_both(bed):
    bed.network.pull(RAIL2)
    assert not any(carrier(host, RAIL2) for host in bed.hosts.values())
    bed.network.push(RAIL2)
    assert all(carrier(host, RAIL2) for host in bed.hosts.values())
    wait_until_reached(bed, RAIL2)


@pytest.mark.parametrize("port", PORTS, ids=lambda port: port.network)
def test_a_muted_port_swallows_packets_with_its_carrier_up(bed, port):
    bed.network.mute(WORKER, port)
    assert all(carrier(host, port) for host in bed.hosts.values())
    assert not reaches(bed, port)
    assert not ping(bed.worker, CLIENT_ADDRESS if port is LAN else port.address(HEAD))
    bed.network.unmute(WORKER, port)
    wait_until_reached(bed, port)


def test_a_card_goes_and_comes_back_with_its_address(bed):
    mac = bed.worker.output("cat", f"/sys/class/net/{RAIL1.name}/address")
    bed.network.remove_card(WORKER, RAIL1)
    assert RAIL1.name not in bed.worker.output("ls", "/sys/class/net").split()
    assert not carrier(bed.head, RAIL1)
    bed.network.insert_card(WORKER, RAIL1)
    wait_for(lambda: RAIL1.address(WORKER) in bed.network.addresses(WORKER), "the address", 60)
    assert bed.worker.output("cat", f"/sys/class/net/{RAIL1.name}/address") == mac
    wait_until_reached(bed, RAIL1)


def test_heal_undoes_what_was_broken(bed):
    bed.network.cut(HEAD, RAIL1)
    bed.network.mute(HEAD, LAN)
    bed.network.remove_card(HEAD, RAIL2)
    bed.worker.crash()
    bed.heal()
    wait_until_reached(bed, *PORTS)


# --- power --------------------------------------------------------------------------------------


@contextmanager
def connection(bed: Bed) -> Iterator[socket.socket]:
    """Yield a connection of this client to a program on the worker that answers every byte."""
    echo = (
        f"import socket; s = socket.create_server(('', {LISTENER_PORT})).accept()[0]\n"
        "while b := s.recv(1): s.send(b)"
    )
    server = subprocess.Popen(bed.worker.command("python3", "-c", echo))
    address = (LAN.address(WORKER), LISTENER_PORT)

    def connect() -> socket.socket | None:
        try:
            return socket.create_connection(address, timeout=2)
        except OSError:  # refused, or the host is too busy to answer in time
            return None

    try:
        with wait_for(connect, "the program to listen", 60) as client:
            client.settimeout(60)
            client.send(b".")
            assert client.recv(1) == b"."
            yield client
    finally:
        server.kill()
        server.wait()


def test_a_crash_closes_connections(bed):
    with connection(bed) as client:
        bed.worker.crash()
        try:
            heard = client.recv(1)
        except ConnectionResetError:
            heard = b""
        assert heard == b""
    assert not bed.worker.running


def test_a_power_loss_is_silent(bed):
    with connection(bed) as client:
        bed.worker.power_loss()
        assert not bed.worker.running
        assert not carrier(bed.head, RAIL1)
        client.send(b".")
        client.settimeout(SILENCE_SECONDS)
        with pytest.raises(TimeoutError):
            client.recv(1)
        # And when it comes back, it knows nothing of the connection.
        bed.start(bed.worker)
        client.settimeout(180)
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_a_reboot_is_a_new_boot_on_the_same_disk(bed):
    before = boot_id(bed.worker)
    bed.worker.write("/var/lib/kept", "kept")
    bed.reboot(bed.worker)
    assert boot_id(bed.worker) != before
    assert bed.worker.output("cat", "/var/lib/kept") == "kept"
    wait_until_reached(bed, RAIL1)


def test_a_stopped_host_starts_again(bed):
    bed.head.stop()
    assert not bed.head.running
    with pytest.raises(BedError, match="spark-head is down"):
        bed.head.exec("true")
    bed.start(bed.head)
    wait_until_reached(bed, RAIL1)


def test_the_journal_of_a_dead_host_can_be_read(bed):
    bed.worker.exec("sh", "-c", "echo last words | systemd-cat -t test -p err")
    wait_for(lambda: "last words" in bed.worker.journal("-t", "test"), "the journal", 60)
    time.sleep(1.1)  # journald has promised to write within a second
    bed.worker.power_loss()
    assert "last words" in bed.worker.journal("-t", "test", "--boot=0")


# --- inside -------------------------------------------------------------------------------------


@pytest.mark.parametrize("alive", [True, False], ids=["alive", "dead"])
def test_files_and_units_reach_a_host(bed, tmp_path, alive):
    unit = tmp_path / f"bed-{'alive' if alive else 'dead'}.service"
    unit.write_text(
        "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=cat /etc/bed/deep/note\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )
    if not alive:
        bed.worker.power_loss()
    bed.worker.write("/etc/bed/deep/note", "text", mode=0o640, owner="root:daemon")
    bed.worker.install_units([unit], enable=[unit.name])
    if alive:
        bed.reboot(bed.worker)
    else:
        bed.start(bed.worker)
    bed.worker.exec("systemctl", "is-system-running", "--wait")
    assert bed.worker.output("systemctl", "is-active", unit.name) == "active"
    assert bed.worker.output("stat", "-c%a %U:%G", "/etc/bed/deep/note") == "640 root:daemon"


def test_a_command_that_hangs_is_ended_inside(bed):
    # 137 where it did not heed the first signal within a second.
    with pytest.raises(BedError, match=r"ended with (124|137)"):
        bed.head.exec("sleep", "1234", timeout=0.3)
    assert bed.head.exec("pgrep", "-f", "^sleep 1234", check=False).stdout == ""


def test_a_hardened_unit_sees_the_product(bed, product: Product):
    """The units hide homes and temporary folders, where checkout and interpreter may lie."""
    if reason := product.why_not():
        pytest.skip(reason)
    hardening = ("ProtectHome=yes", "PrivateTmp=yes", "ProtectSystem=strict", "DynamicUser=yes")
    program = "import ssl, sqlite3, glm53ctl; print(glm53ctl.__file__)"
    said = bed.head.output(
        *("systemd-run", "--quiet", "--wait", "--pipe"),
        *(f"--property={setting}" for setting in hardening),
        *(str(TOOL / "bin/python"), "-c", program),
    )
    assert said == str(SOURCE / "glm53ctl/__init__.py")


# --- the bed itself -----------------------------------------------------------------------------


def test_up_changes_nothing_that_runs(bed):
    before = {spark: boot_id(bed.hosts[spark]) for spark in SPARKS}
    another = Bed(bed.state)  # as another process would see it
    another.up()
    assert {spark: boot_id(another.hosts[spark]) for spark in SPARKS} == before


def test_down_leaves_nothing_even_of_a_killed_run(bed):
    """A second bed, on the same root, whose maker dies in the middle."""
    # Always at the same place: what a killed run of this very test left is removed by the next.
    other = Bed(bed.state / "other")
    other.down()
    shutil.rmtree(other.state, ignore_errors=True)
    other.state.mkdir()
    for name in ("root", "root.stamp"):
        (other.state / name).symlink_to(bed.state / name)
    program = (
        "import os, sys\nfrom pathlib import Path\nfrom pair.bed import Bed\n"
        "Bed(Path(sys.argv[1])).up()\nos.kill(os.getpid(), 9)\n"
    )
    try:
        maker = subprocess.run(
            [sys.executable, "-c", program, str(other.state)],
            env={"PYTHONPATH": "tests", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
            cwd=CHECKOUT,
            timeout=300,
            check=False,
        )
        assert maker.returncode == -9
        assert all(host.running for host in other.hosts.values())
        assert len(other.leftovers()) >= 7  # two mounts, three namespaces, a cgroup each
    finally:
        other.down()
    assert other.leftovers() == []
    assert not any(host.running for host in other.hosts.values())
    other.down()
    shutil.rmtree(other.state)
    assert all(host.running for host in bed.hosts.values())
