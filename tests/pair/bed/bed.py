"""The bed as a whole: two hosts on one network, in one folder."""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from . import needs, root
from .cgroup import HostCgroup
from .host import BOOT_SECONDS, Host
from .layout import HEAD, SPARKS, WORKER, Spark
from .network import Network
from .product import Product
from .run import BedError, until

CHECKOUT = Path(__file__).resolve().parents[3]
STATE_VARIABLE = "GLM53_BED"


def default_state() -> Path:
    """Return the folder of the bed: the environment's, else `.bed` in the checkout."""
    return Path(os.environ.get(STATE_VARIABLE) or CHECKOUT / ".bed").resolve()


@dataclass
class Bed:
    """Two hosts, their network and their disks. One folder is one bed; several can coexist.

    >>> bed = Bed()
    >>> bed.up()
    >>> bed.worker.exec("systemctl", "is-active", "dbus")
    >>> bed.network.pull(RAIL1)
    >>> bed.worker.power_loss()
    >>> bed.worker.journal("-u", "glm53-rank1")
    >>> bed.heal()
    >>> bed.down()
    """

    state: Path = field(default_factory=default_state)
    network: Network = field(init=False)
    hosts: dict[Spark, Host] = field(init=False)

    def __post_init__(self) -> None:
        # Namespaces and cgroups are named machine-wide; two beds must not meet there.
        tag = f"glm53-{hashlib.sha256(str(self.state).encode()).hexdigest()[:6]}"
        self.network = Network(tag, self.state / "network.json")
        self.hosts = {
            spark: Host(
                spark,
                self.state / spark.name,
                self._root,
                self.network,
                HostCgroup(f"{tag}-{spark.name}"),
            )
            for spark in SPARKS
        }

    @property
    def head(self) -> Host:
        """The host of rank 0."""
        return self.hosts[HEAD]

    @property
    def worker(self) -> Host:
        """The host of rank 1."""
        return self.hosts[WORKER]

    @property
    def _root(self) -> Path:
        return self.state / "root"

    @property
    def _options_file(self) -> Path:
        return self.state / "nspawn.json"

    def why_not(self) -> str | None:
        """Return why this machine cannot hold the bed, in one sentence, or None."""
        return needs.why_not(self.state)

    def build(self, say: Callable[[str], object] = print) -> bool:
        """Make the root file system unless it is current; return whether it was made."""
        if reason := self.why_not():
            raise BedError(f"{reason}.")
        if any(host.running for host in self.hosts.values()):
            return False  # they stand on it
        return root.build(self._root, say)

    def up(self, product: Product | None = None, say: Callable[[str], object] = print) -> None:
        """Build what is missing and boot both hosts; nothing happens to those that run.

        With `product` the hosts have the project's tools, engine and model below /opt/glm53.
        """
        self.build(say)
        self.network.up()
        if not any(host.running for host in self.hosts.values()):
            shutil.rmtree(self.state / "shims", ignore_errors=True)
            options = product.nspawn_options(self.state / "shims") if product else []
            self._options_file.write_text(json.dumps(options))
            for host in self.hosts.values():
                host.clear()
                host.mount()
                if product:
                    host.furnish(product.folders, product.links())
        # Both have power before either boots, as two machines behind one switch.
        for host in self.hosts.values():
            host.switch_on(self._options())
        for host in self.hosts.values():
            host.wait()

    def start(self, *hosts: Host, seconds: float = BOOT_SECONDS) -> None:
        """Boot hosts that are down on the disks they have, and wait until they are up."""
        for host in hosts:
            host.switch_on(self._options())
        for host in hosts:
            host.wait(seconds)

    def _options(self) -> list[str]:
        try:
            options: list[str] = json.loads(self._options_file.read_text())
        except FileNotFoundError as error:
            raise BedError("the bed is down.", "Begin with `up`.") from error
        return options

    def reboot(self, *hosts: Host, seconds: float = BOOT_SECONDS) -> None:
        """Reboot hosts in order, all at once, and wait until they are up."""
        with ThreadPoolExecutor(max(1, len(hosts))) as pool:
            list(pool.map(Host.reboot, hosts))
        for host in hosts:
            host.wait(seconds)

    def heal(self) -> None:
        """Undo every fault: cards, cables and ports as new, dead hosts booted."""
        self.network.heal()
        self.start(*(host for host in self.hosts.values() if not host.running))

    def down(self, *, keep_disks: bool = False) -> None:
        """Remove both hosts and the network, in whatever state they are, as often as one likes.

        Also what a killed run has left. The root stays; with `keep_disks` the disks do, too.
        """
        for host in self.hosts.values():
            host.clear()
            if keep_disks:
                host.unmount()
            else:
                host.wipe()
        self.network.down()
        shutil.rmtree(self.state / "shims", ignore_errors=True)
        self._options_file.unlink(missing_ok=True)

    def leftovers(self) -> list[str]:
        """Return what the bed holds of this machine: mounts, namespaces, cgroups."""
        mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        found = [f"mount {place}" for place in mounts if Path(place).is_relative_to(self.state)]
        found += [f"netns {p.name}" for p in Path("/run/netns").glob(f"{self.network.tag}-*")]
        for host in self.hosts.values():
            folders = host.cgroup.folders("")
            found += [f"cgroup {folder}" for folder in folders if folder.exists()]
        return found

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other runs off this bed while the block runs."""
        self.state.mkdir(parents=True, exist_ok=True)
        with (self.state / "lock").open("w") as file:

            def taken() -> bool:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return True
                return False

            if not until(taken, 1.0):
                raise BedError(
                    f"another run uses the bed in {self.state}.",
                    f"Wait for it, or name another folder in {STATE_VARIABLE}.",
                )
            yield
