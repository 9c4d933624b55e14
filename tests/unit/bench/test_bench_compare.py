"""Verdicts of `bench compare`, and the ledger they are made from."""

import random

import pytest

from glm53ctl.bench import ledger
from glm53ctl.bench.compare import Verdict, compare
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


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (result(*FAST), result(*SLOW), Verdict.WORSE),
        (result(*SLOW), result(*FAST), Verdict.BETTER),
        (result(*SLOW, lower=True), result(*FAST, lower=True), Verdict.WORSE),
        (result(*SLOW), result(*SLOW[::-1]), Verdict.SAME),
        (result(*SLOW), result(*(value * 1.01 for value in SLOW)), Verdict.SAME),  # sure and small
        (result(*SLOW[:3]), result(*FAST[:3]), Verdict.FEW),
        (result(*SLOW), result(60.0, 75.0, 55.0, 80.0, 62.0), Verdict.SAME),  # large and unsure
    ],
)
def test_verdicts(before, after, verdict):
    [change] = compare([before], [after])
    assert change.verdict is verdict
    assert change.low <= change.ratio <= change.high


def test_results_of_one_thing_are_put_together():
    [change] = compare([result(*SLOW[:3]), result(*SLOW[3:])], [result(*FAST)])
    assert change.verdict is Verdict.BETTER
    assert change.before == 62.0


def test_a_slower_server_is_found_and_an_equal_one_is_not_accused():
    """Five runs of 2 % noise: a loss of 10 % is found, and equals are accused in 5 % of cases."""
    draw = random.Random(7)  # noqa: S311

    def runs(mean: float) -> Result:
        return result(*(draw.gauss(mean, mean * 0.02) for _ in range(5)))

    slower = [compare([runs(60)], [runs(54)])[0].verdict for _ in range(20)]
    equal = [compare([runs(60)], [runs(60)])[0].verdict for _ in range(20)]
    assert slower.count(Verdict.WORSE) >= 18
    assert equal.count(Verdict.WORSE) <= 3


def test_a_ledger_gives_back_what_was_kept(tmp_path):
    path = tmp_path / "state/bench.jsonl"
    kept = [result(*SLOW), result(*FAST, digest="b"), result(*SLOW, kind="load")]
    for one in kept:
        ledger.append(path, one)
    assert list(ledger.read(path)) == kept


def test_a_line_cut_short_costs_itself_only(tmp_path):
    path = tmp_path / "bench.jsonl"
    ledger.append(path, result(*SLOW))
    with path.open("a") as file:
        file.write('{"kind": "deco\n')
    ledger.append(path, result(*FAST))
    assert len(ledger.read(path)) == 2


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


def test_a_line_without_parameters_is_read(tmp_path):
    path = tmp_path / "bench.jsonl"
    path.write_text(result(1.0).model_dump_json(exclude={"parameters"}) + "\n")
    assert ledger.read(path) == (result(1.0),)


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ((1.0,) * 10, (1.0,) * 6 + (0.0,) * 4, Verdict.SAME),  # p = 0.087
        ((1.0,) * 20, (1.0,) * 12 + (0.0,) * 8, Verdict.WORSE),
        ((0.0,) * 8, (1.0,) * 8, Verdict.BETTER),
        ((0.0,) * 8, (0.0,) * 8, Verdict.SAME),
    ],
)
def test_needles_are_judged_by_how_many_are_found(before, after, verdict):
    """More than half are found both times, so the medians are equal."""
    [change] = compare([result(*before, unit="found")], [result(*after, unit="found")])
    assert change.verdict is verdict
    assert change.after == pytest.approx(sum(after) / len(after))
    assert change.low <= change.ratio <= change.high


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
