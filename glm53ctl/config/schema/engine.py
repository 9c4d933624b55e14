"""The engine: where it is, what it serves, how it uses memory and how it drafts."""

from typing import Annotated, Literal

from pydantic import Field

from glm53ctl.config.schema.base import Knob, Section

Tokens = Annotated[int, Field(ge=1)]


class Engine(Section):
    """The installed vLLM and what is passed to it beyond the settings below."""

    prefix: Annotated[str, Knob(node_local=True)] = "/usr"
    """Environment that holds `bin/vllm` (a virtual environment or a store path)."""
    platform: Literal["cuda", "cpu"] = "cuda"
    """What the engine computes on; `cpu` is for the demo and the tests."""
    dtype: Annotated[Literal["auto", "bfloat16", "float32"], Knob(flag="--dtype")] = "auto"
    """Type of activations; `auto` takes the checkpoint's."""
    load_format: Annotated[
        Literal["auto", "safetensors", "instanttensor", "dummy"],
        Knob(flag="--load-format", vllm_recipe="LOAD_FORMAT"),
    ] = "auto"
    """How shards are read. `instanttensor` is faster and costs KV cache."""
    enforce_eager: Annotated[bool, Knob(flag="--enforce-eager", vllm_recipe="ENFORCE_EAGER")] = (
        False
    )
    """Run without CUDA graphs: slower, for finding faults."""
    execute_timeout_seconds: Annotated[
        int, Field(ge=10, le=86_400), Knob(vllm_recipe="VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS")
    ] = 1800
    """How long one engine step may take before vLLM gives up on the pair. A step that compiles a
    kernel takes minutes; a pair that stands still while it serves is ended sooner, by
    `supervise.wedge_seconds`."""
    nope: Literal["native", "pad576"] = "native"
    """Way of GB10's sparse MLA through FlashInfer: its kernel for latents without RoPE, or the one
    with RoPE fed with zeros. Both compute the same; a choice if the first proves wrong."""
    verify_overlay: bool = True
    """Compare the GPU's kernels with the reference before the first start. Without it, a kernel
    that computes something else serves; status says that it was left out."""
    extra_args: Annotated[tuple[str, ...], Knob(vllm_recipe="EXTRA_ARGS")] = ()
    """More `vllm serve` arguments, one word an item. They come last and so win over vLLM's own
    defaults; what a setting or the plan already says is refused here."""
    extra_env: Annotated[dict[str, str], Knob(vllm_recipe="GLM53_EXTRA_ENV")] = Field(
        default_factory=dict
    )
    """More environment for the engine; names that the plan sets itself are refused."""


class Serve(Section):
    """Size of requests and batches."""

    model_name: Annotated[
        str,
        Field(min_length=1),
        Knob(flag="--served-model-name", vllm_recipe="SERVED_MODEL_NAME", tensorfold="SERVED_NAME"),
    ] = "GLM-5.3-Flash-EXL3"
    """Id that requests must name."""
    max_model_len: Annotated[
        Tokens,
        Field(le=1_048_576),
        Knob(flag="--max-model-len", vllm_recipe="MAX_MODEL_LEN", tensorfold="CONTEXT"),
    ] = 900_000
    """Longest prompt plus reply, in tokens."""
    max_num_seqs: Annotated[
        Tokens,
        Field(le=256),
        Knob(flag="--max-num-seqs", vllm_recipe="MAX_NUM_SEQS", tensorfold="PARALLEL"),
    ] = 4
    """Requests that generate at the same time; more wait."""
    max_num_batched_tokens: Annotated[
        Tokens, Knob(flag="--max-num-batched-tokens", vllm_recipe="MAX_NUM_BATCHED_TOKENS")
    ] = 1024
    """Tokens in one engine step, so also the size of a prefill chunk."""
    prefix_caching: Annotated[
        bool, Knob(vllm_recipe="ENABLE_PREFIX_CACHING", tensorfold="SHARED_PREFIX")
    ] = True
    """Reuse the KV cache of prompts that begin alike."""
    tensor_parallel_size: Annotated[
        int | None, Field(ge=1), Knob(vllm_recipe="TP", tensorfold="TP")
    ] = None
    """Left out, the number of nodes; nothing else works."""
    pipeline_parallel_size: Annotated[int, Field(ge=1), Knob(flag="--pipeline-parallel-size")] = 1
    """Always 1: the model has no pipeline stages."""
    drain_seconds: Annotated[int, Field(ge=0, le=600), Knob(flag="--shutdown-timeout")] = 15
    """How long running requests may finish when the pair is stopped on command."""
    default_max_tokens: Annotated[
        int | None,
        Field(ge=1, le=1_000_000),
        Knob(vllm_recipe="DEFAULT_MAX_NEW_TOKENS", tensorfold="MAX_TOKENS"),
    ] = None
    """Reply length for requests that name none; left out, whatever the window leaves."""


