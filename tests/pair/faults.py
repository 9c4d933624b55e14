"""Faults as data: what is done to a serving pair, how the world mends, and what must follow.

Each acts on either side (`side.py`) unless it is about something that only the product has. What
cannot be had on two hosts of one kernel is listed in `bed/faults.py`.
"""

import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, cast

from waiting import wait_for

from .bed import RAIL1, RAIL2, WORKER
from .serving import ServingPair
from .side import Side

Act = Callable[[Side], object]
KILL, STOP = signal.SIGKILL, signal.SIGSTOP


def nothing(side: Side) -> None:
    """What the fault broke comes back without anybody."""


def heal(side: Side) -> None:
    """Cables are back in their ports, and hosts without power have it again."""
    side.bed.heal()


@dataclass(frozen=True)
class Fault:
    """One fault. `hurt` does it, `mend` is what the world or an operator does afterwards.

    `prepare` comes before, takes its time, and changes nothing for the pair.

    `survivors` are the ranks whose hosts live through it. `follows` is what the product must do:
    `restart` the pair as one new epoch; `refuse` to serve, with the reason in its status, until
    mended; or `serve` on as if nothing had happened.
    """

    name: str
    phrase: str
    hurt: Act
    mend: Act = nothing
    prepare: Act = nothing
    survivors: tuple[int, ...] = (0, 1)
    follows: Literal["restart", "refuse", "serve"] = "restart"
    says: str = ""
    """A part of what the product's status must say."""
    plain: bool = True
    """Whether the plain alternative has what is hurt."""


# --- processes -----------------------------------------------------------------------------------


def _signal(rank: int, title: str, signum: int) -> Act:
    return lambda side: side.send(rank, title, signum)


_VICTIMS = (
    # title, what it is, what a kill and a freeze make the status say, whether plain units have it
    ("main", "main process of the engine", "RANK_LOST", "ENGINE_WEDGED", True),
    ("Worker", "worker process", "RANK_LOST", "ENGINE_WEDGED", True),
    ("supervisor", "supervisor", "_LOST", "_LOST", False),
)


def _process_faults() -> list[Fault]:
    return [
        Fault(
            f"{verb}_{title.lower()}_{rank}",
            f"{signum.name} to the {what} on the {where}",
            _signal(rank, title, signum),
            says=says,
            plain=plain,
        )
        for rank, where in enumerate(("head", "worker"))
        for title, what, killed, frozen, plain in _VICTIMS
        for verb, signum, says in (("kill", KILL, killed), ("freeze", STOP, frozen))
    ]


def _watchdog_faults() -> list[Fault]:
    return [
        Fault(
            f"{verb}_watchdog_{rank}",
            f"{signum.name} to the watchdog on the {where}",
            _signal(rank, "watchdog", signum),
            follows="serve",
            plain=False,
        )
        for rank, where in enumerate(("head", "worker"))
        for verb, signum in (("kill", KILL), ("freeze", STOP))
    ]


def _lose_again_while_starting(side: Side) -> None:
    """Lose the worker's engine, and the head's next one while it loads."""
    before = side.engine(0)
    side.send(1, "Worker", KILL)
    wait_for(lambda: "EngineCore" in _titles_but(side, before), "the head's next engine", 120)
    side.send(0, "EngineCore", KILL)


def _titles_but(side: Side, before: set[int]) -> set[str]:
    return {title for pid, title in side.processes(0).items() if pid not in before}


def _kill_both_mains(side: Side) -> None:
    for rank in (0, 1):
        side.send(rank, "main", KILL)


# --- hosts and cables ----------------------------------------------------------------------------


def _host(rank: int, action: str) -> Act:
    return lambda side: getattr(side.hosts[rank], action)()


def _both_lose_power(side: Side) -> None:
    for host in side.hosts:
        host.power_loss()


_HOSTS = [
    Fault(
        f"{action}_{rank}",
        f"{phrase} of the {where}",
        _host(rank, action),
        heal,
        survivors=(1 - rank,),
        says="RANK_LOST" if action != "reboot" else "",
    )
    for rank, where in enumerate(("head", "worker"))
    for action, phrase in (
        ("crash", "crash"),
        ("power_loss", "power loss"),
        ("reboot", "reboot in order"),
    )
]

_CABLES = [
    Fault("power_loss_both", "power loss of both hosts", _both_lose_power, heal, survivors=()),
    Fault(
        "reboot_both", "reboot of both hosts", lambda s: s.bed.reboot(*s.hosts), survivors=()
    ),
    Fault(
        "cut_rail", "one port of the rail without carrier",
        lambda s: s.bed.network.cut(WORKER, RAIL1), heal,
    ),
    Fault("pull_cable", "cable pulled", lambda s: s.bed.network.pull(RAIL1), heal),
    Fault(
        "black_hole", "rail drops every packet, carrier up",
        lambda s: s.bed.network.mute(WORKER, RAIL1), heal,
    ),
    Fault(
        "card_gone", "network card gone and back",
        lambda s: s.bed.network.remove_card(WORKER, RAIL1), heal,
    ),
    Fault(
        "spare_rail", "second rail pulled, which nothing uses",
        lambda s: s.bed.network.pull(RAIL2), heal, follows="serve",
    ),
]  # fmt: skip


