"""The command line: parse, call, print. Every decision is made elsewhere."""

import errno
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from glm53ctl.budget.commands import plan_command
from glm53ctl.config.schema import Config, Paths, Watchdog
from glm53ctl.config.sources import ConfigError, Loaded, load
from glm53ctl.errors import EXIT_BAD_INPUT, EXIT_NOT_READY, UserError
from glm53ctl.options import ConfigOption, JsonOption
from glm53ctl.rooms import Program
from glm53ctl.status.snapshot import gather

if TYPE_CHECKING:
    from rich.console import Console

    from glm53ctl.supervise.local import LocalPair

# The rest is imported where it is used: `status` shall not pay for what it does not need.

WATCH_SECONDS = 0.5

app = typer.Typer(
    cls=Program,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="One GLM-5.3-Flash server on two DGX Sparks: start it, watch it, ask why not.",
)
config_app = typer.Typer(no_args_is_help=True, help="Show, check and import configurations.")
plan_app = typer.Typer(invoke_without_command=True, callback=plan_command)
engine_app = typer.Typer(no_args_is_help=True, help="Install and check the CPU engine.")
overlay_app = typer.Typer(no_args_is_help=True, help="Check the plugin in the engine.")
app.add_typer(config_app, name="config")
app.add_typer(plan_app, name="plan")
app.add_typer(engine_app, name="engine")
app.add_typer(overlay_app, name="overlay")


SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="Override one setting: serve.max_num_seqs=2.")
]


@cache
def out() -> "Console":
    """Return the console of standard output, made when it is used: JSON is printed without one."""
    from rich.console import Console

    return Console(highlight=False, emoji=False)