class Kv(Section):
    """The KV cache."""

    dtype: Annotated[
        Literal["auto", "fp8", "bfloat16", "nvfp4"],
        Knob(flag="--kv-cache-dtype", vllm_recipe="KV_CACHE_DTYPE", tensorfold="KV"),
    ] = "fp8"
    """Type of the target's KV cache. Sparse MLA on GB10 has a kernel for fp8 only."""
    gpu_memory_utilization: Annotated[
        float,
        Field(gt=0, le=0.95),
        Knob(flag="--gpu-memory-utilization", vllm_recipe="GPU_MEM_UTIL"),
    ] = 0.87
    """Share of the memory that the engine may take; what weights leave is KV cache."""
    bytes: Annotated[
        int | None,
        Field(ge=1),
        Knob(flag="--kv-cache-memory-bytes", vllm_recipe="KV_CACHE_MEMORY_BYTES"),
    ] = None
    """Size of the KV cache in bytes; set, it is used instead of the share above."""


class Spec(Section):
    """Speculative decoding."""

    method: Annotated[
        Literal["dflash", "mtp", "none"], Knob(vllm_recipe="SPEC_METHOD", tensorfold="DRAFTER")
    ] = "dflash"
    """`dflash` drafts with DFlash2 (its licence must be accepted), `mtp` with the checkpoint's own
    head, `none` not at all."""
    tokens: Annotated[int | None, Field(ge=1, le=16), Knob(vllm_recipe="DFLASH_TOKENS")] = None
    """Drafted tokens a step; left out, 7 for dflash and 2 for mtp."""
    force_tokens: bool = False
    """Allow dflash with another number than the 7 it was trained for."""
    draft_kv_dtype: Literal["auto", "fp8", "bfloat16"] = "auto"
    """Type of the draft's KV cache; only `auto` leads to a non-causal attention backend."""
    draft_attention: str | None = None
    """Attention backend of the draft; left out, FLASH_ATTN is chosen."""
    draft_sample: Literal["probabilistic", "greedy"] = "probabilistic"
    """How dflash picks its tokens: drawn from its own distribution, as the recipe does, or always
    the likeliest, vLLM's default, which is accepted less often above temperature 0."""
    draft_tensor_parallel_size: Annotated[
        int | None, Field(ge=1), Knob(vllm_recipe="DFLASH_DRAFT_TP")
    ] = None
    """Left out, the number of nodes: vLLM 0.33.0 shards the draft so whatever is written."""


DenseMode = Literal["bf16", "fp8", "q4"]


class DenseGroups(Section):
    """Groups of projections that are kept in another type than `dense` says."""

    kda: DenseMode | None = None
    """Linear attention: q, k, v, gates and output, 34 layers."""
    mla: DenseMode | None = None
    """Sparse attention: queries, latents and output, 11 layers."""
    shared: DenseMode | None = None
    """The shared experts, 42 layers."""
    mlp: DenseMode | None = None
    """The MLPs of the first 3 layers."""


class Ablit(Section):
    """Removal of a refusal direction from `o_proj` while loading."""

    enable: Annotated[bool, Knob(vllm_recipe="ABLIT")] = False
    """Edit the weights in memory; the files are never changed."""
    direction: Annotated[str | None, Knob(vllm_recipe="ABLIT_DIRECTION")] = None
    """Path of a .safetensors file with one vector of the hidden size. None is shipped: the recipe's
    `dealign` has to be exported to such a file."""
    layers: Annotated[
        str,
        Field(pattern=r"^[0-9]{1,3}-[0-9]{1,3}$", examples=["15-45"]),
        Knob(vllm_recipe="ABLIT_LAYERS"),
    ] = "15-45"
    """First and last layer, both included."""
    alpha: Annotated[float, Field(ge=0, le=10), Knob(vllm_recipe="ABLIT_ALPHA")] = 3.0
    """Strength; 1.0 removes exactly the component along the direction."""
    include_mtp: Annotated[bool, Knob(vllm_recipe="ABLIT_INCLUDE_MTP")] = True
    """Edit the MTP block as well."""
    hidden_size: Annotated[int, Field(ge=1)] = 4096
    """Hidden size the direction was made for; must be the model's."""
