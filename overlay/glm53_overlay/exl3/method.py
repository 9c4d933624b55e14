"""The method by which vLLM keeps and runs the routed experts of one layer."""

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from vllm.model_executor.layers.fused_moe import FusedMoEConfig, FusedMoEMethodBase, RoutedExperts
from vllm.model_executor.utils import set_weight_attrs

from glm53_overlay.errors import OverlayError
from glm53_overlay.exl3.experts import Backend, Experts, Projection
from glm53_overlay.exl3.format import MARKED, Spec
from glm53_overlay.exl3.kernels import make_backend
from glm53_overlay.exl3.loading import PARAMETERS, ExpertLoader, unwanted


class Exl3MoEMethod(FusedMoEMethodBase):
    """Routed experts that stay packed; one object for each layer.

    `moe_kernel` stays None: vLLM's runner then executes the shared expert itself and sums our
    partial result over the ranks, once.
    """

    def __init__(self, moe: FusedMoEConfig, bits: int, codebook: str) -> None:
        super().__init__(moe)
        self.bits = bits
        self.codebook = codebook
        self._loader: ExpertLoader
        self._backend: Backend

    def maybe_roundup_sizes(
        self,
        hidden_size: int,
        intermediate_size_per_partition: int,
        act_dtype: torch.dtype,
        moe_parallel_config: Any,
    ) -> tuple[int, int]:
        """Return the sizes as they are: padding would move the cut between the ranks."""
        return hidden_size, intermediate_size_per_partition

    def create_weights(
        self,
        layer: RoutedExperts,
        num_experts: int,
        hidden_size: int,
        intermediate_size_per_partition: int,
        params_dtype: torch.dtype,
        **extra_weight_attrs: Any,
    ) -> None:
        """Make room for this rank's packed experts, and a loader that fills all of it.

        Parameters are named as vLLM's models ask for them, `w13_<suffix>` and `w2_<suffix>`.
        Those of unwanted tensors are empty and exist only so that such a tensor meets the loader;
        they and the markers go when the layer is loaded.
        """
        _require_supported(layer, self.moe)
        intermediate = intermediate_size_per_partition * self.moe.tp_size
        column = Spec(hidden_size, intermediate, self.bits, self.codebook)
        row = Spec(intermediate, hidden_size, self.bits, self.codebook)
        loader = ExpertLoader(
            layer.layer_name,
            num_experts,
            {"w1": column, "w3": column, "w2": row},
            self.moe.tp_rank,
            self.moe.tp_size,
        )
        for group, projections in PARAMETERS.items():
            part = loader.shards[projections[0]].part
            for suffix, (dtype, shape) in part.tensors.items():
                kept = (len(projections), num_experts, *shape) if suffix not in MARKED else (0,)
                _register(layer, f"{group}_{suffix}", torch.empty(kept, dtype=dtype), loader)
            for suffix in unwanted(part):
                _register(layer, f"{group}_{suffix}", torch.empty(0), loader)
        self._loader = loader

    def process_weights_after_loading(self, layer: RoutedExperts) -> None:
        """Refuse a layer that is not whole, then hand it to the backend of its device."""
        self._loader.close()
        for name, parameter in list(layer.named_parameters(recurse=False)):
            if parameter.numel() == 0:
                delattr(layer, name)
        experts = Experts(
            gate=_projection(layer, "w13", 0),
            up=_projection(layer, "w13", 1),
            down=_projection(layer, "w2", 0),
            bits=self.bits,
            codebook=self.codebook,
            swiglu_limit=float(layer.swiglu_limit or 0.0),
        )
        self._backend = make_backend(
            experts,
            experts.gate.trellis.device,
            self.moe.max_num_tokens,
            self.moe.experts_per_token,
        )

    def get_fused_moe_quant_config(self, layer: RoutedExperts) -> None:
        """Return nothing: no kernel of vLLM's runs here."""

    def apply(
        self,
        layer: RoutedExperts,
        x: Tensor,
        topk_weights: Tensor,
        topk_ids: Tensor,
        shared_experts: Any = None,
        shared_experts_input: Tensor | None = None,
    ) -> Tensor:
        """Return this rank's part of the routed sum, [T, H]; the runner reduces it."""
        return self._backend.run(x, topk_ids, topk_weights)


def _register(layer: RoutedExperts, name: str, data: Tensor, loader: ExpertLoader) -> None:
    parameter = Parameter(data, requires_grad=False)
    set_weight_attrs(parameter, {"weight_loader": loader})
    layer.register_parameter(name, parameter)


def _projection(layer: RoutedExperts, group: str, place: int) -> Projection:
    """Return one projection's tensors, [E, ...] each, as views of the layer's parameters."""
    return Projection(
        **{
            field.name: getattr(layer, f"{group}_{field.name}").data[place]
            for field in fields(Projection)
        }
    )


def _require_supported(layer: RoutedExperts, moe: FusedMoEConfig) -> None:
    """Refuse what the checkpoint's models do not have, rather than compute something else."""
    refused = {
        "expert parallelism": moe.use_ep,
        "biases": moe.has_bias,
        "router weights on the input": layer.apply_router_weight_on_input,
        f"the activation {layer.activation.value}": layer.activation.value != "silu",
        "a scaled or shifted SwiGLU": (layer.swiglu_alpha, layer.swiglu_beta) != (None, None),
    }
    found = [what for what, present in refused.items() if present]
    if found:
        raise OverlayError(
            "EXL3_LAYER", f"{layer.layer_name}: EXL3 experts do not know {' or '.join(found)}."
        )
