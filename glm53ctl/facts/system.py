"""The kernel, the units, the clock, limits and devices of a host."""

import os
import resource
import shutil
import stat
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from pydantic import Field

from glm53ctl.facts.host import HERE, Fact, Host, Unknown

LIBRARIES = ("libcuda.so.1", "libibverbs.so.1")
"""What the engine opens by name when it runs; no link of the program shows them missing."""

LIBRARY_DIRS = (
    "/run/opengl-driver/lib",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/local/cuda/compat",
)
DRIVER_DIR = "/run/opengl-driver/lib"
"""Where NixOS puts the driver's libraries; programs built by Nix look nowhere else."""


class Kernel(Fact):
    """The running kernel."""

    release: str
    page_size: int
    command_line: str = ""
    boot_id: str = ""
    hostname: str = ""
    hostname_addresses: tuple[str, ...] = ()
    """What /etc/hosts says about the own name."""


class Unit(Fact):
    """A systemd unit, as `systemctl show` prints it."""

    id: str
    properties: dict[str, str] = Field(default_factory=dict)

    def get(self, name: str) -> str:
        """Return a property, "" where it was not printed."""
        return self.properties.get(name, "")


class Clock(Fact):
    """The clock. `offset_seconds` is how far it is ahead of the head's, where that was measured."""

    synchronised: bool | None = None
    offset_seconds: float | None = None
    time: str = ""


class Disk(Fact):
    """Room on the file system of a directory, in bytes."""

    path: str
    total: int
    free: int


class Owner(Fact):
    """Whom a path belongs to."""

    path: str
    uid: int
    gid: int
    mode: int


class Device(Fact):
    """A device node and whether this process may open it."""

    path: str
    mode: int
    usable: bool


class Limits(Fact):
    """Limits of this process; -1 is none."""

    memlock_bytes: int


class Libraries(Fact):
    """Where libraries that are opened by name were found."""

    found: tuple[str, ...]
    driver_dir: bool
    """Whether the driver's directory of NixOS has libcuda."""
    search_path: str = ""
    """LD_LIBRARY_PATH of the engine."""


def _hosts_entries(text: str, name: str) -> Iterator[str]:
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if name in words[1:]:
            yield words[0]


def probe_kernel(host: Host = HERE) -> Kernel:
    """Read what the kernel is and how it was started."""
    name = host.line("/proc/sys/kernel/hostname")
    hosts = host.read("/etc/hosts")
    return Kernel(
        release=host.line("/proc/sys/kernel/osrelease"),
        page_size=os.sysconf("SC_PAGE_SIZE"),
        command_line=host.line("/proc/cmdline"),
        boot_id=host.line("/proc/sys/kernel/random/boot_id"),
        hostname=name,
        hostname_addresses=() if isinstance(hosts, Unknown) else tuple(_hosts_entries(hosts, name)),
    )


def parse_units(text: str) -> tuple[Unit, ...]:
    """Read what `systemctl show` prints: blocks of properties, one a unit."""
    units = []
    for block in text.strip().split("\n\n"):
        pairs = (line.split("=", 1) for line in block.splitlines() if "=" in line)
        properties = {name.strip(): value.strip() for name, value in pairs}
        if unit := properties.get("Id"):
            units.append(Unit(id=unit, properties=properties))
    return tuple(units)


SHOWN = (
    "Id,ActiveState,SubState,Result,NRestarts,Type,User,PrivateIPC,LimitMEMLOCK,TimeoutStartUSec"
)


def probe_units(host: Host = HERE) -> tuple[Unit, ...] | Unknown:
    """Read the appliance's units that the service manager knows."""
    text = host.run(("systemctl", "show", "glm53*", f"--property={SHOWN}"))
    return text if isinstance(text, Unknown) else parse_units(text)


def parse_clock(text: str) -> Clock:
    """Read what `timedatectl show` prints."""
    said = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    synchronised = {"yes": True, "no": False}.get(said.get("NTPSynchronized", ""))
    return Clock(synchronised=synchronised, time=said.get("TimeUSec", ""))


def probe_clock(host: Host = HERE) -> Clock | Unknown:
    """Ask whether a time server was reached."""
    text = host.run(("timedatectl", "show", "--property=NTPSynchronized"))
    if isinstance(text, Unknown):
        return text
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return parse_clock(text).model_copy(update={"time": now})


def probe_disks(paths: Sequence[str], host: Host = HERE) -> tuple[Disk, ...]:
    """Return the room for each directory, or for the nearest one above it that exists."""
    found = []
    for path in dict.fromkeys(paths):
        place = host.path(path)
        while not place.exists() and place != place.parent:
            place = place.parent
        usage = shutil.disk_usage(place)
        found.append(Disk(path=path, total=usage.total, free=usage.free))
    return tuple(found)


def probe_owners(paths: Sequence[str], host: Host = HERE) -> tuple[Owner, ...]:
    """Return whom the paths belong to that exist."""
    found = []
    for path in dict.fromkeys(paths):
        try:
            status = host.path(path).stat()
        except OSError:
            continue
        mode = stat.S_IMODE(status.st_mode)
        found.append(Owner(path=path, uid=status.st_uid, gid=status.st_gid, mode=mode))
    return tuple(found)


def probe_devices(host: Host = HERE) -> tuple[Device, ...]:
    """Return the device nodes of the GPU and of the verbs."""
    found = []
    for pattern in ("dev/nvidia*", "dev/infiniband/uverbs*"):
        for path in sorted(host.root.glob(pattern)):
            if path.is_dir():
                continue
            mode = stat.S_IMODE(path.stat().st_mode)
            name = f"/{path.relative_to(host.root)}"
            found.append(Device(path=name, mode=mode, usable=os.access(path, os.R_OK | os.W_OK)))
    return tuple(found)


def probe_limits() -> Limits:
    """Return how much memory this process may lock; RDMA locks what it registers."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return Limits(memlock_bytes=-1 if soft == resource.RLIM_INFINITY else soft)


def probe_libraries(search_path: str, host: Host = HERE) -> Libraries:
    """Look for the libraries that the engine opens by name."""
    directories = [*filter(None, search_path.split(":")), *LIBRARY_DIRS]
    found = [
        f"{directory}/{library}"
        for directory in dict.fromkeys(directories)
        for library in LIBRARIES
        if host.path(f"{directory}/{library}").exists()
    ]
    return Libraries(
        found=tuple(found),
        driver_dir=f"{DRIVER_DIR}/libcuda.so.1" in found,
        search_path=search_path,
    )
