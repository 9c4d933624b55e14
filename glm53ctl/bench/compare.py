"""Two groups of results: which cases became better or worse, and how sure that is."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from operator import sub, truediv
from statistics import mean

from glm53ctl.bench.result import SHARES, Result, middle
from glm53ctl.bench.stats import interval, p_value

LEVEL = 0.05
"""A difference that chance makes less often than this is one."""
FEWEST = 4
"""Of each, below which no arrangement is that rare: 4 against 4 has 70, the least p is 2/70."""


class Verdict(StrEnum):
    """What became of a case."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "no difference seen"
    FEW = "too few runs"
    ONE = "unsure; one start each: how much starts differ is not known"
    STARTS = f"unsure; fewer than {FEWEST} starts of each"


@dataclass(frozen=True)
class Change:
    """One case before and after, by their middles.

    `ratio` is after to before, None where before is 0. `low` and `high` are its 95 % interval, or
    of shares that of the difference (`of_difference`); None where a run of before is 0. `p` is of
    starts where there are FEWEST of each, else of runs.
    """

    name: str
    unit: str
    before: float
    after: float
    ratio: float | None
    low: float | None
    high: float | None
    of_difference: bool
    p: float
    verdict: Verdict


def compare(
    before: Sequence[Result], after: Sequence[Result], *, tolerance: float = 0.02
) -> tuple[Change, ...]:
    """Return the change of every case that both have.

    `tolerance` is the share of the middle below which a difference does not matter, however sure.
    Runs of several results are put together: a group is one closure, configuration and engine,
    asked alike. A result counts as one start: what starts have in common (clocks, memory, the
    fabric's paths) makes its runs alike, so that they cannot be exchanged with another's.
    """
    old, new = _values(before), _values(after)
    return tuple(_change(name, old[name], new[name], tolerance) for name in old if name in new)


@dataclass(frozen=True)
class _Runs:
    unit: str
    lower_is_better: bool
    starts: tuple[tuple[float, ...], ...]

    @property
    def values(self) -> tuple[float, ...]:
        """All runs."""
        return tuple(chain.from_iterable(self.starts))

    @property
    def middle(self) -> float:
        """What stands for all runs."""
        return middle(self.unit, self.values)


def _values(results: Sequence[Result]) -> dict[str, _Runs]:
    found: dict[str, _Runs] = {}
    for result in results:
        for case in result.cases:
            earlier = found[case.name].starts if case.name in found else ()
            found[case.name] = _Runs(case.unit, case.lower_is_better, (*earlier, case.values))
    return found


def _change(name: str, old: _Runs, new: _Runs, tolerance: float) -> Change:
    before, after = old.middle, new.middle
    starts = [len(old.starts), len(new.starts)]
    sure = min(starts) >= FEWEST
    if sure:
        p = p_value([mean(one) for one in old.starts], [mean(one) for one in new.starts])
    else:
        p = p_value(old.values, new.values)
    if min(len(old.values), len(new.values)) < FEWEST:
        verdict = Verdict.FEW
    elif p >= LEVEL or abs(after - before) < tolerance * before:
        verdict = Verdict.SAME
    elif not sure:
        verdict = Verdict.ONE if starts == [1, 1] else Verdict.STARTS
    else:
        verdict = Verdict.BETTER if (after > before) != old.lower_is_better else Verdict.WORSE
    share = old.unit in SHARES
    low, high = _interval(old, new, sure=sure, share=share)
    ratio = after / before if before else None
    return Change(name, old.unit, before, after, ratio, low, high, share, p, verdict)


def _interval(
    old: _Runs, new: _Runs, *, sure: bool, share: bool
) -> tuple[float, float] | tuple[None, None]:
    """Return the interval of the difference of a share or of the ratio, from starts or runs."""
    if not share and min(old.values) <= 0:
        return None, None
    one, other = (
        runs.starts if sure else tuple((value,) for value in runs.values) for runs in (old, new)
    )

    def of(chosen: Sequence[Sequence[float]]) -> float:
        return middle(old.unit, tuple(chain.from_iterable(chosen)))

    return interval(one, other, of, sub if share else truediv)
