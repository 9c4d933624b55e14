"""Cables, switch and ports: network namespaces joined by veth pairs that can be cut.

The fabric has a namespace of its own with one bridge a network, and each host one with its ports.
What a test has broken is kept in a file, so that the state of every port follows from it, whoever
changes it next: a port is up when nobody cut it and, on a cable, when the other end has power.
"""

import contextlib
import ctypes
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from .layout import CLIENT_ADDRESS, LAN, PORTS, RAIL1, RAIL2, SPARKS, Port, Spark
from .run import BedError, run

_NAMESPACES = Path("/run/netns")
_CLONE_NEWNET = 0x40000000
_SYSCTLS = {
    # A muted port lies loose in the fabric's namespace: nothing there may answer it.
    "net/ipv4/conf/all/arp_ignore": "1",
    "net/ipv6/conf/all/disable_ipv6": "1",
    "net/ipv6/conf/default/disable_ipv6": "1",
}


_CABLES = {RAIL1: RAIL2.network, RAIL2: RAIL1.network}
"""The cables, and where each leads when its other end is in the wrong port."""


@dataclass
class Breakage:
    """What is broken: fabric ends, by name."""

    cut: set[str] = field(default_factory=set)
    muted: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    swapped: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Network:
    """The networks of one bed. `tag` makes the names its own, `record` keeps what is broken."""

    tag: str
    record: Path

    @property
    def fabric(self) -> str:
        """The namespace of cables and switch, where the tests run too."""
        return f"{self.tag}-fabric"

    def namespace(self, spark: Spark) -> str:
        """Return the namespace of a host's ports."""
        return f"{self.tag}-{spark.name}"

    def path(self, spark: Spark) -> Path:
        """Return the file that names it."""
        return _NAMESPACES / self.namespace(spark)

    # --- existence ------------------------------------------------------------------------------

    def up(self) -> None:
        """Make the fabric, without hosts."""
        if (_NAMESPACES / self.fabric).exists():
            return
        run("ip", "netns", "add", self.fabric)
        self._ip("link", "set", "lo", "up")
        with self.inside():
            for name, value in _SYSCTLS.items():
                Path("/proc/sys", name).write_text(value)
        for port in PORTS:
            # A bridge would take the address of one of its ports, also of one that is muted.
            mac = f"02:67:6c:6d:ff:{PORTS.index(port):02x}"
            self._ip(
                *("link", "add", port.network, "address", mac, "mtu", port.mtu, "type", "bridge")
            )
            self._ip("link", "set", port.network, "up")
        self._ip("addr", "add", f"{CLIENT_ADDRESS}/24", "dev", LAN.network)

    def down(self) -> None:
        """Remove everything, as often as one likes."""
        for spark in SPARKS:
            self.disconnect(spark)
        if (_NAMESPACES / self.fabric).exists():
            run("ip", "netns", "del", self.fabric)
        self.record.unlink(missing_ok=True)

    def connect(self, spark: Spark) -> None:
        """Give a host its ports, as new: a machine that comes up has no old connections."""
        self.disconnect(spark)
        run("ip", "netns", "add", self.namespace(spark))
        for port in PORTS:
            if _end(spark, port) not in self._read().removed:
                self._insert(spark, port)
        self._apply()

    def disconnect(self, spark: Spark) -> None:
        """Take away the ports of a host, with whatever the kernel still wanted to send there."""
        if not self.path(spark).exists():
            return
        for port in PORTS:
            self._ip("link", "del", _end(spark, port), check=False)
        run("ip", "netns", "del", self.namespace(spark))
        self._apply()

    def _insert(self, spark: Spark, port: Port) -> None:
        end = _end(spark, port)
        self._ip(
            *("link", "add", end, "mtu", port.mtu, "type", "veth"),
            *("peer", "name", port.name, "mtu", port.mtu),
            *("address", port.mac(spark), "netns", self.namespace(spark)),
        )

    # --- faults ---------------------------------------------------------------------------------

    def cut(self, spark: Spark, port: Port) -> None:
        """Take the carrier from one port; it stays enabled, as with a bad transceiver."""
        with self._breaking() as broken:
            broken.cut.add(_end(spark, port))

    def plug(self, spark: Spark, port: Port) -> None:
        """Undo `cut`."""
        with self._breaking() as broken:
            broken.cut.discard(_end(spark, port))

    def pull(self, port: Port) -> None:
        """Pull a cable: no port of this network has a carrier."""
        with self._breaking() as broken:
            broken.cut |= {_end(spark, port) for spark in SPARKS}

    def push(self, port: Port) -> None:
        """Undo `pull`."""
        with self._breaking() as broken:
            broken.cut -= {_end(spark, port) for spark in SPARKS}

    def mute(self, spark: Spark, port: Port) -> None:
        """Let a port drop every packet, both ways, with its carrier up: a black hole."""
        with self._breaking() as broken:
            broken.muted.add(_end(spark, port))

    def unmute(self, spark: Spark, port: Port) -> None:
        """Undo `mute`."""
        with self._breaking() as broken:
            broken.muted.discard(_end(spark, port))

    def swap(self, spark: Spark) -> None:
        """Put each of a host's two cables into the port of the other."""
        self._replug(self._read().swapped | {_end(spark, port) for port in _CABLES})

    def unswap(self, spark: Spark) -> None:
        """Undo `swap`."""
        self._replug(self._read().swapped - {_end(spark, port) for port in _CABLES})

    def _replug(self, swapped: set[str]) -> None:
        """Change which cables are in the wrong port; both ends lose their carrier on the way."""
        for spark in SPARKS:
            for port in _CABLES:
                self._ip("link", "set", _end(spark, port), "down", check=False)
        with self._breaking() as broken:
            broken.swapped = swapped

    def remove_card(self, spark: Spark, port: Port) -> None:
        """Take a port out of a running host: it is gone from /sys/class/net."""
        with self._breaking() as broken:
            broken.removed.add(_end(spark, port))
        self._ip("link", "del", _end(spark, port), check=False)
        self._apply()

    def insert_card(self, spark: Spark, port: Port) -> None:
        """Undo `remove_card`; the port has the hardware address it had."""
        if _end(spark, port) not in self._read().removed:
            return
        if self.path(spark).exists():
            self._insert(spark, port)
        with self._breaking() as broken:
            broken.removed.discard(_end(spark, port))

    def heal(self) -> None:
        """Undo every fault of the network."""
        for spark in SPARKS:
            for port in PORTS:
                self.insert_card(spark, port)
        if self._read().swapped:
            self._replug(set())
        with self._breaking() as broken:
            broken.cut, broken.muted = set(), set()

    def _read(self) -> Breakage:
        try:
            kept = json.loads(self.record.read_text())
        except FileNotFoundError:
            return Breakage()
        return Breakage(**{name: set(ends) for name, ends in kept.items()})

    @contextlib.contextmanager
    def _breaking(self) -> Iterator[Breakage]:
        broken = self._read()
        yield broken
        kept = {name: sorted(ends) for name, ends in asdict(broken).items()}
        self.record.write_text(json.dumps(kept))
        self._apply()

    def _apply(self) -> None:
        """Bring every port into the state that follows from what is broken and who has power."""
        broken = self._read()
        present = {spark for spark in SPARKS if self.path(spark).exists()}
        for spark in present:
            for port in PORTS:
                end = _end(spark, port)
                if end in broken.removed:
                    continue
                far = set(SPARKS) - {spark} if port.cable else set()
                driven = far <= present and not broken.removed & {_end(s, port) for s in far}
                up = driven and end not in broken.cut
                # A port that is on no bridge keeps its carrier and loses every packet.
                network = _CABLES[port] if end in broken.swapped else port.network
                to = ("nomaster",) if end in broken.muted else ("master", network)
                self._ip("link", "set", end, *to, "up" if up else "down")

    # --- use ------------------------------------------------------------------------------------

    def addresses(self, spark: Spark) -> set[str]:
        """Return the IPv4 addresses that the host has given to its ports."""
        said = run("ip", "-n", self.namespace(spark), "-json", "-4", "addr", check=False).stdout
        devices = json.loads(said or "[]")
        return {info["local"] for device in devices for info in device.get("addr_info", ())}

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Put this thread, and what it starts, into the fabric while the block runs.

        The hosts are reachable from there only: elsewhere 10.0.0.2 would leave the machine by its
        default route. Files and programs stay this machine's.
        """
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _set_namespace(_NAMESPACES / self.fabric)
            yield
        finally:
            _setns(before)
            os.close(before)

    def _ip(self, *words: object, check: bool = True) -> None:
        run("ip", "-n", self.fabric, *words, check=check)


def _end(spark: Spark, port: Port) -> str:
    """Return the name of the fabric's end of a port."""
    return f"{port.network}-{spark.short}"


def _set_namespace(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _setns(descriptor)
    finally:
        os.close(descriptor)


def _setns(descriptor: int) -> None:
    """Call setns(2), which Python's `os` has since 3.12 only."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        raise BedError(f"setns: {os.strerror(ctypes.get_errno())}")
