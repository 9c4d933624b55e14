"""`glm53ctl weights ...`: parse, call, print."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from glm53ctl.errors import EXIT_NOT_READY
from glm53ctl.findings import Finding
from glm53ctl.options import ConfigOption, JsonOption

if TYPE_CHECKING:  # the work itself is imported by the command that does it
    from glm53ctl.config.schema import Config
    from glm53ctl.weights.layout import WeightSet
    from glm53ctl.weights.progress import Progress

app = typer.Typer(no_args_is_help=True, help="Fetch, verify and share the weights.")
out = Console(highlight=False, emoji=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)

LINE_SECONDS = 5.0

SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="Override one setting: weights.streams=4.")
]
RankOption = Annotated[
    int | None, typer.Option("--rank", min=0, max=3, help="Which node this is; 0 is the head.")
]


def _sets(
    path: Path | None, overrides: list[str] | None = None
) -> "tuple[Config, tuple[WeightSet, ...]]":
    """Load the configuration and its sets. Raises UserError when the weights are local ones."""
    from glm53ctl.config.sources import load
    from glm53ctl.errors import UserError
    from glm53ctl.weights.layout import weight_sets

    config = load(path, overrides=overrides or (), rules=False).config
    sets = weight_sets(config)
    if not sets:
        raise UserError(
            "WEIGHTS_LOCAL",
            "weights.source is `local`: the directories are taken as they are.",
            "Set weights.source to `hub` to have them fetched and verified.",
        )
    return config, sets


class Terminal:
    """Shows progress: a bar on a terminal, else a line every few seconds."""

    def __init__(self, run_dir: Path) -> None:
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        self._run_dir = run_dir
        columns = (BarColumn(), TextColumn("{task.description}", markup=False))
        self.bar = Bar(*columns, console=err, transient=True)
        self._task = self.bar.add_task("", total=None)
        self._line_at = time.monotonic()

    def show(self, progress: "Progress") -> None:
        """Show a moment, and leave it where `glm53ctl status` finds it."""
        from glm53ctl.weights.progress import write_progress

        write_progress(self._run_dir, progress)
        if err.is_interactive:
            self.bar.update(
                self._task,
                total=progress.total_bytes,
                completed=progress.done_bytes,
                description=progress.sentence(),
            )
        elif time.monotonic() - self._line_at >= LINE_SECONDS:
            self._line_at = time.monotonic()
            err.print(progress.sentence(), markup=False)

    def tell(self, finding: Finding) -> None:
        """Print a verdict."""
        err.print(finding.sentence(), markup=False, style="yellow")


@contextmanager
def _watching(config: "Config") -> Iterator[tuple[Terminal, threading.Event]]:
    """Give a terminal to show progress on, and an event that ends the work."""
    from glm53ctl.weights.progress import clear_progress

    stop = threading.Event()
    run_dir = Path(config.paths.run_dir)
    terminal = Terminal(run_dir)
    try:
        if err.is_interactive:
            terminal.bar.start()
        yield terminal, stop
    finally:
        stop.set()
        terminal.bar.stop()
        clear_progress(run_dir)


@app.command()
def status(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show the sets of this node. Exit status 0 when they may be served, 3 when not."""
    from glm53ctl.weights.verdicts import gib
    from glm53ctl.weights.work import status_of

    settings, _ = _sets(config)
    found = status_of(settings)
    if as_json:
        print(found.model_dump_json())
    else:
        for each in found.sets:
            state = "verified" if each.right else "not to be served"
            out.print(
                f"{each.role:<6} {each.repo} @ {each.revision[:12]}: {state}, "
                f"{each.verified_files} of {each.files} files, "
                f"{gib(each.verified_bytes)} of {gib(each.bytes)}",
                markup=False,
            )
            for finding in each.findings:
                out.print(f"       {finding.sentence()}", markup=False)
            if each.kept:
                out.print(f"       kept for a way back: {', '.join(each.kept)}", markup=False)
        if found.progress:
            out.print(found.progress.sentence(), markup=False)
    raise typer.Exit(0 if all(each.right for each in found.sets) else EXIT_NOT_READY)


