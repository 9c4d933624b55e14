"""`glm53ctl bench`: measure a server, keep the results, compare them."""

import os
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glm53ctl.errors import EXIT_NOT_READY, UserError
from glm53ctl.options import ConfigOption, JsonOption

if TYPE_CHECKING:
    from glm53ctl.bench.client import Server
    from glm53ctl.bench.measure import Measured
    from glm53ctl.bench.result import Identity, Parameters

# The rest is imported where it is used: other commands shall not pay for it.

EXIT_WORSE = 1
"""Exit status of `compare` when a case became worse, and of a bench whose answers are not sane."""

app = typer.Typer(no_args_is_help=True, help="Measure a server, keep the results, compare them.")


class Kind(StrEnum):
    """The benches."""

    DECODE = "decode"
    PREFILL = "prefill"
    PREFIX = "prefix"
    NEEDLE = "needle"
    AGENTS = "agents"
    LOAD = "load"


class Text(StrEnum):
    """What decode writes."""

    STRUCTURED = "structured"
    PROSE = "prose"


UrlOption = Annotated[
    str | None, typer.Option(help="Another server than the configured one, without /v1.")
]
ModelOption = Annotated[str | None, typer.Option(help="Its model; left out, the first it lists.")]
KeyOption = Annotated[
    str | None, typer.Option("--key", envvar="GLM53_BENCH_KEY", help="Its API key.")
]
ThinkOption = Annotated[bool, typer.Option(help="Let the model think; the recipes did not.")]
OutOption = Annotated[Path | None, typer.Option(help="Write the JSON into this file as well.")]
LedgerOption = Annotated[
    Path | None,
    typer.Option(help="Where results are kept; of a configured pair, in its state directory."),
]
RunsOption = Annotated[int, typer.Option(min=1, help="Runs of each case.")]
StreamsOption = Annotated[list[int] | None, typer.Option(help="Requests at once; repeat it.")]
LadderOption = Annotated[
    list[int] | None, typer.Option("--tokens", help="Length of the prompt; repeat it.")
]
MaxTokensOption = Annotated[int, typer.Option(min=2, help="Length of an answer.")]

DEPTHS = (0.1, 0.5, 0.9)
PARAMETERS: dict[Kind, tuple[str, ...]] = {
    Kind.DECODE: ("think", "max_tokens"),
    Kind.PREFILL: (),
    Kind.PREFIX: (),
    Kind.NEEDLE: ("depth",),
    Kind.AGENTS: ("count", "tokens", "newcomer", "max_tokens"),
    Kind.LOAD: ("tokens", "max_tokens"),
}
"""Options that change what a case measures without standing in its name."""

LADDER = (8_192, 32_768, 131_072, 262_144, 524_288, 982_000)
PREFIX_LADDER = (7_900, 65_536)
"""Lengths of prompts, in tokens, as far as the context reaches."""
_MET = 0.98
"""What is asked for of a context: the length of a prompt is met to a part of a hundred."""


def rungs(context: int | None, answer: int, ladder: Sequence[int] = LADDER) -> tuple[int, ...]:
    """Return the ladder, cut to a context in tokens that must hold the answer as well.

    Its last rung is then what the context holds. None where the context is not known.
    """
    if context is None:
        return tuple(ladder)
    most = int((context - answer) * _MET)
    within = tuple(rung for rung in ladder if rung <= most)
    return within if len(within) == len(ladder) else (*within, most)


@dataclass(frozen=True)
class Target:
    """The server to ask, what it is, and where its results are kept.

    `context` is the longest prompt plus answer in tokens, of the configured pair.
    """

    server: "Server"
    identity: "Identity"
    ledger: Path | None
    context: int | None = None


