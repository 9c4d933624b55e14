"""The overlay loads into the vLLM that it knows, and into no other."""

import os
import subprocess
import sys

import pytest
import vllm
from vllm.model_executor.layers.fused_moe import FusedMoEMethodBase, MoERunner, RoutedExperts
from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS, get_quantization_config
from vllm.model_executor.layers.quantization.base_config import QuantizationConfig

from glm53_overlay import contract, plugin
from glm53_overlay.errors import OverlayError
from glm53_overlay.exl3.config import Exl3Config


def test_registering_twice_is_registering_once():
    plugin.register()
    plugin.register()
    assert QUANTIZATION_METHODS.count("exl3") == 1
    assert get_quantization_config("exl3") is Exl3Config


def test_the_installed_vllm_keeps_the_contract():
    assert list(contract.differences()) == []


@pytest.mark.parametrize(
    ("version", "platform", "known"),
    [
        ("0.33.0", "cuda", True),
        ("0.32.0", "cpu", True),
        ("0.32.0", "cuda", False),
        ("0.33.1", "cuda", False),
        ("0.34.0", "cpu", False),
        ("dev", "cpu", False),
    ],
)
def test_only_tested_versions_are_known(version, platform, known):
    if known:
        contract.require_known(version, platform)
    else:
        with pytest.raises(OverlayError, match=f"OVERLAY_VLLM: vLLM is {version} on {platform}"):
            contract.require_known(version, platform)


def test_another_vllm_ends_the_process(monkeypatch):
    monkeypatch.setattr(vllm, "__version__", "0.35.0")
    with pytest.raises(OverlayError, match=r"OVERLAY_VLLM: vLLM is 0.35.0 on cpu"):
        plugin.register()


def moved_argument(self, layer, x, topk_ids, topk_weights, shared_experts, shared_experts_input):
    raise NotImplementedError


CHANGES = {
    "an argument that moved": (FusedMoEMethodBase, "apply", moved_argument, "apply takes"),
    "a new abstract method": (
        QuantizationConfig,
        "__abstractmethods__",
        QuantizationConfig.__abstractmethods__ | {"get_scheme"},
        "QuantizationConfig wants .*get_scheme",
    ),
    "names that go elsewhere": (
        RoutedExperts,
        "build_expert_params_mapping",
        staticmethod(lambda *_: [("experts.w13_", "experts.0.gate_proj.", 0, "w1")]),
        "expert tensors go to",
    ),
    "a runner that does not reduce": (
        MoERunner,
        "_fused_output_is_reduced",
        property(lambda _: True),
        "takes a method without kernel for one that reduces",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_contract_is_refused_by_name(name, monkeypatch):
    owner, attribute, value, says = CHANGES[name]
    monkeypatch.setattr(owner, attribute, value)
    with pytest.raises(OverlayError, match=f"OVERLAY_CONTRACT: vLLM is not as it was: .*{says}"):
        plugin.register()


def test_the_entry_point_is_the_one_that_the_plan_names():
    from importlib.metadata import entry_points

    found = [e for e in entry_points(group="vllm.general_plugins") if e.name == "glm53"]
    assert found, "install the overlay: the engine loads it by its metadata"
    assert {entry.value for entry in found} == {"glm53_overlay.plugin:register"}


def test_importing_the_plugin_imports_nothing_that_could_fail():
    """vLLM swallows what goes wrong there, so nothing may."""
    code = (
        "import sys, glm53_overlay.plugin; "
        "print([name for name in ('torch', 'vllm', 'transformers') if name in sys.modules])"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
