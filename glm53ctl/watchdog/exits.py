"""What systemd knows of a supervisor's end: the word of ExecStopPost=, in the incident log.

A supervisor that was killed cannot write down why. systemd says it to the command that it runs
after the end of the service, in the environment: systemd.exec(5), $SERVICE_RESULT.
"""

import time
from collections.abc import Mapping
from pathlib import Path

from glm53ctl.config.schema import Supervise
from glm53ctl.supervise.ledger import Incident, Ledger, append_incident

_RESULTS = {
    "core-dump": "was ended by a signal and dumped core",
    "exit-code": "ended by itself",
    "oom-kill": "was killed for want of memory",
    "signal": "was killed",
    "timeout": "took too long to start or to stop",
    "watchdog": "no longer fed systemd's watchdog",
}


def ending(environ: Mapping[str, str]) -> str | None:
    """Return how a service ended, from what systemd told; None when it was all right."""
    result = environ.get("SERVICE_RESULT", "success")
    code, status = environ.get("EXIT_CODE", ""), environ.get("EXIT_STATUS", "")
    if result == "success" or (code, status) == ("exited", "0"):
        return None  # the latter also before READY=1, which systemd calls a broken protocol
    details = ", ".join(word for word in (result, f"{code} {status}".strip()) if word)
    return f"{_RESULTS.get(result, 'failed')} ({details})"


def record_exit(state_dir: Path, rank: int, environ: Mapping[str, str]) -> None:
    """Write down an end that was not success. Counts nothing and opens no socket."""
    how = ending(environ)
    if how is None:
        return
    incident = Incident(
        code="SUPERVISOR_LOST",
        message=f"the supervisor of rank {rank} {how}",
        rank=rank,
        epoch=Ledger(state_dir, rank, Supervise()).epoch,
        at=time.time(),
        seen_by="systemd",
    )
    append_incident(state_dir, incident)