def _target(
    config: Path | None, url: str | None, model: str | None, key: str | None, *, think: bool = False
) -> Target:
    """Return the configured pair, or the server that was named."""
    from glm53ctl import __version__
    from glm53ctl.bench.client import Server
    from glm53ctl.bench.ledger import NAME
    from glm53ctl.bench.result import Identity

    digest, ledger, context = "", None, None
    if url is None:
        from glm53ctl.config.sources import digest as digest_of
        from glm53ctl.config.sources import load
        from glm53ctl.facts.here import require_head
        from glm53ctl.plan import plan_rank, read_secrets
        from glm53ctl.plan.ranks import API_KEY

        settings = load(config, rules=False).config
        plan = plan_rank(settings, 0)
        require_head(settings, plan.base_url or "")
        url, model = plan.base_url or "", model or settings.serve.model_name
        key = key or read_secrets(plan, os.environ).get(API_KEY)
        digest, ledger = digest_of(settings), Path(settings.paths.state_dir) / NAME
        context = settings.serve.max_model_len
    url = url.rstrip("/").removesuffix("/v1")
    engine, listed = _look(url, key)
    server = Server(url, model or listed, key, think)
    identity = Identity(
        closure=os.environ.get("GLM53_CLOSURE", ""),
        config_digest=digest,
        engine=engine,
        tool=__version__,
        model=server.model,
    )
    return Target(server, identity, ledger, context)


def _look(url: str, key: str | None) -> tuple[str, str]:
    """Return the engine's version ("" where it says none) and its first model."""
    import httpx

    from glm53ctl.api import authorization

    headers = authorization(key)
    try:
        with httpx.Client(base_url=url, headers=headers, timeout=10, trust_env=False) as client:
            models = client.get("/v1/models").raise_for_status().json()["data"]
            version = client.get("/version")
            said = version.json().get("version", "") if version.is_success else ""
            return str(said), str(models[0]["id"])
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError) as error:
        raise UserError(
            "BENCH_UNREACHABLE",
            f"{url} lists no models ({error or type(error).__name__}).",
            "Start the pair, or name another server with --url.",
            EXIT_NOT_READY,
        ) from error


def _parameters(kind: Kind, said: Mapping[str, Any]) -> "Parameters":
    """Return what a result is kept with, of the options of its command."""
    found = {name: said[name] for name in PARAMETERS[kind]}
    if "depth" in found:
        found["depth"] = tuple(sorted(found["depth"] or DEPTHS))
    return found


def parameters_of(words: Sequence[str]) -> "Parameters | None":
    """Return what a command line after `glm53ctl bench` is kept with; None if it does not measure.

    A mistake in it ends the program as it would end the bench.
    """
    import typer.main

    if not words or words[0] not in set(Kind):
        return None
    command = typer.main.get_command(app).commands[words[0]]  # type: ignore[attr-defined]
    said = command.make_context(f"bench {words[0]}", list(words[1:])).params
    return _parameters(Kind(words[0]), said)


def _run(
    context: typer.Context,
    kind: Kind,
    target: Target,
    bench: "Callable[[Callable[[str], None]], Coroutine[Any, Any, Measured]]",
    as_json: bool,
    out: Path | None,
    ledger: Path | None,
) -> None:
    """Measure, print, keep; exit status 1 when answers were not sane, 3 when it ended early."""
    import asyncio
    from datetime import UTC, datetime

    from glm53ctl.bench.ledger import append
    from glm53ctl.bench.report import as_text
    from glm53ctl.bench.result import Result

    measured = asyncio.run(bench(lambda line: print(line, file=sys.stderr)))
    result = Result(
        kind=kind.value,
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        identity=target.identity,
        parameters=_parameters(kind, context.params),
        cases=tuple(measured.cases),
        ok=not measured.faults,
        notes=(*measured.faults, *measured.notes, *filter(None, [measured.cut])),
    )
    print(result.model_dump_json() if as_json else as_text(result))
    if out is not None:
        _write(out, result.model_dump_json(indent=1) + "\n")
    if (kept := ledger or target.ledger) is not None:
        append(kept, result)
    if measured.cut:
        raise typer.Exit(EXIT_NOT_READY)
    raise typer.Exit(0 if result.ok else EXIT_WORSE)


