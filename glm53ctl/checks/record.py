"""A node's facts as a bundle that can be shown to strangers."""

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from pydantic import JsonValue

from glm53ctl.config.masks import names_a_secret
from glm53ctl.config.schema import Config
from glm53ctl.facts.node import NodeFacts

HIDDEN = "(not shown)"
_IPV4 = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])")
_IPV6 = re.compile(
    r"(?<![0-9A-Fa-f:.])(?:[0-9A-Fa-f]{1,4}:){2,7}(?::?[0-9A-Fa-f]{1,4}|:)(?![\w:])|"
    r"(?<![0-9A-Fa-f:.])(?:[0-9A-Fa-f]{1,4}:)+(?::[0-9A-Fa-f]{1,4})+(?![\w:])"
)
_SECRET = re.compile(r"\b(?:sk-|hf_|ghp_|gho_|github_pat_)[\w-]+|(?<=Bearer )\S+")
_ASSIGNED = re.compile(r"\b([A-Za-z_][\w-]*)(=)([^\s\"\\]+)")


def bundle(facts: NodeFacts, config: Config, *, addresses: bool = False) -> str:
    """Return facts and configuration as JSON without secrets; see `redact`.

    `addresses` keeps public addresses; others are always kept, as nothing can be judged without.
    """
    told = facts.model_copy(update={"config": _without_secrets(config)})
    return redact(told.model_dump_json(indent=1), addresses=addresses)


def _without_secrets(config: Config) -> dict[str, JsonValue]:
    """Return the configuration; what the owner passes through as it is may hold anything."""
    values: dict[str, JsonValue] = config.model_dump(mode="json")
    engine = values["engine"]
    if isinstance(engine, dict):
        engine["extra_env"], engine["extra_args"] = {}, []
    return values


def redact(text: str, *, addresses: bool = False) -> str:
    """Return a text without tokens, and with documentation addresses for public ones.

    The same address becomes the same one everywhere, so that what belongs together still does.
    """
    text = _SECRET.sub(HIDDEN, text)
    text = _ASSIGNED.sub(lambda m: f"{m[1]}{m[2]}{HIDDEN}" if names_a_secret(m[1]) else m[0], text)
    if addresses:
        return text
    seen: dict[str, str] = {}
    text = _IPV4.sub(lambda m: _stand_in_v4(m[0], seen), text)
    return _IPV6.sub(lambda m: _stand_in_v6(m[0], seen), text)


def _stand_in_v4(address: str, seen: dict[str, str]) -> str:
    try:
        public = IPv4Address(address).is_global
    except AddressValueError:
        return address
    return seen.setdefault(address, f"192.0.2.{len(seen) % 254 + 1}") if public else address


def _stand_in_v6(address: str, seen: dict[str, str]) -> str:
    try:
        public = IPv6Address(address).is_global
    except AddressValueError:
        return address
    return seen.setdefault(address, f"2001:db8::{len(seen) + 1:x}") if public else address
