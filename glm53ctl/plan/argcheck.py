"""Ask the installed engine whether it understands a command line, before anything is stopped."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glm53ctl.errors import UserError
from glm53ctl.plan.credentials import engine_env
from glm53ctl.plan.model import RankPlan

SCRIPT = Path(__file__).with_name("_parse.py")
DEADLINE_SECONDS = 180.0
"""Importing vLLM takes 13 s on two busy cores; a cold disk and a small CPU take longer."""
_LAST_LINES = 3


@dataclass(frozen=True)
class Parsed:
    """What the engine made of a command line: its own version and the value of every flag."""

    version: str
    values: Mapping[str, Any]


def engine_python(plan: RankPlan) -> Path:
    """Return the Python that stands beside the plan's `vllm`."""
    folder = Path(plan.argv[0]).parent
    for name in ("python3", "python"):
        if (folder / name).exists():
            return folder / name
    raise UserError(
        "PLAN_ENGINE",
        f"engine.prefix: there is no Python in {folder}.",
        "Set engine.prefix to the environment that vLLM is installed in.",
    )


def _broken(python: Path, reason: str) -> UserError:
    return UserError(
        "PLAN_ENGINE",
        f"The argument parser of the engine at {python} did not answer: {reason}",
        f"Run `{python} -c 'import vllm'` to see whether that engine is whole.",
    )


def _ask(python: Path, plan: RankPlan, env: Mapping[str, str], deadline_seconds: float) -> Any:
    # -P: the script's folder must not come first in the engine's module path.
    command = [str(python), "-P", str(SCRIPT)]
    question = json.dumps({"argv": plan.argv[1:]})
    try:
        done = subprocess.run(
            command,
            input=question,
            env=dict(env),
            capture_output=True,
            text=True,
            timeout=deadline_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _broken(python, f"no answer within {deadline_seconds:g} s.") from None
    except OSError as error:
        raise _broken(python, f"{error.strerror}.") from None
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError:
        last = " / ".join(done.stderr.strip().splitlines()[-_LAST_LINES:])
        raise _broken(python, last or f"exit status {done.returncode}.") from None


def check_argv(
    plan: RankPlan, environ: Mapping[str, str], deadline_seconds: float = DEADLINE_SECONDS
) -> Parsed:
    """Parse a plan's command line with the engine's own parser; no model is loaded.

    Raises `UserError` PLAN_ARGV with vLLM's sentence if it refuses, and PLAN_ENGINE if the engine
    cannot be asked. Values that JSON cannot hold come back as text.
    """
    python = engine_python(plan)
    answer = _ask(python, plan, engine_env(plan, environ), deadline_seconds)
    if "refusal" in answer:
        raise UserError(
            "PLAN_ARGV",
            f"vLLM {answer['version']} refuses the command line of rank {plan.rank}: "
            f"{answer['refusal']}",
            "Change the setting behind that flag, or engine.extra_args if it stands there.",
        )
    return Parsed(answer["version"], answer["values"])
