"""`glm53ctl explain`."""

import io
import json
import select
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from glm53ctl.config.sources import load
from glm53ctl.diagnose.exhibits import Exhibit, Kind, explain
from glm53ctl.diagnose.story import clock
from glm53ctl.errors import EXIT_NOT_READY, UserError
from glm53ctl.findings import Severity
from glm53ctl.options import ConfigOption, JsonOption
from glm53ctl.status.logs import newest_log

PIPE_SECONDS = 5.0
"""How long a pipe that was not named may take to its first byte; one named `-` takes its time."""


def explain_command(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE|-]...",
            help="Logs, answers, records; -: a pipe. Default: the newest logs.",
        ),
    ] = None,
    request: Annotated[
        list[Path] | None, typer.Option(help="The body of a request, as JSON.")
    ] = None,
    config: ConfigOption = None,
    now: Annotated[
        str | None, typer.Option(help="Judge silence as of then: '09-20 10:05:30'.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Name the cause and the next step in a log or an answer. Exit status 3 with failures."""
    if now is not None and clock(now) is None:
        message = f"--now {now} is no time of a log."
        raise UserError("TIME_UNREADABLE", message, "Write it as logs do: '09-20 10:05:30'.")
    named = files or ([] if request else _default(config))
    with ExitStack() as opened:
        exhibits = [Exhibit(str(path), _open(path, opened)) for path in named]
        exhibits += [
            Exhibit(str(path), _open(path, opened), Kind.REQUEST) for path in request or ()
        ]
        found = explain(exhibits, now)
    if as_json:
        print(
            json.dumps(
                [
                    {
                        **one.finding.model_dump(mode="json"),
                        "confidence": one.confidence.value,
                        "stage": one.stage.value if one.stage else None,
                    }
                    for one in found
                ]
            )
        )
    else:
        print("\n".join(one.render() for one in found) or "nothing known is wrong here")
    failed = any(one.finding.severity is Severity.FAIL for one in found)
    raise typer.Exit(EXIT_NOT_READY if failed else 0)


def _is_terminal() -> bool:
    return sys.stdin is None or sys.stdin.isatty()


def _is_told() -> bool:
    """Say whether a pipe brings anything soon: ssh hands over one that nobody writes to."""
    stream = sys.stdin.buffer
    if not isinstance(stream, io.BufferedReader):
        return True
    ready, _, _ = select.select([stream], [], [], PIPE_SECONDS)
    return bool(ready and stream.peek(1))


def _default(config: Path | None) -> list[Path]:
    """Return what is explained when nothing is named: a pipe, else the newest logs of this host."""
    if not _is_terminal() and _is_told():
        return [Path("-")]
    settings = load(config, rules=False).config
    logs = [newest_log(settings, rank) for rank in range(settings.world_size)]
    if not any(logs):
        raise UserError(
            "LOG_NONE",
            f"no engine has run on this host ({settings.paths.state_dir}/logs).",
            "Name a file, or run this command on the other node.",
        )
    return [log for log in logs if log is not None]


def _open(path: Path, opened: ExitStack) -> BinaryIO:
    if str(path) == "-":
        return sys.stdin.buffer
    try:
        return opened.enter_context(path.open("rb"))
    except OSError as error:
        message = f"{path}: cannot read it: {error.strerror}."
        raise UserError("FILE_UNREADABLE", message) from None
