"""The command line that all ranks share.

A setting whose value is carried unchanged names its flag in the schema (`Knob.flag`); whatever
needs more than that is one row of `OPTIONS` with a short function. Facts about flags are from the
parser of vLLM 0.33.0 (entrypoints/common/cli_args.py, engine/arg_utils.py).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from glm53ctl.config.schema import Config, Setting, settings

CLOSED_DOMAIN = "invalid.localhost"
"""A host that no URL reaches. vLLM checks hosts only when the list of allowed ones is not empty
(multimodal/media/connector.py), so "no host" has to be said with a name."""

STOCK_EFFORTS = {"none": "low", "minimal": "low", "medium": "high", "xhigh": "max"}
"""Efforts that the checkpoint's own chat template does not know, and the nearest it knows. It
takes an unknown effort for `max`: a request for no thinking would think longest."""


@dataclass(frozen=True)
class Option:
    """One part of the command line: every flag it may give, with the settings each one carries.

    The first setting of a flag is the one to change when somebody wants another value; a flag
    without settings follows from others.
    """

    argv: Callable[[Config], list[str]]
    flags: Mapping[str, tuple[str, ...]]


def compact(value: object) -> str:
    """Return JSON without blanks, for one argument."""
    return json.dumps(value, separators=(",", ":"))


def value_at(config: Config, setting: Setting) -> Any:
    """Return the value of a setting."""
    value: Any = config
    for key in setting.key:
        value = getattr(value, key)
    return value


def carried(config: Config) -> list[str]:
    """Return the flags that carry one setting each: a bool as a bare switch, None not at all."""
    argv: list[str] = []
    for setting in settings(Config):
        value = value_at(config, setting)
        if setting.knob.flag is None or value is None or value is False:
            continue
        argv += [setting.knob.flag] if value is True else [setting.knob.flag, str(value)]
    return argv


def topology(config: Config) -> list[str]:
    """Return how the ranks form one engine: tensor parallel over all nodes, one rank a node."""
    return [
        "--tensor-parallel-size",
        str(config.world_size),
        "--nnodes",
        str(config.world_size),
        "--master-addr",
        str(config.head.address),
        "--distributed-executor-backend",
        "mp",
    ]


def prefix_caching(config: Config) -> list[str]:
    """Return the switch in words: the engine's default depends on the model."""
    return [
        "--enable-prefix-caching" if config.serve.prefix_caching else "--no-enable-prefix-caching"
    ]


def speculation(config: Config) -> list[str]:
    """Return the speculative JSON, or nothing.

    With `dflash` the draft's KV type is always said: left out, the draft inherits the target's
    fp8, for which only the causal TRITON_ATTN is left, and acceptance collapses. So is the way it
    picks tokens, as vLLM's default is greedy. What it drafts is verified by `standard` rejection,
    which is vLLM's default.
    """
    method = config.effective_spec_method
    if method == "none":
        return []
    spec: dict[str, object] = {"method": method, "num_speculative_tokens": config.spec_tokens}
    if method == "dflash":
        spec |= {
            "model": config.weights.draft_dir,
            "kv_cache_dtype": config.spec.draft_kv_dtype,
            "draft_sample_method": config.spec.draft_sample,
        }
        if config.spec.draft_attention is not None:
            spec["attention_backend"] = config.spec.draft_attention
        if config.spec.draft_tensor_parallel_size is not None:
            spec["draft_tensor_parallel_size"] = config.spec.draft_tensor_parallel_size
    return ["--speculative-config", compact(spec)]


def capture_sizes(max_num_seqs: int, drafted: int) -> tuple[int, ...]:
    """Return the batch sizes, in tokens, that CUDA graphs are captured for.

    A decode step holds `drafted + 1` tokens a request, so every multiple of that up to the full
    batch must be there: a step without its size is padded to the next or runs without a graph.
    The powers of two up to one request's step serve batches that are not plain decoding.
    """
    step = drafted + 1
    full = max_num_seqs * step
    powers = {1 << n for n in range(full.bit_length()) if 1 << n <= max(step, 4)}
    return tuple(sorted({*powers, *range(step, full + 1, step)}))


def graphs(config: Config) -> list[str]:
    """Return the capture sizes where graphs are captured at all."""
    if config.engine.platform == "cpu" or config.engine.enforce_eager:
        return []
    sizes = capture_sizes(config.serve.max_num_seqs, config.spec_tokens)
    return ["--cudagraph-capture-sizes", *map(str, sizes)]


