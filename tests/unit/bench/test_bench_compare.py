"""Verdicts of `bench compare`, and the ledger they are made from."""

import random
from typing import Any

import pytest

from glm53ctl import files
from glm53ctl.bench import ledger
from glm53ctl.bench.compare import Verdict, compare
from glm53ctl.bench.report import changes_as_text
from glm53ctl.bench.result import Case, Identity, Result
from glm53ctl.errors import UserError


def result(
    *values: float, digest: str = "a", lower: bool = False, kind="decode", unit="tok/s", **asked
) -> Result:
    case = Case(name="structured x1", unit=unit, values=values, lower_is_better=lower)
    identity = Identity(config_digest=digest, engine="0.33.0")
    return Result(
        kind=kind,
        at="2026-01-02T03:04:05+00:00",
        identity=identity,
        parameters=asked,
        cases=(case,),
    )


FAST = (66.0, 66.4, 65.8, 66.1, 66.3)
SLOW = (61.9, 62.3, 61.7, 62.0, 62.2)


def starts(*values: float, count: int = 4, step: float = 0.001, **more: Any) -> list[Result]:
    """The same runs after so many starts, each of which is a little faster than the one before."""
    return [result(*(v * (1 + step * n) for v in values), **more) for n in range(count)]


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (starts(*FAST), starts(*SLOW), Verdict.WORSE),
        (starts(*SLOW), starts(*FAST), Verdict.BETTER),
        (starts(*SLOW, lower=True), starts(*FAST, lower=True), Verdict.WORSE),
        (starts(*SLOW), starts(*SLOW[::-1]), Verdict.SAME),
        (starts(*SLOW), starts(*(value * 1.01 for value in SLOW)), Verdict.SAME),  # sure and small
        (starts(*SLOW), starts(*SLOW, step=0.1), Verdict.SAME),  # large and unsure
        ([result(*SLOW)], [result(*FAST)], Verdict.ONE),
        ([result(*SLOW)], [result(*SLOW[::-1])], Verdict.SAME),
        ([result(*SLOW)], [result(60.0, 75.0, 55.0, 80.0, 62.0)], Verdict.SAME),
        ([result(*SLOW[:3])], [result(*FAST[:3])], Verdict.FEW),
        (starts(*SLOW, count=3), starts(*FAST), Verdict.STARTS),
        ([result(*SLOW)], starts(*FAST), Verdict.STARTS),
    ],
)
def test_verdicts(before, after, verdict):
    [change] = compare(before, after)
    assert change.verdict is verdict
    assert change.low <= change.ratio <= change.high


def test_results_of_one_thing_are_put_together():
    [change] = compare([result(*SLOW[:3]), result(*SLOW[3:])], [result(*FAST)])
    assert change.before == 62.0


def test_a_slower_server_is_found_and_an_equal_one_is_not_accused():
    """Four starts that differ by 2 %, runs of each by 0.5 %: it is starts that are compared."""
    draw = random.Random(7)  # noqa: S311

    def measured(mean: float) -> list[Result]:
        pace = [mean * draw.gauss(1, 0.02) for _ in range(4)]
        return [result(*(draw.gauss(one, one * 0.005) for _ in range(5))) for one in pace]

    slower = [compare(measured(60), measured(54))[0].verdict for _ in range(20)]
    equal = [compare(measured(60), measured(60))[0].verdict for _ in range(40)]
    assert slower.count(Verdict.WORSE) >= 18
    assert equal.count(Verdict.WORSE) + equal.count(Verdict.BETTER) <= 5


def test_without_a_measure_there_is_no_ratio():
    [change] = compare([result(0.0, 0.0)], [result(1.0, 1.0)])
    assert (change.ratio, change.low, change.high) == (None, None, None)
    assert "1.000" not in changes_as_text([change])


def test_of_what_is_found_or_not_the_interval_is_of_the_difference():
    [change] = compare(
        [result(1, 1, 1, 1, 1, 0, unit="found")], [result(1, 0, 1, 0, 1, 0, unit="found")]
    )
    assert change.low < 0.5 - 5 / 6 < change.high
    assert change.high - change.low > 0.2
    assert "-0.333 [" in changes_as_text([change])


