"""Rules of what clients meet: the address, the key, media."""

from collections.abc import Iterator
from ipaddress import ip_address

from glm53ctl.config.rules.base import Rule, on_cuda
from glm53ctl.config.schema import Config
from glm53ctl.config.schema.api import is_wildcard
from glm53ctl.credentials import stored
from glm53ctl.findings import Severity

_PUT = f"Put a key into {stored('api-key')} (with NixOS, say so in credentials.apiKey)"


def _without_key(config: Config) -> bool:
    return config.api.key_file is None


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _wildcard_without_key(config: Config) -> Iterator[str]:
    api = config.api
    if is_wildcard(api.host) and _without_key(config) and not api.open:
        yield f"api.host {api.host or '(empty)'} with port {api.port} and no key"


def _lan_without_key(config: Config) -> Iterator[str]:
    api = config.api
    reachable = not is_wildcard(api.host) and not _is_loopback(api.host)
    if reachable and _without_key(config) and not api.open:
        yield f"api.host {api.host} with port {api.port} and no key"


def _said_open(config: Config) -> Iterator[str]:
    api = config.api
    if api.open and _without_key(config) and not _is_loopback(api.host):
        yield f"api.open with api.host {api.host}, port {api.port}"


def _loopback_only(config: Config) -> Iterator[str]:
    if _is_loopback(config.api.host) and _without_key(config):
        yield f"api.host {config.api.host} and no key"


def _no_host(config: Config) -> Iterator[str]:
    if config.api.host in ("", "*"):
        yield f"api.host is {config.api.host or 'empty'}"


def _in_brackets(config: Config) -> Iterator[str]:
    if "[" in config.api.host:
        yield f"api.host {config.api.host}"


def _profiling(config: Config) -> Iterator[str]:
    if on_cuda(config) and config.media.enable and not config.media.skip_profiling:
        yield "media.skip_profiling (SKIP_MM_PROFILING) is off"


def _media_budget(config: Config) -> Iterator[str]:
    media, window = config.media, config.serve.max_model_len
    tokens = media.images * media.image_tokens
    if media.request_image_tokens is not None:
        tokens = min(tokens, media.request_image_tokens)
    if media.enable and tokens * 4 > window:
        yield f"{media.images} images of up to {tokens} tokens in all in a window of {window}"


def _any_media_host(config: Config) -> Iterator[str]:
    if config.media.enable and config.media.urls and not config.media.url_domains:
        yield "media.urls is on and media.url_domains is empty"


RULES: tuple[Rule, ...] = (
    Rule(
        "wildcard-no-key",
        "API_NO_KEY",
        ("api.host",),
        _wildcard_without_key,
        "everybody who reaches this machine could use the server and read its prompts.",
        f"{_PUT}, or set api.host to one address, or say api.open: true.",
        waived_by="api-key",
    ),
    Rule(
        "lan-no-key",
        "API_NO_KEY",
        ("api.host",),
        _lan_without_key,
        "everybody on that network can use the server.",
        f"{_PUT}, or say api.open: true.",
        Severity.WARN,
        waived_by="api-key",
    ),
    Rule(
        "open",
        "API_NO_KEY",
        ("api.open",),
        _said_open,
        "the server answers everybody who reaches it, as asked for.",
        f"{_PUT} when that changes.",
        Severity.WARN,
        waived_by="api-key",
    ),
    Rule(
        "loopback",
        "API_LOOPBACK",
        ("api.host",),
        _loopback_only,
        "only programs on the head reach the server.",
        severity=Severity.OK,
        waived_by="api-key",
    ),
    Rule(
        "no-host",
        "CFG_FORBIDDEN",
        ("api.host",),
        _no_host,
        "it is no address, and the canary and the clients could not reach the server.",
        "Write 0.0.0.0 for every address, or 127.0.0.1 for this machine alone.",
    ),
    Rule(
        "host-in-brackets",
        "CFG_FORBIDDEN",
        ("api.host",),
        _in_brackets,
        "brackets are a URL's way to write an address, and nobody can listen there.",
        "Write the address alone, such as ::1.",
    ),
    Rule(
        "media-profiling",
        "CFG_FORBIDDEN",
        ("media.skip_profiling",),
        _profiling,
        "profiling with the largest image and video alone exhausts a Spark's unified memory.",
        "Set media.skip_profiling to true.",
    ),
    Rule(
        "media-budget",
        "CFG_MM_BUDGET",
        ("media.images", "media.image_tokens", "media.request_image_tokens"),
        _media_budget,
        "images alone could take more than a quarter of the window, and no memory is reserved "
        "for them.",
        "Lower media.images, or say media.request_image_tokens.",
        Severity.WARN,
    ),
    Rule(
        "media-hosts",
        "CFG_MEDIA_HOSTS",
        ("media.urls", "media.url_domains"),
        _any_media_host,
        "the server would fetch from any public host that a prompt names.",
        "List the hosts in media.url_domains.",
        Severity.WARN,
    ),
)
