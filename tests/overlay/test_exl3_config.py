"""Which checkpoints are read, and which layers of them are EXL3."""

import logging
from types import SimpleNamespace

import pytest
import torch
from vllm_model import load, vllm_config

from glm53_overlay.errors import OverlayError
from glm53_overlay.exl3 import method
from glm53_overlay.exl3.config import Exl3Config
from glm53_overlay.exl3.method import Exl3MoEMethod
from glm53_overlay.exl3.tiny import QUANTIZATION

PUBLISHED = {
    "quant_method": "exl3",
    "bits": 4,
    "codebook": "mcg",
    "head_bits": 16,
    "scope": "glm53_routed_experts_only",
    "non_routed_dtype_policy": "official_source_native",
    "serving_reader_qualified": False,
    "version": "0.0.43",
}


def test_the_published_configuration_is_read(caplog):
    with caplog.at_level(logging.INFO, logger="vllm.glm53"):
        config = Exl3Config.from_config(PUBLISHED)
    assert (config.bits, config.codebook, config.get_name()) == (4, "mcg", "exl3")
    assert "written by version 0.0.43" in caplog.text
    assert QUANTIZATION == PUBLISHED


def test_the_map_of_all_tensors_is_not_kept():
    config = Exl3Config.from_config(PUBLISHED | {"tensor_storage": {"a": {"b": 1}}})
    assert "tensor_storage" not in repr(vars(config))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"bits": 0}, "bits is 0"),
        ({"bits": 9}, "bits is 9"),
        ({"bits": 3.5}, "bits is 3.5"),
        ({"bits": True}, "bits is True"),
        ({"codebook": "qtip"}, "codebook is 'qtip'"),
        ({"scope": "everything"}, "scope is 'everything' and must be 'glm53_routed_experts_only'"),
        ({"head_bits": 6}, "head_bits is 6 and must be 16"),
        ({"non_routed_dtype_policy": "fp8"}, "non_routed_dtype_policy is 'fp8'"),
        ({"quant_method": "exl2"}, "quant_method is 'exl2'"),
    ],
)
def test_another_kind_is_refused(change, says):
    with pytest.raises(OverlayError, match=f"EXL3_CONFIG: quantization_config.{says}"):
        Exl3Config.from_config(PUBLISHED | change)


@pytest.mark.parametrize("key", ["bits", "codebook", "scope"])
def test_what_is_not_said_is_not_guessed(key):
    with pytest.raises(OverlayError, match=f"EXL3_CONFIG: quantization_config has no {key}"):
        Exl3Config.from_config({k: v for k, v in PUBLISHED.items() if k != key})


def test_routed_experts_are_packed_and_all_else_is_native(tiny_glm4):
    model = load(vllm_config(tiny_glm4 / "exl3"))
    methods = {
        name: type(module.quant_method).__name__
        for name, module in model.named_modules()
        if getattr(module, "quant_method", None) is not None
    }
    packed = {name for name, method in methods.items() if method == Exl3MoEMethod.__name__}
    assert packed == {f"model.layers.{layer}.mlp.experts.routed_experts" for layer in (1, 2)}
    others = set(methods.values()) - {Exl3MoEMethod.__name__}
    assert others == {"UnquantizedLinearMethod", "UnquantizedEmbeddingMethod"}


def test_a_loaded_layer_holds_its_packed_tensors_and_nothing_else(tiny_glm4):
    model = load(vllm_config(tiny_glm4 / "exl3"))
    experts = model.get_submodule("model.layers.1.mlp.experts.routed_experts")
    held = {name: tuple(p.shape) for name, p in experts.named_parameters(recurse=False)}
    del held["e_score_correction_bias"]  # the router's
    assert held == {
        "w13_trellis": (2, 8, 16, 16, 64),
        "w13_suh": (2, 8, 256),
        "w13_svh": (2, 8, 256),
        "w2_trellis": (1, 8, 16, 16, 64),
        "w2_suh": (1, 8, 256),
        "w2_svh": (1, 8, 256),
    }


def test_a_layer_of_vllm_computes_what_its_dense_twin_computes(tiny_glm4):
    """The method inside vLLM's layer, from tensors that vLLM's loader put there."""
    from safetensors.torch import load_file

    from glm53_overlay.exl3.format import swiglu

    model = load(vllm_config(tiny_glm4 / "exl3"))
    dense = load_file(tiny_glm4 / "dense" / "model.safetensors")
    experts = model.get_submodule("model.layers.2.mlp.experts.routed_experts")
    generator = torch.Generator().manual_seed(9)
    x = torch.randn(4, 256, generator=generator)
    ids = torch.tensor([[0, 7], [3, 1], [7, 2], [5, 4]])
    weights = torch.rand(4, 2, generator=generator)
    found = experts.quant_method.apply(experts, x, weights, ids)
    wanted = torch.zeros_like(x)
    for token in range(4):
        for choice in range(2):
            name = f"model.layers.2.mlp.experts.{int(ids[token, choice])}"
            gate, up, down = (dense[f"{name}.{p}_proj.weight"] for p in ("gate", "up", "down"))
            inner = swiglu(gate @ x[token], up @ x[token], 0.0)
            wanted[token] += weights[token, choice] * (down @ inner)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({}, None),
        ({"use_ep": True}, "expert parallelism"),
        ({"has_bias": True}, "biases"),
        ({"apply_router_weight_on_input": True}, "router weights on the input"),
        ({"activation": SimpleNamespace(value="gelu")}, "the activation gelu"),
        ({"swiglu_alpha": 1.7}, "a scaled or shifted SwiGLU"),
        ({"swiglu_beta": 1.0}, "a scaled or shifted SwiGLU"),
    ],
)
def test_a_layer_that_wants_more_is_refused(change, what):
    facts = {
        "layer_name": "model.layers.3.mlp.experts",
        "use_ep": False,
        "has_bias": False,
        "apply_router_weight_on_input": False,
        "activation": SimpleNamespace(value="silu"),
        "swiglu_alpha": None,
        "swiglu_beta": None,
    }
    layer = SimpleNamespace(**facts | change)
    if what is None:
        method._require_supported(layer, layer)
        return
    with pytest.raises(OverlayError, match=f"EXL3_LAYER: model.layers.3.mlp.experts.* {what}"):
        method._require_supported(layer, layer)
