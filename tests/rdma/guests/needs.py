"""Whether this machine can hold the guests, in one sentence."""

import platform
import shutil
import sys
from pathlib import Path

PROGRAMS = {
    "mmdebstrap": "mmdebstrap",
    "qemu-system-x86_64": "qemu-system-x86",
    "setpriv": "util-linux",
}
"""Programs the guests need, and the Debian packages that hold them."""

FREE_GIB = 2.5
"""Memory of both guests with what QEMU takes for itself."""


def why_not() -> str | None:
    """Return why no guests can be had here, or None when they can."""
    if platform.machine() != "x86_64" or sys.platform != "linux":
        return "the guests are x86_64 Linux machines and this is none"
    missing = sorted({package for name, package in PROGRAMS.items() if not shutil.which(name)})
    if missing:
        return f"the guests need programs: apt install --no-install-recommends {' '.join(missing)}"
    available = _available_gib()
    if available < FREE_GIB:
        return f"the guests need {FREE_GIB} GiB of memory and {available:.1f} are available"
    return None


def _available_gib() -> float:
    lines = Path("/proc/meminfo").read_text().splitlines()
    kib = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    return kib / (1 << 20)
