"""The `quantization_config` of an EXL3 checkpoint: routed experts are EXL3, all else is native.

What is native in the files can be quantised while it is loaded: see `dense/`.
"""

import copy
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from vllm.config import get_current_vllm_config
from vllm.model_executor.layers.fused_moe import RoutedExperts
from vllm.model_executor.layers.linear import LinearBase, UnquantizedLinearMethod
from vllm.model_executor.layers.quantization.base_config import (
    QuantizationConfig,
    QuantizeMethodBase,
)
from vllm.platforms import current_platform

from glm53_overlay import guards, settings
from glm53_overlay.dense import groups
from glm53_overlay.errors import OverlayError
from glm53_overlay.exl3.format import MULTIPLIER
from glm53_overlay.exl3.method import Exl3MoEMethod

NAME = "exl3"

FIXED = {
    "quant_method": NAME,
    "scope": "glm53_routed_experts_only",
    "non_routed_dtype_policy": "official_source_native",
    "head_bits": 16,
}
"""Keys with the one value that this overlay serves: what they say is what it does."""

log = logging.getLogger("vllm.glm53")


class Exl3Config(QuantizationConfig):
    """Bits per weight and codebook of the routed experts, and how dense projections are kept.

    `dense` has the mode of each group of projections (`dense/groups.py`), `built` counts those
    that were given out. Asked for a layer of attention, this must be the view of its group.
    """

    def __init__(self, bits: int, codebook: str, dense: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.bits = bits
        self.codebook = codebook
        self.dense = groups.checked(dense or {})
        self.built: Counter[str] = Counter()
        self._group: str | None = None

    def of_group(self, group: str) -> "Exl3Config":
        """Return a view of this configuration for the layers of one group of attention."""
        view = copy.copy(self)
        view._group = group
        return view

    def get_name(self) -> str:
        """Return the name in config.json."""
        return NAME

    def get_supported_act_dtypes(self) -> list[torch.dtype]:
        """Return the dtypes of activations; the kernels turn them into fp16 and fp32."""
        return [torch.bfloat16, torch.float16, torch.float32]

    @classmethod
    def get_min_capability(cls) -> int:
        """Return the oldest GPU that the kernels are written for: Ampere."""
        return 80

    @staticmethod
    def get_config_filenames() -> list[str]:
        """Return the file that vLLM reads when config.json has no quantization_config."""
        return ["quantization_config.json"]

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Exl3Config":
        """Read the checkpoint's settings. Raises OverlayError EXL3_CONFIG for any other kind.

        Only what is used is kept: the map `tensor_storage` alone may have 37 MiB.
        """
        for key, value in FIXED.items():
            if config.get(key, value) != value:
                raise _refusal(key, config[key], f"must be {value!r}")
        for key in ("quant_method", "scope", "bits", "codebook"):
            if key not in config:
                raise OverlayError("EXL3_CONFIG", f"quantization_config has no {key}.")
        bits, codebook = config["bits"], config["codebook"]
        if isinstance(bits, bool) or bits not in range(1, 9):
            raise _refusal("bits", bits, "must be a whole number from 1 to 8")
        if codebook not in MULTIPLIER:
            raise _refusal("codebook", codebook, f"must be one of {', '.join(MULTIPLIER)}")
        log.info(
            "EXL3: %d bits, codebook %s, written by version %s",
            *(bits, codebook, config.get("version", "unknown")),
        )
        return cls(int(bits), codebook, settings.load().dense)

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> QuantizeMethodBase | None:
        """Return how a layer is kept: routed experts packed, linear layers as `dense` says."""
        if isinstance(layer, RoutedExperts):
            guards.require_engine(get_current_vllm_config(), _capability())
            return Exl3MoEMethod(layer.moe_config, self.bits, self.codebook)
        return self._linear(prefix) if isinstance(layer, LinearBase) else None

    def _linear(self, prefix: str) -> QuantizeMethodBase:
        group = self._group or groups.group_of_mlp(prefix)
        mode = self.dense[group] if group and groups.is_projection(group, prefix) else "bf16"
        if group is None or mode == "bf16":
            return UnquantizedLinearMethod()
        from glm53_overlay.dense import routing

        self.built[group] += 1
        return routing.method(mode, prefix)

    def maybe_update_config(
        self, model_name: str, hf_config: Any = None, revision: str | None = None
    ) -> None:
        """Look at the model's config before anything is built. Raises OverlayError."""
        guards.require_model(hf_config)


def _capability() -> int | None:
    found = current_platform.get_device_capability()
    return None if found is None else int(found.major)


def _refusal(key: str, value: object, rule: str) -> OverlayError:
    return OverlayError("EXL3_CONFIG", f"quantization_config.{key} is {value!r} and {rule}.")
