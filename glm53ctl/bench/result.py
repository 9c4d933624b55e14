"""What a bench measured, as it is printed and kept."""

from collections.abc import Sequence
from statistics import mean, median
from typing import Literal

from pydantic import BaseModel, ConfigDict

Kind = Literal["decode", "prefill", "prefix", "needle", "agents", "load"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Identity(_Model):
    """What was measured: runs are compared only by these. Empty where it could not be known."""

    closure: str = ""
    config_digest: str = ""
    engine: str = ""
    tool: str = ""
    model: str = ""


class Acceptance(_Model):
    """What drafting yielded meanwhile, from the engine's counters.

    `length` is tokens a step, the target's own included; `by_position` the share of drafts whose
    token at that position was accepted.
    """

    drafts: int
    length: float
    by_position: tuple[float, ...]


Parameters = dict[str, bool | int | tuple[float, ...]]

SHARES = frozenset({"found"})
"""Units whose runs are 0 or 1: their middle is the mean, as a median would hide all but a half."""


def middle(unit: str, values: Sequence[float]) -> float:
    """Return the one number that stands for runs in a unit."""
    return mean(values) if unit in SHARES else median(values)


class Case(_Model):
    """One case of a bench: `values` are its runs in `unit`, higher is better unless said.

    `extra` holds what else was seen (prompt tokens, reuse, found); `baseline` what a recipe
    published for the same.
    """

    name: str
    unit: str
    values: tuple[float, ...]
    lower_is_better: bool = False
    ttft_seconds: dict[str, float] = {}
    gap_seconds: dict[str, float] = {}
    acceptance: Acceptance | None = None
    baseline: dict[str, float] = {}
    extra: dict[str, float] = {}


class Result(_Model):
    """One bench. `at` is UTC, ISO 8601; `ok` whether all answers were sane.

    `parameters` are those that no case's name says and that change what is measured: only results
    with the same ones are compared. Results of before they were kept have none.
    """

    kind: Kind
    at: str
    identity: Identity
    parameters: Parameters = {}
    cases: tuple[Case, ...]
    ok: bool = True
    notes: tuple[str, ...] = ()
