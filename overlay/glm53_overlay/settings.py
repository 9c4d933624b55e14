"""What the plan tells the overlay: the environment variable GLM53_OVERLAY, one JSON object.

vLLM has no flags for these. Every process of the engine reads the same value; a part that the plan
left out has the default below, and a part that this overlay does not know is an error.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from glm53_overlay.errors import OverlayError

VARIABLE = "GLM53_OVERLAY"
MIB = 1 << 20


@dataclass(frozen=True)
class MediaSettings:
    """What prompts may carry besides text. Sizes are of the decoded bytes."""

    images: int = 999
    videos: int = 99
    image_mib: float = 10
    images_mib: float = 64
    video_mib: float = 64
    videos_mib: float = 96
    image_pixels: int = 50_000_000  # of the largest
    image_tokens: int = 2048
    request_image_tokens: int | None = None  # of all together; None for image_tokens each
    urls: bool = False
    domains: tuple[str, ...] = ()


@dataclass(frozen=True)
class ApiSettings:
    """How the API behaves where vLLM's differs from what clients were promised."""

    window: int = 0  # tokens of prompt and reply together; 0 leaves the sum unchecked
    max_active: int = 0  # replies at work or waiting; 0 for any number
    body_mib: float = 96
    default_max_tokens: int | None = None
    deterministic: bool = False
    reasoning_field: Literal["reasoning", "reasoning_content", "both"] = "reasoning"
    template: Literal["appliance", "checkpoint"] = "checkpoint"
    watchdog_report: str | None = None
    media: MediaSettings = field(default_factory=MediaSettings)


@dataclass(frozen=True)
class AblitSettings:
    """Which direction is taken out of which layers, and how strongly."""

    direction: str
    layers: str = "15-45"
    alpha: float = 3.0
    include_mtp: bool = True
    hidden_size: int = 4096


@dataclass(frozen=True)
class Settings:
    """All of it."""

    dense: Mapping[str, str] = field(default_factory=dict)  # the mode of each group; else bf16
    nope: Literal["native", "pad576"] = "native"
    suppress_stops: bool = False  # of clients, while the model thinks
    api: ApiSettings = field(default_factory=ApiSettings)
    ablit: AblitSettings | None = None


_PARTS = {"api": ApiSettings, "ablit": AblitSettings, "media": MediaSettings}


def load(environ: Mapping[str, str] = os.environ) -> Settings:
    """Read the settings. Raises OverlayError OVERLAY_SETTINGS for what this overlay cannot mean."""
    text = environ.get(VARIABLE, "{}")
    try:
        data = json.loads(text)
    except ValueError as error:
        raise OverlayError("OVERLAY_SETTINGS", f"{VARIABLE} is no JSON: {error}.") from None
    made = _made(Settings, data, "")
    assert isinstance(made, Settings)  # noqa: S101 - for the type checker
    return made


def _made(kind: type, data: Any, path: str) -> Any:
    if not isinstance(data, dict):
        raise OverlayError("OVERLAY_SETTINGS", f"{VARIABLE}: {path or 'it'} is no object.")
    known = {one.name for one in fields(kind)}
    if unknown := sorted(data.keys() - known):
        names = ", ".join(path + name for name in unknown)
        raise OverlayError(
            "OVERLAY_SETTINGS",
            f"{VARIABLE}: this overlay does not know {names}. Install the overlay that belongs to "
            "this glm53ctl.",
        )
    values = {
        name: _made(_PARTS[name], value, f"{path}{name}.")
        if name in _PARTS and value is not None
        else tuple(value)
        if isinstance(value, list)
        else value
        for name, value in data.items()
    }
    try:
        return kind(**values)
    except TypeError as error:
        raise OverlayError("OVERLAY_SETTINGS", f"{VARIABLE}: {path or 'it'}: {error}.") from None
