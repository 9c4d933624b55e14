"""What the plan tells the overlay: the environment variable GLM53_OVERLAY, one JSON object.

vLLM has no flags for these. Every process of the engine reads the same value; a part that the plan
left out has the default below, and a part that this overlay does not know is an error.
"""

import os
from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from glm53_overlay.errors import OverlayError

VARIABLE = "GLM53_OVERLAY"
MIB = 1 << 20
_STRICT = ConfigDict(extra="forbid", strict=True)


@dataclass(frozen=True, config=_STRICT)
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


@dataclass(frozen=True, config=_STRICT)
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


@dataclass(frozen=True, config=_STRICT)
class AblitSettings:
    """Which direction is taken out of which layers, and how strongly."""

    direction: str
    layers: str = "15-45"
    alpha: float = 3.0
    include_mtp: bool = True
    hidden_size: int = 4096


@dataclass(frozen=True, config=_STRICT)
class Settings:
    """All of it."""

    dense: Mapping[str, str] = field(default_factory=dict)  # the mode of each group; else bf16
    nope: Literal["native", "pad576"] = "native"
    suppress_stops: bool = False  # of clients, while the model thinks
    api: ApiSettings = field(default_factory=ApiSettings)
    ablit: AblitSettings | None = None


def load(environ: Mapping[str, str] = os.environ) -> Settings:
    """Read the settings. Raises OverlayError OVERLAY_SETTINGS for what this overlay cannot mean."""
    try:
        return TypeAdapter(Settings).validate_json(environ.get(VARIABLE, "{}"))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise OverlayError(
            "OVERLAY_SETTINGS",
            f"{VARIABLE}: {where}: {first['msg']}. Install the overlay that belongs to this "
            "glm53ctl.",
        ) from None
