"""What must hold on a node before its engine is started.

Each check is cheap enough to be repeated every few seconds, so that a node starts by itself as
soon as what blocked it is gone.
"""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from glm53ctl.config.schema import Config
from glm53ctl.facts.memory import available_gib
from glm53ctl.facts.network import device_of
from glm53ctl.facts.ports import holder, why_not
from glm53ctl.findings import Finding, Severity


def check_start(config: Config, rank: int) -> list[Finding]:
    """Return what forbids a start of `rank` on this node; empty when nothing does."""
    node = config.nodes[rank].name
    findings = [
        *_address(config, rank),
        *_engine(config),
        *_weights(config),
        *_memory(config),
    ]
    if rank == 0:
        findings += _ports(config)
    return [finding.model_copy(update={"node": node}) for finding in findings]


def _address(config: Config, rank: int) -> Iterator[Finding]:
    address = config.nodes[rank].address
    if not address.is_loopback and device_of(address) is None:
        yield _fail(
            "NET_ADDRESS_MISSING",
            f"no network device here has {address} (nodes[{rank}].address).",
            "Plug in the cable and give its port that address, or correct the configuration.",
        )


def _engine(config: Config) -> Iterator[Finding]:
    program = Path(config.engine.prefix) / "bin" / "vllm"
    if not os.path.exists(program):  # unlike Path.exists, for any text
        yield _fail(
            "ENGINE_MISSING",
            f"there is no {program}.",
            "Install the engine, or set engine.prefix to where it is.",
        )


def _weights(config: Config) -> Iterator[Finding]:
    directory = Path(config.weights.model_dir)
    if not os.path.exists(directory / "config.json"):
        yield _fail(
            "WEIGHTS_MISSING",
            f"{directory} holds no checkpoint (no config.json).",
            "Fetch the weights, or set weights.model_dir to where they are.",
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
