"""Main memory, which on a Spark is the GPU's memory too."""

import re
from pathlib import Path

import psutil

from glm53ctl.facts.host import HERE, Fact, Host, Unknown

GIB = 1 << 30
KIB_IN_GIB = 1 << 20
_MEMINFO = Path("/proc/meminfo")
_AVAILABLE = re.compile(rb"^MemAvailable:\s+(\d+) kB", re.MULTILINE)
_AVAILABLE_IS_WITHIN = 256
"""Bytes: it is the third line."""


class MemoryFacts(Fact):
    """/proc/meminfo in KiB, and how much waits for memory (PSI, percent of the last 10 s).

    What CUDA calls free on GB10 is `free`: the page cache counts as used there.
    """

    total: int
    free: int
    available: int
    cached: int = 0
    shmem: int = 0
    swap_total: int = 0
    swap_free: int = 0
    pressure_some: float | None = None
    pressure_full: float | None = None

    @property
    def swap_used(self) -> int:
        """Swap in use, in KiB."""
        return self.swap_total - self.swap_free


def gib(kib: float) -> float:
    """Return KiB as GiB."""
    return kib / KIB_IN_GIB


def available_gib() -> float:
    """Return what the kernel could hand out without swapping (MemAvailable), in GiB.

    Supervisors ask several times a second, and to read all that psutil does is most of the cost.
    """
    with _MEMINFO.open("rb", buffering=0) as kernel:
        found = _AVAILABLE.search(kernel.read(_AVAILABLE_IS_WITHIN))
    return gib(int(found[1])) if found else float(psutil.virtual_memory().available / GIB)


def parse_meminfo(text: str) -> MemoryFacts | Unknown:
    """Read /proc/meminfo."""
    values = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            values[name.strip()] = int(words[0])
    missing = {"MemTotal", "MemFree", "MemAvailable"} - values.keys()
    if missing:
        return Unknown(unknown=f"no {' and no '.join(sorted(missing))} in meminfo")
    return MemoryFacts(
        total=values["MemTotal"],
        free=values["MemFree"],
        available=values["MemAvailable"],
        cached=values.get("Cached", 0),
        shmem=values.get("Shmem", 0),
        swap_total=values.get("SwapTotal", 0),
        swap_free=values.get("SwapFree", 0),
    )


def _pressure(text: str) -> dict[str, float]:
    """Read /proc/pressure/memory: the share of time in which some or all tasks waited."""
    found = {}
    for line in text.splitlines():
        kind, *pairs = line.split()
        values = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        found[f"pressure_{kind}"] = float(values.get("avg10", 0))
    return found


def probe_memory(host: Host = HERE) -> MemoryFacts | Unknown:
    """Read the state of memory; without PSI in the kernel, the pressure is None."""
    text = host.read("/proc/meminfo")
    if isinstance(text, Unknown):
        return text
    facts = parse_meminfo(text)
    pressure = host.read("/proc/pressure/memory")
    if isinstance(facts, Unknown) or isinstance(pressure, Unknown):
        return facts
    return facts.model_copy(update=_pressure(pressure))
