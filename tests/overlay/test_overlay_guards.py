"""Each guard against the facts it is there for; the devices and packages are stand-ins."""

import copy
import logging
from types import SimpleNamespace as Facts

import pytest
from transformers import AutoConfig
from vllm.platforms import current_platform

from glm53_overlay import guards
from glm53_overlay.errors import OverlayError
from glm53_overlay.exl3.config import Exl3Config


def refused(code, guard, *args, **kwargs):
    with pytest.raises(OverlayError) as error:
        guard(*args, **kwargs)
    assert error.value.code == code
    return error.value.message


# --- FlashInfer, compilers, CUDA, pages, PDL ------------------------------------------------------


def flashinfer(version=guards.FLASHINFER, **names):
    names = names or {"_DECODE_GLM53_NOPE_DISPATCH": {(32, 2176), (64, 2176)}}
    return {"version_of": lambda name: version, "module_of": lambda name: Facts(**names)}


def missing(name):
    raise ModuleNotFoundError(name)


def test_the_right_flashinfer():
    guards.require_flashinfer(**flashinfer())


@pytest.mark.parametrize(
    "change",
    [
        flashinfer("0.6.18.post1"),
        flashinfer(other=1),
        flashinfer(_DECODE_GLM53_NOPE_DISPATCH={(64, 2048)}),
        {**flashinfer(), "version_of": missing},
        {**flashinfer(), "module_of": missing},
    ],
)
def test_another_flashinfer(change):
    assert guards.FLASHINFER in refused("GUARD_FLASHINFER", guards.require_flashinfer, **change)


def program(folder, name):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).touch(mode=0o755)
    return folder


def test_compilers(tmp_path, monkeypatch):
    monkeypatch.setattr(guards, "CUDA", str(tmp_path / "none"))
    home = program(tmp_path / "cuda/bin", "nvcc").parent
    path = program(tmp_path / "bin", "ninja")
    for found in ({"CUDA_HOME": f"{home}"}, {"CUDA_PATH": f"{home}"}, {"PATH": f"{home}/bin"}):
        guards.require_compilers({**found, "PATH": f"{found.get('PATH', '')}:{path}"})
    assert "nvcc" in refused("GUARD_COMPILER", guards.require_compilers, {"PATH": str(path)})
    # A home that is set is the only place where FlashInfer looks.
    wrong = {"CUDA_HOME": str(tmp_path), "PATH": f"{home}/bin:{path}"}
    assert "nvcc" in refused("GUARD_COMPILER", guards.require_compilers, wrong)
    alone = {"PATH": f"{home}/bin"}
    assert "ninja" in refused("GUARD_COMPILER", guards.require_compilers, alone)
    monkeypatch.setattr(guards, "CUDA", str(home))
    guards.require_compilers({"PATH": str(path)})


@pytest.mark.parametrize("version", [None, "12.8"])
def test_an_older_cuda(version):
    refused("GUARD_CUDA", guards.require_cuda, version)


def test_cuda_13():
    guards.require_cuda("13.0")


def test_large_pages_are_said(caplog):
    with caplog.at_level(logging.WARNING, logger="vllm.glm53"):
        guards.warn_of_pages(4096)
        assert not caplog.records
        guards.warn_of_pages(65536)
    assert "65536" in caplog.text


def test_pdl_is_off_for_the_whole_platform():
    class Platform:
        @classmethod
        def is_arch_support_pdl(cls):
            return True

    guards.switch_off_pdl(Platform)
    assert Platform.is_arch_support_pdl() is False
    assert Platform().is_arch_support_pdl() is False


def test_vllms_platforms_are_asked_by_that_name():
    assert callable(current_platform.is_arch_support_pdl)


@pytest.mark.parametrize(
    ("device", "major", "looks"),
    [("cpu", None, False), ("cuda", 9, False), ("cuda", 10, False), ("cuda", 12, True)],
)
def test_only_gb10_is_guarded(monkeypatch, device, major, looks):
    called = []
    for name in ("require_flashinfer", "require_compilers", "require_cuda", "switch_off_pdl"):
        monkeypatch.setattr(guards, name, lambda *args, name=name: called.append(name))
    capability = None if major is None else Facts(major=major)
    platform = Facts(device_type=device, get_device_capability=lambda: capability)
    guards.before_loading(platform)
    assert (len(called) == 4) == looks


# --- the model's config ---------------------------------------------------------------------------


@pytest.fixture
def glm5(tiny_glm5):
    return AutoConfig.from_pretrained(tiny_glm5 / "exl3")


def test_the_model_in_its_one_shape(glm5):
    guards.require_model(glm5)
    guards.require_model(Facts(model_type="glm5_next", text_config=glm5))


@pytest.mark.parametrize("key", guards.CONFIG_KEYS)
def test_a_key_that_vllm_reads_is_missing(glm5, key):
    broken = copy.deepcopy(glm5)
    delattr(broken, key)
    assert key in refused("GUARD_CONFIG", guards.require_model, broken)


@pytest.mark.parametrize("key", guards.GEOMETRY)
def test_another_geometry(glm5, key):
    broken = copy.deepcopy(glm5)
    wanted = guards.GEOMETRY[key]
    setattr(broken, key, (not wanted) if isinstance(wanted, bool) else 64)
    assert key in refused("GUARD_GEOMETRY", Exl3Config(4, "mcg").maybe_update_config, "m", broken)


def test_other_models_have_no_such_shape(tiny_glm4):
    guards.require_model(AutoConfig.from_pretrained(tiny_glm4 / "exl3"))


# --- the engine's settings ------------------------------------------------------------------------


def engine(kv="fp8", topk="per_row", autotune=False, speculative=None):
    return Facts(
        speculative_config=speculative,
        cache_config=Facts(cache_dtype=kv),
        kernel_config=Facts(sparse_indexer_topk_backend=topk, enable_flashinfer_autotune=autotune),
    )


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"kv": "bfloat16"}, "GUARD_KV"),
        ({"kv": "nvfp4"}, "GUARD_KV"),
        ({"topk": "auto"}, "GUARD_TOPK"),
        ({"autotune": True}, "GUARD_AUTOTUNE"),
    ],
)
def test_what_fails_on_gb10_is_refused_there_and_nowhere_else(change, code):
    refused(code, guards.require_engine, engine(**change), 12)
    for major in (None, 9):
        guards.require_engine(engine(**change), major)


def test_what_the_plan_says_is_right():
    guards.require_engine(engine(), 12)


def drafting(method="dflash", **said):
    draft = Facts(hf_config=Facts(**said))
    return engine(speculative=Facts(method=method, draft_model_config=draft))


@pytest.mark.parametrize(
    ("said", "says"), [({}, "has no is_causal"), ({"is_causal": True}, "says is_causal: True")]
)
def test_a_causal_draft_is_refused_on_every_device(said, says):
    for major in (None, 9, 12):
        assert says in refused("GUARD_DRAFT", guards.require_engine, drafting(**said), major)


def test_a_whole_block_and_other_drafts_pass():
    guards.require_engine(drafting(is_causal=False), 9)
    guards.require_engine(drafting(method="mtp"), 9)
