"""Who runs here: the largest processes and who listens on which port."""

import contextlib

import psutil

from glm53ctl.facts.host import Fact, Unknown

LARGEST = 5


class Process(Fact):
    """A process, by what it weighs."""

    pid: int
    name: str
    rss_kib: int = 0
    command: str = ""


class Listener(Fact):
    """A process that listens on a TCP port; pid and name are None where they may not be read."""

    address: str
    port: int
    pid: int | None = None
    name: str | None = None


def probe_processes() -> tuple[Process, ...]:
    """Return the processes with the most resident memory, largest first.

    Arguments are left out: they can hold keys and prompts.
    """
    found = []
    for one in psutil.process_iter(["pid", "name", "memory_info"]):
        memory = one.info["memory_info"]
        if memory is not None:
            found.append(
                Process(pid=one.pid, name=one.info["name"] or "", rss_kib=memory.rss >> 10)
            )
    return tuple(sorted(found, key=lambda process: -process.rss_kib)[:LARGEST])


def probe_listeners() -> tuple[Listener, ...] | Unknown:
    """Return who listens on TCP."""
    try:
        connections = psutil.net_connections("tcp")
    except (psutil.Error, OSError) as error:
        return Unknown(unknown=f"TCP sockets: {error}")
    found = []
    for one in connections:
        if one.status != psutil.CONN_LISTEN or not one.laddr:
            continue
        name = None
        with contextlib.suppress(psutil.Error):
            name = psutil.Process(one.pid).name() if one.pid else None
        found.append(Listener(address=one.laddr.ip, port=one.laddr.port, pid=one.pid, name=name))
    return tuple(found)
