"""One host: its disk, its power, and what can be done inside it.

The host is booted by systemd-nspawn with a PID 1 of its own. Nothing of a running host is kept in
memory: pid, cgroup and mount are found again, so another process, or the next run after this one
was killed, can go on with it or remove it.
"""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .cgroup import HostCgroup
from .layout import PORTS, Spark
from .network import Network
from .run import BedError, run, until

BOOT_SECONDS = 180.0
EXEC_SECONDS = 180.0
STOP_SECONDS = 90.0
"""An orderly stop waits for units, and those of an engine have long timeouts."""

SLACK_SECONDS = 60.0
"""How much longer than it must a program may take on a busy machine."""

NSPAWN_GRACE_SECONDS = 0.3
_PROPAGATE = Path("/run/systemd/nspawn/propagate")

UNITS = "/etc/systemd/system"
_ENVIRONMENT = (
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/root",
    "LC_ALL=C.UTF-8",
)
_JOINING = 'echo 0 > "$0" && exec "$@"'

# systemd-nspawn that runs in a given cgroup ends with 133 when its host reboots, and leaves the
# start to whoever started it.
_KEEPER = """
for folder in $1; do echo 0 > "$folder/cgroup.procs"; done
machine=$2
shift 2
while :; do
    (for folder in $machine; do echo 0 > "$folder/cgroup.procs"; done; exec "$@")
    [ $? = 133 ] || exit 0
done
"""

_NSPAWN_ENVIRONMENT = {
    # Without it, systemd in the host gets the old hierarchies of a hybrid system and never boots.
    "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1",
    # The host may set its network sysctls, which are its own; the rest of /proc/sys is not.
    "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network",
}


