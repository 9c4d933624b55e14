"""Rules of the engine: what its kernels, its memory and its ranks can do."""

import re
from collections.abc import Iterator

from glm53ctl.config.argv import Flag
from glm53ctl.config.rules.base import Rule, flags_of, on_cuda
from glm53ctl.config.schema import Config
from glm53ctl.findings import Severity

MODEL_HIDDEN_SIZE = 4096
LAST_LAYER = 45
"""Index of the MTP block, which follows the 45 layers."""
_IN_JSON = re.compile(r"cudagraph[-_]capture[-_]sizes\W+([0-9,\s]*)")
_SIZE = re.compile(r"[0-9]{1,9}")


def _target_kv(config: Config) -> Iterator[str]:
    if on_cuda(config) and config.kv.dtype != "fp8":
        yield f"kv.dtype is {config.kv.dtype}, only fp8 works"


def _batched_tokens(config: Config) -> Iterator[str]:
    if config.serve.max_num_batched_tokens >= 8192:
        yield f"serve.max_num_batched_tokens is {config.serve.max_num_batched_tokens}"


def _batch_below_seqs(config: Config) -> Iterator[str]:
    serve = config.serve
    if serve.max_num_batched_tokens < serve.max_num_seqs:
        yield f"{serve.max_num_batched_tokens} tokens a step for {serve.max_num_seqs} requests"


def _tensor_parallel(config: Config) -> Iterator[str]:
    size = config.serve.tensor_parallel_size
    if size is not None and size != config.world_size:
        yield f"serve.tensor_parallel_size is {size} with {config.world_size} nodes"


def _pipeline(config: Config) -> Iterator[str]:
    if config.serve.pipeline_parallel_size > 1:
        yield f"serve.pipeline_parallel_size is {config.serve.pipeline_parallel_size}"


def _ablit_direction(config: Config) -> Iterator[str]:
    direction = config.ablit.direction
    if config.ablit.enable and not (direction or "").endswith(".safetensors"):
        yield f"ablit.enable with ablit.direction {direction or '(none)'}"


def _ablit_size(config: Config) -> Iterator[str]:
    size = config.ablit.hidden_size
    if on_cuda(config) and config.ablit.enable and size != MODEL_HIDDEN_SIZE:
        yield f"ablit.hidden_size is {size}, the model's is {MODEL_HIDDEN_SIZE}"


def _ablit_layers(config: Config) -> Iterator[str]:
    first, last = map(int, config.ablit.layers.split("-"))
    if first > last or last > LAST_LAYER:
        yield f"ablit.layers is {config.ablit.layers}"


def _utilization(config: Config) -> Iterator[str]:
    share = config.kv.gpu_memory_utilization
    if on_cuda(config) and config.kv.bytes is None and share > 0.86:
        yield f"kv.gpu_memory_utilization is {share}"


def _given_sizes(flag: Flag) -> str | None:
    """Return the sizes that an option lists, None for one that is not about them."""
    if flag.means("--cudagraph-capture-sizes", "--cuda-graph-sizes"):
        return " ".join(flag.values)
    if flag.means("--compilation-config", "-cc") and (found := _IN_JSON.search(flag.text)):
        return found[1]
    return None


def _graph_sizes(config: Config) -> Iterator[str]:
    width = config.spec_tokens + 1
    needed = {width * seqs for seqs in range(1, config.serve.max_num_seqs + 1)}
    for flag in flags_of(config):
        given = _given_sizes(flag)
        if given is None:
            continue
        words = re.split(r"[\s,]+", given)
        missing = sorted(needed - {int(word) for word in words if _SIZE.fullmatch(word)})
        if missing:
            yield f"{flag.name} lacks {', '.join(map(str, missing))}"


RULES: tuple[Rule, ...] = (
    Rule(
        "target-kv",
        "CFG_FORBIDDEN",
        ("kv.dtype",),
        _target_kv,
        "sparse MLA on GB10 has a kernel for fp8 only; bfloat16 finds no backend, nvfp4 is for "
        "dense MHA.",
        "Set kv.dtype to fp8.",
    ),
    Rule(
        "batched-tokens",
        "CFG_FORBIDDEN",
        ("serve.max_num_batched_tokens",),
        _batched_tokens,
        "8192 and more overflow the shared memory of the indexer's top-k on GB10 in long contexts.",
        "Use at most 7168; 1024 is the recipe's.",
    ),
    Rule(
        "batch-below-seqs",
        "CFG_FORBIDDEN",
        ("serve.max_num_batched_tokens", "serve.max_num_seqs"),
        _batch_below_seqs,
        "every running request needs at least one token in a step; vLLM refuses less.",
        "Raise serve.max_num_batched_tokens.",
    ),
    Rule(
        "tensor-parallel",
        "CFG_FORBIDDEN",
        ("serve.tensor_parallel_size",),
        _tensor_parallel,
        "each node runs exactly one rank of the tensor-parallel group.",
        "Leave serve.tensor_parallel_size out.",
    ),
    Rule(
        "pipeline",
        "CFG_FORBIDDEN",
        ("serve.pipeline_parallel_size",),
        _pipeline,
        "vLLM's GLM-5.3 code has no pipeline stages and refuses them.",
        "Leave serve.pipeline_parallel_size out.",
    ),
    Rule(
        "ablit-direction",
        "CFG_FORBIDDEN",
        ("ablit.direction", "ablit.enable"),
        _ablit_direction,
        "no direction is shipped, so a name means none; the user's own is a .safetensors file.",
        "Export the recipe's vector to a .safetensors file with that one tensor, and give its path "
        "in ablit.direction.",
    ),
    Rule(
        "ablit-size",
        "CFG_FORBIDDEN",
        ("ablit.hidden_size",),
        _ablit_size,
        "a direction made for another model edits the wrong space and garbles the output.",
        "Use a direction of this model.",
    ),
    Rule(
        "ablit-layers",
        "CFG_FORBIDDEN",
        ("ablit.layers",),
        _ablit_layers,
        "the range runs from its first to its last layer, and the model ends with 45, the MTP "
        "block.",
        "Write it as 15-45.",
    ),
    Rule(
        "utilization",
        "CFG_MEMORY",
        ("kv.gpu_memory_utilization",),
        _utilization,
        "a prefill of 256k tokens has crashed a head at 0.87, and 0.88 started once in four tries.",
        "Use 0.85, or fix the cache with kv.bytes.",
        Severity.WARN,
    ),
    Rule(
        "graph-sizes",
        "CFG_GRAPH_SIZES",
        ("engine.extra_args", "spec.tokens", "serve.max_num_seqs"),
        _graph_sizes,
        "a step with speculation holds a multiple of drafted tokens plus one, and sizes without "
        "a graph run slowly.",
        "Leave the sizes out, or list every multiple.",
    ),
)
