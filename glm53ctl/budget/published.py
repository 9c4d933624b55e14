"""Every published figure of pool and speed, beside what we predict. `make plan-table` prints it.

A row says what is given to the prediction: settings, and for pools the bytes or blocks where only
the planner's arithmetic is compared. What a publication leaves out and the figure itself shows,
such as the context it was logged with, is said in `note`.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

from glm53ctl.budget.kv import pool
from glm53ctl.budget.machine import GB10, GIB, H200, Machine
from glm53ctl.budget.memory import budget, indexer_rows_bytes
from glm53ctl.budget.settings import Settings
from glm53ctl.budget.speed import TOKENS_A_STEP, decode, prefill_rate

WITHIN = 0.10

RECIPE = Settings(draft_block=64, prefill_checkpoint=0, pooled_indexer=False)
"""The vLLM recipe as its figures show it: an older engine, blocks of 64 for the draft."""
CHUNKY = replace(RECIPE, batch=7168)
TENSORFOLD = Settings(context=1_048_576, dense="q4")


@dataclass(frozen=True)
class Row:
    """One figure: where it stands, what it is of, its value, ours. `fitted`: used for fitting."""

    source: str
    figure: str
    published: float
    predicted: float
    note: str = ""
    fitted: bool = False

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted / self.published - 1

    @property
    def within(self) -> bool:
        """Whether the prediction is within 10 % of the figure."""
        return abs(self.error) <= WITHIN


def rows() -> tuple[Row, ...]:
    """Return all figures."""
    return (*_pools(), *_decodes(), *_prefills())


def _tokens(settings: Settings, machine: Machine, *, blocks: int) -> int:
    size = pool(settings, machine, 0).block_bytes
    return pool(settings, machine, blocks * size).tokens


def _request_gib(settings: Settings) -> float:
    return pool(settings, GB10, 0).request_bytes / GIB


def _pools() -> Iterator[Row]:
    at_850k = replace(CHUNKY, context=850_000)
    million = replace(CHUNKY, context=1_000_000)
    whole = budget(at_850k, GB10)
    yield Row(
        "seed 1, K02", "pool, GiB, 0.87", 15.67, whole.pool.nbytes / GIB,
        "850k, 7168; of the whole memory model, with our experts' workspace",
    )  # fmt: skip
    yield Row("seed 1, K02", "pool, tokens, 0.87", 982_612, whole.pool.tokens, "850k, 7168")
    literal = pool(RECIPE, GB10, round(15.67 * GIB))
    yield Row(
        "seed 1, V12", "the same tokens, with the settings that stand beside them", 982_612,
        literal.tokens, "900k, 1024: the figure is of another configuration",
    )  # fmt: skip
    yield Row("K02, 29 Aug", "pool, GiB, 0.87", 18.67, budget(RECIPE, GB10).pool.nbytes / GIB)
    yield Row("K02, 29 Aug", "tokens of 690 blocks", 1_754_237, _tokens(RECIPE, GB10, blocks=690))
    unlogged = replace(CHUNKY, utilization=0.85, estimate_graphs=False)
    yield Row("K02", "pool, tokens, 900k, 0.85", 989_010, budget(unlogged, GB10).pool.tokens)
    yield Row("BV11, K02", "tokens of 14 GiB, 850k", 883_552, pool(at_850k, GB10, 14 * GIB).tokens)
    native = Settings(context=850_000, batch=7168, prefill_checkpoint=0)
    compact = pool(native, GB10, 14 * GIB)
    yield Row(
        "K02, 26 Sep", "tokens of 14 GiB, 850k, compact draft pages", 1_572_073, compact.tokens,
        "compact pages are a patch of the recipe; ours are the engine's own",
    )  # fmt: skip
    slow = replace(million, batch=2048)
    yield Row("K02, BV25", "tokens of 643 blocks", 1_553_140, _tokens(slow, GB10, blocks=643))
    rightsized = replace(million, pooled_indexer=True, estimate_graphs=False)
    yield Row(
        "K02, 1 Sep", "pool, tokens, 1M", 1_243_902, budget(rightsized, GB10).pool.tokens,
        "share and patches of that day are not published",
    )  # fmt: skip
    yield Row("BV11", "one request of 1M, GiB", 14.52, _request_gib(million))
    yield Row(
        "BV11", "one request of 500k, GiB", 10.98, _request_gib(replace(CHUNKY, context=500_000))
    )
    yield Row("BV14", "one request of 850k, GiB", 13.56, _request_gib(at_850k))
    yield Row(
        "BV13", "indexer workspace of 1M, MB", 5036.40,
        indexer_rows_bytes(million) / 2**20,
    )  # fmt: skip
    for day, figure in (("seed 2, T04", 2_684_928), ("K02", 2_922_496)):
        theirs = budget(TENSORFOLD, GB10).pool.tokens
        yield Row(day, "pool, tokens, 1M", figure, theirs, "another engine: no blocks, no states")
    tiny = Settings(ranks=1, context=4096, method="none", drafted=0, vision=False)
    seen = pool(tiny, H200, round(57.5 * GIB), kda_layers=6, mla_layers=2)
    yield Row(
        "gpu.md", "tokens of 57.5 GiB, 8 layers on one H200", 2_534_679, seen.tokens,
        "that model pools 16 tokens an indexer row, the real one 4",
    )  # fmt: skip


def _speed(settings: Settings, streams: int, text: str, *, depth: int = 0) -> float:
    return streams * TOKENS_A_STEP[text] / decode(settings, GB10, streams, depth=depth).expected


def _decodes() -> Iterator[Row]:
    seed = replace(RECIPE, draft_ranks=1)
    for streams, figure in ((1, 62.9), (2, 103.3), (4, 146.5)):
        yield Row(
            "seed 1, V51", f"structured, {streams} streams, tok/s", figure,
            _speed(seed, streams, "structured"), fitted=True,
        )  # fmt: skip
    yield Row("seed 1, V51", "structured, median, tok/s", 61.7, _speed(seed, 1, "structured"))
    yield Row("seed 1, V51", "prose, median, tok/s", 26.9, _speed(seed, 1, "prose"))
    yield Row(
        "seed 1, V51",
        "prose at 80k cached, tok/s",
        25.5,
        _speed(seed, 1, "prose", depth=80_000),
        "published: 24 to 27",
    )
    yield Row(
        "K05", "structured, draft on both ranks, tok/s", 65.1, _speed(RECIPE, 1, "structured")
    )
    yield Row("exl3.md", "prose, draft on both ranks, tok/s", 27.1, _speed(RECIPE, 1, "prose"))
    fp8 = replace(RECIPE, dense="fp8")
    gain = _speed(fp8, 1, "structured") / _speed(RECIPE, 1, "structured")
    yield Row("BV17", "decode with dense FP8, ratio", 1.10, gain)
    other = "another engine and quantisation; copied drafts raise its tokens a step"
    for text, streams, figure in (
        ("prose", 1, 60.4), ("prose", 4, 108.8), ("structured", 1, 114.7),
        ("structured", 4, 227.9), ("prose", 8, 130.8),
    ):  # fmt: skip
        yield Row(
            "seed 2, T43", f"{text}, {streams} streams, tok/s", figure,
            _speed(TENSORFOLD, streams, text), other,
        )  # fmt: skip


def _prefills() -> Iterator[Row]:
    for source, figure, tokens, settings, note in (
        ("seed 2, T43", 1952, 8_219, TENSORFOLD, "another engine's kernels"),
        ("seed 2, T43", 1015, 981_841, TENSORFOLD, "another engine's kernels"),
        ("seed 2, T38", 64_000 / 34, 64_000, TENSORFOLD, "another engine's kernels"),
        ("seed 2, T38", 7_900 / 4.24, 7_900, TENSORFOLD, "another engine's kernels"),
        ("BV18", 1155, 16_000, CHUNKY, "before the recipe's own kernel for crowded experts"),
        ("BV18", 1578, 16_000, CHUNKY, "with it; ours decodes again every 16 rows"),
        ("BV18", 1087, 256_000, CHUNKY, "before it"),
        ("BV18", 1576, 256_000, CHUNKY, "with it"),
    ):
        predicted = prefill_rate(settings, GB10, tokens)
        yield Row(source, f"prefill of {tokens}, tok/s", round(figure), predicted, note)


def summary(found: tuple[Row, ...]) -> dict[str, float]:
    """Return the count, how many are within 10 %, and the worst error (relative, signed)."""
    worst = max((row.error for row in found), key=abs)
    return {
        "figures": len(found),
        "within_10_percent": sum(row.within for row in found),
        "worst_error": round(worst, 3),
    }


def table(found: tuple[Row, ...]) -> str:
    """Return the figures as a table in Markdown."""
    lines = ["| source | figure | published | predicted | error | note |", "|" + "---|" * 6]
    for row in found:
        note = "; ".join(word for word in ("fitted" if row.fitted else "", row.note) if word)
        values = (_number(value) for value in (row.published, row.predicted))
        error = f"{row.error:+.1%}" if row.within else f"**{row.error:+.1%}**"
        cells = (row.source, row.figure, *values, error, note)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value > 1000 else f"{value:.4g}"


if __name__ == "__main__":
    print(table(rows()), json.dumps(summary(rows())), sep="\n")
