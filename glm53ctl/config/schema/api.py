"""What clients see: the address, the key, thinking, tools and media."""

from typing import Annotated, Literal

from pydantic import Field

from glm53ctl.config.schema.base import Knob, Section
from glm53ctl.config.schema.pair import Port


class Api(Section):
    """The OpenAI-compatible server on the head."""

    host: Annotated[str, Knob(vllm_recipe="HOST", tensorfold="HOST")] = "127.0.0.1"
    """Address it listens on. 0.0.0.0 needs a key, or `open: true`."""
    port: Annotated[Port, Knob(vllm_recipe="PORT", tensorfold="PORT")] = 8888
    """Port it listens on."""
    key_file: Annotated[str | None, Knob(node_local=True, vllm_recipe="VLLM_API_KEY")] = None
    """File with the API key; left out, the systemd credential `api-key`; without both, no key."""
    open: bool = False
    """Say so if everybody who reaches the address may use the server without a key."""


class Thinking(Section):
    """Reasoning and tool calls."""

    parser: Annotated[Literal["glm45"] | None, Knob(flag="--reasoning-parser")] = "glm45"
    """Separates thinking from the answer."""
    tool_parser: Annotated[Literal["glm47"] | None, Knob(flag="--tool-call-parser")] = "glm47"
    """Turns the model's tool syntax into `tool_calls`."""
    default_effort: Annotated[
        Literal["none", "low", "high", "max"] | None,
        Knob(vllm_recipe="GLM53_DEFAULT_REASONING_EFFORT", tensorfold="REASONING_EFFORT"),
    ] = None
    """Effort of requests that name none; left out, the chat template's own."""
    chat_template: Annotated[str | None, Knob(flag="--chat-template")] = None
    """Path of a chat template; left out, the checkpoint's."""


class Media(Section):
    """Images and videos in prompts."""

    enable: Annotated[bool, Knob(vllm_recipe="LANGUAGE_MODEL_ONLY", tensorfold="VISION")] = True
    """Load the vision tower."""
    images: Annotated[int, Field(ge=0, le=999), Knob(vllm_recipe="LIMIT_MM.image")] = 4
    """Images in one request."""
    videos: Annotated[int, Field(ge=0, le=99), Knob(vllm_recipe="LIMIT_MM.video")] = 1
    """Videos in one request."""
    skip_profiling: Annotated[bool, Knob(vllm_recipe="SKIP_MM_PROFILING")] = True
    """Do not size memory with the largest image: that alone can exhaust a Spark."""
    urls: Annotated[bool, Knob(tensorfold="VISION_URLS")] = False
    """Fetch media from http(s) URLs; otherwise data URLs only."""
    url_domains: tuple[str, ...] = ()
    """Hosts that media may come from when `urls` is on; empty means any."""
    max_frames: Annotated[
        int, Field(ge=1, le=2048), Knob(tensorfold="TENSORFOLD_GLM_VIDEO_FRAMES")
    ] = 128
    """Frames taken from one video."""
    cache_gib: Annotated[
        float,
        Field(ge=0),
        Knob(flag="--mm-processor-cache-gb", vllm_recipe="MM_PROCESSOR_CACHE_GB"),
    ] = 1.0
    """Host memory for processed media, in GiB."""
