"""Whether drafting works: from the engine's periodic line on acceptance, or from its counters."""

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from glm53ctl.diagnose.diagnosis import Diagnosis, diagnosis
from glm53ctl.findings import Finding, Severity

METRICS_LINE = "SpecDecoding metrics:"
MIN_DRAFTS = 500
"""Drafts below which acceptance is chance."""
KEPT_WINDOWS = 60
"""Newest lines that are judged; the engine prints one every ten seconds."""
GOOD_FIRST, DEAD_LATER = 0.5, 0.1
"""A first position above and third and later ones below: the block was masked causally."""

_LINE = re.compile(
    r"Drafted: (?P<drafted>\d{1,15}) tokens, "
    r"Per-position acceptance rate: (?P<rates>[\d., ]+?),? Avg"
)


@dataclass
class Acceptance:
    """Takes the engine's lines; judges their sum."""

    _windows: deque[tuple[float, tuple[float, ...]]] = field(
        default_factory=lambda: deque(maxlen=KEPT_WINDOWS)
    )
    _last: str = ""

    def feed(self, line: str) -> None:
        """Take one line that holds METRICS_LINE."""
        if not (found := _LINE.search(line)):
            return
        try:
            rates = tuple(float(rate) for rate in found["rates"].split(","))
            drafts = float(found["drafted"]) / len(rates)
        except ValueError:  # torn, or put together of two
            return
        self._windows.append((drafts, rates))
        self._last = line

    def diagnose(self) -> Diagnosis | None:
        """Return the verdict; None when nothing was drafted."""
        drafts = sum(count for count, _ in self._windows)
        width = min((len(rates) for _, rates in self._windows), default=0)
        if not drafts or not width:
            return None
        mean = [
            sum(count * rates[place] for count, rates in self._windows) / drafts
            for place in range(width)
        ]
        return judge(drafts, mean, (self._last,))


def judge(drafts: float, rates: Sequence[float], evidence: tuple[str, ...] = ()) -> Diagnosis:
    """Return what the shares of accepted tokens by position say about the draft.

    `drafts` is how many were made; `rates` are between 0 and 1, the first position first.
    """
    shown = ", ".join(f"{rate:.3f}" for rate in rates)
    if drafts < MIN_DRAFTS:
        said = f"only {drafts:.0f} drafts so far: too few to judge acceptance."
        return diagnosis("SPEC_TOO_FEW", Severity.OK, said, evidence=evidence)
    if len(rates) >= 3 and rates[0] >= GOOD_FIRST and max(rates[2:]) < DEAD_LATER:
        return diagnosis(
            "SPEC_ACCEPT_COLLAPSE",
            Severity.WARN,
            f"drafts are accepted at the first position and almost never later ({shown}): the "
            "draft's attention is causal, as TRITON_ATTN makes it.",
            "Leave spec.draft_attention and spec.draft_kv_dtype at their defaults, and check "
            "is_causal: false in the draft's config.json.",
            evidence,
        )
    said = f"acceptance by position: {shown}; its level is the text's."
    return diagnosis("SPEC_OK", Severity.OK, said, evidence=evidence)


def judge_totals(drafts: int, accepted: Sequence[int]) -> Finding | None:
    """Return what is wrong with a draft, from the engine's counters since its start.

    `accepted` are the tokens accepted at each position. None when nothing is, or nothing is known.
    """
    if not drafts or not accepted:
        return None
    found = judge(drafts, [count / drafts for count in accepted]).finding
    return found if found.severity is Severity.WARN else None
