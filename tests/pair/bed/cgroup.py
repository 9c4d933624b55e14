"""The cgroups of one host: how its processes are found, and killed at one instant.

`keeper` holds the loop that starts the host again when it reboots; `machine` holds systemd-nspawn,
which makes `machine/supervisor` for itself and `machine/payload` for the host. Both lie side by
side because a cgroup2 with processes of its own could not give controllers to those below.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .run import BedError, until

_MOUNTS = Path("/proc/self/mounts")
_GONE_SECONDS = 60.0


def unified() -> Path | None:
    """Return where cgroup2 is mounted, alone or beside the old hierarchies."""
    for line in _MOUNTS.read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(place)
    return None


def _hierarchies() -> list[Path]:
    """Return cgroup2 and, on a hybrid system, the one where systemd keeps its names.

    systemd-nspawn uses both, and would put two hosts that share a cgroup into one `payload`.
    """
    top = unified()
    if top is None:
        raise BedError("there is no cgroup2 mount.")
    named = [
        Path(line.split()[1])
        for line in _MOUNTS.read_text().splitlines()
        if line.split()[2] == "cgroup" and "name=systemd" in line.split()[3].split(",")
    ]
    return [top, *named]


@dataclass(frozen=True)
class HostCgroup:
    """The cgroups of the host `name`; names are the machine's, so they carry the bed's tag."""

    name: str

    @property
    def top(self) -> Path:
        """The cgroup2 above everything of the host."""
        return _hierarchies()[0] / self.name

    @property
    def payload(self) -> Path:
        """The cgroup2 that the host takes for its root."""
        return self.top / "machine" / "payload"

    @property
    def init_scope(self) -> Path:
        """Where PID 1 of the host is."""
        return self.payload / "init.scope"

    def folders(self, part: str) -> list[Path]:
        """Return one part in every hierarchy."""
        return [top / self.name / part for top in _hierarchies()]

    def make(self) -> None:
        """Make what a start needs."""
        for folder in self.folders("keeper") + self.folders("machine"):
            folder.mkdir(parents=True, exist_ok=True)

    def leader(self) -> int | None:
        """Return the pid, here, of the host's PID 1; None while there is none.

        It is read from the kernel each time, so it is right after a reboot and in a run that did
        not start the host.
        """
        for folder in (self.init_scope, self.payload):
            for pid in _pids(folder):
                with contextlib.suppress(OSError):
                    status = Path(f"/proc/{pid}/status").read_text()
                    (chain,) = (x.split() for x in status.splitlines() if x.startswith("NSpid:"))
                    if len(chain) > 2 and chain[-1] == "1":
                        return pid
        return None

    def populated(self, folder: Path | None = None) -> bool:
        """Say whether a process lives in the cgroup or below it."""
        try:
            return "populated 1" in ((folder or self.top) / "cgroup.events").read_text()
        except OSError:
            return False

    def kill(self, folder: Path | None = None) -> None:
        """Kill every process in the cgroup and below, at one instant, and wait for their end."""
        folder = folder or self.top

        def dead() -> bool:
            if not self.populated(folder):
                return True
            with contextlib.suppress(OSError):
                (folder / "cgroup.kill").write_text("1")
            return False

        if not until(dead, _GONE_SECONDS):
            raise BedError(f"processes in {folder} do not die: {list(_pids(folder))}")

    def freeze(self) -> None:
        """Stop every process of the host where it is; only death ends that."""
        if self.populated(self.payload):
            (self.payload / "cgroup.freeze").write_text("1")
            events = self.payload / "cgroup.events"
            until(lambda: "frozen 1" in events.read_text(), _GONE_SECONDS)

    def remove(self) -> None:
        """Remove the empty cgroups; systemd-nspawn leaves its own behind."""
        for top in _hierarchies():
            for folder, _, _ in os.walk(top / self.name, topdown=False):
                # A cgroup whose last process is only just gone is busy for a moment.
                if not until(lambda folder=folder: _removed(folder), _GONE_SECONDS):  # type: ignore[misc]
                    raise BedError(f"{folder} cannot be removed.")


def _removed(folder: str) -> bool:
    with contextlib.suppress(OSError):
        os.rmdir(folder)
    return not os.path.exists(folder)


def _pids(folder: Path) -> Iterator[int]:
    with contextlib.suppress(OSError):
        yield from map(int, (folder / "cgroup.procs").read_text().split())