def media(config: Config) -> list[str]:
    """Return what prompts may carry besides text.

    The engine fetches from nowhere: where `media.urls` allows it, the overlay's middleware does.
    """
    if not config.media.enable:
        return ["--language-model-only"]
    argv = [
        "--limit-mm-per-prompt",
        compact({"image": config.media.images, "video": config.media.videos}),
        "--media-io-kwargs",
        compact({"video": {"max_frames": config.media.max_frames}}),
    ]
    if config.media.skip_profiling:
        argv.append("--skip-mm-profiling")
    return [*argv, "--allowed-media-domains", CLOSED_DOMAIN]


def _stock_efforts(config: Config) -> dict[str, str]:
    """Return the efforts to rewrite: only those of the checkpoint's template, as it knows few.

    The CPU engine (vLLM 0.32.0) has no `--reasoning-effort-map`, and its tiny model no template
    that thinks.
    """
    thinking = config.thinking
    stock = thinking.chat_template is None and thinking.template == "checkpoint"
    return STOCK_EFFORTS if stock and config.engine.platform == "cuda" else {}


def thinking(config: Config) -> list[str]:
    """Return tool choice and efforts; the parsers themselves are carried from the schema.

    A default effort is given as the template arguments that the engine itself makes of a
    request's `reasoning_effort` (entrypoints/openai/chat_completion/protocol.py), so that a
    request which names one replaces both.
    """
    argv = ["--enable-auto-tool-choice"] if config.thinking.tool_parser is not None else []
    efforts = _stock_efforts(config)
    if efforts:
        argv += ["--reasoning-effort-map", compact(efforts)]
    if config.thinking.default_effort is not None:
        effort = efforts.get(config.thinking.default_effort, config.thinking.default_effort)
        kwargs = {"reasoning_effort": effort, "enable_thinking": effort != "none"}
        argv += ["--default-chat-template-kwargs", compact(kwargs)]
    return argv


MIDDLEWARE = "glm53_overlay.api.middleware.Middleware"


def middleware(config: Config) -> list[str]:
    """Return what stands between clients and the engine's server: the overlay."""
    return ["--middleware", MIDDLEWARE]


def platform(config: Config) -> list[str]:
    """Return what the device needs.

    The vLLM recipe found on GB10 that FlashInfer's autotuning hangs a rank, and replaced the
    persistent top-k of the sparse indexer, the default there. On a CPU there is no custom
    all-reduce.
    """
    if config.engine.platform == "cpu":
        return ["--disable-custom-all-reduce"]
    return ["--disable-flashinfer-autotune", "--sparse-indexer-topk-backend", "per_row"]


OPTIONS = (
    Option(
        topology,
        {
            "--tensor-parallel-size": ("nodes",),
            "--nnodes": ("nodes",),
            "--master-addr": ("nodes",),
            "--distributed-executor-backend": (),
        },
    ),
    Option(
        prefix_caching,
        {
            "--enable-prefix-caching": ("serve.prefix_caching",),
            "--no-enable-prefix-caching": ("serve.prefix_caching",),
        },
    ),
    Option(
        speculation,
        {
            "--speculative-config": (
                "spec.method",
                "spec.tokens",
                "spec.draft_kv_dtype",
                "spec.draft_attention",
                "spec.draft_sample",
                "spec.draft_tensor_parallel_size",
                "licenses.accept",
                "weights.draft_dir",
            )
        },
    ),
    Option(graphs, {"--cudagraph-capture-sizes": ()}),
    Option(
        media,
        {
            "--language-model-only": ("media.enable",),
            "--limit-mm-per-prompt": ("media.images", "media.videos"),
            "--media-io-kwargs": ("media.max_frames",),
            "--skip-mm-profiling": ("media.skip_profiling",),
            "--allowed-media-domains": (),
        },
    ),
    Option(
        thinking,
        {
            "--enable-auto-tool-choice": ("thinking.tool_parser",),
            "--reasoning-effort-map": ("thinking.template",),
            "--default-chat-template-kwargs": ("thinking.default_effort",),
        },
    ),
    Option(middleware, {"--middleware": ()}),
    Option(
        platform,
        {
            "--disable-flashinfer-autotune": ("engine.platform",),
            "--sparse-indexer-topk-backend": ("engine.platform",),
            "--disable-custom-all-reduce": ("engine.platform",),
        },
    ),
)
"""Everything of the shared command line that is not carried unchanged."""


def common_argv(config: Config) -> list[str]:
    """Return the arguments that every rank gets, in this order."""
    return [word for option in OPTIONS for word in option.argv(config)] + carried(config)
