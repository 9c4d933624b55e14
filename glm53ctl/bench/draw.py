"""The ledger as a picture: each case over its results, run by run, beside the recipes' figures."""

from collections.abc import Sequence
from pathlib import Path

from glm53ctl.bench.result import Result, middle
from glm53ctl.plot import figure, save


def draw(results: Sequence[Result], target: Path) -> None:
    """Write the picture. `results` are of one kind, oldest first, and not empty.

    A line is of one model, asked alike: nothing else can be compared.
    """
    names = list(dict.fromkeys(case.name for result in results for case in result.cases))
    alike = list(dict.fromkeys(map(_asked, results)))
    canvas = figure(9.0, 2.2 * len(names) + 0.8)
    rows = canvas.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
    for name, axes in zip(names, rows, strict=True):
        seen = [
            (place, result, case)
            for place, result in enumerate(results)
            for case in result.cases
            if case.name == name
        ]
        for number, asked in enumerate(alike):
            cases = {place: case for place, result, case in seen if _asked(result) == asked}
            color = f"C{number % 10}"
            for place, case in cases.items():
                axes.plot([place] * len(case.values), case.values, ".", color=color, alpha=0.5)
            axes.plot(
                list(cases),
                [middle(case.unit, case.values) for case in cases.values()],
                "-o",
                color=color,
                markersize=4,
                label=asked if cases and len(alike) > 1 else None,
            )
        newest = seen[-1][2]
        for style, (who, value) in zip(("--", ":"), newest.baseline.items(), strict=False):
            axes.axhline(value, linestyle=style, color="grey", label=f"{who} {value:g}")
        if axes.get_legend_handles_labels()[1]:
            axes.legend(fontsize=7, frameon=False)
        axes.set_title(name, fontsize=9, loc="left")
        axes.set_ylabel(newest.unit, fontsize=8)
        axes.set_ylim(bottom=0)
    labels = [f"{r.at[:10]}\n{r.identity.config_digest[:8] or r.identity.engine}" for r in results]
    rows[-1].set_xticks(range(len(results)), labels, fontsize=7)
    canvas.suptitle(f"bench {results[-1].kind}", fontsize=10)
    save(canvas, target)


def _asked(result: Result) -> str:
    words = (f"{name.replace('_', ' ')} {value}" for name, value in result.parameters.items())
    return ", ".join((result.identity.model, *words))
