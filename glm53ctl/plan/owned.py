"""What the plan sets itself, so that extra arguments and variables cannot say something else."""

import re

from glm53ctl.config.schema import Config, settings
from glm53ctl.plan.env import COMMON, PER_NODE
from glm53ctl.plan.options import OPTIONS
from glm53ctl.plan.ranks import API_KEY, RANK_FLAGS

SYNONYMS = {
    "-dp": "--data-parallel-size",
    "-q": "--quantization",
    "-sc": "--speculative-config",
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-n": "--nnodes",
    "-r": "--node-rank",
    "--device-memory-utilization": "--gpu-memory-utilization",
    "--spec-method": "--speculative-config",
    "--spec-model": "--speculative-config",
    "--spec-tokens": "--speculative-config",
    "--max-cudagraph-capture-size": "--cudagraph-capture-sizes",
    "--enable-flashinfer-autotune": "--disable-flashinfer-autotune",
    "--enable-custom-all-reduce": "--disable-custom-all-reduce",
    "--disable-prefix-caching": "--enable-prefix-caching",
    "--disable-auto-tool-choice": "--enable-auto-tool-choice",
    "--uds": "--host",
    "--model-tag": "--model",
}
"""Other words of vLLM 0.33.0 for an owned flag, or for the same value by another way."""

NEVER = {
    "--model": ("weights.model_dir",),
    "--allowed-local-media-path": (),
    "--data-parallel-size": (),
    "--quantization": (),
    "--revision": (),
    "--config": (),  # a file of flags would pass every rule unseen
    "--api-key": ("api.key_file",),  # a secret on the command line stands in `ps` and in the log
    "--hf-token": ("weights.token_file",),
    "--enable-dbo": (),  # two batches on two streams: EXL3's kernels must not meet on a device
}
"""Flags that the plan never gives and never lets through, and the setting to use instead."""

_FLAG = re.compile(r"^-{1,2}[A-Za-z]")


def flag_settings() -> dict[str, tuple[str, ...]]:
    """Return every flag that the plan gives or forbids, with the settings it carries."""
    table: dict[str, tuple[str, ...]] = {
        s.knob.flag: (s.path,) for s in settings(Config) if s.knob.flag is not None
    }
    for option in OPTIONS:
        table.update(option.flags)
    return {**table, **RANK_FLAGS, **NEVER}


def owned_flags() -> frozenset[str]:
    """Return every flag that the plan gives or forbids, with their synonyms."""
    return frozenset({*flag_settings(), *SYNONYMS})


def owned_env() -> frozenset[str]:
    """Return every variable that the plan sets on some rank, secrets included."""
    return frozenset({*(v.name for v in COMMON), *(v.name for v in PER_NODE), API_KEY})


def whole_flag(flag: str) -> str:
    """Return the flag that an owned one stands for: itself, but for a synonym."""
    return SYNONYMS.get(flag, flag)


def setting_for(flag: str) -> str:
    """Return the path of the setting behind an owned flag, "" if it follows from others."""
    carried = flag_settings().get(whole_flag(flag), ())
    return carried[0] if carried else ""


def owned_flag(word: str) -> str | None:
    """Return the owned flag that a word of a command line means, or None.

    Like the engine's parser it reads `--a_b` as `--a-b`, `--a.key` as a key of the JSON of `--a`,
    `--a=1` as `--a`, and takes an abbreviation for the whole word.
    """
    if not _FLAG.match(word):
        return None
    flag = re.split(r"[=.]", word, maxsplit=1)[0]
    if not flag.startswith("--"):
        flag = flag.rstrip("0123456789")  # `-n2` is `-n 2`
        return flag if flag in owned_flags() else None
    flag = flag.replace("_", "-")
    for candidate in (flag, "--" + flag.removeprefix("--no-")):
        if candidate in owned_flags():
            return candidate
    return min((owned for owned in owned_flags() if owned.startswith(flag)), default=None)