@cache
def err() -> "Console":
    """Return the console of standard error."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)


def _load(
    path: Path | None,
    overrides: list[str] | None = None,
    *,
    warn: bool = False,
    rank: int | None = None,
) -> Loaded:
    """Load the configuration to use it; with `warn`, say what is allowed but doubtful.

    `rank` is this host's; left out, it is found by its address.
    """
    here = _rank_here(path) if rank is None else rank
    loaded = load(path, overrides=overrides or (), rank=here)
    for finding in loaded.findings if warn else ():
        err().print(finding.sentence(), style="yellow", markup=False)
    return loaded


def _rank_here(path: Path | None) -> int | None:
    """Return which rank this host is; None also where the configuration cannot tell."""
    from glm53ctl.facts.here import rank_here

    with suppress(UserError):
        return rank_here(load(path, rules=False).config)
    return None


def _look_up(path: Path | None) -> Config:
    """Load the configuration to find the pair: whether it may be started is not the question."""
    return load(path, rules=False).config


# --- running -------------------------------------------------------------------------------------


@app.command()
def rank(
    number: Annotated[int, typer.Argument(min=0, max=3, help="0 is the head.")],
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Supervise one rank in the foreground (what the systemd units run)."""
    import asyncio

    from glm53ctl.supervise.control import only_one
    from glm53ctl.supervise.rank import RankSupervisor

    logging.basicConfig(level=logging.INFO, format=f"rank {number}: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    settings = _load(config, set_, warn=True, rank=number).config
    nodes = settings.nodes
    if number >= len(nodes):
        raise UserError("RANK_UNKNOWN", f"there is no rank {number}: `nodes` lists {len(nodes)}.")
    supervisor = RankSupervisor(
        number, lambda: load(config, overrides=set_ or (), rank=number).config
    )
    with only_one(Path(settings.paths.run_dir), number):
        try:
            asyncio.run(supervisor.run())
        except UserError as error:  # 2 means something that starting again does not mend
            raise UserError(error.code, error.message, error.fix, exit_code=1) from error


@app.command()
def up(config: ConfigOption = None, set_: SetOption = None) -> None:
    """Run all ranks of a one-host configuration in the foreground."""
    from glm53ctl.supervise.local import LocalPair, require_local, require_startable

    loaded = _load(config, set_, warn=True)
    require_local(loaded.config)
    require_startable(loaded.config)
    pair = LocalPair(loaded.config, _options(config, set_))
    with _stopped_at_end(pair):
        with _files_usable():
            pair.start()
        _watch_pair(loaded.config, pair.tend)


def _options(config: Path | None, set_: list[str] | None) -> list[str]:
    """Return the options that make a rank read the same configuration."""
    options = [] if config is None else ["--config", str(config.resolve())]
    return options + [word for item in set_ or () for word in ("--set", item)]


@app.command()
def down(config: ConfigOption = None) -> None:
    """Stop the pair; running requests may finish."""
    from glm53ctl.supervise.orders import stop

    try:
        settings = _look_up(config)
    except ConfigError as error:  # the pair may serve all the same, with what it has read
        error.fix = f"{error.fix} To stop without it: `systemctl stop glm53.target`.".lstrip()
        raise
    stop(settings)
    out().print("stopped")


@app.command()
def restart(config: ConfigOption = None, set_: SetOption = None) -> None:
    """Restart the pair as one epoch; the configuration is validated before anything stops."""
    from glm53ctl.plan import check_argv, plan_rank
    from glm53ctl.supervise.orders import give_order

    settings = _load(config, set_).config
    check_argv(plan_rank(settings, 0), os.environ)
    give_order(settings, "restart", tuple(set_ or ()))
    out().print("restarting")


@app.command()
def resume(config: ConfigOption = None) -> None:
    """Start a HELD pair again, after its cause was mended."""
    from glm53ctl.supervise.orders import give_order

    give_order(_look_up(config), "resume")
    out().print("resumed")


# --- watching ------------------------------------------------------------------------------------


@app.command()
def watchdog(config: ConfigOption = None) -> None:
    """Watch the ranks of this host from outside (what glm53-watchdog.service runs)."""
    import asyncio

    from glm53ctl.watchdog import daemon

    logging.basicConfig(level=logging.INFO, format="watchdog: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    asyncio.run(daemon.Watchdog(lambda: load(config, rules=False).config).run())


@app.command(hidden=True)
def bus(config: ConfigOption = None) -> None:
    """Speak D-Bus for the watchdog (what glm53-bus.socket starts)."""
    from glm53ctl.watchdog.bus import become_agent

    become_agent(_config_or_default(config, lambda c: c.watchdog.bus_python, Watchdog().bus_python))


@app.command("record-exit", hidden=True)
def record_exit(
    number: Annotated[int, typer.Argument(min=0, max=3)], config: ConfigOption = None
) -> None:
    """Write down how a rank's unit ended (its ExecStopPost=). Never fails."""
    from glm53ctl.watchdog import exits

    state_dir = _config_or_default(config, lambda c: c.paths.state_dir, Paths().state_dir)
    with suppress(OSError, ValueError):
        exits.record_exit(Path(state_dir), number, os.environ)


def _config_or_default(path: Path | None, wanted: Callable[[Config], str], default: str) -> str:
    """Return one setting; its default when the configuration cannot be used."""
    try:
        return wanted(load(path, rules=False, with_run=False).config)
    except UserError:
        return default


# --- looking -------------------------------------------------------------------------------------


@app.command()
def status(
    config: ConfigOption = None,
    as_json: JsonOption = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep looking.")] = False,
    svg: Annotated[Path | None, typer.Option(help="Draw it into this file as well.")] = None,
) -> None:
    """Show the pair. Exit status 0 when it serves, 3 when not."""
    settings = _look_up(config)
    if watch:
        _watch_pair(settings, lambda: True)
    snapshot = gather(settings)
    if as_json:
        print(snapshot.model_dump_json())
    else:
        from glm53ctl.status.text import render

        out().print(render(snapshot))
    if svg is not None:
        from glm53ctl.status.screen import draw

        with _files_usable():
            draw(snapshot, svg)
    raise typer.Exit(0 if snapshot.ready else EXIT_NOT_READY)


@app.command()
def logs(
    number: Annotated[
        int | None, typer.Argument(metavar="[RANK]", min=0, max=3, help="Left out, this host's.")
    ] = None,
    config: ConfigOption = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Lines to begin with.")] = 100,
) -> None:
    """Print what the engine of a rank on this host said, in its newest epoch."""
    from glm53ctl.facts.here import rank_here
    from glm53ctl.status.logs import read_log

    settings = _look_up(config)
    rank = number if number is not None else rank_here(settings) or 0
    for line in read_log(settings, rank, lines, follow=follow):
        print(line)


@app.command()
def ask(
    text: Annotated[str, typer.Argument(help="What to ask.")],
    config: ConfigOption = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Length of the answer.")] = 1000,
    think: Annotated[bool, typer.Option(help="Let the model think first.")] = True,
) -> None:
    """Ask the pair and stream its answer."""
    from glm53ctl.api import Question, authorization, stream_answer
    from glm53ctl.facts.here import require_head
    from glm53ctl.plan import plan_rank, read_secrets
    from glm53ctl.plan.ranks import API_KEY

    settings = _look_up(config)
    plan = plan_rank(settings, 0)
    require_head(settings, plan.base_url or "")
    key = read_secrets(plan, os.environ).get(API_KEY)
    headers = authorization(key)
    question = Question(text, max_tokens, think=think)
    thinking = False
    for piece in stream_answer(plan.base_url or "", settings.serve.model_name, headers, question):
        if thinking and not piece.thinking:
            out().print("\n")  # the thought ends here, the answer begins
        thinking = piece.thinking
        _say(out(), piece.text, thinking=piece.thinking)
    out().print()


# --- configuration and plan ----------------------------------------------------------------------


@config_app.command("show")
def config_show(
    config: ConfigOption = None,
    set_: SetOption = None,
    explain: Annotated[bool, typer.Option(help="Say where each value comes from.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the configuration as it is used."""
    from glm53ctl.config.explain import render_config

    print(render_config(_load(config, set_), explain=explain, as_json=as_json))


@config_app.command("check")
def config_check(
    file: Annotated[Path | None, typer.Argument(help="Default: the configured one.")] = None,
    config: ConfigOption = None,
) -> None:
    """Find all values that are wrong in a configuration; then all that do not fit together."""
    loaded = _load(file or config, warn=True)
    out().print(f"valid: profile {loaded.config.profile}, {loaded.config.world_size} ranks")


@config_app.command("import")
def config_import(
    file: Annotated[Path, typer.Argument(help="A recipe's .env or local.sh.")],
    head_address: Annotated[
        str | None, typer.Option(help="The head's address on the fabric, if the file lacks it.")
    ] = None,
) -> None:
    """Turn a recipe's settings file into ours, without executing it."""
    from glm53ctl.config.recipes import import_file, render_imported

    text, notes = render_imported(import_file(file, head_address=head_address))
    print(text, end="")
    for note in notes:
        err().print(note, style="dim", markup=False)


@plan_app.command("argv")
def plan_argv(
    number: Annotated[int, typer.Option("--rank", min=0, max=3, help="0 is the head.")] = 0,
    config: ConfigOption = None,
    set_: SetOption = None,
    check: Annotated[bool, typer.Option(help="Ask the installed engine's own parser.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the engine's command line and environment; secrets are never in it."""
    from glm53ctl.plan import as_json as plan_json
    from glm53ctl.plan import as_text, check_argv, plan_rank

    plan = plan_rank(_load(config, set_).config, number)
    if check:
        check_argv(plan, os.environ)
    print(plan_json(plan) if as_json else as_text(plan))


# --- engine and demo -----------------------------------------------------------------------------

PrefixOption = Annotated[Path, typer.Option("--prefix", help="Where the engine is or goes.")]


@engine_app.command("install")
def engine_install(
    prefix: PrefixOption = Path(".engine"),
    python: Annotated[str | None, typer.Option(help="CPython 3.11 to use.")] = None,
) -> None:
    """Install vLLM for CPUs, from the lock, and check that it works."""
    from glm53ctl.engine.install import install

    install(prefix, python=python, report=lambda line: err().print(line, markup=False))


@engine_app.command("check")
def engine_check(prefix: PrefixOption = Path(".engine"), as_json: JsonOption = False) -> None:
    """Check that the engine imports and is what it says."""
    from glm53ctl.engine.check import check

    facts = check(prefix)
    if as_json:
        print(facts.model_dump_json())
    else:
        for name, value in facts.model_dump().items():
            out().print(f"{name:<16} {value}", markup=False)


@overlay_app.command("verify")
def overlay_verify(
    prefix: PrefixOption = Path(".engine"),
    dense: Annotated[bool, typer.Option(help="Also what `dense` costs in accuracy.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Check the overlay on this machine's device. Exit status 1 when something is wrong."""
    from glm53ctl.engine.overlay import verify

    report = verify(prefix, dense=dense)
    if as_json:
        print(report.model_dump_json())
    else:
        for check in report.checks:
            verdict = "ok" if check.ok else "FAIL"
            out().print(f"{verdict:<5} {check.name:<20} {check.detail}", markup=False)
    raise typer.Exit(0 if all(check.ok for check in report.checks) else 1)


@app.command()
def demo(
    directory: Annotated[Path, typer.Option("--dir", help="Where the demo keeps files.")] = Path(
        ".demo"
    ),
    engine: Annotated[Path, typer.Option(help="The engine's environment.")] = Path(".engine"),
    once: Annotated[bool, typer.Option(help="Ask one question, then stop.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Serve a tiny model with two real vLLM ranks on this machine's CPU."""
    from glm53ctl.demo.run import ANSWER_TOKENS, PROMPT, DemoFiles, prepare, start, summary
    from glm53ctl.demo.run import ask as ask_pair
    from glm53ctl.page.commands import page_beside
    from glm53ctl.status.screen import Screen
    from glm53ctl.supervise.local import LocalPair

    screen = err() if as_json else out()
    files = DemoFiles(directory)
    with _files_usable(), Screen(screen) as view:
        settings = prepare(files, engine, screen.print, view.show)
    pair = LocalPair(settings, ["--config", str(files.config.resolve())])
    began = time.monotonic()
    with page_beside(settings) as page, _stopped_at_end(pair) as leftovers:
        screen.print(f"The page: {page}", markup=False)
        with Screen(screen) as view:
            ready = start(pair, view.show)
        ready_seconds = round(time.monotonic() - began, 1)
        screen.print(f"\n{ready.endpoint}   (model {ready.model})\n> {PROMPT}", markup=False)
        answer = ask_pair(settings, PROMPT, ANSWER_TOKENS, lambda text: _say(screen, text))
        screen.print()
        if not once:
            _watch_pair(settings, pair.tend)
    if as_json:
        print(json.dumps(summary(ready, answer, ready_seconds, leftovers[0])))


# --- helpers -------------------------------------------------------------------------------------


def _say(console: "Console", text: str, *, thinking: bool = False) -> None:
    """Print a piece of an answer as it is: not wrapped, its tabs and `:words:` untouched."""
    from rich.segment import Segment, Segments
    from rich.style import Style

    segment = Segment(text, Style(dim=True) if thinking else None)
    console.print(Segments([segment]), end="", crop=False)


@contextmanager
def _files_usable() -> Iterator[None]:
    """Turn a file that cannot be made or written into one sentence."""
    try:
        yield
    except OSError as error:
        raise UserError(
            "FILE_REFUSED", f"{error.filename}: {error.strerror or error}.", "Name another place."
        ) from error


@contextmanager
def _stopped_at_end(pair: "LocalPair") -> Iterator[list[int]]:
    """Stop the pair on the way out; the list then holds the number of processes left behind."""
    leftovers: list[int] = []
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield leftovers
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not cut this short
        leftovers.append(pair.stop())
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _watch_pair(settings: Config, alive: Callable[[], bool]) -> None:
    """Show the pair until it is gone or the user has seen enough."""
    from glm53ctl.status.screen import Screen

    with Screen(out()) as screen:
        while alive():
            screen.show(gather(settings))
            time.sleep(WATCH_SECONDS)


def _end_of_output(error: OSError) -> NoReturn:
    """End where nothing more can be written; raise what is another error.

    A write that fails knows no name, so it may have been a file's as well.
    """
    if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EPIPE):
        raise error
    # What is left in the buffer would fail once more at the exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno != errno.EPIPE:  # that reader has seen enough
        said = f"The output, or a file, cannot be written: {error.strerror}."
        err().print(f"FILE_REFUSED: {said} Make room, or send it to another place.", style="red")
    sys.exit(1)


def main() -> NoReturn:
    """Run the program; a user's mistake is one sentence and exit status 2, never a traceback."""
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
    except UserError as error:
        err().print(str(error), style="red", markup=False)
        sys.exit(error.exit_code)
    except typer.TyperException as error:
        err().print(
            f"USAGE: {error.format_message() or 'A command is missing.'} "
            "`glm53ctl --help` lists the commands.",
            style="red",
            markup=False,
        )
        sys.exit(EXIT_BAD_INPUT)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except OSError as error:
        _end_of_output(error)
    sys.exit(code if isinstance(code, int) else 0)
