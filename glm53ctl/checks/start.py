"""What must hold on a node before its engine is started.

Each check is cheap enough to be repeated every few seconds, so that a node starts by itself as
soon as what blocked it is gone.
"""

import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from glm53ctl.checks import CHECKS, Node
from glm53ctl.checks.fabric import Resolution, resolve_fabric, resolve_pair
from glm53ctl.checks.wanted import from_config
from glm53ctl.config.schema import Config
from glm53ctl.facts.host import known
from glm53ctl.facts.memory import available_gib, gib, probe_memory
from glm53ctl.facts.network import probe_network
from glm53ctl.facts.node import NodeFacts
from glm53ctl.facts.ports import holder, why_not
from glm53ctl.facts.rdma import probe_rdma
from glm53ctl.findings import Finding, Severity
from glm53ctl.weights import verdict


def check_start(config: Config, rank: int) -> list[Finding]:
    """Return what forbids a start of `rank` on this node; empty when nothing does."""
    node = config.nodes[rank].name
    findings = [
        *_address(config, rank),
        *_engine(config),
        *verdict(config),
        *_memory(config),
    ]
    if rank == 0:
        findings += _ports(config)
    return [finding.model_copy(update={"node": node}) for finding in findings]


def fabric_here(config: Config, rank: int) -> Resolution:
    """Return the fabric of this host as it is now; see `resolve_fabric`."""
    return resolve_fabric(probe_network(), probe_rdma(), from_config(config, rank))


def check_pair(config: Config, facts: Sequence[NodeFacts]) -> list[Finding]:
    """Return what the facts of all nodes together forbid; `facts` in the order of the ranks."""
    nodes = tuple(Node(one, from_config(config, rank)) for rank, one in enumerate(facts))
    found = [f for check in CHECKS if check.of_pair is not None for f in check.of_pair(nodes)]
    return [finding for finding in found if finding.severity is Severity.FAIL]


def fabric_of_pair(config: Config, facts: Sequence[NodeFacts]) -> tuple[Resolution, ...]:
    """Return the fabric of each rank from the facts of all: equal rails on every node."""
    return resolve_pair([Node(one, from_config(config, rank)) for rank, one in enumerate(facts)])


def short_of_free_memory(config: Config) -> bool:
    """Say whether memory for a load is available but not free: the page cache has it.

    CUDA on GB10 counts the page cache as used.
    """
    memory = known(probe_memory())
    if config.engine.platform != "cuda" or memory is None:
        return False
    needed = config.memory.start_gib
    return gib(memory.free) < needed <= gib(memory.available)


def _address(config: Config, rank: int) -> Iterator[Finding]:
    if not config.nodes[rank].address.is_loopback:
        found = fabric_here(config, rank).findings
        yield from (finding for finding in found if finding.severity is Severity.FAIL)


def _engine(config: Config) -> Iterator[Finding]:
    program = Path(config.engine.prefix) / "bin" / "vllm"
    if not os.path.exists(program):  # unlike Path.exists, for any text
        yield _fail(
            "ENGINE_MISSING",
            f"there is no {program}.",
            "Install the engine, or set engine.prefix to where it is.",
        )


def _memory(config: Config) -> Iterator[Finding]:
    available, needed = available_gib(), config.memory.start_gib
    if available < needed:
        yield _fail(
            "MEM_FOREIGN",
            f"{available:.1f} GiB of memory are available, {needed:.1f} are needed.",
            "Stop what else runs on this machine, or lower memory.start_gib.",
        )


def _ports(config: Config) -> Iterator[Finding]:
    wanted = (
        ("api.port", config.api.host, config.api.port),
        ("fabric.master_port", str(config.head.address), config.fabric.master_port),
    )
    for key, address, port in wanted:
        error = why_not(address, port)
        if error is None:
            continue
        if error.errno == errno.EADDRINUSE:
            yield _fail(
                "PORT_IN_USE",
                f"port {port} on {address} ({key}) is held by {holder(address, port)}.",
                f"Stop that process, or choose another {key}.",
            )
        elif error.errno != errno.EADDRNOTAVAIL or key == "api.port":  # else `_address` says it
            yield _fail(
                "PORT_REFUSED",
                f"nobody can listen on port {port} of {address} ({key}): {error.strerror}.",
                "Correct the address or the port.",
            )


def _fail(code: str, message: str, fix: str) -> Finding:
    return Finding(code=code, severity=Severity.FAIL, message=message, fix=fix)
