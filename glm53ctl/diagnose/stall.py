"""Whether a start that printed nothing for a while still moves."""

from collections.abc import Sequence

from glm53ctl.diagnose.diagnosis import Diagnosis, diagnosis
from glm53ctl.diagnose.signature import Confidence
from glm53ctl.diagnose.story import Story
from glm53ctl.findings import Severity
from glm53ctl.supervise.stages import STALL_CODES, Stage

_CALLED = {Stage.NCCL: "nccl-init"}


def judge_start(stories: Sequence[Story], now: float) -> Diagnosis | None:
    """Judge the starts that logs tell, at the time `now` (as `story.clock` counts).

    One rank that stands is enough: the other only waits for it. None when nothing is starting.
    """
    starting = [story for story in stories if story.is_starting()]
    if not starting:
        return None
    standing = [story for story in starting if story.stalled(now)]
    shown = standing or starting
    who = " and ".join(
        f"rank {story.rank}" if story.rank is not None else "the rank" for story in shown
    )
    stage = shown[0].stage or Stage.BOOT
    name = _CALLED.get(stage, stage.value)
    quiet = min(story.quiet(now) for story in shown)
    evidence = [story.last_line for story in shown]
    if not standing:
        said = f"{who}: stage {name}, the last milestone {quiet:.0f} s ago."
        return diagnosis("START_PROGRESS", Severity.OK, said, evidence=evidence)
    code = standing[0].stalled(now) or ""
    fabric = stage in STALL_CODES
    fix = "Stop both ranks, then run `glm53ctl doctor`: " + (
        "a wrong port, GID or MTU, a firewall or a half-started peer stands still like this."
        if fabric
        else "it looks at disk and memory of both nodes."
    )
    return diagnosis(
        code,
        Severity.FAIL,
        f"{who} in stage {name}: no milestone for {quiet:.0f} s.",
        fix,
        evidence,
        Confidence.LIKELY,
    )
