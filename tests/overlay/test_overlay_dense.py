"""Dense projections: which they are, what each mode computes, and how vLLM is made to use it."""

import inspect
from collections import Counter
from types import SimpleNamespace as Facts

import pytest
import torch
from vllm.model_executor.layers.linear import LinearBase, UnquantizedLinearMethod

from glm53_overlay.dense import groups, proof, reference, routing
from glm53_overlay.errors import OverlayError
from glm53_overlay.exl3.config import Exl3Config
from glm53_overlay.exl3.tiny import QUANTIZATION
from glm53_overlay.settings import load

MLP, SHARED = "model.layers.1.mlp", "language_model.model.layers.7.mlp.shared_experts"
ALL = dict.fromkeys(groups.PROJECTIONS, "fp8")


class Made:
    """Stands in for a method of vLLM, which would look for a kernel of the device at hand."""

    def __init__(self, mode):
        self.mode = mode


@pytest.fixture
def kernels(monkeypatch):
    made = {mode: lambda mode=mode: Made(mode) for mode in ("fp8", "q4")}
    monkeypatch.setattr(routing, "METHODS", made)


def kept(config, prefix):
    """How a linear layer of this name is kept."""
    method = config.get_quant_method(LinearBase.__new__(LinearBase), prefix)
    return "bf16" if isinstance(method, UnquantizedLinearMethod) else method.mode


# --- which ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "prefix", "mode"),
    [
        (None, f"{MLP}.gate_up_proj", "q4"),
        (None, f"{MLP}.down_proj", "q4"),
        (None, f"{SHARED}.gate_up_proj", "fp8"),
        (None, f"{SHARED}.down_proj", "fp8"),
        (None, f"{MLP}.gate", "bf16"),
        (None, "model.layers.45.eh_proj", "bf16"),
        (None, "model.layers.3.self_attn.o_proj", "bf16"),  # not handed on by its class
        ("kda", "model.layers.0.self_attn.in_proj_qkvbfg_a", "fp8"),
        ("kda", "model.layers.0.self_attn.o_proj", "fp8"),
        ("kda", "model.layers.0.self_attn.f_b_proj", "bf16"),
        ("kda", "model.layers.0.self_attn.g_b_proj", "bf16"),
        ("mla", "model.layers.3.self_attn.fused_qkv_a_proj", "q4"),
        ("mla", "model.layers.3.self_attn.q_b_proj", "q4"),
        ("mla", "model.layers.3.self_attn.o_proj", "q4"),
        ("mla", "model.layers.3.self_attn.kv_b_proj", "bf16"),
        ("mla", "model.layers.3.self_attn.indexer.wq_b", "bf16"),
    ],
)
def test_each_layer_is_kept_as_its_group_says(group, prefix, mode, kernels):
    modes = {"kda": "fp8", "mla": "q4", "shared": "fp8", "mlp": "q4"}
    config = Exl3Config(4, "mcg", modes)
    view = config.of_group(group) if group else config
    assert kept(view, prefix) == mode


def test_nothing_is_quantised_unless_asked_for(kernels):
    config = Exl3Config(4, "mcg")
    assert kept(config, f"{MLP}.down_proj") == "bf16"
    assert kept(config.of_group("mla"), "model.layers.3.self_attn.o_proj") == "bf16"


def test_the_checkpoint_is_read_with_what_the_plan_says(monkeypatch):
    monkeypatch.setenv("GLM53_OVERLAY", '{"dense": {"kda": "fp8"}}')
    config = Exl3Config.from_config(QUANTIZATION)
    assert config.dense == {"kda": "fp8", "mla": "bf16", "shared": "bf16", "mlp": "bf16"}


@pytest.mark.parametrize(
    ("said", "says"), [({"vision": "fp8"}, "no group vision"), ({"kda": "int4"}, "cannot be int4")]
)
def test_what_nobody_knows_is_refused(said, says):
    with pytest.raises(OverlayError, match=f"DENSE_MODE: dense: .*{says}"):
        groups.checked(said)


