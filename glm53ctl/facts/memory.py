"""Main memory, which on a Spark is the GPU's memory too."""

import psutil

GIB = 1 << 30


def available_gib() -> float:
    """Return what the kernel could hand out without swapping (MemAvailable), in GiB."""
    return float(psutil.virtual_memory().available / GIB)