@app.command()
def fetch(
    config: ConfigOption = None,
    set_: SetOption = None,
    refresh: Annotated[
        bool, typer.Option(help="Trust no record: ask the Hub again and hash every file.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Fetch what is missing from the Hub, verify it, and switch to it."""
    from glm53ctl.weights.work import fetch_set, require_licence

    settings, sets = _sets(config, set_)
    for each in sets:
        require_licence(settings, each)
    with _watching(settings) as (terminal, stop):
        for each in sets:
            fetch_set(settings, each, terminal, stop, refresh=refresh)
    _report(settings, as_json)


@app.command()
def sync(config: ConfigOption = None, set_: SetOption = None, as_json: JsonOption = False) -> None:
    """Pull what is missing from the head over the fabric, and verify it (on a worker)."""
    from glm53ctl.weights.work import require_licence, sync_set

    settings, sets = _sets(config, set_)
    for each in sets:
        require_licence(settings, each)
    with _watching(settings) as (terminal, stop):
        for each in sets:
            sync_set(settings, each, terminal, stop)
    _report(settings, as_json)


@app.command()
def verify(
    config: ConfigOption = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Sizes, times and samples instead of every byte.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare the files with the manifest. Exit status 1 when something is not right."""
    from glm53ctl.weights.work import verify_set

    settings, sets = _sets(config)
    with _watching(settings) as (terminal, stop):
        findings = [f for each in sets for f in verify_set(each, terminal, stop, quick=quick)]
    if as_json:
        print(json.dumps([finding.model_dump(mode="json") for finding in findings]))
    else:
        for finding in findings:
            out.print(finding.sentence(), markup=False)
        if not findings:
            out.print("verified: " + ", ".join(each.role for each in sets))
    raise typer.Exit(1 if findings else 0)


@app.command()
def lock(config: ConfigOption = None, set_: SetOption = None, as_json: JsonOption = False) -> None:
    """Lock sizes and digests as the Hub gives them. A lock never changes by itself."""
    from glm53ctl.weights.work import lock_set

    settings, sets = _sets(config, set_)
    rows = []
    for each in sets:
        manifest, new = lock_set(settings, each)
        rows.append(
            {
                "role": each.role,
                "file": str(each.lock_file),
                "new": new,
                "digest": manifest.digest,
                "files": len(manifest.files),
                "bytes": manifest.total_bytes,
            }
        )
    if as_json:
        print(json.dumps(rows))
    else:
        for row in rows:
            what = "locked" if row["new"] else "unchanged"
            out.print(f"{row['role']:<6} {what}: {row['files']} files, {row['file']}", markup=False)


@app.command()
def prune(
    config: ConfigOption = None,
    dry_run: Annotated[bool, typer.Option(help="Only say what would go.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove commits that are neither pinned nor in use, and parts of unwanted files."""
    from glm53ctl.weights.verdicts import gib
    from glm53ctl.weights.work import prune_set

    _, sets = _sets(config)
    pruned = [one for each in sets for one in prune_set(each, dry_run=dry_run)]
    if as_json:
        print(json.dumps([{"path": str(one.path), "bytes": one.size} for one in pruned]))
    else:
        for one in pruned:
            out.print(f"{gib(one.size):>10}  {one.path}", markup=False)
        total = gib(sum(one.size for one in pruned))
        out.print(f"{total} {'would be removed' if dry_run else 'removed'}")


@app.command()
def run(config: ConfigOption = None, set_: SetOption = None, rank: RankOption = None) -> None:
    """Do what this node needs and stay (what the systemd unit runs)."""
    from glm53ctl.config.sources import load
    from glm53ctl.weights.service import WeightsUnit

    # Which combinations may serve is judged where one serves.
    WeightsUnit(load(config, overrides=set_ or (), rules=False).config, rank).run()


def _report(config: "Config", as_json: bool) -> None:
    from glm53ctl.weights.verdicts import gib
    from glm53ctl.weights.work import status_of

    found = status_of(config)
    if as_json:
        print(found.model_dump_json())
        return
    for each in found.sets:
        out.print(
            f"{each.role:<6} verified: {each.files} files, {gib(each.bytes)}, {each.directory}",
            markup=False,
        )