def test_a_ledger_gives_back_what_was_kept(tmp_path):
    path = tmp_path / "state/bench.jsonl"
    kept = [result(*SLOW), result(*FAST, digest="b"), result(*SLOW, kind="load")]
    for one in kept:
        ledger.append(path, one)
    assert list(ledger.read(path)) == kept


@pytest.mark.parametrize("cut", [b'{"kind": "deco', '{"kind": "decode", "at": "Zü'.encode()[:-1]])
def test_a_line_cut_short_costs_itself_only(tmp_path, cut):
    path = tmp_path / "bench.jsonl"
    ledger.append(path, result(*SLOW))
    with path.open("ab") as file:
        file.write(cut)
    assert ledger.read(path) == (result(*SLOW),)
    ledger.append(path, result(*FAST))
    ledger.append(path, result(*FAST))
    assert len(ledger.read(path)) == 3


def test_a_full_disk_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(files.os, "write", lambda file, line: len(line) - 1)
    with pytest.raises(UserError) as error:
        ledger.append(tmp_path / "bench.jsonl", result(1))
    assert error.value.code == "FILE_REFUSED"


def test_groups_are_by_what_was_measured_the_latest_last():
    kept = [result(1, digest="a"), result(2, digest="b"), result(3, digest="a")]
    found = ledger.groups(kept, "decode")
    assert [identity.config_digest for identity, _ in found] == ["b", "a"]
    assert [len(members) for _, members in found] == [1, 2]


SHORT, LONG = {"max_tokens": 50}, {"max_tokens": 400}


def test_what_was_asked_otherwise_is_another_group():
    kept = [result(1, **SHORT), result(2, **LONG), result(3, **SHORT)]
    found = [members for _, members in ledger.groups(kept, "decode")]
    assert found == [(kept[1],), (kept[0], kept[2])]


def test_the_last_two_are_of_two_things_asked_alike():
    old, other, quick = result(1, **LONG), result(2, digest="b", **LONG), result(3, **SHORT)
    assert ledger.last_two([old, quick, other], "decode") == ((old,), (other,))
    assert ledger.last_two([old, other, quick], "decode") is None
    assert ledger.last_two([old, quick], "decode") is None
    assert ledger.last_two([], "decode") is None


def test_of_two_that_are_named_those_asked_alike_are_compared():
    old, new = [result(1, **LONG), result(2, **SHORT)], [result(3, digest="b", **SHORT)]
    assert ledger.alike(old, new) == ((old[1],), (new[0],))
    assert ledger.alike(old[:1], new) is None


def test_a_day_on_which_two_things_were_measured_stands_for_the_later_one():
    other, one, again = result(1, digest="z"), result(2), result(3)
    later = [result(4, digest="y"), result(5)]
    assert ledger.alike([other, one, again], later) == ((one, again), (later[1],))


def test_a_line_without_parameters_is_read(tmp_path):
    path = tmp_path / "bench.jsonl"
    path.write_text(result(1.0).model_dump_json(exclude={"parameters"}) + "\n")
    assert ledger.read(path) == (result(1.0),)


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ((1.0,) * 10, (1.0,) * 6 + (0.0,) * 4, Verdict.SAME),  # p = 0.087
        ((1.0,) * 20, (1.0,) * 12 + (0.0,) * 8, Verdict.ONE),
        ((0.0,) * 8, (1.0,) * 8, Verdict.ONE),
        ((0.0,) * 8, (0.0,) * 8, Verdict.SAME),
    ],
)
def test_needles_are_judged_by_how_many_are_found(before, after, verdict):
    """More than half are found both times, so the medians are equal."""
    [change] = compare([result(*before, unit="found")], [result(*after, unit="found")])
    assert change.verdict is verdict
    assert change.after == pytest.approx(sum(after) / len(after))
    assert change.low <= change.after - change.before <= change.high


def test_what_is_picked_begins_with_the_word():
    kept = [result(1, digest="abc"), result(2, digest="xyz")]
    assert ledger.pick(kept, "decode", "ab") == (kept[0],)
    assert ledger.pick(kept, "decode", "2026-01") == tuple(kept)
    assert ledger.pick(kept, "load", "ab") == ()


def test_a_place_that_refuses_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError) as error:
        ledger.append(tmp_path / "file/bench.jsonl", result(1))
    assert error.value.code == "FILE_REFUSED"
