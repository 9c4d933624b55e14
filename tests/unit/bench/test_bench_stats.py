"""Percentiles against numpy; the permutation test against what can be counted by hand."""

import random
from math import comb
from statistics import median

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from glm53ctl.bench import stats

runs = st.lists(st.floats(0.1, 1e4), min_size=1, max_size=40)


@given(runs, st.floats(0, 100))
def test_percentiles_are_numpy_s(values, share):
    assert stats.percentile(values, share) == pytest.approx(float(np.percentile(values, share)))


@pytest.mark.parametrize("count", [2, 3, 4, 5, 7])
def test_two_groups_apart_have_the_least_p_there_is(count):
    """Only the two arrangements that keep them apart are as extreme."""
    low, high = [float(n) for n in range(count)], [100.0 + n for n in range(count)]
    assert stats.p_value(low, high) == pytest.approx(2 / comb(2 * count, count))


def test_equal_groups_differ_always_by_chance():
    assert stats.p_value([1.0, 2.0, 3.0], [3.0, 1.0, 2.0]) == 1.0
    assert stats.p_value([5.0] * 4, [5.0] * 4) == 1.0


def test_a_small_case_is_counted_by_hand():
    """1 3 against 2 6: of the six pairs, {1 2}, {3 6} differ by 3; {1 3}, {2 6} by 2; rest less."""
    assert stats.p_value([1.0, 3.0], [2.0, 6.0]) == pytest.approx(4 / 6)


@given(runs.filter(lambda v: len(v) < 7), runs.filter(lambda v: len(v) < 7))
@example([1.0] * 5 + [4091.0], [1.0] * 4 + [1.773257747963271, 4090.681531440864])
def test_p_does_not_depend_on_the_order_of_the_two(one, other):
    assert stats.p_value(one, other) == pytest.approx(stats.p_value(other, one))


def test_drawn_arrangements_agree_with_all_of_them(monkeypatch):
    draw = random.Random(3)  # noqa: S311
    one = [draw.gauss(100, 5) for _ in range(8)]
    other = [draw.gauss(104, 5) for _ in range(8)]
    exact = stats.p_value(one, other)
    monkeypatch.setattr(stats, "EXACT", 0)
    assert stats.p_value(one, other) == pytest.approx(exact, abs=0.02)


def test_runs_of_one_thing_differ_as_rarely_as_they_may():
    """At a level of 5 %, some 5 % of comparisons of equals; 200 of them stay below 10 %."""
    draw = random.Random(1)  # noqa: S311
    found = [
        stats.p_value(*([draw.gauss(60, 2) for _ in range(5)] for _ in range(2))) < 0.05
        for _ in range(200)
    ]
    assert sum(found) <= 20


def test_the_interval_holds_the_ratio_of_what_was_drawn():
    draw = random.Random(2)  # noqa: S311
    one = [draw.gauss(100, 2) for _ in range(20)]
    other = [draw.gauss(110, 2) for _ in range(20)]
    low, high = stats.interval(one, other, median)
    assert low < 1.10 < high
    assert low > 1.0
