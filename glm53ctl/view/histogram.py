"""Percentiles out of the buckets of a Prometheus histogram."""

import math
from collections.abc import Mapping

Buckets = Mapping[float, float]
"""Cumulative count by upper bound, +Inf included."""


def difference(before: Buckets, after: Buckets) -> dict[float, float]:
    """Return what came between two readings of one histogram."""
    return {bound: count - before.get(bound, 0.0) for bound, count in after.items()}


def quantile(buckets: Buckets, share: float) -> float | None:
    """Return the value below which `share` (0 to 1) of the observations are; None without any.

    As Prometheus' histogram_quantile: evenly spread within a bucket, the first beginning at 0; in
    the last, open one its lower bound is all that is known.
    """
    bounds = sorted(buckets)
    total = buckets[bounds[-1]] if bounds else 0.0
    if total <= 0:
        return None
    wanted = share * total
    lower, below = 0.0, 0.0
    for bound in bounds:
        count = buckets[bound]
        if count >= wanted and count > below:
            if math.isinf(bound):
                return lower
            share_of_bucket = (wanted - below) / (count - below)
            return min(bound, lower + (bound - lower) * share_of_bucket)  # rounding leaves it
        lower, below = bound, count
    return lower