@dataclass
class Host:
    """A host of the bed. `folder` holds its disk, `root` is the file system below it."""

    spark: Spark
    folder: Path
    root: Path
    network: Network
    cgroup: HostCgroup
    _keeper: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The host's name."""
        return self.spark.name

    @property
    def merged(self) -> Path:
        """The host's file system, seen from outside; it stays when the host is dead."""
        return self.folder / "merged"

    @property
    def running(self) -> bool:
        """Whether the host has a PID 1."""
        return self.cgroup.leader() is not None

    # --- disk -----------------------------------------------------------------------------------

    def mount(self) -> None:
        """Insert the disk; an empty one is set up first."""
        if os.path.ismount(self.merged):
            return
        for part in ("upper", "work", "merged"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        layers = f"lowerdir={self.root},upperdir={self.folder}/upper,workdir={self.folder}/work"
        run("mount", "-t", "overlay", self.cgroup.name, "-o", layers, self.merged)
        if not (self.merged / "etc/hostname").exists():
            self._format()

    def _format(self) -> None:
        etc = self.merged / "etc"
        (etc / "hostname").write_text(f"{self.name}\n")
        for port in PORTS:
            # Without a carrier the address stays: what is bound to it, such as an engine, lives on
            # through a cable that is out for a moment.
            (etc / f"systemd/network/10-{port.name}.network").write_text(
                f"[Match]\nName={port.name}\n\n[Link]\nMTUBytes={port.mtu}\n\n"
                f"[Network]\nAddress={port.address(self.spark)}/24\n"
                "LinkLocalAddressing=no\nConfigureWithoutCarrier=yes\n"
            )

    def unmount(self) -> None:
        """Take the disk out."""
        if os.path.ismount(self.merged):
            run("umount", self.merged)

    def wipe(self) -> None:
        """Forget the disk."""
        self.unmount()
        shutil.rmtree(self.folder, ignore_errors=True)

    def furnish(self, folders: Iterable[Path], links: Mapping[Path, Path]) -> None:
        """Make folders and symbolic links on the disk, the latter over whatever is there."""
        for folder in folders:
            (self.merged / folder.relative_to("/")).mkdir(parents=True, exist_ok=True)
        for place, target in links.items():
            path = self.merged / place.relative_to("/")
            path.unlink(missing_ok=True)
            path.symlink_to(target)

    # --- power ----------------------------------------------------------------------------------

    def switch_on(self, options: Sequence[str] = ()) -> None:
        """Begin to boot, with more options for systemd-nspawn; `wait` waits for the end."""
        if self.running:
            return
        self.clear()
        self.mount()
        self.network.connect(self.spark)
        self.cgroup.make()
        keeper, machine = (
            " ".join(map(str, self.cgroup.folders(part))) for part in ("keeper", "machine")
        )
        with (self.folder / "console.log").open("ab") as log:
            self._keeper = subprocess.Popen(
                [
                    "sh",
                    "-c",
                    _KEEPER,
                    f"{self.cgroup.name}",
                    keeper,
                    machine,
                    *self._nspawn(options),
                ],
                env={"PATH": os.environ["PATH"], **_NSPAWN_ENVIRONMENT},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in a terminal is no power loss
            )

    def _nspawn(self, options: Sequence[str]) -> list[str]:
        return [
            # Not --network-namespace-path: the host's /sys would show this machine's network, and
            # networkd would lack CAP_NET_ADMIN.
            *("nsenter", f"--net={self.network.path(self.spark)}", "systemd-nspawn"),
            *("--quiet", "--boot", "--console=pipe", "--register=no", "--keep-unit"),
            *(
                f"--directory={self.merged}",
                f"--machine={self.cgroup.name}",
                f"--hostname={self.name}",
            ),
            *("--capability=CAP_NET_ADMIN", "--resolv-conf=off", "--timezone=off"),
            *("--link-journal=no", "--kill-signal=SIGRTMIN+4"),
            *options,
            "systemd.log_target=journal",
        ]

    def wait(self, seconds: float = BOOT_SECONDS) -> None:
        """Wait until the host is up: basic target reached, every port with its address.

        Units that start long after that are not waited for: a rank may wait for its peer.
        """
        wanted = {port.address(self.spark) for port in PORTS}

        def up() -> bool:
            if self._keeper is not None and self._keeper.poll() is not None:
                raise BedError(f"{self.name} ended while it booted: {self.console()[-500:]}")
            if not self.running or not wanted <= self.network.addresses(self.spark):
                return False
            with contextlib.suppress(BedError):  # it may be gone between question and answer
                return (
                    self.exec("systemctl", "is-active", "basic.target", check=False).returncode == 0
                )
            return False

        if not until(up, seconds, pause=0.05):
            raise BedError(
                f"{self.name} is not up after {seconds:.0f} s.", f"See {self.folder}/console.log."
            )

    def power_loss(self) -> None:
        """Cut the power: nothing is written, said or sent any more; peers hear only silence."""
        # It must not live to see, and write down, that its network goes.
        self.cgroup.freeze()
        self.network.disconnect(self.spark)
        self.clear()

    def crash(self) -> None:
        """End every process at one instant; the kernel still tells peers (FIN or RST)."""
        if self.cgroup.populated(self.cgroup.payload):
            self.cgroup.kill(self.cgroup.payload)
        self.network.disconnect(self.spark)
        self.clear()

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Power off in order, as `systemctl poweroff` does; BedError if it takes too long."""
        leader = self.cgroup.leader()
        if leader is not None:
            os.kill(leader, signal.SIGRTMIN + 4)
            if not until(lambda: not self.cgroup.populated(self.cgroup.payload), seconds):
                raise BedError(f"{self.name} did not power off in {seconds:.0f} s.")
        self.network.disconnect(self.spark)
        self.clear()

    def reboot(self, seconds: float = STOP_SECONDS) -> None:
        """Reboot in order and return when PID 1 is a new one; `wait` waits for the boot."""
        before = self.cgroup.leader()
        self.exec("systemctl", "reboot", "--no-block")
        if not until(lambda: self.cgroup.leader() not in (None, before), seconds):
            raise BedError(f"{self.name} did not reboot in {seconds:.0f} s.")

    def clear(self) -> None:
        """Remove every process of the host and its cgroups, whatever state they are in."""
        if self.cgroup.populated(self.cgroup.payload):
            self.cgroup.kill(self.cgroup.payload)
        # systemd-nspawn cleans up behind itself when it sees its payload end. That is at once, or
        # when this machine's init has collected orphans of `exec`: not waited for.
        until(lambda: not self.cgroup.populated(), NSPAWN_GRACE_SECONDS)
        self.cgroup.kill()
        with contextlib.suppress(FileNotFoundError):
            (_PROPAGATE / self.cgroup.name).rmdir()
        if self._keeper is not None:
            self._keeper.wait(SLACK_SECONDS)
            self._keeper = None
        self.cgroup.remove()

    # --- inside ---------------------------------------------------------------------------------

    def command(self, *words: str) -> list[str]:
        """Return a command line that runs `words` in the host: as root, with every capability.

        The process joins the host's cgroup, so that it ends with the host.
        """
        leader = self.cgroup.leader()
        if leader is None:
            raise BedError(f"{self.name} is down.", "Start it first.")
        return [
            *("sh", "-c", _JOINING, str(self.cgroup.init_scope / "cgroup.procs")),
            *("nsenter", f"--target={leader}", "--mount", "--uts", "--ipc", "--net", "--pid"),
            *("--cgroup", "--wdns=/", "--", "env", "-i", *_ENVIRONMENT, *words),
        ]

    def exec(
        self, *words: str, check: bool = True, stdin: bytes = b"", timeout: float = EXEC_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the host to its end; it is killed there after `timeout` seconds."""
        limited = self.command("timeout", "--kill-after=1", str(timeout), *words)
        return run(*limited, check=check, stdin=stdin, timeout=timeout + SLACK_SECONDS)

    def output(self, *words: str) -> str:
        """Run a command in the host and return what it printed."""
        return self.exec(*words).stdout.strip()

    def _on_disk(self, *words: str, stdin: bytes = b"") -> str:
        """Run a command on the host's disk, whether the host is up or not."""
        if self.running:
            return self.exec(*words, stdin=stdin).stdout
        return run("chroot", self.merged, *words, stdin=stdin).stdout

    def write(
        self, path: str, content: str | bytes, mode: int = 0o644, owner: str = "root"
    ) -> None:
        """Write a file; with the host down, to its disk. Folders are made where missing."""
        script = (
            'mkdir -p "$(dirname "$1")" && umask 077 && cat >"$1.new" && chmod "$2" "$1.new"'
            ' && chown "$3" "$1.new" && mv "$1.new" "$1"'
        )
        data = content.encode() if isinstance(content, str) else content
        self._on_disk("sh", "-c", script, "sh", path, f"{mode:o}", owner, stdin=data)

    def push(self, source: Path, target: str, mode: int | None = None) -> None:
        """Copy a file of this machine into the host, or a folder with all that is in it."""
        if source.is_dir():
            for path in sorted(p for p in source.rglob("*") if p.is_symlink() or p.is_file()):
                self.push(path, f"{target}/{path.relative_to(source)}", mode)
            return
        if source.is_symlink():
            self._on_disk("mkdir", "-p", os.path.dirname(target))
            self._on_disk("ln", "-sfn", os.readlink(source), target)
            return
        self.write(target, source.read_bytes(), mode or source.stat().st_mode & 0o777)

    def install_units(self, units: Iterable[Path], enable: Iterable[str] = ()) -> None:
        """Install unit files and enable those that are named; nothing is started."""
        for unit in units:
            self.push(unit, f"{UNITS}/{unit.name}", 0o644)
        if self.running:
            self.exec("systemctl", "daemon-reload")
        if names := list(enable):
            self._on_disk("systemctl", "enable", *names)

    def journal(self, *options: str) -> str:
        """Return the journal, of a dead host from its disk. `options` are those of journalctl."""
        return run(*self.journal_command(*options)).stdout

    def journal_command(self, *options: str) -> list[str]:
        """Return the command line of `journal`."""
        reader = ("journalctl", "--no-pager", *options)
        if self.running:
            return self.command(*reader)
        if not os.path.ismount(self.merged):
            raise BedError(f"{self.name} has no disk.", "Start it first.")
        return ["chroot", str(self.merged), *reader, "--directory=/var/log/journal"]

    def console(self) -> str:
        """Return what systemd-nspawn and the host's console said, over all boots."""
        with contextlib.suppress(FileNotFoundError):
            return (self.folder / "console.log").read_text(errors="replace")
        return ""
