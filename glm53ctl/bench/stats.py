"""Medians, percentiles and whether two sets of runs differ."""

import random
from collections.abc import Callable, Sequence
from itertools import combinations
from math import ceil, comb, floor
from operator import truediv
from typing import TypeVar

T = TypeVar("T")

PERCENTILES = (50, 90, 99)
EXACT = 20_000
"""Arrangements up to which all are looked at; above, as many are drawn."""
DRAWS = 5_000


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` percent lie, linear between neighbours (as numpy)."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * share / 100
    low, high = ordered[floor(place)], ordered[ceil(place)]
    return low + (high - low) * (place - floor(place))


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Return p50, p90 and p99; empty for nothing."""
    return {f"p{share}": percentile(values, share) for share in PERCENTILES} if values else {}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def p_value(one: Sequence[float], other: Sequence[float], seed: int = 0) -> float:
    """Return how likely a difference of means this large is when both are runs of one thing.

    A permutation test on both sides: exact while there are at most EXACT arrangements, by DRAWS
    random ones above (counting the observed one, so never 0). Needs no assumption but that what is
    given could be exchanged: runs of one start with each other, and starts, by their means.
    """
    together, count = [*one, *other], len(one)
    whole = sum(together)
    # Sums are rounded by their own size, however small the difference is.
    observed = abs(_mean(one) - _mean(other)) - 1e-12 * sum(map(abs, together))

    def extreme(chosen: Sequence[float]) -> bool:
        part = sum(chosen)
        rest = (whole - part) / (len(together) - count)
        return abs(part / count - rest) >= observed

    arrangements = comb(len(together), count)
    if arrangements <= EXACT:
        return sum(map(extreme, combinations(together, count))) / arrangements
    draw = random.Random(seed)  # noqa: S311 - a test that gives the same answer twice
    hits = sum(extreme(draw.sample(together, count)) for _ in range(DRAWS))
    return (hits + 1) / (DRAWS + 1)


def interval(
    one: Sequence[T],
    other: Sequence[T],
    middle: Callable[[Sequence[T]], float],
    change: Callable[[float, float], float] = truediv,
    share: float = 95.0,
    seed: int = 0,
) -> tuple[float, float]:
    """Return the interval of a change of middles by bootstrap: of the ratio, other to one."""
    draw = random.Random(seed)  # noqa: S311
    changes = [
        change(middle(draw.choices(other, k=len(other))), middle(draw.choices(one, k=len(one))))
        for _ in range(DRAWS)
    ]
    edge = (100 - share) / 2
    return percentile(changes, edge), percentile(changes, 100 - edge)
