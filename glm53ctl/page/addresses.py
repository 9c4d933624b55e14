"""Where the page is served, and the names under which it may be asked for."""

import socket
from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address

import psutil

from glm53ctl.config.schema import Config

UNREAD_MILLISECONDS = 30_000
"""The kernel drops a connection whose other end has taken nothing for this long."""
KEEPALIVE = {socket.TCP_KEEPIDLE: 30, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 3}
"""Of a connection at rest: seconds until it is probed, between probes, and unanswered probes."""
BACKLOG = 32


def addresses(hosts: Sequence[str]) -> set[str]:
    """Return the addresses that `page.host` means now: literal ones, and those of named devices.

    Raises OSError where the devices cannot be listed.
    """
    found: set[str] = set()
    for host in hosts:
        try:
            found.add(str(ip_address(host)))
        except ValueError:
            found |= {
                entry.address
                for entry in psutil.net_if_addrs().get(host, ())
                if entry.family in (socket.AF_INET, socket.AF_INET6)
                and "%" not in entry.address  # link-local: no browser can name it
            }
    return {address for address in found if not ip_address(address).is_unspecified}


def names(config: Config) -> set[str]:
    """Return the names of this host: its own, the pair's for its nodes, and what the owner adds."""
    own = socket.gethostname().lower()
    nodes = (node.name.lower() for node in config.nodes)
    extra = (name.lower() for name in config.page.names)
    return {"localhost", own, f"{own}.local", *nodes, *extra}


def as_host(address: str) -> str:
    """Return an address as it stands in a URL."""
    return f"[{address}]" if isinstance(ip_address(address), IPv6Address) else address


def listen(address: str, port: int) -> socket.socket:
    """Return a listening socket. Raises OSError."""
    family = socket.AF_INET6 if isinstance(ip_address(address), IPv6Address) else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_MILLISECONDS)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEPALIVE.items():
            made.setsockopt(socket.IPPROTO_TCP, option, value)
        made.bind((address, port))
        made.listen(BACKLOG)
    except OSError:
        made.close()
        raise
    return made