def test_settings_without_it_mean_bf16():
    assert groups.checked(load({}).dense) == dict.fromkeys(groups.PROJECTIONS, "bf16")


# --- how vLLM is made to ask ----------------------------------------------------------------------


class Latents(torch.nn.Module):
    """Stands in for vLLM's MLA attention, which cannot be imported here: what its `__init__` does
    with the arguments that matter."""

    def __init__(self, vllm_config, config, hidden_size=8, quant_config=None, prefix=""):
        super().__init__()
        names = ("q_b_proj", "o_proj", "kv_b_proj", "fused_qkv_a_proj")
        self.kept = {n: kept(quant_config, f"{prefix}.{n}") for n in names} if quant_config else {}


class Base(torch.nn.Module):
    def __init__(self, config, vllm_config, prefix=""):
        super().__init__()
        self.quant_config = vllm_config.quant_config


class Linear(Base):
    """The same for linear attention: it hides the configuration from its base class."""

    def __init__(self, config, vllm_config, prefix=""):
        saved, vllm_config.quant_config = vllm_config.quant_config, None
        try:
            super().__init__(config, vllm_config, prefix)
        finally:
            vllm_config.quant_config = saved
        given, names = self.quant_config, ("in_proj_qkvbfg_a", "o_proj", "f_b_proj")
        self.kept = {n: kept(given, f"{prefix}.{n}") for n in names} if given else {}


@pytest.fixture
def wrapped(kernels):
    linear, latents = type("Linear", (Linear,), {}), type("Latents", (Latents,), {})
    for cls, own in ((linear, Linear), (latents, Latents)):
        cls.__init__ = lambda self, *a, own=own, **k: own.__init__(self, *a, **k)
        cls.__init__.__signature__ = inspect.signature(own.__init__)
    routing._given_kda(linear)
    routing._given_mla(latents)
    return linear, latents


def test_attention_is_given_its_configuration_back(wrapped):
    linear, latents = wrapped
    vllm_config = Facts(quant_config=Exl3Config(4, "mcg", {"kda": "fp8", "mla": "q4"}))
    assert linear("c", vllm_config, "layers.0.self_attn").kept == {
        "in_proj_qkvbfg_a": "fp8",
        "o_proj": "fp8",
        "f_b_proj": "bf16",
    }
    made = latents(vllm_config=vllm_config, config="c", quant_config=None, prefix="layers.3")
    assert {made.kept[n] for n in ("q_b_proj", "o_proj", "fused_qkv_a_proj")} == {"q4"}
    assert made.kept["kv_b_proj"] == "bf16"
    assert vllm_config.quant_config.built == {"kda": 2, "mla": 3}


@pytest.mark.parametrize("other", [None, Facts(get_name=lambda: "fp8")])
def test_other_checkpoints_are_left_as_vllm_has_them(wrapped, other):
    linear, latents = wrapped
    vllm_config = Facts(quant_config=other)
    assert linear("c", vllm_config).kept == {}
    assert latents(vllm_config=vllm_config, config="c", quant_config=None).kept == {}


TEXT = Facts(
    layer_types=["linear_attention"] * 3 + ["indexed_attention"],
    mlp_layer_types=["dense", "sparse", "sparse", "sparse"],
    n_shared_experts=1,
)


def test_a_model_that_was_built_as_wanted():
    built = Counter({"kda": 6, "mla": 3, "shared": 6, "mlp": 2})
    routing.require_built(ALL, built, TEXT)


@pytest.mark.parametrize("group", groups.PROJECTIONS)
def test_a_group_that_vllm_built_otherwise_ends_the_start(group):
    built = Counter({"kda": 6, "mla": 3, "shared": 6, "mlp": 2})
    built[group] -= 1
    with pytest.raises(OverlayError, match=f"DENSE_MISSED: .*of {group} became fp8"):
        routing.require_built(ALL, built, TEXT)
    routing.require_built(ALL | {group: "bf16"}, built, TEXT)


