"""The configuration from all its sources: the way in for every command and service."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from glm53ctl import credentials
from glm53ctl.config.catalog import LEAVES
from glm53ctl.config.document import fail
from glm53ctl.config.identity import differences, digest, shared_view, value_at
from glm53ctl.config.layers import (
    DEFAULT,
    OVERRIDE_NAME,
    Layer,
    Leaves,
    Origin,
    Problems,
    Said,
    command_line,
    configured_profile,
    gather,
    one_run,
)
from glm53ctl.config.schema import Config
from glm53ctl.config.switched import Switched, read_switched, write_switched
from glm53ctl.config.validation import judge_rules, nested, validate
from glm53ctl.errors import UserError
from glm53ctl.files import replace_text
from glm53ctl.findings import Finding, Severity

DEFAULT_FILE = Path("/etc/glm53/config.yaml")


@dataclass(frozen=True)
class Loaded:
    """A valid configuration, where each setting came from, and what is worth a warning."""

    config: Config
    origins: dict[str, Origin]
    findings: list[Finding] = field(default_factory=list)


@dataclass
class ConfigError(UserError):
    """What is wrong with a configuration: all its wrong values, or all wrong combinations."""

    findings: list[Finding] = field(default_factory=list)


def _raise_on_failures(findings: list[Finding]) -> None:
    failures = [finding for finding in findings if finding.severity is Severity.FAIL]
    if not failures:
        return
    if len(failures) == 1:
        only = failures[0]
        place = f"{only.where}: " if only.where else ""
        raise ConfigError(only.code, f"{place}{only.message}", only.fix, findings=failures)
    lines = "".join(f"\n  {finding.sentence()}" for finding in failures)
    message = f"The configuration has {len(failures)} mistakes:{lines}"
    raise ConfigError("CFG_INVALID", message, findings=failures)


def load(
    path: Path | None = None,
    *,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
    rules: bool = True,
    with_run: bool = True,
    switched: Switched | None = None,
    rank: int | None = None,
) -> Loaded:
    """Read the configuration from all its sources; those of one run can be left out.

    With `switched` it is what the next run would use after that switch. `rank` is this node's: a
    worker is not asked for the credentials of the head.

    Without `path` the default file is read when it exists. `overrides` are the command line's
    `path=value` words. Raises `ConfigError` with every wrong value at once, and when there is none
    with every forbidden combination; with `rules=False` combinations are not judged.
    """
    problems = Problems()
    file, required = path or DEFAULT_FILE, path is not None
    leaves = gather(
        file, overrides, environ, problems, required=required, with_run=with_run, switched=switched
    )
    config, findings = _judged(leaves, problems, environ, rules=rules, rank=rank)
    origins = {key: leaves[key].origin if key in leaves else DEFAULT for key in LEAVES}
    return Loaded(config, origins, [f for f in findings if f.severity is Severity.WARN])


def _judged(
    leaves: Leaves,
    problems: Problems,
    environ: Mapping[str, str],
    *,
    rules: bool,
    rank: int | None,
) -> tuple[Config, list[Finding]]:
    """Return the configuration that settings make with its findings; raise when one failed."""
    judged = validate(leaves)
    if not isinstance(judged, Config):
        kept = [f for f in judged if not (problems.incomplete and f.code == "CFG_MISSING")]
        _raise_on_failures(problems.findings + kept)
        raise AssertionError("a layer that cannot be read is a failure of its own")
    present = frozenset(name for name in credentials.NAMES if credentials.is_given(name, environ))
    present |= credentials.OF_HEAD if rank else frozenset()
    ruled = judge_rules(judged, leaves, present) if rules else []
    _raise_on_failures(problems.findings + ruled)
    return judged, problems.findings + ruled


def write_override(config: Config, overrides: Sequence[str], rank: int | None = None) -> Path:
    """Write the settings of one run beside the sockets, where `load` finds them.

    They are judged first together with the running configuration, so that a mistake is refused
    while the pair still serves.
    """
    problems = Problems()
    said = command_line(overrides, problems)
    if moved := said.pop("paths.run_dir", None):
        message = "One run cannot move the directory that its own settings lie in."
        where = moved.origin.where("paths.run_dir")
        problems.findings.append(fail("CFG_FORBIDDEN", where, message, "Leave it out."))
    running = {path: Said(value_at(config, path), DEFAULT) for path in LEAVES}
    _judged({**running, **said}, problems, os.environ, rules=True, rank=rank)
    target = Path(config.paths.run_dir) / OVERRIDE_NAME
    text = yaml.safe_dump(nested(said), sort_keys=False, allow_unicode=True)
    replace_text(target, text)
    return target


def current_override(config: Config) -> tuple[str, ...]:
    """Return the settings of one run, as `write_override` takes them; empty when there are none."""
    leaves = one_run(config.paths.run_dir, Problems())
    return tuple(f"{path}={json.dumps(said.value)}" for path, said in sorted(leaves.items()))


def configured(path: Path | None = None, environ: Mapping[str, str] = os.environ) -> str:
    """Return the profile that is configured, whatever the pair was switched to."""
    return str(configured_profile(path or DEFAULT_FILE, environ))


def current_switch(config: Config) -> Switched:
    """Return what this node keeps of the last switch; nothing of a file that cannot be used."""
    try:
        return read_switched(Path(config.paths.state_dir))
    except (OSError, ValueError):
        return Switched()  # `load` has said so


def write_switch(config: Config, switched: Switched) -> None:
    """Keep a switch on this node, for all runs to come. Raises OSError."""
    write_switched(Path(config.paths.state_dir), switched)


def clear_override(config: Config) -> None:
    """Forget the settings of one run."""
    (Path(config.paths.run_dir) / OVERRIDE_NAME).unlink(missing_ok=True)


__all__ = [
    "DEFAULT_FILE",
    "OVERRIDE_NAME",
    "ConfigError",
    "Layer",
    "Loaded",
    "Origin",
    "Switched",
    "clear_override",
    "configured",
    "current_override",
    "current_switch",
    "differences",
    "digest",
    "load",
    "shared_view",
    "write_override",
    "write_switch",
]
