"""Rules of what is passed on to the engine: arguments and environment."""

import re
from collections.abc import Iterator, Mapping

from glm53ctl.config.masks import names_any_secret
from glm53ctl.config.rules.base import Rule, flags_of, on_cuda
from glm53ctl.config.schema import Config
from glm53ctl.plan import owned_env, owned_flag, setting_for, whole_flag

_SYSTEMD = "it belongs to the service manager"
_PROCESS = "the unit and engine.prefix say it"
_WEIGHTS = "`weights` says it"

WHY: Mapping[str, str] = {
    "--allowed-local-media-path": "clients must not read files of this machine",
    "--data-parallel-size": "each node is a rank of one tensor-parallel group",
    "--model": _WEIGHTS,
    "--quantization": "the checkpoint says it",
    "--revision": _WEIGHTS,
}
"""Owned flags for which neither a setting nor the plan is the reason."""

MORE_ENV: Mapping[str, str] = {
    "CREDENTIALS_DIRECTORY": _SYSTEMD,
    "LD_PRELOAD": "a second NCCL beside the engine's own makes its libraries collide",
    "LISTEN_FDS": _SYSTEMD,
    "LISTEN_PID": _SYSTEMD,
    "NOTIFY_SOCKET": _SYSTEMD,
    "PATH": _PROCESS,
    "PYTHONHOME": _PROCESS,
    "PYTHONPATH": _PROCESS,
    "VLLM_PLUGINS": "the plan names the plugins that must load",
    "VLLM_USE_V2_MODEL_RUNNER": "DFlash2 runs on one of the two runners only",
    "WATCHDOG_PID": _SYSTEMD,
    "WATCHDOG_USEC": _SYSTEMD,
}
"""Variables that no plan sets and that would still change what runs."""

JUDGED_ELSEWHERE = frozenset({"--api-key", "--cudagraph-capture-sizes"})
"""Owned flags that a rule of their own is about."""


def _marlin(config: Config) -> Iterator[str]:
    for flag in flags_of(config):
        by_key = flag.means("--kernel-config") and re.search(
            r"(?i)moe[-_]backend\W+marlin\b", flag.text
        )
        if by_key or (flag.means("--moe-backend") and "marlin" in map(str.lower, flag.values)):
            yield "--moe-backend marlin"


def _key_in_argv(config: Config) -> Iterator[str]:
    for flag in flags_of(config):
        if flag.name.startswith("--api-k"):
            yield "--api-key among the arguments"


def _instead(flag: str) -> str:
    """Return in words what says the same as an owned flag."""
    if reason := WHY.get(whole_flag(flag)):
        return reason
    path = setting_for(flag)
    return f"{path} says it" if path else "the plan says it"


def _owned_flags(config: Config) -> Iterator[str]:
    for flag in flags_of(config):
        owned = owned_flag(flag.words[0])
        if owned and owned not in JUDGED_ELSEWHERE:
            yield f"{owned} ({_instead(owned)})"


def _loose_words(config: Config) -> Iterator[str]:
    words = config.engine.extra_args
    if words and not words[0].startswith("-"):
        yield "the first item is no option"
    for flag in flags_of(config):
        head = flag.words[0].split("=", 1)[0]
        if re.search(r"\s", head):
            yield f"the item that starts with {head.split()[0]} holds several words"


def _owned_env(config: Config) -> Iterator[str]:
    for name in config.engine.extra_env:
        if name in MORE_ENV:
            yield f"{name} ({MORE_ENV[name]})"
        elif name in owned_env():
            yield f"{name} (the plan says it)"
        elif name.startswith("GLM53_"):
            yield f"{name} (GLM53_ names are this program's)"


def _secret_env(config: Config) -> Iterator[str]:
    for name in config.engine.extra_env:
        if names_any_secret(name) and name not in owned_env():
            yield name


def _odd_env(config: Config) -> Iterator[str]:
    for name in config.engine.extra_env:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            yield "a name that no environment can hold"


def _dev_mode(config: Config) -> Iterator[str]:
    if config.engine.extra_env.get("VLLM_SERVER_DEV_MODE", "0") not in ("", "0"):
        yield "VLLM_SERVER_DEV_MODE"


def _no_warmup(config: Config) -> Iterator[str]:
    for flag in flags_of(config) if on_cuda(config) else ():
        if flag.means("--kernel-config") and re.search(r"(?i)jit.warmup\W+false", flag.text):
            yield "enable_jit_warmup is false"


RULES: tuple[Rule, ...] = (
    Rule(
        "moe-marlin",
        "CFG_FORBIDDEN",
        ("engine.extra_args",),
        _marlin,
        "Marlin kernels cannot read EXL3 experts, which stay packed as trellis.",
        "Remove it; the EXL3 method brings its own kernel.",
    ),
    Rule(
        "no-warmup",
        "CFG_FORBIDDEN",
        ("engine.extra_args",),
        _no_warmup,
        "vLLM then leaves out the requests of its warm-up, which reserve FlashKDA's workspace; "
        "the first prompt ends the engine (vLLM 0.33.0, seen on an H200).",
        "Remove it; what was compiled once is kept for the next start.",
    ),
    Rule(
        "key-in-argv",
        "API_KEY_IN_ARGV",
        ("engine.extra_args",),
        _key_in_argv,
        "the key would stand in the process list and in the log; vLLM takes it from "
        "VLLM_API_KEY, which the plan sets.",
        "Put the key into a file and name it in api.key_file.",
    ),
    Rule(
        "owned-flag",
        "CFG_FORBIDDEN",
        ("engine.extra_args",),
        _owned_flags,
        "the last flag wins in vLLM, so the checks and the memory plan would judge another "
        "value than the one that runs.",
        "Remove it from engine.extra_args.",
    ),
    Rule(
        "loose-words",
        "CFG_FORBIDDEN",
        ("engine.extra_args",),
        _loose_words,
        "no shell splits the items, so vLLM would not understand them.",
        "Write one word an item: [--some-flag, value].",
    ),
    Rule(
        "owned-env",
        "CFG_FORBIDDEN",
        ("engine.extra_env",),
        _owned_env,
        "the plan sets it itself, and two voices on one name make ranks differ.",
        "Remove it from engine.extra_env.",
    ),
    Rule(
        "secret-env",
        "CFG_FORBIDDEN",
        ("engine.extra_env",),
        _secret_env,
        "a configuration is readable by everybody on the machine.",
        "Put the secret into a file: api.key_file, weights.token_file, or a credential.",
    ),
    Rule(
        "odd-env",
        "CFG_FORBIDDEN",
        ("engine.extra_env",),
        _odd_env,
        "names are letters, digits and underscores.",
        "Write NAME: text.",
    ),
    Rule(
        "dev-mode",
        "API_DEV_MODE",
        ("engine.extra_env",),
        _dev_mode,
        "it opens routes that reset the cache, put the engine to sleep and call its workers, "
        "all without the key.",
        "Remove it from engine.extra_env.",
    ),
)