def test_a_device_without_a_kernel_is_said_with_vllms_reasons():
    """A CPU has none for four bits."""
    config = Facts(model_config=Facts(dtype=torch.bfloat16))
    with pytest.MonkeyPatch.context() as patch:
        from vllm.model_executor.layers.quantization.online import fp8

        patch.setattr(fp8, "get_current_vllm_config", lambda: config)
        with pytest.raises(OverlayError, match=r"DENSE_KERNEL: layer.o_proj cannot be q4 here"):
            routing.method("q4", "layer.o_proj")


def test_vllm_is_asked_for_four_bits_of_weights_only(monkeypatch):
    from vllm.model_executor.layers.quantization.online import fp8, mxfp4

    asked = []
    config = Facts(model_config=Facts(dtype=torch.bfloat16))
    monkeypatch.setattr(fp8, "get_current_vllm_config", lambda: config)
    monkeypatch.setattr(mxfp4, "init_mxfp4_linear_kernel", lambda **given: asked.append(given))
    routing.method("q4", "layer.o_proj")
    assert asked == [{"activation_quant_key": None}]


def test_a_vllm_that_builds_otherwise_is_refused(monkeypatch):
    monkeypatch.setattr(routing, "_class", lambda which: type(which[1], (), {}))
    with pytest.raises(OverlayError, match=r"DENSE_CONTRACT: .*Glm5NextMLAAttention takes no"):
        routing.install()


# --- what is computed -----------------------------------------------------------------------------


def test_fp8_is_within_its_mantissa_and_scales_with_each_output():
    weight = torch.randn(64, 256, generator=torch.Generator().manual_seed(1)) * 0.05
    weight[3] *= 1000  # one output that would cost the others their small numbers
    found = reference.fp8(weight)
    error = ((found - weight).norm(dim=1) / weight.norm(dim=1)).max()
    assert 0.01 < error < 0.04
    assert reference.fp8(torch.zeros(2, 32)).count_nonzero() == 0


def test_mxfp4_holds_its_grid_exactly():
    grid = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.5, -1, -1.5, -2, -3, -4, -6, 0.5])
    weight = torch.stack((grid.repeat(2) * 0.25, grid.repeat(2) * 8))
    assert torch.equal(reference.mxfp4(weight), weight)


@pytest.mark.parametrize(
    ("value", "becomes"),
    [(2.5, 2.0), (3.5, 4.0), (5.0, 4.0), (0.25, 0.0), (0.75, 1.0), (1.25, 1.0), (-2.5, -2.0)],
)
def test_mxfp4_rounds_ties_to_even(value, becomes):
    weight = torch.full((1, 32), value)
    weight[0, 0] = 6.0  # the scale is 1
    assert reference.mxfp4(weight)[0, 1] == becomes


def test_mxfp4_moves_on_to_the_next_power_from_a_mantissa_of_seven_quarters():
    for largest, becomes in ((6.9, 6.0), (7.0, 8.0), (7.5, 8.0)):
        assert reference.mxfp4(torch.full((1, 32), largest))[0, 0] == becomes


def test_q4_leaves_activations_alone_and_fp8_does_not():
    generator = torch.Generator().manual_seed(2)
    x, weight = torch.randn(4, 64, generator=generator), torch.randn(8, 64, generator=generator)
    assert torch.equal(reference.linear(x, weight, "q4"), x @ reference.mxfp4(weight).T)
    assert not torch.equal(reference.linear(x, weight, "fp8"), x @ reference.fp8(weight).T)
    assert torch.equal(reference.linear(x, weight, "bf16"), x @ weight.T)


# --- the kernels of a device ----------------------------------------------------------------------


WEIGHT = torch.randn(96, 256, generator=torch.Generator().manual_seed(3)).bfloat16() * 0.06


