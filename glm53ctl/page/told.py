"""What the page is told: the view without what stays on the machine, and what it draws.

Nobody is asked for a key here. So log lines stay out, which may quote what a client sent.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from glm53ctl.findings import Finding, Severity
from glm53ctl.page.progress import Progress
from glm53ctl.supervise.stages import ORDER, Stage
from glm53ctl.view.model import PairView

KEPT_BACK = frozenset({"evidence", "peers"})
"""Lines of logs, and reports within reports."""

Tone = Literal["ok", "busy", "warn", "bad", "idle"]
_TONES: Mapping[str, Tone] = {
    "ready": "ok",
    "starting": "busy",
    "pairing": "busy",
    "waiting": "busy",
    "ending": "busy",
    "stopped": "idle",
    "down": "bad",
    "blocked": "bad",
    "refused": "bad",
    "held": "bad",
}

Point = dict[str, float | None]


class Headline(BaseModel):
    """The state in one word, why in one sentence, and what to do. `tone` is its colour."""

    model_config = ConfigDict(frozen=True)

    word: str
    tone: Tone
    sentence: str = ""
    fix: str = ""


class Told(BaseModel):
    """One message to a browser. Without a `view`, `headline` says why there is none."""

    model_config = ConfigDict(frozen=True)

    headline: Headline
    view: PairView | None = None
    progress: tuple[Progress, ...] = ()
    stages: tuple[Stage, ...] = tuple(stage for stage in ORDER if stage is not Stage.SERVING)
    point: Point = {}

    def text(self) -> str:
        """Return it as JSON of one line."""
        return json.dumps(_told(self.model_dump(mode="json")), separators=(",", ":"))


def _told(value: object) -> object:
    """Leave out what is kept back; JSON has no word for infinity."""
    if isinstance(value, dict):
        return {key: _told(inner) for key, inner in value.items() if key not in KEPT_BACK}
    if isinstance(value, list):
        return [_told(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def tell(view: PairView, progress: Sequence[Progress] = ()) -> Told:
    """Return what is told of a view."""
    return Told(headline=headline(view), view=view, progress=tuple(progress), point=point(view))


def tell_trouble(sentence: str) -> Told:
    """Return what is told where no view can be had."""
    return Told(headline=Headline(word="unknown", tone="bad", sentence=sentence))


def headline(view: PairView) -> Headline:
    """Return the state. A pair that serves with something wrong is *degraded*."""
    snapshot = view.snapshot
    doubts = (*(f for f in snapshot.findings if f.severity is not Severity.OK), *_unplugged(view))
    worst = min(doubts, key=lambda finding: finding.severity is not Severity.FAIL, default=None)
    if snapshot.ready and worst is None:
        sentence = f"Serves {snapshot.model} to its clients."
        return Headline(word="ready", tone="ok", sentence=sentence)
    word, tone = (
        ("degraded", "warn") if snapshot.ready else (snapshot.state, _TONES[snapshot.state])
    )
    if worst is None:
        return Headline(word=word, tone=tone, sentence=snapshot.next_step)
    return Headline(word=word, tone=tone, sentence=worst.message, fix=worst.fix)


def _unplugged(view: PairView) -> Iterator[Finding]:
    """Yield what the sensors show between two starts, when nobody checks the rails."""
    for node in view.nodes:
        for rail in node.rails or ():
            if rail.lost:
                message = f"Rail {rail.name} of {node.name} has no carrier."
                yield Finding(code="NET_RAIL_DOWN", severity=Severity.WARN, message=message)


def point(view: PairView) -> Point:
    """Return the numbers of a view that are drawn over time; None where one is not known."""
    engine = view.engine
    drawn: Point = {"at": view.at}
    if engine is not None:
        drawn |= {
            "decode": engine.generation_tokens_per_s,
            "prefill": engine.prompt_tokens_per_s,
            "ttft": None if engine.ttft_s is None else engine.ttft_s.p50,
            "requests": engine.running + engine.waiting,
            "kv": engine.kv_pool_used,
        }
    for node in view.nodes:
        if node.memory is not None:
            drawn[f"memory{node.rank}"] = node.memory.available_gib
        heat = [gpu.temperature_c for gpu in node.gpus or () if gpu.temperature_c is not None]
        if heat:
            drawn[f"heat{node.rank}"] = max(heat)
    return drawn