def _write(target: Path, text: str) -> None:
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        message = f"{target}: {error.strerror}."
        raise UserError("FILE_REFUSED", message, "Name another place.") from error


@app.command("decode")
def bench_decode(
    context: typer.Context,
    kind: Annotated[list[Text] | None, typer.Option(help="Text to write; repeat it.")] = None,
    streams: StreamsOption = None,
    runs: RunsOption = 5,
    max_tokens: MaxTokensOption = 400,
    coherence: Annotated[bool, typer.Option(help="Ask first whether it makes sense.")] = True,
    config: ConfigOption = None,
    url: UrlOption = None,
    model: ModelOption = None,
    key: KeyOption = None,
    think: ThinkOption = False,
    as_json: JsonOption = False,
    out: OutOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Measure how fast it writes: numbers in order, and prose."""
    from glm53ctl.bench import measure

    target = _target(config, url, model, key, think=think)
    kinds = [one.value for one in kind or list(Text)]
    _run(
        context,
        Kind.DECODE,
        target,
        lambda report: measure.decode(
            target.server,
            kinds,
            streams or (1, 2, 4),
            runs,
            max_tokens,
            report,
            coherence=coherence,
        ),
        as_json,
        out,
        ledger,
    )


@app.command("prefill")
def bench_prefill(
    context: typer.Context,
    tokens: LadderOption = None,
    runs: RunsOption = 1,
    config: ConfigOption = None,
    url: UrlOption = None,
    model: ModelOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
    out: OutOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Measure how fast it reads: prompts of growing length that nothing has seen."""
    from glm53ctl.bench import measure

    target = _target(config, url, model, key)
    ladder = tokens or rungs(target.context, measure.PREFILL_TOKENS)
    _run(
        context,
        Kind.PREFILL,
        target,
        lambda report: measure.prefill(target.server, ladder, runs, report),
        as_json,
        out,
        ledger,
    )


@app.command("needle")
def bench_needle(
    context: typer.Context,
    tokens: LadderOption = None,
    depth: Annotated[
        list[float] | None, typer.Option(min=0, max=1, help="Where it is hidden; repeat it.")
    ] = None,
    config: ConfigOption = None,
    url: UrlOption = None,
    model: ModelOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
    out: OutOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Measure whether it finds one sentence in a long prompt."""
    from glm53ctl.bench import measure

    target = _target(config, url, model, key)
    depths = depth or DEPTHS
    ladder = tokens or rungs(target.context, measure.NEEDLE_TOKENS)
    _run(
        context,
        Kind.NEEDLE,
        target,
        lambda report: measure.needle(target.server, ladder, depths, report),
        as_json,
        out,
        ledger,
    )


@app.command("prefix")
def bench_prefix(
    context: typer.Context,
    tokens: LadderOption = None,
    runs: RunsOption = 3,
    config: ConfigOption = None,
    url: UrlOption = None,
    model: ModelOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
    out: OutOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Measure what of a prompt is reused when it comes again, or goes on."""
    from glm53ctl.bench import measure

    target = _target(config, url, model, key)
    ladder = tokens or rungs(target.context, measure.PREFIX_ROOM, PREFIX_LADDER)
    _run(
        context,
        Kind.PREFIX,
        target,
        lambda report: measure.prefix(target.server, ladder, runs, report),
        as_json,
        out,
        ledger,
    )


@app.command("agents")
def bench_agents(
    context: typer.Context,
    count: Annotated[int, typer.Option(min=1, help="Agents that write.")] = 4,
    tokens: Annotated[int, typer.Option(min=1, help="Length of their prompts.")] = 4_096,
    newcomer: Annotated[int, typer.Option(min=1, help="Length of the newcomer's.")] = 30_000,
    runs: RunsOption = 3,
    max_tokens: MaxTokensOption = 400,
    config: ConfigOption = None,
    url: UrlOption = None,
    model: ModelOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
    out: OutOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Measure what a long newcomer waits, and what the others keep of their pace."""
    from glm53ctl.bench import measure

    target = _target(config, url, model, key)
    _run(
        context,
        Kind.AGENTS,
        target,
        lambda report: measure.agents(
            target.server, count, tokens, newcomer, runs, max_tokens, report
        ),
        as_json,
        out,
        ledger,
    )


@app.command("load")
def bench_load(
    context: typer.Context,
    streams: StreamsOption = None,
    tokens: Annotated[int, typer.Option(min=1, help="Length of each prompt.")] = 1_024,
    runs: RunsOption = 3,
    max_tokens: MaxTokensOption = 200,
    config: ConfigOption = None,
    url: UrlOption = None,
    model: ModelOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
    out: OutOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Measure it full: more requests than it generates at once."""
    from glm53ctl.bench import measure

    target = _target(config, url, model, key)
    _run(
        context,
        Kind.LOAD,
        target,
        lambda report: measure.load(
            target.server, streams or (4, 8, 16), tokens, runs, max_tokens, report
        ),
        as_json,
        out,
        ledger,
    )


def _ledger(ledger: Path | None, config: Path | None) -> Path:
    from glm53ctl.bench.ledger import NAME
    from glm53ctl.config.sources import load

    return ledger or Path(load(config, rules=False).config.paths.state_dir) / NAME


@app.command("compare")
def bench_compare(
    before: Annotated[
        str | None, typer.Argument(help="Start of a closure, digest, version or date.")
    ] = None,
    after: Annotated[str | None, typer.Argument(help="The same, of what is judged.")] = None,
    kind: Annotated[Kind, typer.Option(help="Which bench.")] = Kind.DECODE,
    tolerance: Annotated[
        float, typer.Option(min=0, max=1, help="Difference that does not matter.")
    ] = 0.02,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare two that were measured; left out, the last two. Exit status 1 when one is worse."""
    import json
    from dataclasses import asdict

    from glm53ctl.bench.compare import Verdict, compare
    from glm53ctl.bench.ledger import alike, last_two, pick, read
    from glm53ctl.bench.report import changes_as_text

    path = _ledger(ledger, config)
    results = read(path)
    if before is None or after is None:
        found = last_two(results, kind.value)
    else:
        found = alike(pick(results, kind.value, before), pick(results, kind.value, after))
    if found is None:
        raise UserError(
            "BENCH_NOTHING_TO_COMPARE",
            f"{path} does not hold two different things that `bench {kind.value}` measured alike.",
            "Measure both alike, or name them: `glm53ctl bench compare BEFORE AFTER`.",
        )
    changes = compare(found[0], found[1], tolerance=tolerance)
    print(json.dumps([asdict(one) for one in changes]) if as_json else changes_as_text(changes))
    worse = any(one.verdict is Verdict.WORSE for one in changes)
    raise typer.Exit(EXIT_WORSE if worse else 0)


@app.command("plot")
def bench_plot(
    picture: Annotated[Path, typer.Argument(help="A .png or .svg.")],
    kind: Annotated[Kind, typer.Option(help="Which bench.")] = Kind.DECODE,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Draw what is kept of a bench, over time."""
    from glm53ctl.bench.draw import draw
    from glm53ctl.bench.ledger import read

    path = _ledger(ledger, config)
    results = [result for result in read(path) if result.kind == kind.value]
    if not results:
        message = f"{path} holds nothing of `bench {kind.value}`."
        raise UserError("BENCH_NOTHING_KEPT", message, "Measure first.")
    draw(results, picture)


@app.command("schema")
def bench_schema() -> None:
    """Print the JSON schema of a result."""
    import json

    from glm53ctl.bench.result import Result

    print(json.dumps(Result.model_json_schema(), indent=1))