# --- hosts in a bad state ------------------------------------------------------------------------

_LISTENER = "import socket, time; s = socket.create_server(('', {port})); time.sleep(9999)"


def _take_port(side: Side) -> None:
    head, unit = side.hosts[0], side.unit_name(0)
    head.exec("systemctl", "stop", unit, timeout=120)
    program = _LISTENER.format(port=side.config.api.port)
    head.exec("systemd-run", "--unit=intruder", "/usr/bin/python3", "-c", program)
    head.exec("systemctl", "start", "--no-block", unit)


def _free_port(side: Side) -> None:
    side.hosts[0].exec("systemctl", "stop", "intruder")


_HOG_SECONDS = 400.0
"""A machine that never had so much memory in use can need minutes to hand it out."""


def _hog(side: Side, name: str, kind: str, leave_gib: float) -> None:
    """Start a program that takes all memory but so much, and is the kernel's first victim."""
    program = (
        "import mmap, os, time; m = dict(l.split(':') for l in open('/proc/meminfo'));"
        "open('/proc/self/oom_score_adj', 'w').write('1000');"
        f"n = int(m['MemAvailable'].split()[0]) * 1024 - {int(leave_gib * 2**30)};"
        "held = mmap.mmap(-1, n, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
        "for i in range(0, n, 4096): held[i] = 1\n"
        f"{kind == 'forking'} and os.fork() and os._exit(0)\n"
        "time.sleep(9999)"
    )
    side.hosts[1].exec(
        "systemd-run", "--collect", f"--unit={name}", f"--property=Type={kind}",
        f"--property=TimeoutStartSec={_HOG_SECONDS}", "/usr/bin/python3", "-c", program,
        timeout=_HOG_SECONDS,
    )  # fmt: skip


def _hog_most(side: Side) -> None:
    """Leave 1 GiB above the floor. The child keeps what was taken once systemd-run returns."""
    _hog(side, "hog", "forking", side.config.memory.floor_gib + 1)


def _hog_the_rest(side: Side) -> None:
    _hog(side, "hog-rest", "exec", side.config.memory.floor_gib / 2)


def _end_hogs(side: Side) -> None:
    side.hosts[1].exec("systemctl", "stop", "hog", "hog-rest", check=False)


def _fill_state(side: Side) -> None:
    """Fill what is left of the worker's state directory, then lose an engine."""
    side.hosts[1].exec("mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", "/var/lib/glm53")
    side.hosts[1].exec("dd", "if=/dev/zero", "of=/var/lib/glm53/full", check=False)
    side.send(1, "Worker", KILL)


def _empty_state(side: Side) -> None:
    side.hosts[1].exec("umount", "/var/lib/glm53")


def _freeze_journal(side: Side) -> None:
    side.hosts[1].exec("systemctl", "kill", "-s", "STOP", "systemd-journald")
    side.send(1, "Worker", KILL)


def _thaw_journal(side: Side) -> None:
    side.hosts[1].exec("systemctl", "kill", "-s", "CONT", "systemd-journald")


_STATES = [
    Fault(
        "port_taken", "another program has taken the API's port",
        _take_port, _free_port, follows="refuse", says="PORT_IN_USE",
    ),
    Fault(
        "memory_hog", "a program eats the last of the memory",
        _hog_the_rest, _end_hogs, _hog_most, says="MEM_FLOOR",
    ),
    Fault(
        "disk_full", "worker process killed while the state directory is full",
        _fill_state, _empty_state, says="RANK_LOST", plain=False,
    ),
    Fault(
        "journal_hangs", "worker process killed while the journal hangs",
        _freeze_journal, _thaw_journal, says="RANK_LOST",
    ),
]  # fmt: skip


# --- halves that do not match --------------------------------------------------------------------


def _reconfigured(ranks: tuple[int, ...], **sections: dict[str, Any]) -> Act:
    """Give hosts another configuration and restart them, as after an edit on one of them."""

    def act(side: Side) -> None:
        pair = cast(ServingPair, side)
        for rank in ranks:
            pair.configure(rank, **sections)
        for rank in ranks:
            pair.hosts[rank].exec("systemctl", "restart", "--no-block", pair.unit_name(rank))

    return act


def _tokened(change: Callable[[str], str]) -> Act:
    def act(side: Side) -> None:
        pair = cast(ServingPair, side)
        worker, unit = pair.hosts[1], pair.unit_name(1)
        worker.write("/etc/credstore/glm53.pair-token", f"{change(pair.token)}\n", mode=0o600)
        worker.exec("systemctl", "restart", "--no-block", unit)

    return act


_DROP_IN = "/etc/systemd/system/glm53-rank1.service.d/closure.conf"


