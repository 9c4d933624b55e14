"""The engine's kernels against the reference, on this node's GPU, before the first start.

A wrong kernel does not fail: it serves wrong numbers. So the overlay checks itself once for each
engine in the life of a supervisor.
"""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from glm53ctl.config.schema import Config
from glm53ctl.engine.overlay import DEADLINE_SECONDS, command, read_report, silent
from glm53ctl.errors import UserError
from glm53ctl.findings import Finding, Severity
from glm53ctl.plan import plan_rank
from glm53ctl.plan.credentials import engine_env

LEFT_OUT = Finding(
    code="OVERLAY_UNVERIFIED",
    severity=Severity.WARN,
    message="the engine's kernels were not compared with the reference (engine.verify_overlay).",
    fix="Set engine.verify_overlay to true and restart.",
)


def is_wanted(config: Config) -> bool:
    """Say whether there are kernels to check: on a CPU the reference itself computes."""
    return config.engine.platform == "cuda"


async def check_kernels(config: Config, rank: int) -> Finding | None:
    """Return why the engine of this node must not serve, or None. Cancelled, it leaves nothing."""
    prefix = Path(config.engine.prefix)
    environment = engine_env(plan_rank(config, rank), os.environ)
    try:
        report = read_report(prefix, *await _run(prefix, environment))
    except UserError as error:
        return _fault(error.code, error.message, error.fix)
    failed = [f"{check.name}: {check.detail}" for check in report.checks if not check.ok]
    if not failed:
        return None
    return _fault(
        "OVERLAY_FAILED",
        f"the overlay of {prefix} does not compute what it must: {'; '.join(failed)}.",
        "Install the engine that the lock names, and see `glm53ctl overlay verify`.",
    )


async def _run(prefix: Path, environment: dict[str, str]) -> tuple[str, str, int]:
    try:
        process = await asyncio.create_subprocess_exec(
            *command(prefix, device="cuda"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            start_new_session=True,  # compilers that it starts go with it
        )
    except OSError as error:
        raise silent(prefix, error.strerror or str(error)) from error
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            out, err = await process.communicate()
    except TimeoutError as error:
        raise silent(prefix, f"no answer within {DEADLINE_SECONDS:g} s") from error
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    return out.decode(errors="replace"), err.decode(errors="replace"), process.returncode or 0


def _fault(code: str, message: str, fix: str) -> Finding:
    return Finding(code=code, severity=Severity.FAIL, message=message, fix=fix)
