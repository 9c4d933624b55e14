"""The environment of the engine: what all ranks share and what differs."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from glm53ctl.config.schema import Config, Node
from glm53ctl.plan.options import compact

READY_TIMEOUT_SECONDS = 3600
"""How long the API server of the engine waits for its workers. vLLM's 600 s are shorter than a
cold load on a Spark; the supervisor judges by stages and ends a start much earlier."""


TOKEN_PIXELS = 28 * 28
"""Of an image: as overlay/glm53_overlay/api/media.py counts."""
HD_PIXELS = 1920 * 1088
DECODED_BYTES = 2 << 30


@dataclass(frozen=True)
class Variable:
    """A variable that has the same value on every rank; None leaves it out."""

    name: str
    value: Callable[[Config], str | None]
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class NodeVariable:
    """A variable of one rank, from its node and its fabric device; None leaves it out."""

    name: str
    value: Callable[[Config, Node, str | None], str | None]


def _always(value: str) -> Callable[[Config], str | None]:
    return lambda config: value


def _on_cpu(value: str) -> Callable[[Config], str | None]:
    return lambda config: value if config.engine.platform == "cpu" else None


def _on_cuda(value: str) -> Callable[[Config], str | None]:
    return lambda config: value if config.engine.platform == "cuda" else None


def over_rdma(config: Config) -> bool:
    """Say whether collectives cross the fabric: not with one rank or ranks of one host."""
    return config.world_size > 1 and config.spans_hosts and config.engine.platform == "cuda"


def _over_rdma(value: str) -> Callable[[Config], str | None]:
    return lambda config: value if over_rdma(config) else None


def cache_dir(config: Config) -> str:
    """Return the directory for compiled kernels, one for each installed engine.

    Kernels are loaded by name, so those of another engine must not be found. The engine's path
    tells engines apart: with Nix it is the hash of the whole closure.
    """
    key = hashlib.sha256(config.engine.prefix.encode()).hexdigest()[:12]
    return f"{config.paths.state_dir}/cache/{key}"


def _cache(folder: str, *, cuda_only: bool = False) -> Callable[[Config], str | None]:
    def value(config: Config) -> str | None:
        if cuda_only and config.engine.platform != "cuda":
            return None
        return f"{cache_dir(config)}/{folder}" if folder else cache_dir(config)

    return value


def _allocator(config: Config) -> str | None:
    """Return how torch takes memory: in segments that grow, as the vLLM recipe does.

    In unified memory, what torch reserves and cannot use for its gaps is missing elsewhere. vLLM
    refuses it beside a KV connector (config/vllm.py), which only more arguments can ask for.
    """
    names = [word.replace("_", "-") for word in config.engine.extra_args]
    connector = any(name.startswith(("--kv-transfer", "--kv-offloading")) for name in names)
    return None if connector else _cuda_only("expandable_segments:True", config)


def _largest_frame(config: Config) -> int:
    """Return the pixels of the largest picture that is decoded.

    vLLM's own limit, 179 million, would let the 128 frames of one video take 68 GB beside the
    weights. Images come scaled to their share of tokens.
    """
    return max(config.media.video_pixels, config.media.image_tokens * TOKEN_PIXELS)


def _decoded_bytes(config: Config) -> int:
    """Return what the decoded media of one request may take together.

    All its videos in full HD, and at least 2 GiB, which is 86 frames of 4K. `media.video_pixels`
    does not raise it: vLLM charges a video when it is decoded (multimodal/media/video.py), so this
    bounds what a request keeps, and the size of a frame what one video takes on the way.
    """
    media = config.media
    return max(DECODED_BYTES, media.videos * media.max_frames * 3 * HD_PIXELS)


def overlay_settings(config: Config) -> str:
    """Return the settings that the plugin carries out, as JSON; vLLM has no flag for them.

    `default_max_tokens` is among them because the engine's own way, `max_new_tokens` of the
    generation config, also cuts requests that ask for more (`override_max_tokens` in
    entrypoints/openai/chat_completion/serving.py).
    """
    ablit = config.ablit.model_dump(exclude={"enable"}) if config.ablit.enable else None
    return compact(
        {
            "ablit": ablit,
            "api": _api(config),
            "dense": config.dense_modes,
            "nope": config.engine.nope,
            "suppress_stops": config.thinking.suppress_stops,
        }
    )


def _api(config: Config) -> dict[str, object]:
    """Return what the API's middleware goes by."""
    media, api, serve = config.media, config.api, config.serve
    return {
        "window": serve.max_model_len,
        "max_active": serve.max_num_seqs + api.max_waiting,
        "body_mib": api.body_mib,
        "default_max_tokens": serve.default_max_tokens,
        "deterministic": api.deterministic,
        "reasoning_field": api.reasoning_field,
        "template": "checkpoint" if config.thinking.chat_template else config.thinking.template,
        "watchdog_report": f"{config.paths.run_dir}/watchdog.json",
        "media": {
            "images": media.images if media.enable else 0,
            "videos": media.videos if media.enable else 0,
            "image_mib": media.image_mib,
            "images_mib": media.images_mib,
            "video_mib": media.video_mib,
            "videos_mib": media.videos_mib,
            "image_pixels": media.image_pixels,
            "image_tokens": media.image_tokens,
            "request_image_tokens": media.request_image_tokens,
            "urls": media.urls,
            "domains": media.url_domains,
        },
    }


