"""The ledger as a picture: each case over its results, run by run, beside the recipes' figures."""

from collections.abc import Sequence
from pathlib import Path

from glm53ctl.bench.result import Result, middle
from glm53ctl.plot import figure, save


def draw(results: Sequence[Result], target: Path) -> None:
    """Write the picture. `results` are of one kind, oldest first, and not empty."""
    names = list(dict.fromkeys(case.name for result in results for case in result.cases))
    canvas = figure(9.0, 2.2 * len(names) + 0.8)
    rows = canvas.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
    for name, axes in zip(names, rows, strict=True):
        seen = [
            (place, case)
            for place, result in enumerate(results)
            for case in result.cases
            if case.name == name
        ]
        for place, case in seen:
            axes.plot([place] * len(case.values), case.values, ".", color="tab:blue", alpha=0.5)
        axes.plot(
            [place for place, _ in seen],
            [middle(case.unit, case.values) for _, case in seen],
            "-o",
            color="tab:blue",
            markersize=4,
        )
        newest = seen[-1][1]
        for style, (who, value) in zip(("--", ":"), newest.baseline.items(), strict=False):
            axes.axhline(value, linestyle=style, color="grey", label=f"{who} {value:g}")
        if newest.baseline:
            axes.legend(fontsize=7, frameon=False)
        axes.set_title(name, fontsize=9, loc="left")
        axes.set_ylabel(newest.unit, fontsize=8)
        axes.set_ylim(bottom=0)
    labels = [f"{r.at[:10]}\n{r.identity.config_digest[:8] or r.identity.engine}" for r in results]
    rows[-1].set_xticks(range(len(results)), labels, fontsize=7)
    canvas.suptitle(f"bench {results[-1].kind}", fontsize=10)
    save(canvas, target)
