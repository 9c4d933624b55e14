"""A budget and its roofline as data and as text."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, get_args

from glm53ctl.budget.machine import GIB
from glm53ctl.budget.memory import Budget
from glm53ctl.budget.settings import Dense, Method, Settings
from glm53ctl.budget.speed import TOKENS_A_STEP, Pace, decode, prefill, prefill_rate

STREAMS = (1, 2, 4)
LADDER = (8_192, 65_536, 262_144, 981_841)
DRAFTED: dict[Method, int] = {"dflash": 7, "mtp": 2, "none": 0}


@dataclass(frozen=True)
class Mode:
    """One way to decode, and its pace."""

    method: Method
    dense: Dense
    streams: int
    pace: Pace

    def rates(self) -> dict[str, float]:
        """Return the expected tokens/s of all streams, by kind of text; drafts decide about it.

        Nobody has published what MTP yields, so there is no rate for it.
        """
        if self.method == "mtp":
            return {}
        kinds = TOKENS_A_STEP if self.method == "dflash" else {"any text": 1.0}
        return {kind: self.streams * tokens / self.pace.expected for kind, tokens in kinds.items()}


def modes(made: Budget) -> Iterator[Mode]:
    """Yield every speculation, dense mode and concurrency."""
    for method in get_args(Method):
        drafted = DRAFTED[method]
        if method == made.settings.method:
            drafted = made.settings.drafted
        for dense in get_args(Dense):
            settings = replace(made.settings, method=method, drafted=drafted, dense=dense)
            if dense != made.settings.dense:  # its exceptions are of the configured one
                settings = replace(settings, dense_groups=())
            for streams in STREAMS:
                yield Mode(method, dense, streams, decode(settings, made.machine, streams))


def as_data(made: Budget, near: Budget | None) -> dict[str, Any]:
    """Return everything for `--json`; sizes in GiB of one rank, times in ms."""
    step = decode(made.settings, made.machine, 1)
    return {
        "machine": made.machine.name,
        "settings": asdict(made.settings),
        "fits": made.fits,
        "problems": list(made.problems),
        "nearest": None if near is None or made.fits else _changes(made.settings, near.settings),
        "memory_gib": {line.name: round(line.nbytes / GIB, 3) for line in made.lines},
        "estimated": [line.name for line in made.lines if not line.known],
        "host_gib": round(made.host / GIB, 2),
        "kv_pool_gib": round(made.pool.nbytes / GIB, 2),
        "kv_pool_tokens": made.pool.tokens,
        "kv_pool_blocks": made.pool.blocks,
        "kv_block_tokens": made.pool.block_tokens,
        "kv_request_gib": round(made.pool.request_bytes / GIB, 2),
        "kv_concurrency": round(made.pool.concurrency, 2),
        "decode_floor_ms": round(step.floor * 1e3, 1),
        "decode_expected_ms": round(step.expected * 1e3, 1),
        "bound_by": step.bound_by,
        "decode": [_mode(mode) for mode in modes(made)],
        "prefill": list(_prefills(made.settings, made)),
    }


def _mode(mode: Mode) -> dict[str, Any]:
    return {
        "spec": mode.method,
        "dense": mode.dense,
        "streams": mode.streams,
        "floor_ms": round(mode.pace.floor * 1e3, 1),
        "expected_ms": round(mode.pace.expected * 1e3, 1),
        "bound_by": mode.pace.bound_by,
        "tokens_per_second": {kind: round(rate, 1) for kind, rate in mode.rates().items()},
    }


def _prefills(settings: Settings, made: Budget) -> Iterator[dict[str, Any]]:
    for tokens in (*(step for step in LADDER if step < settings.context), settings.context):
        pace = prefill(settings, made.machine, depth=tokens // 2)
        yield {
            "tokens": tokens,
            "tokens_per_second": round(prefill_rate(settings, made.machine, tokens)),
            "bound_by": pace.bound_by,
        }


def _changes(wanted: Settings, found: Settings) -> dict[str, float | None]:
    """Return the settings to change, by their names in the configuration; None for null."""
    return {
        name: new
        for name, old, new in (
            ("serve.max_model_len", wanted.context, found.context),
            ("kv.gpu_memory_utilization", wanted.utilization, found.utilization),
            ("kv.bytes", wanted.kv_bytes, found.kv_bytes),
        )
        if old != new
    }


def advice(made: Budget, near: Budget | None) -> str:
    """Return what to change, as one sentence."""
    if near is None:
        return "Nothing near fits: more memory is needed, or more ranks."
    changes = _changes(made.settings, near.settings)
    words = [f"--set {name}={json.dumps(value)}" for name, value in changes.items()]
    return f"The nearest that fits: {' '.join(words)}."


def as_text(made: Budget) -> str:
    """Return the budget for a terminal, bars and all."""
    return "\n".join((*_memory(made), "", *_speeds(made), "", *_reading(made)))


def _memory(made: Budget) -> Iterator[str]:
    total = made.machine.memory
    yield f"memory of one {made.machine.name} rank, GiB of {total / GIB:.1f} (~ is estimated)"
    parts = [(line.name, line.nbytes, "" if line.known else "~") for line in made.lines]
    parts += [("KV pool", made.pool.nbytes, ""), ("left to the host", made.host, "~")]
    for name, nbytes, mark in parts:
        bar = "█" * round(40 * max(nbytes, 0) / total)
        yield f"  {name:<22}{nbytes / GIB:7.2f} {mark:1} {bar}"
    pool = made.pool
    yield (
        f"  the engine will log {pool.tokens:,} tokens: {pool.concurrency:.2f} requests of "
        f"{pool.context:,}"
    )


def _speeds(made: Budget) -> Iterator[str]:
    yield "decode step, ms: floor (independent routing), expected; tokens/s of structured / prose"
    for mode in modes(made):
        rates = " / ".join(f"{rate:.1f}" for rate in mode.rates().values()) or "not known"
        name = f"{mode.method} {mode.dense} x{mode.streams}"
        pace = mode.pace
        yield (
            f"  {name:<16}{pace.floor * 1e3:8.1f}{pace.expected * 1e3:8.1f}   {rates:<16}"
            f"{pace.bound_by}"
        )


def _reading(made: Budget) -> Iterator[str]:
    yield "prefill, expected"
    for row in _prefills(made.settings, made):
        rate = f"{row['tokens_per_second']:>7,} tok/s"
        yield f"  {row['tokens']:>9,} tokens {rate}   {row['bound_by']}"
