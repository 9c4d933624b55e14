"""The watchdog's units: who is root, who may ask it, and which limit fires first."""

import pytest
import typer.main
from unit_files import RANKS, WATCHING, Unit

from glm53ctl.cli import app
from glm53ctl.config.schema import Watchdog
from glm53ctl.config.sources import DEFAULT_FILE
from glm53ctl.supervise.control import ANSWER_SECONDS
from glm53ctl.watchdog import bus, daemon, power

DAEMON, HAND = (Unit(name) for name in WATCHING)
SOCKET = Unit("glm53-bus.socket")


def test_the_daemon_that_talks_to_the_network_is_the_ranks_user():
    assert DAEMON.one("User") == Unit(RANKS[0]).one("User")
    assert DAEMON.one("CapabilityBoundingSet") == ""


def test_the_hand_is_root_without_any_power_but_its_name():
    assert HAND.all("Service", "User") == []
    assert HAND.one("CapabilityBoundingSet") == ""
    assert HAND.one("PrivateNetwork") == "yes"
    assert HAND.one("RestrictAddressFamilies") == "AF_UNIX"
    assert HAND.one("ProtectSystem") == "strict"
    writable = ("ReadWritePaths", "StateDirectory", "RuntimeDirectory", "CacheDirectory")
    assert [key for key, _ in HAND.keys["Service"] if key in writable] == []


def test_only_the_user_of_the_units_may_ask_it():
    assert SOCKET.one("SocketUser", "Socket") == DAEMON.one("User")
    assert SOCKET.one("SocketMode", "Socket") == "0600"
    assert SOCKET.one("ListenStream", "Socket") == str(bus.SOCKET)


def test_a_connection_is_the_agent_s_input_and_output():
    assert SOCKET.one("Accept", "Socket") == "yes"
    assert (HAND.one("StandardInput"), HAND.one("StandardOutput")) == ("socket", "socket")


@pytest.mark.parametrize("unit", [DAEMON, HAND], ids=WATCHING)
def test_the_command_is_one_that_the_program_has(unit):
    program, command, *options = unit.one("ExecStart").split()
    assert program == "glm53ctl"
    context = typer.main.get_command(app).commands[command].make_context(command, options)
    assert context.params["config"] == DEFAULT_FILE


@pytest.mark.parametrize(("number", "name"), list(enumerate(RANKS)))
def test_a_rank_s_end_is_recorded_and_never_a_failure_of_its_own(number, name):
    mark, command, *options = Unit(name).one("ExecStopPost").split()
    assert (mark, command) == ("-glm53ctl", "record-exit")
    context = typer.main.get_command(app).commands[command].make_context(command, options)
    assert context.params == {"number": number, "config": DEFAULT_FILE}


def test_the_target_wants_all_but_the_ranks_and_the_watchdog_its_hand():
    assert set(Unit("glm53.target").one("Wants", "Unit").split()) == {
        "glm53-prepare.service",
        "glm53-reclaim.path",
        "glm53-watchdog.service",
        "glm53-weights.service",
    }
    assert DAEMON.one("Wants", "Unit") == "glm53-bus.socket"
    assert DAEMON.one("PartOf", "Unit") == "glm53.target"
    # Else the target, and with it the ranks, would wait for it.
    assert "glm53.target" in DAEMON.one("After", "Unit").split()


def test_the_directories_belong_to_the_same_user_as_those_of_the_ranks():
    for key in ("StateDirectory", "StateDirectoryMode", "RuntimeDirectory", "RuntimeDirectoryMode"):
        assert DAEMON.one(key) == Unit(RANKS[0]).one(key)
    assert DAEMON.one("RuntimeDirectoryPreserve") == "yes"


def test_the_kernel_takes_the_engine_before_the_eye():
    for unit in (DAEMON, HAND):
        assert int(unit.one("OOMScoreAdjust")) < 0 < int(Unit(RANKS[0]).one("OOMScoreAdjust"))


def test_a_hung_watchdog_is_found_and_a_slow_look_is_none():
    three_asks = 3 * ANSWER_SECONDS  # connect, send, receive
    slowest_look = bus.ANSWER_SECONDS + 2 * three_asks + daemon.LOOK_SECONDS
    slowest_look += power.ANSWER_SECONDS
    assert DAEMON.seconds("WatchdogSec") > slowest_look
    assert DAEMON.seconds("TimeoutStartSec") > bus.HELLO_SECONDS


def test_systemd_s_own_watchdog_comes_before_this_one():
    rank = Unit(RANKS[0])
    systemd = rank.seconds("WatchdogSec") + rank.seconds("TimeoutAbortSec")
    assert Watchdog().silent_seconds > systemd + rank.seconds("TimeoutStopSec")


def test_it_tries_again_for_ever():
    assert DAEMON.one("StartLimitIntervalSec", "Unit") == "0"
    assert DAEMON.one("Restart") == "on-failure"


def test_the_sandbox_lets_it_serve_the_page():
    families = DAEMON.one("RestrictAddressFamilies").split()
    assert {"AF_INET", "AF_INET6", "AF_NETLINK"} <= set(families)
    for key in ("IPAddressDeny", "SocketBindDeny", "PrivateNetwork"):
        assert DAEMON.all("Service", key) == []
