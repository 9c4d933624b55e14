"""Two groups of results: which cases became better or worse, and how sure that is."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from glm53ctl.bench.result import Result, middle
from glm53ctl.bench.stats import interval, p_value

LEVEL = 0.05
"""A difference that chance makes less often than this is one."""
FEWEST = 4
"""Runs of each below which no arrangement is that rare: 4 against 4 has 70, the least p is 2/70."""


class Verdict(StrEnum):
    """What became of a case."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "no difference seen"
    FEW = "too few runs"


@dataclass(frozen=True)
class Change:
    """One case before and after. `ratio` and its 95 % interval are of middles, after to before."""

    name: str
    unit: str
    before: float
    after: float
    ratio: float
    low: float
    high: float
    p: float
    verdict: Verdict


def compare(
    before: Sequence[Result], after: Sequence[Result], *, tolerance: float = 0.02
) -> tuple[Change, ...]:
    """Return the change of every case that both have.

    `tolerance` is the share of the middle below which a difference does not matter, however sure.
    Runs of several results are put together: a group is one closure, configuration and engine,
    asked alike.
    """
    old, new = _values(before), _values(after)
    return tuple(_change(name, old[name], new[name], tolerance) for name in old if name in new)


@dataclass(frozen=True)
class _Runs:
    unit: str
    lower_is_better: bool
    values: tuple[float, ...]


def _values(results: Sequence[Result]) -> dict[str, _Runs]:
    found: dict[str, _Runs] = {}
    for result in results:
        for case in result.cases:
            earlier = found[case.name].values if case.name in found else ()
            found[case.name] = _Runs(case.unit, case.lower_is_better, earlier + case.values)
    return found


def _change(name: str, old: _Runs, new: _Runs, tolerance: float) -> Change:
    of = partial(middle, old.unit)
    before, after = of(old.values), of(new.values)
    p = p_value(old.values, new.values)
    ratio = after / before if before else 1.0
    low, high = interval(old.values, new.values, of) if min(old.values) > 0 else (ratio, ratio)
    if min(len(old.values), len(new.values)) < FEWEST:
        verdict = Verdict.FEW
    elif p >= LEVEL or abs(after - before) < tolerance * before:
        verdict = Verdict.SAME
    else:
        verdict = Verdict.BETTER if (after > before) != old.lower_is_better else Verdict.WORSE
    return Change(name, old.unit, before, after, ratio, low, high, p, verdict)
