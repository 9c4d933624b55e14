"""Percentiles of histograms."""

from bisect import bisect_left
from math import inf

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from glm53ctl.view.histogram import difference, quantile

BOUNDS = (0.1, 0.5, 1.0, 5.0, inf)


def histogram(values: list[float]) -> dict[float, float]:
    """Return what Prometheus' client would count."""
    return {bound: float(sum(value <= bound for value in values)) for bound in BOUNDS}


@pytest.mark.parametrize(
    ("counts", "share", "expected"),
    [
        ((0, 4, 4, 4, 4), 0.5, 0.3),  # halfway through the second bucket
        ((4, 4, 4, 4, 4), 0.5, 0.05),  # the first begins at 0
        ((0, 2, 4, 4, 4), 0.5, 0.5),  # on the bound
        ((0, 0, 0, 0, 4), 0.5, 5.0),  # beyond the last bound nobody knows
        ((1, 1, 1, 2, 2), 0.95, 1.0 + 4 * 0.9),
        ((0, 0, 0, 0, 0), 0.5, None),
    ],
)
def test_a_percentile_is_spread_within_its_bucket(counts, share, expected):
    found = quantile(dict(zip(BOUNDS, counts, strict=True)), share)
    assert found == (None if expected is None else pytest.approx(expected))


def test_without_buckets_there_is_no_percentile():
    assert quantile({}, 0.5) is None


@given(st.lists(st.floats(0.001, 4.9), min_size=1, max_size=60), st.floats(0.01, 1.0))
@example([1.0, 0.5, 0.5, 0.5], 0.75)
def test_it_lies_in_the_bucket_of_the_true_one(values, share):
    rank = max(1, -int(-share * len(values) // 1))  # the smallest count that reaches the share
    true = sorted(values)[rank - 1]
    place = bisect_left(BOUNDS, true)
    lower = BOUNDS[place - 1] if place else 0.0
    found = quantile(histogram(values), share)
    assert found is not None
    assert lower <= found <= BOUNDS[place]


@given(st.lists(st.floats(0.001, 9.0)), st.lists(st.floats(0.001, 9.0)))
def test_a_difference_is_what_came_in_between(earlier, later):
    assert difference(histogram(earlier), histogram(earlier + later)) == histogram(later)
