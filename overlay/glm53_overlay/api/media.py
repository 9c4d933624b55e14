"""Images and videos of a request: counted, weighed, and images brought to their share of tokens.

vLLM limits the number, and pixels only once an image has come to it. The sizes are those of the
TensorFold recipe. An image larger than its share is scaled down here, so the sum holds whatever
the checkpoint's processor would allow.
"""

import asyncio
import base64
import binascii
import io
import math
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from PIL import Image, UnidentifiedImageError

from glm53_overlay.api.refusal import RefusedError, invalid
from glm53_overlay.settings import MIB, MediaSettings

FORMATS = ("JPEG", "PNG", "WEBP")
CELL = 28
"""Pixels along one edge of what becomes a token: a patch of 14, two by two merged (Glm5Next's
vision tower, models/glm5next/common/multimodal.py)."""

FRAMES = "video/jpeg"
"""Media type of a video as its frames: each in base64, with commas between them."""

MOST_FRAMES = 2048
"""The highest `media.max_frames`; of more, vLLM takes that many from the beginning."""

JPEG_QUALITY = 95
TOGETHER = 8
"""So many times the pixels of the largest image are decoded for one request: each million takes a
few hundredths of a second of the one thread that all images share."""

FETCH_SECONDS = 60.0
"""For all media of a request together."""

PLURAL = {"image": "images", "video": "videos"}

Fetch = Callable[[str, int], Awaitable[tuple[str, bytes]]]
"""(URL, most bytes) -> (media type, content); raises RefusedError."""


@dataclass
class Item:
    """One image or video, where it stands in the body, and how to put another there."""

    kind: str
    url: str | None
    put: Callable[[str], None]
    content: bytes = b""
    changed: bool = field(default=False, repr=False)


def items(body: dict[str, Any]) -> Iterator[Item]:
    """Yield all media of a request, of every route's form. Raises RefusedError for no URL."""
    for name in ("messages", "input"):
        yield from _within(body.get(name))


def _within(value: Any) -> Iterator[Item]:
    if isinstance(value, list):
        for one in value:
            yield from _within(one)
    if not isinstance(value, dict):
        return
    for kind in PLURAL:
        # vLLM goes by the key; the part's type may be missing.
        if (name := f"{kind}_url") in value:
            yield _from_url(kind, value, name)
    if value.get("type") == "image" and "source" in value:
        yield _from_source(value["source"])
    for name in ("content", "output"):
        yield from _within(value.get(name))


def _from_url(kind: str, part: dict[str, Any], name: str) -> Item:
    holder, key = (part[name], "url") if isinstance(part[name], dict) else (part, name)
    url = holder.get(key)
    if url is not None and not isinstance(url, str):
        raise invalid("media_invalid", f"{name} must be a URL.", "messages")
    return Item(kind, url, lambda fresh: holder.__setitem__(key, fresh))


def _from_source(source: Any) -> Item:
    """Return an image in the form of /v1/messages."""
    if not isinstance(source, dict):
        url = None
    elif source.get("type") == "url":  # vLLM takes all else for data
        url = source.get("url")
    else:
        kind, data = source.get("media_type"), source.get("data")
        url = f"data:{kind};base64,{data}" if isinstance(data, str) else None
    if not isinstance(url, str):
        raise invalid("media_invalid", "An image's source must hold data or a URL.", "messages")

    def put(fresh: str) -> None:
        head, _, data = fresh.partition(";base64,")
        source.clear()
        source.update(type="base64", media_type=head.removeprefix("data:"), data=data)

    return Item("image", url, put)


async def prepare(found: list[Item], limits: MediaSettings, fetch: Fetch) -> None:
    """Check the numbers, and fetch what may be fetched. Raises RefusedError."""
    for kind, plural in PLURAL.items():
        count = sum(item.kind == kind for item in found)
        most = limits.images if kind == "image" else limits.videos
        if count > most:
            raise invalid(
                "media_too_many",
                f"The request holds {count} {plural}, and {most} are served. Those of earlier "
                "turns count again.",
                "messages",
            )
    left = {kind: int(_all(kind, limits) * MIB) for kind in PLURAL}
    try:
        async with asyncio.timeout(FETCH_SECONDS):
            for item in found:
                if item.url is not None and not _is_data(item.url):
                    await _fetch(item, limits, fetch, left[item.kind])
                    left[item.kind] -= len(item.content)
    except TimeoutError:
        text = f"The media of the request took more than {FETCH_SECONDS:g} s to fetch."
        raise invalid("media_url_refused", text, "messages") from None


def weigh(found: list[Item], limits: MediaSettings) -> None:
    """Decode data URLs and check the sizes. Raises RefusedError."""
    for item in found:
        if item.url is not None and not item.changed:
            item.content = _decoded(item.kind, item.url, limits)
    for kind, plural in PLURAL.items():
        total = sum(len(item.content) for item in found if item.kind == kind)
        _require_size(f"The request's {plural}", total, _all(kind, limits))


def _is_data(url: str) -> bool:
    return url[:5].lower() == "data:"


async def _fetch(item: Item, limits: MediaSettings, fetch: Fetch, left: int) -> None:
    if not limits.urls:
        raise invalid(
            "media_url_refused",
            f"This server fetches no media: send the {item.kind} itself as a data URL "
            "(data:image/png;base64,...).",
            "messages",
        )
    most = min(left, int(_each(item.kind, limits) * MIB))
    kind, item.content = await fetch(item.url or "", most)
    item.url = f"data:{kind};base64,{base64.b64encode(item.content).decode()}"
    item.put(item.url)
    item.changed = True


