"""Results and comparisons as text."""

from collections.abc import Iterator, Sequence

from glm53ctl.bench.compare import Change
from glm53ctl.bench.result import Case, Result, middle


def as_text(result: Result) -> str:
    """Return a result for a terminal, with what the recipes published beside it."""
    return "\n".join(_lines(result))


def _lines(result: Result) -> Iterator[str]:
    identity = result.identity
    yield f"{result.kind}  {result.at}  engine {identity.engine or '?'}  {identity.model}"
    if result.parameters:
        said = (f"{name.replace('_', ' ')} {value}" for name, value in result.parameters.items())
        yield f"  asked with: {', '.join(said)}"
    for case in result.cases:
        spread = f"({min(case.values):.4g} to {max(case.values):.4g}, {len(case.values)} runs)"
        yield f"  {case.name:<28}{middle(case.unit, case.values):>9.4g} {case.unit}  {spread}"
        yield from (f"    {line}" for line in _details(case))
    yield from (f"  note: {note}" for note in result.notes)


def _details(case: Case) -> Iterator[str]:
    for name, times in (("first token", case.ttft_seconds), ("gap", case.gap_seconds)):
        if times:
            shown = "  ".join(f"{key} {value * 1e3:.1f}" for key, value in times.items())
            yield f"{name}, ms: {shown}"
    if case.acceptance is not None:
        rates = " ".join(f"{rate:.2f}" for rate in case.acceptance.by_position)
        yield f"acceptance: {case.acceptance.length:.2f} tokens a step; by position {rates}"
    if case.extra:
        yield "  ".join(f"{key.replace('_', ' ')} {value:.4g}" for key, value in case.extra.items())
    if case.baseline:
        yield "published: " + ", ".join(f"{who} {v:g}" for who, v in case.baseline.items())


def changes_as_text(changes: Sequence[Change]) -> str:
    """Return a comparison, one line a case."""
    return "\n".join(map(_change, changes))


def _change(one: Change) -> str:
    if one.of_difference:
        change = f"{one.after - one.before:+.3f}"
    else:
        change = "-" if one.ratio is None else f"x{one.ratio:.3f}"
    between = "-" if one.low is None or one.high is None else f"[{one.low:.3f}, {one.high:.3f}]"
    return (
        f"{one.name:<28}{one.before:>9.4g} -> {one.after:<9.4g} {one.unit:<18} "
        f"{change} {between} p={one.p:.3f}  {one.verdict}"
    )
