"""Media from a URL, when the operator allows it: fetched here, so that the engine never connects.

vLLM would resolve the name itself, after any check, and reach whatever it then points at. Here the
connection goes to the very address that was looked at; redirects are not followed.
"""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlsplit

import httpx

from glm53_overlay.api.refusal import RefusedError, invalid

SECONDS = 30.0
_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+")
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


def is_public(address: str) -> bool:
    """Say whether an address belongs to the internet and not to a private or special network."""
    ip = ipaddress.ip_address(address)
    return ip.is_global and not ip.is_multicast


async def resolve_host(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


async def fetch(
    url: str,
    limit: int,
    domains: Sequence[str],
    resolve: Resolve = resolve_host,
    public: Callable[[str], bool] = is_public,
) -> tuple[str, bytes]:
    """Return media type and content. Raises RefusedError; `limit` is in bytes."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        raise _refused("it is no URL") from None
    if parts.scheme not in ("http", "https") or not host or parts.username is not None:
        raise _refused("only http(s) URLs without a user name are fetched")
    if not host.isascii():
        raise _refused("its host must be in ASCII, as xn--...")
    if domains and host not in domains:
        raise _refused(f"{host} is not among the hosts that this server fetches from")
    try:
        addresses = await resolve(host, port)
    except (OSError, UnicodeError):
        raise _refused(f"{host} has no address") from None
    if not addresses or not all(map(public, addresses)):
        raise _refused(f"{host} is in a private network")
    try:
        async with asyncio.timeout(SECONDS):
            return await _read(parts.scheme, host, port, addresses[0], url, limit)
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
        raise _refused(f"{host} did not answer ({type(error).__name__})") from None


async def _read(
    scheme: str, host: str, port: int, address: str, url: str, limit: int
) -> tuple[str, bytes]:
    target = httpx.URL(url).copy_with(host=address)
    named = f"[{host}]" if ":" in host else host
    default = port == (443 if scheme == "https" else 80)
    # Packed, a few bytes could be gigabytes.
    headers = {"Host": named if default else f"{named}:{port}", "Accept-Encoding": "identity"}
    async with (
        httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=SECONDS) as client,
        client.stream("GET", target, headers=headers, extensions={"sni_hostname": host}) as answer,
    ):
        if answer.status_code != 200:
            raise _refused(f"{host} answered {answer.status_code}; redirects are not followed")
        if answer.headers.get("content-encoding", "identity").lower() != "identity":
            raise _refused(f"{host} sends it compressed")
        content = bytearray()
        async for piece in answer.aiter_raw():
            content += piece
            if len(content) > limit:
                raise RefusedError(413, "media_too_large", f"{host} sends more than {limit} bytes.")
    kind = answer.headers.get("content-type", "").partition(";")[0].strip()
    # It becomes part of a data URL.
    return kind if _MEDIA_TYPE.fullmatch(kind) else "application/octet-stream", bytes(content)


def _refused(reason: str) -> RefusedError:
    return invalid("media_url_refused", f"The media URL was refused: {reason}.", "messages")
