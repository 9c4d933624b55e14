"""`glm53ctl doctor`: look at this host, or at what was recorded of others."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from glm53ctl.config.schema import Config
from glm53ctl.errors import EXIT_NOT_READY, UserError
from glm53ctl.facts.here import require_rank
from glm53ctl.options import ConfigOption

if TYPE_CHECKING:
    from glm53ctl.checks.doctor import Report

# The rest is imported where it is used: other commands shall not pay for it.


class _SeveralFiles(TyperGroup):
    """`--facts A B` is `--facts A --facts B`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words: list[str] = []
        for word in args:
            several = len(words) > 1 and words[-2] == "--facts" and not word.startswith("-")
            words += ["--facts", word] if several else [word]
        return super().parse_args(ctx, words)


app = typer.Typer(cls=_SeveralFiles, invoke_without_command=True)

RankOption = Annotated[
    int | None, typer.Option("--rank", min=0, max=3, help="Rank of this host; found by address.")
]


def _look_here(config: Config, rank: int) -> "Report":
    """Judge this host, which is the one of a rank."""
    from glm53ctl.checks import Node
    from glm53ctl.checks.doctor import examine
    from glm53ctl.checks.wanted import from_config
    from glm53ctl.facts.node import probe_node

    facts = probe_node(config, rank)
    return examine([Node(facts, from_config(config, rank), serving=_has_engine(config, rank))])


def _has_engine(config: Config, rank: int) -> bool:
    """Say whether the rank's engine is at work: memory and ports are its own then."""
    from glm53ctl.supervise.control import Request, ask, socket_path

    with contextlib.suppress(UserError):  # somebody else's pair: what it holds is not ours
        answer = ask(socket_path(Path(config.paths.run_dir), rank), Request(action="report"))
        report = answer.report if answer else None
        return report is not None and report.engine.pid is not None
    return False


@app.callback()
def doctor(
    context: typer.Context,
    config: ConfigOption = None,
    as_json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    facts: Annotated[
        list[Path] | None, typer.Option("--facts", help="Recorded facts of a node; repeat it.")
    ] = None,
    rank: RankOption = None,
) -> None:
    """Find what stops a start: on this host or on recorded facts. Exit status 3 with failures."""
    from glm53ctl.checks.doctor import as_json, as_text, examine, merged, read_facts, recorded
    from glm53ctl.config.sources import load

    if context.invoked_subcommand is not None:
        return
    if facts:
        report = merged([examine(group) for group in recorded(read_facts(facts))])
    else:
        settings = load(config, rules=False).config
        report = _look_here(settings, require_rank(settings, rank))
    print(as_json(report) if as_json_ else as_text(report))
    raise typer.Exit(EXIT_NOT_READY if report.failures else 0)


@app.command("record")
def doctor_record(
    file: Annotated[Path, typer.Argument(help="Where to write it; - prints it.")] = Path("-"),
    config: ConfigOption = None,
    rank: RankOption = None,
    addresses: Annotated[bool, typer.Option(help="Leave public addresses as they are.")] = False,
) -> None:
    """Write the facts of this host for a report: without keys, prompts and public addresses."""
    from glm53ctl.checks.record import bundle
    from glm53ctl.config.sources import load
    from glm53ctl.facts.node import probe_node

    settings = load(config, rules=False).config
    here = require_rank(settings, rank)
    text = bundle(probe_node(settings, here), settings, addresses=addresses)
    if str(file) == "-":
        print(text)
        return
    try:
        file.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(
            "FILE_REFUSED", f"{file}: {error.strerror}.", "Name another place."
        ) from error
