"""Random numbers that are the same on every machine, today and in ten years.

Each tensor draws from a stream of its own, named after it: a stream of bytes from SHAKE-256, so
no library's generator, thread count or processor has a say.
"""

import hashlib
from math import sqrt

import numpy as np
from numpy.typing import NDArray

SEED = "glm53 demo model 3"

Floats = NDArray[np.float32]
Signs = NDArray[np.int64]


def _stream(name: str, length: int) -> bytes:
    return hashlib.shake_256(f"{SEED}\n{name}".encode()).digest(length)


def signs(name: str, count: int) -> Signs:
    """Return `count` values of -1 or +1."""
    bits = np.unpackbits(np.frombuffer(_stream(name, -(-count // 8)), np.uint8))
    return bits[:count].astype(np.int64) * 2 - 1


def spread(name: str, shape: tuple[int, ...], deviation: float, around: float = 0.0) -> Floats:
    """Return evenly spread values with a given standard deviation around a value.

    16 bits a value, exact in double precision until the one rounding at the end.
    """
    count = int(np.prod(shape))
    integers = np.frombuffer(_stream(name, 2 * count), "<u2").astype(np.float64)
    unit = (integers - 32767.5) / 32768.0
    values: Floats = (around + unit * (deviation * sqrt(3.0))).astype(np.float32).reshape(shape)
    return values
