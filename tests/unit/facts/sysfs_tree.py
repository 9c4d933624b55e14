"""A tree in the shape of /sys/class/infiniband. A fake: the kernel's own has RDMA hardware."""

from pathlib import Path

CLASS = "sys/class/infiniband"


def add_port(
    root: Path,
    device: str,
    netdev: str,
    gids: dict[int, tuple[str, str]],
    *,
    state: str = "4: ACTIVE",
    size: int = 16,
) -> Path:
    """Add a device with one port. Indexes without a GID are zero, and their type is unreadable."""
    port = root / CLASS / device / "ports" / "1"
    for folder in ("gids", "gid_attrs/types", "gid_attrs/ndevs"):
        (port / folder).mkdir(parents=True)
    (port / "state").write_text(f"{state}\n")
    function = root / "sys/devices" / f"0000:{device}"
    (function / "net" / netdev).mkdir(parents=True)
    (root / CLASS / device / "device").symlink_to(function)
    for index in range(size):
        value, kind = gids.get(index, ("0000:" * 7 + "0000", None))
        (port / "gids" / str(index)).write_text(f"{value}\n")
        for name, text in (("types", kind), ("ndevs", netdev)):
            entry = port / "gid_attrs" / name / str(index)
            if kind is None:
                entry.mkdir()  # reading it fails, as EINVAL does in sysfs
            else:
                entry.write_text(f"{text}\n")
    return port


def mapped(address: str) -> str:
    """Return an IPv4 address as sysfs writes its GID."""
    a, b, c, d = map(int, address.split("."))
    return f"0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}"
