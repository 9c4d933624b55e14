"""A plan for people and programs to read. Secrets are shown by where they come from."""

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from glm53ctl.config.masks import names_any_secret
from glm53ctl.plan.model import RankPlan
from glm53ctl.redact import without_secrets

HIDDEN = "<hidden>"
_FLAG = re.compile(r"^-{1,2}[A-Za-z]")


def argument_lines(argv: Sequence[str]) -> list[tuple[str, ...]]:
    """Return a command line cut before every flag: each flag stands with its values."""
    lines: list[list[str]] = [[]]
    for word in argv:
        if _FLAG.match(word) and lines[-1]:
            lines.append([])
        lines[-1].append(word)
    return [tuple(line) for line in lines]


def shown_argv(plan: RankPlan) -> list[tuple[str, ...]]:
    """Return the lines of the command line, with secrets that have no business there hidden."""
    return [_shown(line) for line in argument_lines(plan.argv)]


def _shown(line: tuple[str, ...]) -> tuple[str, ...]:
    flag = line[0].split("=")[0] if line else ""
    if flag.startswith("--") and names_any_secret(flag.replace("-", "_")):
        return flag, HIDDEN
    return tuple(map(without_secrets, line))


def shown_env(plan: RankPlan) -> dict[str, str]:
    """Return the environment, sorted, with secrets as where they come from."""
    values = {
        name: HIDDEN if names_any_secret(name) else without_secrets(value)
        for name, value in plan.env.items()
    }
    values |= {name: str(source) for name, source in plan.secret_env.items()}
    return dict(sorted(values.items()))


def _shell_lines(plan: RankPlan) -> Iterator[str]:
    for name, value in shown_env(plan).items():
        yield f"{name}={shlex.quote(value)}"
    first, *rest = shown_argv(plan)
    yield shlex.join(first)
    yield from (f"    {shlex.join(line)}" for line in rest)


def as_text(plan: RankPlan) -> str:
    """Return the plan as one shell command, a variable or a flag on each line."""
    return f"# rank {plan.rank} on {plan.node}\n" + " \\\n".join(_shell_lines(plan)) + "\n"


def as_data(plan: RankPlan) -> dict[str, Any]:
    """Return the plan as plain data."""
    return {
        "rank": plan.rank,
        "node": plan.node,
        "argv": [word for line in shown_argv(plan) for word in line],
        "env": shown_env(plan),
        "base_url": plan.base_url,
        "health_url": plan.health_url,
        "metrics_url": plan.metrics_url,
    }


def as_json(plan: RankPlan) -> str:
    """Return the plan as JSON text."""
    return json.dumps(as_data(plan), indent=2)
