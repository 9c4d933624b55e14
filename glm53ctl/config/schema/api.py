"""What clients see: the address, the key, thinking, tools and media."""

import socket
from ipaddress import ip_address
from typing import Annotated, Literal

from pydantic import Field

from glm53ctl.config.schema.base import Knob, Section
from glm53ctl.config.schema.pair import Port


def is_wildcard(host: str) -> bool:
    """Say whether who listens there listens on every address; `0` and `0.0` are 0.0.0.0."""
    bare = host.strip("[]")
    try:
        address = ip_address(bare)
    except ValueError:
        try:
            return not any(socket.inet_aton(bare))
        except OSError:
            return bare in ("", "*")
    return (getattr(address, "ipv4_mapped", None) or address).is_unspecified


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
    body_mib: Annotated[float, Field(gt=0, le=4096)] = 96
    """Largest body of a request, in MiB; base64 makes media a third larger."""
    max_waiting: Annotated[int, Field(ge=0, le=10_000), Knob(tensorfold="MAX_QUEUED")] = 64
    """Replies that may wait beyond `serve.max_num_seqs`; more get 429 with Retry-After."""
    reasoning_field: Literal["reasoning", "reasoning_content", "both"] = "reasoning"
    """Name of the thoughts in chat answers: vLLM's, the TensorFold recipe's, or both."""
    deterministic: bool = False
    """Give requests without a seed one made of their prompt: the same request, the same answer."""

    @property
    def reached_at(self) -> str:
        """The host to reach it from the head: loopback, where it listens on every address."""
        if not is_wildcard(self.host):
            return self.host
        return "::1" if ":" in self.host and "." not in self.host else "127.0.0.1"

    @property
    def endpoint(self) -> str:
        """Its URL, as clients are told."""
        return f"{self.url_at(self.host)}/v1"

    def url_at(self, host: str) -> str:
        """Return the URL of its port on a host or an address."""
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"


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
    suppress_stops: Annotated[bool, Knob(vllm_recipe="GLM53_SUPPRESS_STOPS_IN_REASONING")] = True
    """Look for a client's `stop` strings in the answer only, not in the thoughts before it."""
    template: Literal["appliance", "checkpoint"] = "appliance"
    """The appliance's chat template obeys every effort, `none` included; the checkpoint's always
    thinks and knows no images."""
    chat_template: Annotated[
        str | None, Knob(flag="--chat-template", vllm_recipe="CHAT_TEMPLATE_HOST")
    ] = None
    """Path of a chat template that takes the place of both."""


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
    image_mib: Annotated[float, Field(gt=0)] = 10
    """Largest image, in MiB before base64."""
    images_mib: Annotated[float, Field(gt=0)] = 64
    """All images of one request."""
    video_mib: Annotated[float, Field(gt=0)] = 64
    """Largest video, in MiB before base64."""
    videos_mib: Annotated[float, Field(gt=0)] = 96
    """All videos of one request."""
    image_pixels: Annotated[int, Field(ge=1, le=178_956_970)] = 50_000_000
    """Pixels of the largest image; a larger image is refused. All images of a request that must be
    scaled down may have 8 times as many; a JPEG counts at the fraction at which it is decoded."""
    image_tokens: Annotated[
        int,
        Field(ge=1, le=8192),
        Knob(vllm_recipe="MM_IMAGE_TOKENS", tensorfold="TENSORFOLD_GLM_IMAGE_TOKENS"),
    ] = 2048
    """Tokens of one image; a larger image is scaled down to it."""
    request_image_tokens: Annotated[int | None, Field(ge=1)] = None
    """Tokens that all images of a request share; many images are scaled down further. Left out,
    each may have `image_tokens`, however many there are."""
    urls: Annotated[bool, Knob(tensorfold="VISION_URLS")] = False
    """Fetch media from http(s) URLs of public addresses; otherwise data URLs only."""
    url_domains: tuple[str, ...] = ()
    """Hosts that media may come from when `urls` is on; empty means any."""
    max_frames: Annotated[
        int, Field(ge=1, le=2048), Knob(tensorfold="TENSORFOLD_GLM_VIDEO_FRAMES")
    ] = 128
    """Frames taken from one video."""
    video_pixels: Annotated[int, Field(ge=1, le=33_177_600)] = 3840 * 2160
    """Pixels of the largest frame of a video; a larger video is refused. One video takes up to 3
    bytes a pixel for each of `max_frames` while it is decoded: 3.2 GB at the defaults."""
    cache_gib: Annotated[
        float,
        Field(ge=0),
        Knob(flag="--mm-processor-cache-gb", vllm_recipe="MM_PROCESSOR_CACHE_GB"),
    ] = 1.0
    """Host memory for processed media, in GiB."""
