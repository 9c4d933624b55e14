"""One direction out of o_proj: the arithmetic, the layers, and a model that vLLM loads itself."""

import importlib
import logging
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from vllm_model import load, vllm_config

from glm53_overlay import ablit
from glm53_overlay.errors import OverlayError
from glm53_overlay.settings import AblitSettings

HIDDEN = 256


@pytest.fixture
def direction(tmp_path):
    path = tmp_path / "direction.safetensors"
    vector = torch.randn(HIDDEN, generator=torch.Generator().manual_seed(3))
    save_file({"direction": vector}, path)
    return path


def wanted(path, **more):
    return AblitSettings(direction=str(path), hidden_size=HIDDEN, **more)


def weight(heads=96):
    return torch.randn(HIDDEN, heads, generator=torch.Generator().manual_seed(4))


def test_alpha_one_takes_exactly_the_component(direction):
    unit = ablit.read_direction(wanted(direction))
    assert float(unit.norm()) == pytest.approx(1)
    edited = ablit.project(weight(), unit, 1.0)
    assert float((unit @ edited).abs().max()) < 1e-4
    rest = torch.eye(HIDDEN) - torch.outer(unit, unit)
    assert torch.allclose(rest @ edited, rest @ weight(), atol=1e-4)


def test_alpha_is_the_strength(direction):
    unit = ablit.read_direction(wanted(direction))
    before, after = unit @ weight(), unit @ ablit.project(weight(), unit, 3.0)
    assert torch.allclose(after, -2 * before, atol=1e-3)
    assert torch.equal(ablit.project(weight(), unit, 0.0), weight())


def test_a_rank_may_cut_before_or_after(direction):
    unit = ablit.read_direction(wanted(direction))
    halves = [ablit.project(half, unit, 3.0) for half in weight().chunk(2, dim=1)]
    assert torch.allclose(torch.cat(halves, 1), ablit.project(weight(), unit, 3.0), atol=1e-5)


def test_bf16_stays_bf16(direction):
    unit = ablit.read_direction(wanted(direction))
    assert ablit.project(weight().bfloat16(), unit, 1.0).dtype == torch.bfloat16


@pytest.mark.parametrize(
    "tensors",
    [
        {"a": torch.ones(HIDDEN + 1)},
        {"a": torch.zeros(HIDDEN)},
        {"a": torch.full((HIDDEN,), float("nan"))},
        {"a": torch.ones(HIDDEN), "b": torch.ones(HIDDEN)},
        {},
    ],
)
def test_what_is_no_direction_for_this_model(tmp_path, tensors):
    save_file(tensors, tmp_path / "d.safetensors")
    with pytest.raises(OverlayError, match="ABLIT_DIRECTION"):
        ablit.read_direction(wanted(tmp_path / "d.safetensors"))


@pytest.mark.parametrize("name", ["dealign", "nowhere.safetensors", "/etc/hostname"])
def test_a_direction_must_be_a_file_of_the_users(name):
    with pytest.raises(OverlayError, match="ABLIT_DIRECTION"):
        ablit.read_direction(wanted(name))


def test_the_layers():
    settings = wanted("x", layers="15-45")
    assert ablit.layers_of(settings, 45, mtp=False) == set(range(15, 45))
    assert ablit.layers_of(settings, 45, mtp=True) == {45}
    without = wanted("x", layers="15-45", include_mtp=False)
    assert ablit.layers_of(without, 45, mtp=True) == set()


def stream(edit, *names, tensor=None):
    return dict(edit.stream((name, weight() if tensor is None else tensor) for name in names))


def test_only_o_proj_of_the_wanted_layers_is_edited(direction, caplog):
    unit = ablit.read_direction(wanted(direction))
    edit = ablit.Edit(unit, 1.0, frozenset({2, 12}))
    hit = ["layers.2.self_attn.o_proj.weight", "model.layers.12.self_attn.o_proj.weight"]
    miss = [
        "layers.1.self_attn.o_proj.weight",
        "layers.2.self_attn.q_proj.weight",
        "layers.22.self_attn.o_proj.weight",
        "visual.layers.2.attn.o_proj.weight",
    ]
    with caplog.at_level(logging.INFO, logger="vllm.glm53.ablit"):
        got = stream(edit, *hit, *miss)
    edit.close()
    assert list(got) == [*hit, *miss]
    assert not any(torch.equal(got[name], weight()) for name in hit)
    assert all(torch.equal(got[name], weight()) for name in miss)
    assert caplog.text.count("rel_l2") == 2


def test_a_layer_that_does_not_come_ends_the_start(direction):
    edit = ablit.Edit(ablit.read_direction(wanted(direction)), 1.0, frozenset({2, 3}))
    stream(edit, "layers.2.self_attn.o_proj.weight")
    with pytest.raises(OverlayError, match="layer 3 "):
        edit.close()


