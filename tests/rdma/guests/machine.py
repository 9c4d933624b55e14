"""One guest: a QEMU process, and commands in it."""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pair.bed.layout import Port, Spark
from pair.bed.run import BedError, until

from .agent import Agent
from .root import Root

MEMORY_MIB = 768
BOOT_SECONDS = 600.0
COMMAND_SECONDS = 300.0
KERNEL = "mitigations=off no_timer_check"
"""A guest that gets little of a busy processor fails the test of its timer, and would stop."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"
KVM = "/dev/kvm"
_SHOWN_CHARACTERS = 600


def accelerator() -> str:
    """Return how QEMU runs a guest here: "kvm", or "tcg", which translates every instruction.

    /dev/kvm alone says little: in a virtual machine it may be there for guests with a kernel of
    their own kind only (PVM). With the processor's extensions any kernel boots.
    """
    flags = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    capable = flags is not None and not {"vmx", "svm"}.isdisjoint(flags[1].split())
    return "kvm" if capable and os.access(KVM, os.R_OK | os.W_OK) else "tcg"


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    status: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Job:
    """A command that runs in a guest."""

    machine: "Machine"
    words: tuple[str, ...]
    pid: int

    def wait(self, seconds: float = COMMAND_SECONDS, *, check: bool = True) -> Done:
        """Return how it ended; BedError when it failed, unless told not to, or did not end."""
        found: list[Done] = []

        def over() -> bool:
            if ended := self.machine.agent.ended(self.pid):
                found.append(Done(*ended))
            return bool(found)

        what = f"{self.machine.name}: `{shlex.join(self.words)}`"
        if not until(over, seconds, pause=0.1):
            self.kill()
            raise BedError(f"{what} did not end in {seconds:.0f} s.")
        (done,) = found
        if check and done.status:
            said = (done.stderr or done.stdout).strip()[-_SHOWN_CHARACTERS:]
            raise BedError(f"{what} ended with {done.status}: {said}")
        return done

    def kill(self) -> None:
        """End it."""
        self.machine.agent.start(["/usr/bin/kill", "-KILL", str(self.pid)], b"")


@dataclass(eq=False)
class Machine:
    """A guest named after a host of the pair. `shares` are folders it sees, at the same paths."""

    spark: Spark
    state: Path
    ports: Sequence[Port]
    shares: Mapping[Path, Path]
    agent: Agent = field(init=False)
    boot_seconds: float = 0.0
    _process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.agent = Agent(self.state / "agent")

    @property
    def name(self) -> str:
        """The host's name."""
        return self.spark.name

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def switch_on(self, root: Root, wires: Mapping[Port, str]) -> None:
        """Start the process; `wires` say how each port is connected, in QEMU's words."""
        self.state.mkdir(parents=True, exist_ok=True)
        with (self.state / "qemu.log").open("wb") as log:
            # In a session of its own: Ctrl-C goes to the tests, which then switch it off.
            self._process = subprocess.Popen(
                self._command(root, wires), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def _command(self, root: Root, wires: Mapping[Port, str]) -> list[str]:
        words = [
            *("setpriv", "--pdeathsig", "KILL", "--"),  # no guest outlives a run that was killed
            *("qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot"),
            *("-name", self.name, "-machine", "pc", "-accel", accelerator(), "-cpu", "max"),
            *("-m", str(MEMORY_MIB), "-display", "none"),
            *("-kernel", str(root.kernel), "-initrd", str(root.archive)),
            *("-append", f"console=ttyS0 rdinit=/init panic=-1 quiet {KERNEL}"),
            *("-serial", f"file:{self.state / 'console'}"),
            *("-chardev", f"socket,id=agent,path={self.state / 'agent'},server=on,wait=off"),
            *("-device", "virtio-serial-pci", "-device", "virtserialport,chardev=agent,name=agent"),
        ]
        for number, port in enumerate(self.ports):
            card = f"netdev=wire{number},mac={port.mac(self.spark)},host_mtu={port.mtu}"
            words += ["-netdev", f"stream,id=wire{number},{wires[port]}"]
            words += ["-device", f"virtio-net-pci,{card}"]
        for number, outside in enumerate(self.shares.values()):
            share = f"mount_tag=share{number},path={outside},security_model=none,readonly=on"
            words += ["-virtfs", f"local,{share},multidevs=remap"]
        return words

    def wait(self, since: float) -> None:
        """Wait until the guest takes commands, then mount what it is shown."""
        if not self.agent.wait(BOOT_SECONDS, lambda: self.running):
            raise BedError(f"{self.name} did not boot: {self.said()}")
        self.boot_seconds = time.monotonic() - since
        for number, place in enumerate(self.shares):
            self.exec("mkdir", "-p", str(place))
            options = "trans=virtio,version=9p2000.L,msize=262144,cache=loose,ro"
            self.exec("mount", "-t", "9p", "-o", options, f"share{number}", str(place))

    def said(self) -> str:
        """Return the last words of the kernel and of QEMU."""
        files = (self.state / "console", self.state / "qemu.log")
        texts = [file.read_text(errors="replace") for file in files if file.exists()]
        return "".join(texts).strip()[-_SHOWN_CHARACTERS:]

    def switch_off(self) -> None:
        """End the process, as a power cut does; nothing of a guest outlives it."""
        self.agent.close()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    # --- commands -------------------------------------------------------------------------------

    def start(self, *words: str, stdin: str = "") -> Job:
        """Start a command and return at once."""
        # The agent has no environment to speak of.
        command = ["/usr/bin/env", f"PATH={PATH}", "LC_ALL=C.UTF-8", *words]
        return Job(self, words, self.agent.start(command, stdin.encode()))

    def exec(
        self, *words: str, check: bool = True, stdin: str = "", seconds: float = COMMAND_SECONDS
    ) -> Done:
        """Run a command to its end; see `Job.wait`."""
        return self.start(*words, stdin=stdin).wait(seconds, check=check)

    def output(self, *words: str) -> str:
        """Return what a command prints, without the last line feed."""
        return self.exec(*words).stdout.strip()

    def write(self, path: str, text: str) -> None:
        """Write a file."""
        self.exec("sh", "-c", 'mkdir -p "${1%/*}" && cat >"$1"', "sh", path, stdin=text)
