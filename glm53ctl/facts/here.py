"""Which rank this host is."""

import socket
from urllib.parse import urlsplit

from glm53ctl.config.schema import Config
from glm53ctl.errors import UserError
from glm53ctl.facts.network import device_of


def rank_here(config: Config) -> int | None:
    """Return which node this host is: by its fabric address, without a cable by its name.

    Where all ranks are on one host, it is the head.
    """
    if config.world_size == 1 or not config.spans_hosts:
        return 0
    for rank, node in enumerate(config.nodes):
        if device_of(node.address) is not None:
            return rank
    names = [node.name for node in config.nodes]
    name = socket.gethostname().partition(".")[0]
    return names.index(name) if name in names else None


def require_head(config: Config, url: str) -> None:
    """Refuse to ask a loopback address of a worker, where nobody listens. Raises UserError."""
    if urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost") and rank_here(config):
        raise UserError(
            "API_ELSEWHERE",
            f"this host is a worker, and the head serves ({url} is each host's own).",
            f"Ask on {config.head.name}, or name an address of it: `glm53ctl bench ... --url`.",
        )


def require_rank(config: Config, rank: int | None = None) -> int:
    """Return the rank that was given, or found. Raises UserError when neither is."""
    found = rank_here(config) if rank is None else rank
    if found is None:
        raise UserError(
            "RANK_UNKNOWN",
            "this host has neither the address nor the name of one of `nodes`.",
            "Plug in the cable, correct `nodes`, or say which node it is with --rank.",
        )
    return found