@pytest.mark.parametrize(
    ("tensor", "code"),
    [
        (torch.zeros(HIDDEN, 4, dtype=torch.int8), "ABLIT_WEIGHT"),
        (torch.zeros(HIDDEN, 4).to(torch.float8_e4m3fn), "ABLIT_WEIGHT"),
        (torch.zeros(HIDDEN * 2, 4), "ABLIT_DIRECTION"),
    ],
)
def test_a_weight_of_another_kind_ends_the_start(direction, tensor, code):
    edit = ablit.Edit(ablit.read_direction(wanted(direction)), 1.0, frozenset({2}))
    with pytest.raises(OverlayError, match=code):
        stream(edit, "layers.2.self_attn.o_proj.weight", tensor=tensor)


def test_vllm_loads_an_edited_model(tiny_glm4, direction, monkeypatch):
    """Glm4Moe stands in for Glm5Next, which vLLM cannot build on a CPU; the wrapper is the same."""
    from vllm.model_executor.models.glm4_moe import Glm4MoeModel

    settings = wanted(direction, layers="1-3")
    unit = ablit.read_direction(settings)
    loader = ablit._editing(Glm4MoeModel.load_weights, settings, unit, mtp=False)
    monkeypatch.setattr(Glm4MoeModel, "load_weights", loader)
    model = load(vllm_config(tiny_glm4 / "dense"))
    stored = {}
    for shard in (tiny_glm4 / "dense").glob("*.safetensors"):
        stored |= load_file(shard)
    for layer in range(3):
        name = f"model.layers.{layer}.self_attn.o_proj.weight"
        expected = ablit.project(stored[name], unit, 3.0) if layer else stored[name]
        # The CPU keeps packed weights only; what they do to unit vectors is what they are.
        projection = model.model.layers[layer].self_attn.o_proj
        found = projection(torch.eye(expected.shape[1]))[0].T
        assert torch.allclose(found, expected, atol=1e-5), layer


class Layers(torch.nn.Module):
    """Stand-in for a model below a model: vLLM hands it its weights in runs."""

    class config:  # noqa: N801 - as vLLM has it
        num_hidden_layers = 4

    def load_weights(self, weights):
        return {name for name, _ in weights}


@pytest.mark.parametrize("layers", [(1, 2, 3), (1, 3), ()])
def test_the_weights_of_a_model_may_come_in_runs(direction, monkeypatch, layers):
    settings = wanted(direction, layers="1-3")
    unit = ablit.read_direction(settings)
    monkeypatch.setattr(
        Layers, "load_weights", ablit._editing(Layers.load_weights, settings, unit, mtp=False)
    )

    def load_model():
        model = torch.nn.ModuleDict({"language_model": Layers()})
        for layer in layers:
            name = f"layers.{layer}.self_attn.o_proj.weight"
            assert model["language_model"].load_weights([(name, weight())]) == {name}
        return model

    if layers == (1, 2, 3):
        ablit._closing(load_model)()
    else:  # also where a loader fills the model some other way
        with pytest.raises(OverlayError, match="layer 2 " if layers else "layer 1, 2, 3 "):
            ablit._closing(load_model)()


@pytest.mark.parametrize("method", [None, "dflash", "mtp"])
def test_layers_behind_the_model_are_those_of_its_own_draft(direction, monkeypatch, method):
    config = SimpleNamespace(speculative_config=method and SimpleNamespace(method=method))
    monkeypatch.setattr("vllm.config.get_current_vllm_config", lambda: config)
    settings = wanted(direction, layers="4-4")
    unit = ablit.read_direction(settings)
    monkeypatch.setattr(
        Layers, "load_weights", ablit._editing(Layers.load_weights, settings, unit, mtp=False)
    )
    if method == "mtp":
        assert Layers().load_weights([("norm.weight", weight())]) == {"norm.weight"}
        return
    with pytest.raises(OverlayError, match=r"ABLIT_LAYERS: .* 4-4 is beyond"):
        Layers().load_weights([("norm.weight", weight())])


def test_an_engine_without_the_model_is_refused(direction, monkeypatch):
    monkeypatch.setattr(ablit, "CLASSES", (("vllm.nowhere", "Model", False),))
    with pytest.raises(OverlayError, match="ABLIT_MODEL"):
        ablit.install(wanted(direction))


def test_the_classes_that_load_glm5_are_there():
    pytest.importorskip("torchvision", reason="the CPU engine has none, so no vision tower")
    for module, name, _ in ablit.CLASSES:
        assert callable(getattr(importlib.import_module(module), name).load_weights)