def _half_upgraded(side: Side) -> None:
    worker = side.hosts[1]
    worker.write(_DROP_IN, "[Service]\nEnvironment=GLM53_CLOSURE=another\n")
    worker.exec("systemctl", "daemon-reload")
    worker.exec("systemctl", "restart", "--no-block", side.unit_name(1))


def _upgrade_undone(side: Side) -> None:
    worker = side.hosts[1]
    worker.exec("rm", "-f", _DROP_IN)
    worker.exec("systemctl", "daemon-reload")
    worker.exec("systemctl", "restart", "--no-block", side.unit_name(1))


_MISMATCHES = [
    Fault(
        "wrong_token", "worker with another pair token",
        _tokened(lambda token: token[::-1]), _tokened(lambda token: token),
        follows="refuse", says="PAIR_TOKEN", plain=False,
    ),
    Fault(
        "config_drift", "worker with another configuration",
        _reconfigured((1,), serve={"max_num_seqs": 3}), _reconfigured((1,)),
        follows="refuse", says="PAIR_CONFIG", plain=False,
    ),
    Fault(
        "half_upgraded", "worker with another version",
        _half_upgraded, _upgrade_undone, follows="refuse", says="PAIR_CLOSURE", plain=False,
    ),
    Fault(
        "wrong_answer", "engine that answers the canary wrongly",
        _reconfigured((0, 1), canary={"expect": "something else"}), _reconfigured((0, 1)),
        follows="refuse", says="OUTPUT_DEGENERATE", plain=False,
    ),
]  # fmt: skip

# --- cables that do not fit ----------------------------------------------------------------------


def _linked(*changes: str) -> Act:
    """Change the worker's end of the rail; each change is the words of one `ip` command."""

    def act(side: Side) -> None:
        for change in changes:
            side.hosts[1].exec("ip", *change.split(), "dev", RAIL1.name)

    return act


def _started_anew(act: Act) -> Act:
    """Do something, and start the worker's rank anew as after a reboot."""

    def both(side: Side) -> None:
        act(side)
        side.hosts[1].exec("systemctl", "restart", "--no-block", side.unit_name(1))

    return both


_ADDRESS = RAIL1.address(WORKER)
_MTU_MENDED = _linked(f"link set mtu {RAIL1.mtu}")
_ADDRESS_MENDED = _linked("address flush", f"address add {_ADDRESS}/24")


_MISFITS = [
    Fault(
        "mtu_unequal", "worker's end of the rail with another MTU",
        _started_anew(_linked("link set mtu 1500")), _MTU_MENDED,
        follows="refuse", says="NET_MTU_MISMATCH", plain=False,
    ),
    Fault(
        "address_gone", "worker's end of the rail without its address",
        _started_anew(_linked("address flush")), _ADDRESS_MENDED,
        follows="refuse", says="NET_", plain=False,
    ),
    Fault(
        "wrong_prefix", "worker's end of the rail with another length of the network",
        _started_anew(_linked("address flush", f"address add {_ADDRESS}/16")), _ADDRESS_MENDED,
        follows="refuse", says="NET_NEIGH_FAILED", plain=False,
    ),
    Fault(
        "wrong_subnet", "worker's end of the rail with an address of another network",
        _started_anew(_linked("address flush", "address add 10.0.9.2/24")), _ADDRESS_MENDED,
        follows="refuse", says="NET_", plain=False,
    ),
    Fault(
        "swapped_cables", "cables of both rails in each other's port",
        _started_anew(lambda s: s.bed.network.swap(WORKER)), heal,
        follows="refuse", says="NET_CABLES_SWAPPED", plain=False,
    ),
    Fault(
        "black_second", "second rail, which nothing uses, drops every packet, carrier up",
        lambda s: s.bed.network.mute(WORKER, RAIL2), heal, follows="serve",
    ),
]  # fmt: skip

FAULTS = (
    *_process_faults(),
    *_watchdog_faults(),
    Fault(
        "kill_core_0", "SIGKILL to the engine core on the head",
        _signal(0, "EngineCore", KILL), says="RANK_LOST",
    ),
    Fault(
        "freeze_core_0", "engine core frozen: /health says 200 and no token comes",
        _signal(0, "EngineCore", STOP), says="ENGINE_WEDGED",
    ),
    Fault(
        "kill_guard_0", "SIGKILL to the guard of the engine on the head",
        _signal(0, "guard", KILL), says="RANK_LOST", plain=False,
    ),
    Fault(
        "lost_twice", "another engine killed while the pair starts after a loss",
        _lose_again_while_starting, says="RANK_LOST", plain=False,
    ),
    Fault("kill_both", "SIGKILL to both main processes", _kill_both_mains, says="RANK_LOST"),
    *_HOSTS,
    *_CABLES,
    *_STATES,
    *_MISMATCHES,
    *_MISFITS,
)  # fmt: skip

BY_NAME = {fault.name: fault for fault in FAULTS}