def _all(kind: str, limits: MediaSettings) -> float:
    return limits.images_mib if kind == "image" else limits.videos_mib


def _each(kind: str, limits: MediaSettings) -> float:
    return limits.image_mib if kind == "image" else limits.video_mib


def _decoded(kind: str, url: str, limits: MediaSettings) -> bytes:
    head, comma, data = url.partition(",")
    if not comma or not head.endswith(";base64"):  # as vLLM reads it
        raise invalid("media_invalid", "A data URL must be in base64.", "messages")
    frames = kind == "video" and head[5:].partition(";")[0].lower() == FRAMES
    if frames and data.count(",") >= MOST_FRAMES:
        text = f"A video has more than {MOST_FRAMES} frames, which no setting lets through."
        raise invalid("media_too_many", text, "messages")
    parts = data.split(",") if frames else [data]
    _require_size(f"One {kind}", len(data) * 3 // 4 - 3 * len(parts), _each(kind, limits))
    try:
        content = b"".join(base64.b64decode(part, validate=True) for part in parts)
    except (binascii.Error, ValueError):
        raise invalid("media_invalid", f"The {kind}'s base64 is broken.", "messages") from None
    _require_size(f"One {kind}", len(content), _each(kind, limits))
    return content


def _require_size(what: str, size: int, most_mib: float) -> None:
    if size > most_mib * MIB:
        text = f"{what} has {size / MIB:.1f} MiB, more than the {most_mib:g} MiB that are served."
        text = text.replace("s has", "s have")  # of images
        raise RefusedError(413, "media_too_large", text, "messages")


def fit(found: list[Item], limits: MediaSettings) -> int:
    """Scale images down to their share and return the tokens of all. Raises RefusedError.

    The share is `image_tokens`, or less where many images divide `request_image_tokens`.
    """
    images = [item for item in found if item.kind == "image" and item.content]
    share = limits.image_tokens
    if limits.request_image_tokens is not None:
        share = min(share, limits.request_image_tokens // max(1, len(images)))
    tokens, left = 0, limits.image_pixels * TOGETHER
    for item in images:
        more, decoded = _fit_one(item, share, left, limits)
        tokens, left = tokens + more, left - decoded
    return tokens


def _fit_one(item: Item, share: int, left: int, limits: MediaSettings) -> tuple[int, int]:
    """Return the image's tokens, and the pixels that were decoded: at most `left`."""
    try:
        with Image.open(io.BytesIO(item.content), formats=FORMATS) as image:
            if image.width * image.height > limits.image_pixels:
                raise _too_many_pixels("One image has", limits.image_pixels)
            tokens = math.ceil(image.width / CELL) * math.ceil(image.height / CELL)
            if tokens <= share:
                return tokens, 0
            size = fitting(image.width, image.height, share)
            kind = "JPEG" if image.format == "JPEG" else "PNG"
            image.draft("RGB", size)  # a JPEG is decoded at a fraction of its size
            if (decoded := image.width * image.height) > left:
                raise _too_many_pixels(
                    "The images of the request together have", limits.image_pixels * TOGETHER
                )
            out = io.BytesIO()
            scaled = image.resize(size, Image.Resampling.BICUBIC)
            scaled.save(out, kind, quality=JPEG_QUALITY, exif=image.info.get("exif", b""))
    except UnidentifiedImageError:
        text = f"An image is none of {', '.join(FORMATS)}."
        raise invalid("media_invalid", text, "messages") from None
    except Image.DecompressionBombError:
        raise _too_many_pixels("One image has", limits.image_pixels) from None
    except (OSError, ValueError, SyntaxError) as error:
        text = f"An image cannot be read: {error}."[:200]
        raise invalid("media_invalid", text, "messages") from None
    item.content = out.getvalue()
    data = base64.b64encode(item.content).decode()
    item.put(f"data:image/{kind.lower()};base64,{data}")
    item.changed = True
    return (size[0] // CELL) * (size[1] // CELL), decoded


def _too_many_pixels(what: str, most: int) -> RefusedError:
    text = f"{what} more than the {most / 1e6:g} million pixels that are served; scale down."
    return RefusedError(413, "media_too_large", text, "messages")


def fitting(width: int, height: int, share: int) -> tuple[int, int]:
    """Return the largest size of about the same shape, in whole cells, of at most `share` cells."""
    scale = math.sqrt(share * CELL * CELL / (width * height))
    columns = max(1, min(share, int(width * scale / CELL)))
    rows = max(1, min(share // columns, int(height * scale / CELL)))
    return columns * CELL, rows * CELL


def without(body: dict[str, Any]) -> dict[str, Any]:
    """Return the body with its media replaced by nothing, to count the tokens of its text."""
    return {name: _bare(value) if name == "messages" else value for name, value in body.items()}


def _bare(value: Any) -> Any:
    if isinstance(value, list):
        return [_bare(one) for one in value if not _is_media(one)]
    if isinstance(value, dict) and isinstance(value.get("content"), list):
        return {**value, "content": _bare(value["content"])}
    return value


def _is_media(value: Any) -> bool:
    return isinstance(value, dict) and any(f"{kind}_url" in value for kind in PLURAL)
