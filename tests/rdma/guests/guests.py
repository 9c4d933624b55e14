"""Both guests, and the rails between them."""

import contextlib
import fcntl
import os
import shutil
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pair.bed.bed import CHECKOUT
from pair.bed.layout import HEAD, RAIL1, RAIL2, SPARKS, WORKER, Spark
from pair.bed.run import BedError, until

from .machine import Machine
from .root import Root

STATE_VARIABLE = "GLM53_RDMA"
RAILS = (RAIL1, RAIL2)
LISTEN_SECONDS = 60.0
_LISTENS = "00010000"  # __SO_ACCEPTCON, in the column of flags

OUTSIDE = Path("/run/outside")
"""Where a guest sees the programs of this machine, if its Python is one of them."""

HCAS = {RAIL1: "rocep1s0f0", RAIL2: "rocep1s0f1"}
"""RDMA devices by their network device, with the names that udev gives a Spark's."""


def default_state() -> Path:
    """Return the folder of the guests: the environment's, else `.rdma` in the checkout."""
    return Path(os.environ.get(STATE_VARIABLE) or CHECKOUT / ".rdma").resolve()


def program(name: str) -> str:
    """Return the path of a program of the tools, which is the same in a guest."""
    return str(Path(sys.prefix, "bin", name))


def shares() -> dict[Path, Path]:
    """Return the folders with the product and its Python: where a guest sees them, and ours."""
    environment, prefix = Path(sys.prefix), Path(sys.base_prefix)
    found = {place: place for place in (CHECKOUT / "glm53ctl", environment)}
    if prefix == Path("/usr"):  # the guest has a /usr of its own
        stdlib = Path(sysconfig.get_path("stdlib"))
        return found | {stdlib: stdlib, OUTSIDE: prefix / "bin"}
    return found | {prefix: prefix}


# MTU and addresses come before the devices: their GID tables are then filled as at a boot.
_SET_UP = """
for hca in $(ls /sys/class/infiniband); do rdma link delete "$hca"; done
while [ $# -gt 0 ]; do
    mac=$1 name=$2 mtu=$3 address=$4 hca=$5
    shift 5
    for path in /sys/class/net/*; do
        [ "$(cat "$path/address")" = "$mac" ] && old=${path##*/}
    done
    ip link set "$old" down
    ip address flush dev "$old"
    [ "$old" = "$name" ] || ip link set "$old" name "$name"
    ip link set "$name" mtu "$mtu" addrgenmode eui64 up
    ip address add "$address" dev "$name"
    rdma link add "$hca" type rxe netdev "$name"
done
"""


def _rails(spark: Spark) -> Iterator[str]:
    for port, hca in HCAS.items():
        yield from (port.mac(spark), port.name, str(port.mtu), f"{port.address(spark)}/24", hca)


def _wire(socket: Path) -> str:
    return f"addr.type=unix,addr.path={socket}"


def _listening(paths: Iterable[Path]) -> bool:
    """Say whether somebody listens on all of these sockets, without taking the only connection."""
    rows = (line.split() for line in Path("/proc/net/unix").read_text().splitlines())
    listening = {row[-1] for row in rows if row[3] == _LISTENS}
    return listening.issuperset(map(str, paths))


@dataclass
class Guests:
    """Two machines, their rails and the RDMA devices on them.

    >>> guests = Guests()
    >>> guests.up()
    >>> guests.head.output("ibv_devinfo", "-v")
    >>> guests.reset()
    >>> guests.down()
    """

    state: Path = field(default_factory=default_state)
    machines: dict[Spark, Machine] = field(init=False)

    def __post_init__(self) -> None:
        self.machines = {
            spark: Machine(spark, self.state / spark.name, RAILS, shares()) for spark in SPARKS
        }

    @property
    def head(self) -> Machine:
        """The machine of rank 0."""
        return self.machines[HEAD]

    @property
    def worker(self) -> Machine:
        """The machine of rank 1."""
        return self.machines[WORKER]

    def up(self, say: Callable[[str], object] = print) -> None:
        """Build what they boot unless it is there, boot both, and set up the rails."""
        root = Root(self.state / "root")
        root.build(say)
        self.down()
        started = time.monotonic()
        # The head listens and the worker connects: a cable that no other network is on. QEMU tries
        # only once, and a guest whose rails lead nowhere boots like any other.
        sockets = {port: self.state / port.network for port in RAILS}
        self.head.switch_on(root, {p: f"{_wire(sockets[p])},server=on" for p in RAILS})
        if not until(lambda: _listening(sockets.values()), LISTEN_SECONDS):
            raise BedError(f"{self.head.name} does not run: {self.head.said()}")
        self.worker.switch_on(root, {p: f"{_wire(sockets[p])},server=off" for p in RAILS})
        for machine in self.machines.values():
            machine.wait(started)
            self._name(machine)
        self.reset()
        for port in RAILS:
            self.head.exec("ping", "-q", "-c1", "-w30", port.address(WORKER))

    def _name(self, machine: Machine) -> None:
        machine.exec("hostname", machine.name)
        if OUTSIDE in machine.shares:
            for name in (Path(sys.executable).resolve().name, "python3"):
                machine.exec("ln", "-s", f"{OUTSIDE}/{name}", f"/usr/bin/{name}")

    def reset(self) -> None:
        """Make the rails of both as after a boot: devices, addresses, MTU, GID tables."""
        jobs = [
            machine.start("sh", "-euc", _SET_UP, "sh", *_rails(machine.spark))
            for machine in self.machines.values()
        ]
        for job in jobs:
            job.wait()

    def down(self) -> None:
        """Switch both off. What they boot stays for the next time."""
        for machine in self.machines.values():
            machine.switch_off()
            shutil.rmtree(machine.state, ignore_errors=True)
        for port in RAILS:
            (self.state / port.network).unlink(missing_ok=True)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other runs off these guests while the block runs."""
        self.state.mkdir(parents=True, exist_ok=True)
        with (self.state / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise BedError(
                    f"another run uses the guests in {self.state}.",
                    f"Wait for it, or name another folder in {STATE_VARIABLE}.",
                ) from error
            yield
