"""The environment at launch: inherited, then the plan's, then secrets read at the last moment."""

import os
from collections.abc import Mapping
from pathlib import Path

from glm53ctl import credentials
from glm53ctl.errors import UserError
from glm53ctl.plan.inherit import inherit
from glm53ctl.plan.model import RankPlan, SecretSource

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


def _refuse(source: SecretSource, path: Path, reason: str) -> UserError:
    return UserError(
        "PLAN_SECRET",
        f"{source.setting or source.credential}: {path} {reason}.",
        "Put the secret alone on the first line of that file, readable by the service.",
    )


def _read(source: SecretSource, path: Path) -> str:
    """Return the one line of a secret file. No message ever holds what was read."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise _refuse(source, path, f"cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise _refuse(source, path, "is not text") from None
    if len(lines) != 1 or not lines[0].strip():
        raise _refuse(source, path, "must hold exactly one line that is not empty")
    if not lines[0].isascii():
        raise _refuse(source, path, "may hold ASCII characters only, since it travels in a header")
    return lines[0].strip()


def read_secret(source: SecretSource, environ: Mapping[str, str]) -> str | None:
    """Return a secret from its explicit file, else from the systemd credential, else None.

    `environ` is the supervisor's: systemd names the directory of the unit's credentials there.
    """
    if source.file is not None:
        return _read(source, Path(source.file))
    credential = credentials.find(source.credential, environ)
    return None if credential is None else _read(source, credential)


def read_secrets(plan: RankPlan, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the secrets of a plan by the names of their variables; absent ones are left out."""
    found = {name: read_secret(source, environ) for name, source in plan.secret_env.items()}
    return {name: secret for name, secret in found.items() if secret is not None}


def engine_env(plan: RankPlan, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the plan's environment over the inherited one, without secrets.

    The engine's own `bin` comes first in PATH: kernels are built with its ninja.
    """
    inherited = inherit(environ)
    path = [os.path.dirname(plan.argv[0]), inherited.get("PATH") or DEFAULT_PATH]
    return {**inherited, "PATH": ":".join(path), **plan.env}


def launch_env(plan: RankPlan, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of the engine process, secrets included: do not print it."""
    return {**engine_env(plan, environ), **read_secrets(plan, environ)}
