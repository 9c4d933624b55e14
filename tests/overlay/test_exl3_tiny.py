"""The tiny checkpoints are what they say: in names, shapes, and as twins."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from glm53_overlay.exl3 import census, tiny
from glm53_overlay.exl3.format import dequantize


@pytest.fixture(params=["tiny_glm4", "tiny_glm5"])
def checkpoint(request):
    return request.getfixturevalue(request.param)


def test_the_twin_holds_what_the_packed_experts_decode_to(checkpoint):
    packed = load_file(checkpoint / "exl3" / "model.safetensors")
    dense = load_file(checkpoint / "dense" / "model.safetensors")
    for expert, projection in ((0, "gate_proj"), (7, "down_proj")):
        name = f"model.layers.3.mlp.experts.{expert}.{projection}"
        tensors = (packed[f"{name}.{suffix}"] for suffix in ("trellis", "suh", "svh"))
        assert torch.equal(dense[f"{name}.weight"].T, dequantize(*tensors, "mcg"))


def test_all_but_the_experts_is_the_same_in_both(checkpoint):
    packed = load_file(checkpoint / "exl3" / "model.safetensors")
    dense = load_file(checkpoint / "dense" / "model.safetensors")
    native = {name for name in packed if ".mlp.experts." not in name}
    assert native == {name for name in dense if ".mlp.experts." not in name}
    assert all(torch.equal(packed[name], dense[name]) for name in native)


def test_only_the_packed_one_has_a_quantization_config(checkpoint):
    packed, dense = (
        json.loads((checkpoint / name / "config.json").read_text()) for name in ("exl3", "dense")
    )
    assert packed.pop("quantization_config") == tiny.QUANTIZATION
    assert packed == dense


def test_the_same_seed_writes_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        tiny.write(tmp_path / name, "glm4_moe", seed=3)
    one, two = (tmp_path / n / "exl3" / "model.safetensors" for n in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


def test_the_census_knows_the_names_that_transformers_writes(tiny_glm5):
    """The names of native tensors, from the program that writes official checkpoints."""
    config = json.loads((tiny_glm5 / "exl3" / "config.json").read_text())
    whole = {
        "text_config": config,
        "vision_config": {"depth": 0},
        "quantization_config": config["quantization_config"],
    }
    counted = {entry.name: (entry.dtype, entry.shape) for entry in census.routed(whole)}
    with safe_open(tiny_glm5 / "exl3" / "model.safetensors", "pt") as written:
        found = {
            name.replace("model.", "model.language_model.", 1): name
            for name in written.keys()  # noqa: SIM118
        }
        for name, (dtype, shape) in counted.items():
            there = written.get_slice(found[name])
            assert (there.get_dtype(), tuple(there.get_shape())) == (dtype, shape)
    native = {name for name in census.native(whole) if "visual" not in name}
    assert found.keys() == native | counted.keys() | {"lm_head.weight"}
