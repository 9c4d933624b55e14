"""The census of the real checkpoint equals the published counts, from shapes alone."""

import subprocess
import sys
from pathlib import Path

import pytest

OVERLAY = Path(__file__).parents[3] / "overlay"


@pytest.fixture
def census(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(OVERLAY))
    from glm53_overlay.exl3 import census

    return census


@pytest.fixture
def config() -> dict:
    """What counts of GLM-5.3-Flash's config.json."""
    return {
        "text_config": {
            "hidden_size": 4096,
            "moe_intermediate_size": 2048,
            "n_routed_experts": 288,
            "num_hidden_layers": 45,
            "num_nextn_predict_layers": 1,
            "mlp_layer_types": ["dense"] * 3 + ["sparse"] * 42,
            "layer_types": [
                "deepseek_sparse_attention" if i % 4 == 3 else "linear_attention" for i in range(45)
            ],
        },
        "vision_config": {"depth": 24},
        "quantization_config": {"bits": 4, "codebook": "mcg"},
    }


def test_names_and_bytes_are_the_published_ones(census, config) -> None:
    routed, native = list(census.routed(config)), list(census.native(config))
    assert len(routed) == 148_608
    assert len(native) == 1_618
    assert len({entry.name for entry in routed} | set(native)) == 150_226
    assert sum(entry.nbytes for entry in routed) == 156_283_454_592


def test_the_vision_tower_is_the_published_347(census, config) -> None:
    assert sum(name.startswith("model.visual.") for name in census.native(config)) == 347


def test_the_mtp_layer_s_experts_are_packed_too(census, config) -> None:
    layers = {int(entry.name.split(".")[3]) for entry in census.routed(config)}
    assert layers == set(range(3, 46))


def test_an_expert_has_the_published_twelve_tensors(census, config) -> None:
    prefix = "model.language_model.layers.45.mlp.experts.287."
    found = {
        entry.name.removeprefix(prefix): (entry.dtype, entry.shape)
        for entry in census.routed(config)
        if entry.name.startswith(prefix)
    }
    assert len(found) == 12
    assert found["gate_proj.trellis"] == ("I16", (256, 128, 64))
    assert found["down_proj.trellis"] == ("I16", (128, 256, 64))
    assert found["down_proj.suh"] == ("F16", (2048,))
    assert found["up_proj.svh"] == ("F16", (2048,))
    assert found["up_proj.mcg"] == ("I32", (1,))


def test_the_census_needs_no_engine() -> None:
    """Asked of a fresh interpreter: in this one, another test may have loaded it."""
    code = "import sys; from glm53_overlay.exl3 import census; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=OVERLAY, check=True, timeout=120)