def proven(weight, mode, kernel):
    found = list(proof.measure(weight, mode, kernel))
    assert len(found) == len(proof.TOKENS)
    return all(errors.right for errors in found)


@pytest.mark.parametrize("mode", ["fp8", "q4"])
def test_a_kernel_that_computes_the_mode_is_right(mode):
    def exact(x):
        return reference.linear(x, WEIGHT, mode)

    assert proven(WEIGHT, mode, exact)
    assert proven(WEIGHT, mode, lambda x: exact(x).bfloat16())
    assert proven(WEIGHT, mode, lambda x: x.float() @ WEIGHT.float().T)


def test_scales_that_ranks_share_are_no_fault():
    """A row that another rank's part makes four and a half times as large has a larger scale."""
    shared = reference.fp8(torch.cat((WEIGHT.float(), 4.5 * WEIGHT.float()), 1))[:, :256]
    assert proven(WEIGHT, "fp8", lambda x: reference.fp8(x) @ shared.T)


@pytest.mark.parametrize("mode", ["fp8", "q4"])
@pytest.mark.parametrize(
    "broken",
    [
        lambda y: torch.zeros_like(y),
        lambda y: y * 1.25,
        lambda y: y.roll(1, 1),
        lambda y: torch.full_like(y, float("nan")),
        lambda y: y if len(y) < 200 else y.roll(1, 0),  # only the way of large batches
    ],
)
def test_a_kernel_that_computes_something_else_is_found(mode, broken):
    assert not proven(WEIGHT, mode, lambda x: broken(reference.linear(x, WEIGHT, mode)))


def test_many_outputs_are_looked_at_in_parts(monkeypatch):
    monkeypatch.setattr(proof, "_ROWS", 32)
    assert proven(WEIGHT, "q4", lambda x: reference.linear(x, WEIGHT, "q4"))
    last_part = torch.ones(96).index_fill(0, torch.arange(64, 96), 0.0)
    assert not proven(WEIGHT, "q4", lambda x: reference.linear(x, WEIGHT, "q4") * last_part)


class Online(routing.LinearMethodBase):
    """Stands in for vLLM's online method: the parameter stays, and holds another tensor."""

    factor = 1.0

    def create_weights(self, layer, *args, **kwargs):
        raise NotImplementedError

    def process_weights_after_loading(self, layer):
        if not getattr(layer, routing._QUANTISED, False):
            layer.weight.data = reference.mxfp4(layer.weight).T
            setattr(layer, routing._QUANTISED, True)

    def apply(self, layer, x, bias=None):
        self.asked = getattr(self, "asked", 0) + 1
        return x.float() @ layer.weight * self.factor


class Proven(routing._Proven, Online):
    mode = "q4"


def loaded(weight=WEIGHT):
    layer = torch.nn.Module()
    layer.prefix = "layers.0.self_attn.o_proj"
    layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    return layer


@pytest.fixture
def none_proven(monkeypatch):
    monkeypatch.setattr(routing, "_proven", set())


def test_the_first_layer_of_each_shape_is_computed_while_it_loads(none_proven):
    method = Proven()
    for layer in (loaded(), loaded(), loaded(WEIGHT[:64])):
        method.process_weights_after_loading(layer)
        method.process_weights_after_loading(layer)  # as vLLM does at the end of loading
    assert method.asked == 2 * len(proof.TOKENS)


def test_a_wrong_kernel_ends_the_start_and_is_named(none_proven):
    method = Proven()
    method.factor = 1.3
    with pytest.raises(OverlayError, match=r"DENSE_WRONG: layers.0.self_attn.o_proj cannot be q4"):
        method.process_weights_after_loading(loaded())


def test_the_methods_that_vllm_is_given_are_proven():
    for mode, method in routing.METHODS.items():
        assert method.mode == mode
        assert method.process_weights_after_loading is routing._Proven.process_weights_after_loading
        vllms = method.__bases__[1]
        assert routing._QUANTISED in inspect.getsource(vllms.process_weights_after_loading)
