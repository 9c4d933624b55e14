"""The snapshot for a terminal: what an operator reads in a second."""

import time
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from glm53ctl.findings import Severity
from glm53ctl.status.snapshot import Snapshot
from glm53ctl.supervise.report import Counters, Phase, RankReport, TrialState
from glm53ctl.watchdog.report import WatchdogReport

_STYLES = {
    "ready": "bold green",
    "starting": "yellow",
    "pairing": "yellow",
    "waiting": "yellow",
    "ending": "yellow",
    "stopped": "dim",
    "down": "bold red",
    "blocked": "bold red",
    "refused": "bold red",
    "held": "bold red",
}
_SEVERITY_STYLES = {Severity.FAIL: "red", Severity.WARN: "yellow", Severity.OK: "green"}
_NAME_CELLS = 24
_BAR_CELLS = 4
"""A load of seven-digit pids and names such as spark-worker fits into 80 columns."""


def render(snapshot: Snapshot) -> RenderableType:
    """Return the snapshot as a headline, a table of ranks, and what deserves attention."""
    parts: list[RenderableType] = [_headline(snapshot), "", _ranks(snapshot)]
    if notes := _notes(snapshot):
        parts += ["", _attention(notes)]
    return Group(*parts)


def _headline(snapshot: Snapshot) -> Text:
    line = Text()
    line.append("glm53 ", style="bold")
    line.append(snapshot.state, style=_STYLES.get(snapshot.state, ""))
    engines = sorted({r.engine.version for r in snapshot.ranks if r.engine.version})
    facts = [snapshot.model, snapshot.endpoint, *(f"vllm {version}" for version in engines)]
    line.append("  " + "  ".join(facts))
    return line


def _ranks(snapshot: Snapshot) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("rank", "node", "state", "for", "epoch", "pid", "memory"):
        table.add_column(column, no_wrap=True)
    table.add_column("stage", overflow="fold")  # this one goes on below where it is too narrow
    for report in snapshot.ranks:
        table.add_row(*_row(report, snapshot.time))
    for rank in snapshot.missing:
        table.add_row(str(rank), "", Text("no word", style="red"))
    return table


def _row(report: RankReport, now: float) -> tuple[str | Text, ...]:
    pid, memory = report.engine.pid, report.memory_available_gib
    return (
        str(report.rank),
        report.node,
        Text(report.phase.value, style=_STYLES.get(report.phase.value, "")),
        duration(now - report.since),
        str(report.epoch),
        "" if pid is None else str(pid),
        "" if memory is None else f"{memory:.1f} GiB",
        _stage(report),
    )


def _stage(report: RankReport) -> str:
    if report.stage is None or report.phase not in (Phase.STARTING, Phase.READY):
        return ""
    if report.compiling is not None:
        return f"{report.stage.value}, compiling {report.compiling[:_NAME_CELLS]}"
    if report.percent is None:
        return report.stage.value
    filled = report.percent * _BAR_CELLS // 100
    return f"{report.stage.value} {'━' * filled}{'╌' * (_BAR_CELLS - filled)} {report.percent}%"


def _notes(snapshot: Snapshot) -> list[tuple[str, str, str]]:
    """Return (label, text, style) of all that follows the table."""
    notes = []
    counters = next((r.counters for r in snapshot.ranks if r.counters is not None), None)
    if snapshot.ready and counters is not None:
        notes.append(("requests", _traffic(counters), ""))
    if snapshot.watchdog is not None:
        notes.append(("watchdog", _watch(snapshot.watchdog), ""))
    notes += _switch(snapshot.ranks)
    for finding in snapshot.findings:
        notes.append((finding.code, finding.message, _SEVERITY_STYLES[finding.severity]))
    if snapshot.last_loss is not None:
        loss = snapshot.last_loss
        text = f"{_moment(loss.at, snapshot.time)}, epoch {loss.epoch}: {loss.code}: {loss.message}"
        notes.append(("last incident", text, ""))
        if loss.cause is not None:
            notes.append(("its cause", f"{loss.cause.code}: {loss.cause.message}", ""))
            notes.append(("its remedy", loss.cause.fix, ""))
    if snapshot.next_step:
        notes.append(("next step", snapshot.next_step, "bold"))
    return notes


def _moment(at: float, now: float) -> str:
    """Return a time of the day, and of which day unless it is today."""
    then, today = time.localtime(at), time.localtime(now)
    day = "" if then[:3] == today[:3] else "%Y-%m-%d "
    return time.strftime(f"{day}%H:%M:%S", then)


def _switch(ranks: Sequence[RankReport]) -> list[tuple[str, str, str]]:
    """Return what the pair was switched to, and a switch that is on trial or was taken back."""
    notes = []
    switched = next((report.switched for report in ranks if report.switched), None)
    trial = next((report.trial for report in ranks if report.trial is not None), None)
    if switched is not None:
        notes.append(("switched to", switched, "yellow"))
    if trial is not None and trial.state is not TrialState.KEPT:
        reason = f": {trial.reason}" if trial.reason else ""
        notes.append(("last switch", f"to {trial.to}, {trial.state.value}{reason}", ""))
    return notes


def _watch(watchdog: WatchdogReport) -> str:
    ranks = ", ".join(map(str, watchdog.watches)) or "no rank yet"
    left = watchdog.memory_available_gib
    memory = "" if left is None else f"; {left:.1f} GiB of memory left"
    refuses = ", new work is to be refused" if watchdog.refuses is not None else ""
    return f"watches {'rank ' if watchdog.watches else ''}{ranks}{memory}{refuses}"


def _traffic(counters: Counters) -> str:
    text = (
        f"{counters.running} running, {counters.waiting} waiting; "
        f"{counters.prompt_tokens:,} tokens read, {counters.generated_tokens:,} written; "
        f"KV cache {100 * counters.kv_usage:.1f} % used"
    )
    if counters.drafted_tokens:
        text += (
            f"; {100 * counters.accepted_tokens / counters.drafted_tokens:.0f} % of drafts taken"
        )
    return text


def _attention(notes: Sequence[tuple[str, str, str]]) -> RenderableType:
    """Lay out the notes: labels in one column, what they say in the other."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for label, text, style in notes:
        grid.add_row(label, Text(text, style=style))
    return grid


def duration(seconds: float) -> str:
    """Return a duration in the two units that matter."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60}s"
    if whole < 86_400:
        return f"{whole // 3600}h {whole % 3600 // 60}m"
    return f"{whole // 86_400}d {whole % 86_400 // 3600}h"