PLUGINS = "glm53,glm53_api"
"""The only plugins that may load; vLLM loads endpoint plugins only if they are named here."""

CACHES = ("engine.prefix", "paths.state_dir")

COMMON = (
    # The engine gets paths and never asks the network for anything.
    Variable("HF_HUB_OFFLINE", _always("1")),
    Variable("TRANSFORMERS_OFFLINE", _always("1")),
    Variable("DO_NOT_TRACK", _always("1")),
    Variable("VLLM_NO_USAGE_STATS", _always("1")),
    Variable("VLLM_MEDIA_URL_ALLOW_REDIRECTS", _always("0")),
    Variable("VLLM_PLUGINS", _always(PLUGINS)),
    # Logs are read by program: no colours, no banner, every line at once.
    Variable("NO_COLOR", _always("1")),
    Variable("VLLM_DISABLE_LOG_LOGO", _always("1")),
    Variable("PYTHONUNBUFFERED", _always("1")),
    # Nothing from a home directory may stand in for a pinned package.
    Variable("PYTHONNOUSERSITE", _always("1")),
    Variable(
        "VLLM_MAX_IMAGE_PIXELS",
        lambda config: _cuda_only(str(_largest_frame(config)), config),
        ("media.video_pixels", "media.image_tokens"),
    ),
    Variable(
        "VLLM_MAX_MEDIA_REQUEST_DECODE_BYTES",
        lambda config: _cuda_only(str(_decoded_bytes(config)), config),
        ("media.videos", "media.max_frames"),
    ),
    Variable("VLLM_ENGINE_READY_TIMEOUT_S", _always(str(READY_TIMEOUT_SECONDS))),
    Variable(
        "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS",
        lambda config: str(config.engine.execute_timeout_seconds),
        ("engine.execute_timeout_seconds",),
    ),
    Variable(
        "GLM53_OVERLAY",
        overlay_settings,
        (
            "ablit.enable",
            "ablit.direction",
            "ablit.layers",
            "ablit.alpha",
            "ablit.include_mtp",
            "ablit.hidden_size",
            "serve.default_max_tokens",
            "dense",
            "dense_groups.kda",
            "dense_groups.mla",
            "dense_groups.shared",
            "dense_groups.mlp",
            "engine.nope",
            "thinking.suppress_stops",
            "api.body_mib",
            "api.max_waiting",
            "api.deterministic",
            "api.reasoning_field",
            "thinking.template",
            "media.image_mib",
            "media.images_mib",
            "media.video_mib",
            "media.videos_mib",
            "media.image_pixels",
            "media.image_tokens",
            "media.request_image_tokens",
            "media.urls",
            "media.url_domains",
            "paths.run_dir",
        ),
    ),
    Variable("XDG_CACHE_HOME", _cache(""), CACHES),
    Variable("VLLM_CACHE_ROOT", _cache("vllm"), CACHES),
    # These look below the home directory otherwise, which a system user may not have.
    Variable("TRITON_CACHE_DIR", _cache("triton", cuda_only=True), CACHES),
    Variable("TILELANG_CACHE_DIR", _cache("tilelang", cuda_only=True), CACHES),
    Variable("FLASHINFER_WORKSPACE_BASE", _cache("flashinfer", cuda_only=True), CACHES),
    Variable("CUDA_CACHE_PATH", _cache("nv", cuda_only=True), CACHES),
    # In /tmp otherwise, which the unit loses at every stop.
    Variable("TORCHINDUCTOR_CACHE_DIR", _cache("inductor", cuda_only=True), CACHES),
    # Two ranks on a CPU compile their embedding even when eager, with a g++ that a plain Debian
    # lacks: the first request then ends in a 500.
    Variable("TORCHDYNAMO_DISABLE", _on_cpu("1")),
    Variable("PYTORCH_CUDA_ALLOC_CONF", _allocator, ("engine.extra_args",)),
    # NCCL as the vLLM recipe sets it for its GB10 pairs: RoCE v2, no silent fall-back to TCP, rails
    # kept apart, no NVLink features, no CUDA virtual memory. Not measured by this project.
    Variable("NCCL_NET", _over_rdma("IB")),
    Variable("NCCL_NET_PLUGIN", _over_rdma("none")),
    Variable("NCCL_IB_DISABLE", _over_rdma("0")),
    Variable("NCCL_IB_ROCE_VERSION_NUM", _over_rdma("2")),
    Variable("NCCL_IB_MERGE_NICS", _over_rdma("0")),
    Variable("NCCL_CROSS_NIC", _over_rdma("0")),
    Variable("NCCL_NVLS_ENABLE", _on_cuda("0")),
    Variable("NCCL_CUMEM_ENABLE", _on_cuda("0")),
    Variable("NCCL_IGNORE_CPU_AFFINITY", _on_cuda("1")),
    Variable(
        "NCCL_DEBUG",
        lambda config: config.fabric.nccl_debug if config.engine.platform == "cuda" else None,
        ("fabric.nccl_debug",),
    ),
)
"""Variables with one value for the whole pair."""


