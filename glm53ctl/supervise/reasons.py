"""Why a rank does not start an epoch: the findings it reports of itself."""

from collections.abc import Sequence

import psutil

from glm53ctl.config.schema import Config
from glm53ctl.errors import UserError
from glm53ctl.facts.ports import holder
from glm53ctl.findings import Finding, Severity
from glm53ctl.supervise.report import RankReport


def _fail(code: str, message: str, fix: str) -> Finding:
    return Finding(code=code, severity=Severity.FAIL, message=message, fix=fix)


def refused(error: UserError) -> Finding:
    """Return a mistake of the operator's as a finding: configuration, token."""
    return _fail(error.code, error.message, error.fix)


def unreadable(error: OSError) -> Finding:
    """Say that something a start depends on cannot be read."""
    return _fail(
        "PROBE_UNKNOWN",
        f"{error.filename or 'what a start needs'} cannot be read: {error.strerror or error}.",
        "Give the service's user the right to read it, or look at the disk.",
    )


def held(reason: str) -> Finding:
    """Say that this rank waits for an operator."""
    return _fail("HELD", reason, "Mend the cause, then `glm53ctl resume`.")


def peer_held(config: Config, rank: int, report: RankReport) -> Finding:
    """Say that another rank waits for an operator."""
    reason = report.findings[0].message if report.findings else "no reason given"
    name = config.nodes[rank].name
    return _fail("PEER_HELD", f"{name} is held: {reason}", "Mend it there, then `glm53ctl resume`.")


def peer_absent(config: Config, rank: int, waited_seconds: float) -> Finding:
    """Say who has not come; there is no end to this waiting."""
    node = config.nodes[rank]
    return Finding(
        code="PEER_ABSENT",
        severity=Severity.WARN,
        message=f"rank {rank} ({node.name} at {node.address}) has not come, "
        f"waiting for {waited_seconds:.0f} s.",
        fix="Start it, or look at its `glm53ctl status`.",
    )


def left_behind(processes: Sequence[psutil.Process]) -> Finding:
    """Say what of an earlier engine outlives its SIGKILL, as in a driver call that never ends."""
    which = f"process{'es' if len(processes) > 1 else ''} "
    return Finding(
        code="RANK_STALE",
        severity=Severity.WARN,
        message=f"the kernel does not let {which}{', '.join(str(p.pid) for p in processes)} of a "
        "killed engine go: memory and GPU may be held.",
        fix="If it stays, reboot this host.",
    )


def link_port_taken(config: Config) -> Finding:
    """Say that the head cannot listen for its workers."""
    address, port = str(config.head.address), config.fabric.link_port
    return _fail(
        "PORT_IN_USE",
        f"port {port} on {address} (fabric.link_port) cannot be listened on: it is held by "
        f"{holder(address, port)}, or the address is elsewhere.",
        "Stop that process, choose another fabric.link_port, or correct nodes[0].address.",
    )
