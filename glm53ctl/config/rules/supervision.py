"""Rules of the supervisor: limits that must stand in an order."""

from collections.abc import Iterator

from glm53ctl.config.rules.base import Rule
from glm53ctl.config.schema import Config
from glm53ctl.findings import Severity


def _canary_window(config: Config) -> Iterator[str]:
    if config.canary.max_tokens >= config.serve.max_model_len:
        yield f"{config.canary.max_tokens} tokens in a window of {config.serve.max_model_len}"


def _canary_short(config: Config) -> Iterator[str]:
    # An exact answer was recorded at its length; what must be contained may come late.
    wanted = max(8, len(config.canary.expect) // 2)
    if config.canary.match == "contains" and config.canary.max_tokens < wanted:
        yield f"canary.max_tokens is {config.canary.max_tokens}"


def _wedge_before_silence(config: Config) -> Iterator[str]:
    wedge, silence = config.supervise.wedge_seconds, config.link.silence_grace_seconds
    if wedge <= silence:
        yield f"supervise.wedge_seconds is {wedge}, link.silence_grace_seconds {silence}"


def _step_before_stage(config: Config) -> Iterator[str]:
    step, limits = config.engine.execute_timeout_seconds, config.supervise.limits
    stages = {"canary": limits.canary}
    if config.warmup.enable:
        stages["warmup"] = limits.warmup
    for stage, limit in stages.items():
        if step < limit:
            yield f"engine.execute_timeout_seconds is {step}, supervise.limits.{stage} {limit}"


def _backoff(config: Config) -> Iterator[str]:
    first, longest = config.supervise.backoff_seconds, config.supervise.backoff_max_seconds
    if first > longest:
        yield f"supervise.backoff_seconds is {first}, the longest {longest}"


def _probe_before_silence(config: Config) -> Iterator[str]:
    watchdog, silence = config.watchdog, config.link.silence_grace_seconds
    seconds = watchdog.probe_failures * watchdog.probe_deadline_seconds
    if seconds <= silence:
        yield f"the probes give up after {seconds:.0f} s, link.silence_grace_seconds is {silence}"


def _memory_stages(config: Config) -> Iterator[str]:
    warn, refuse = config.watchdog.warn_gib, config.watchdog.refuse_gib
    if refuse > warn:
        yield f"watchdog.refuse_gib is {refuse}, watchdog.warn_gib {warn}"


def _memory_order(config: Config) -> Iterator[str]:
    memory = config.memory
    if memory.floor_gib >= memory.start_gib:
        yield f"memory.floor_gib is {memory.floor_gib}, memory.start_gib {memory.start_gib}"


RULES: tuple[Rule, ...] = (
    Rule(
        "canary-window",
        "CFG_FORBIDDEN",
        ("canary.max_tokens", "serve.max_model_len"),
        _canary_window,
        "the canary's answer would leave no room for its question.",
        "Lower canary.max_tokens.",
    ),
    Rule(
        "canary-short",
        "CFG_CANARY",
        ("canary.max_tokens",),
        _canary_short,
        "the answer may be cut before it says what is expected, and the pair would never be ready.",
        "Use 64.",
        Severity.WARN,
    ),
    Rule(
        "wedge-before-silence",
        "CFG_TIMING",
        ("supervise.wedge_seconds", "link.silence_grace_seconds"),
        _wedge_before_silence,
        "an interruption of the link that would heal by itself counts as a wedge first.",
        "Make supervise.wedge_seconds the longer one.",
        Severity.WARN,
    ),
    Rule(
        "step-before-stage",
        "CFG_TIMING",
        (
            "engine.execute_timeout_seconds",
            "supervise.limits.canary",
            "supervise.limits.warmup",
            "warmup.enable",
        ),
        _step_before_stage,
        "vLLM gives up on the pair while a step of that stage still compiles its kernels, and the "
        "stage's own limit never applies.",
        "Raise engine.execute_timeout_seconds; 1800 is the recipe's.",
    ),
    Rule(
        "backoff",
        "CFG_TIMING",
        ("supervise.backoff_seconds", "supervise.backoff_max_seconds"),
        _backoff,
        "the first pause cannot be longer than the longest.",
        "Raise supervise.backoff_max_seconds.",
    ),
    Rule(
        "probe-before-silence",
        "CFG_TIMING",
        ("watchdog.probe_deadline_seconds", "link.silence_grace_seconds"),
        _probe_before_silence,
        "an interruption of the link that would heal by itself counts as a pair without tokens.",
        "Raise watchdog.probe_failures or watchdog.probe_deadline_seconds.",
        Severity.WARN,
    ),
    Rule(
        "memory-stages",
        "CFG_MEMORY",
        ("watchdog.refuse_gib", "watchdog.warn_gib"),
        _memory_stages,
        "new work would be refused before anybody was warned.",
        "Raise watchdog.warn_gib.",
    ),
    Rule(
        "memory-order",
        "CFG_MEMORY",
        ("memory.floor_gib", "memory.start_gib"),
        _memory_order,
        "the pair would be stopped as soon as it was allowed to start.",
        "Lower memory.floor_gib.",
    ),
)
