"""What the overlay takes for granted about vLLM, and whether the installed one still keeps it.

A vLLM that moved an argument or routes names otherwise would not fail: it would serve wrong
numbers. So everything that is relied on is looked at before anything is registered.
"""

import inspect
from collections.abc import Iterator
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

from glm53_overlay.errors import OverlayError

KNOWN = {"0.33.0": ("cuda", "cpu"), "0.32.0": ("cpu",)}
"""The versions of vLLM that the overlay was tested with, and on which platforms."""

QUANTIZATION_CONFIG = {
    "get_name",
    "get_supported_act_dtypes",
    "get_min_capability",
    "get_config_filenames",
    "from_config",
    "get_quant_method",
}
MOE_METHOD = {"create_weights", "get_fused_moe_quant_config"}
"""The abstract methods: exactly these must be written by a subclass."""

MOE_CONFIG = {
    "experts_per_token",
    "has_bias",
    "max_num_tokens",
    "moe_parallel_config",
    "swiglu_limit",
}
EXPERT_ROUTES = [
    ("experts.routed_experts.w13_", "experts.0.gate_proj.", 0, "w1"),
    ("experts.routed_experts.w2_", "experts.0.down_proj.", 0, "w2"),
    ("experts.routed_experts.w13_", "experts.0.up_proj.", 0, "w3"),
]
"""Where the tensors of one expert go: (parameter, checkpoint name, expert, shard)."""


def require_known(version: str, platform: str) -> None:
    """Refuse a vLLM that the overlay was not tested with. Raises OverlayError OVERLAY_VLLM."""
    if platform not in KNOWN.get(version, ()):
        known = " and ".join(f"{v} on {'/'.join(where)}" for v, where in KNOWN.items())
        raise OverlayError(
            "OVERLAY_VLLM",
            f"vLLM is {version} on {platform}; this overlay knows {known}. "
            "Install the engine that the lock names.",
        )


def require_kept() -> None:
    """Refuse a vLLM with another contract. Raises OverlayError OVERLAY_CONTRACT."""
    broken = list(differences())
    if broken:
        raise OverlayError("OVERLAY_CONTRACT", f"vLLM is not as it was: {'; '.join(broken)}.")


def differences() -> Iterator[str]:
    """Say in what the installed vLLM differs from what the overlay is written against."""
    from vllm.model_executor.layers.fused_moe import (
        FusedMoEConfig,
        FusedMoEMethodBase,
        MoERunner,
        RoutedExperts,
    )
    from vllm.model_executor.layers.quantization.base_config import QuantizationConfig

    yield from _abstract(QuantizationConfig, QUANTIZATION_CONFIG)
    yield from _abstract(FusedMoEMethodBase, MOE_METHOD)
    yield from _signature(
        FusedMoEMethodBase,
        "create_weights",
        "self layer num_experts hidden_size intermediate_size_per_partition params_dtype "
        "extra_weight_attrs",
    )
    yield from _signature(
        FusedMoEMethodBase,
        "apply",
        "self layer x topk_weights topk_ids shared_experts shared_experts_input",
    )
    yield from _signature(
        FusedMoEMethodBase,
        "maybe_roundup_sizes",
        "self hidden_size intermediate_size_per_partition act_dtype moe_parallel_config",
    )
    yield from _signature(FusedMoEMethodBase, "process_weights_after_loading", "self layer")
    yield from _signature(
        RoutedExperts,
        "weight_loader",
        "self param loaded_weight weight_name shard_id expert_id return_success",
    )
    if lost := MOE_CONFIG - {field.name for field in fields(FusedMoEConfig)}:
        yield f"FusedMoEConfig has no {', '.join(sorted(lost))}"
    routes = RoutedExperts.build_expert_params_mapping("gate_proj", "down_proj", "up_proj", 1)
    if routes != EXPERT_ROUTES:
        yield f"expert tensors go to {routes}"
    # The runner asks this to know whether the ranks' partial sums still are to be added.
    without_kernel = SimpleNamespace(_quant_method=SimpleNamespace(moe_kernel=None))
    if MoERunner._fused_output_is_reduced.fget(without_kernel) is not False:
        yield "MoERunner takes a method without kernel for one that reduces"


def _abstract(cls: Any, expected: set[str]) -> Iterator[str]:
    found = set(cls.__abstractmethods__)
    if found != expected:
        yield f"{cls.__name__} wants {', '.join(sorted(found))} of its subclasses"


def _signature(cls: Any, name: str, expected: str) -> Iterator[str]:
    found = " ".join(inspect.signature(getattr(cls, name)).parameters)
    if found != expected:
        yield f"{cls.__name__}.{name} takes ({found})"
