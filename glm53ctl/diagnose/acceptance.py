"""Whether drafting works, read off the engine's periodic line on acceptance."""

import re
from collections import deque
from dataclasses import dataclass, field

from glm53ctl.diagnose.diagnosis import Diagnosis, diagnosis
from glm53ctl.findings import Severity

METRICS_LINE = "SpecDecoding metrics:"
MIN_DRAFTS = 500
"""Drafts below which acceptance is chance."""
KEPT_WINDOWS = 60
"""Newest lines that are judged; the engine prints one every ten seconds."""
GOOD_FIRST, DEAD_LATER = 0.5, 0.1
"""A first position above and third and later ones below: the block was masked causally."""

_LINE = re.compile(
    r"Drafted: (?P<drafted>\d+) tokens, Per-position acceptance rate: (?P<rates>[\d., ]+?),? Avg"
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
        rates = tuple(float(rate) for rate in found["rates"].split(","))
        self._windows.append((int(found["drafted"]) / len(rates), rates))
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
        shown = ", ".join(f"{rate:.3f}" for rate in mean)
        if drafts < MIN_DRAFTS:
            said = f"only {drafts:.0f} drafts so far: too few to judge acceptance."
            return diagnosis("SPEC_TOO_FEW", Severity.OK, said, evidence=(self._last,))
        if width >= 3 and mean[0] >= GOOD_FIRST and max(mean[2:]) < DEAD_LATER:
            return diagnosis(
                "SPEC_ACCEPT_COLLAPSE",
                Severity.WARN,
                f"drafts are accepted at the first position and almost never later ({shown}): the "
                "draft's attention is causal, as TRITON_ATTN makes it.",
                "Leave spec.draft_attention and spec.draft_kv_dtype at their defaults, and check "
                "is_causal: false in the draft's config.json.",
                (self._last,),
            )
        said = f"acceptance by position: {shown}; its level is the text's."
        return diagnosis("SPEC_OK", Severity.OK, said, evidence=(self._last,))