def fabric_device(node: Node, found: str | None) -> str | None:
    """Return the network device of the fabric: configured, else loopback's, else the one found."""
    if node.interface is not None:
        return node.interface
    return "lo" if node.address.is_loopback else found


def _cuda_only(value: str | None, config: Config) -> str | None:
    return value if config.engine.platform == "cuda" else None


PER_NODE = (
    NodeVariable("VLLM_HOST_IP", lambda config, node, device: str(node.address)),
    NodeVariable("GLOO_SOCKET_IFNAME", lambda config, node, device: device),
    NodeVariable("NCCL_SOCKET_IFNAME", lambda config, node, device: _cuda_only(device, config)),
    NodeVariable(
        "NCCL_IB_HCA", lambda config, node, device: _cuda_only(",".join(node.hcas) or None, config)
    ),
    # Left out rather than empty: NCCL reads an empty string as index 0, a link-local address.
    NodeVariable(
        "NCCL_IB_GID_INDEX",
        lambda config, node, device: _cuda_only(
            None if node.gid_index is None else str(node.gid_index), config
        ),
    ),
    NodeVariable(
        "VLLM_CPU_OMP_THREADS_BIND",
        lambda config, node, device: node.cpus if config.engine.platform == "cpu" else None,
    ),
)
"""Variables that differ between the ranks; nothing else of the environment may."""


def common_env(config: Config) -> dict[str, str]:
    """Return the environment that every rank gets."""
    values = {variable.name: variable.value(config) for variable in COMMON}
    return {name: value for name, value in values.items() if value is not None}


def node_env(config: Config, node: Node, found: str | None) -> dict[str, str]:
    """Return what is this node's own; `found` is the device that holds its address, if known."""
    device = fabric_device(node, found)
    values = {variable.name: variable.value(config, node, device) for variable in PER_NODE}
    return {name: value for name, value in values.items() if value is not None}
