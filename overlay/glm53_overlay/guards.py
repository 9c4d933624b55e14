"""What must hold on the device, each as one function that is told the facts and may refuse.

vLLM 0.33.0 serves GLM-5.3 on GB10 by itself; these are the places where it would rather serve
wrong numbers, hang, or fail at the first request than say so at the start. `before_loading` is
called when the plugin registers, `require_model` and `require_engine` when the model is known.
"""

import importlib
import importlib.metadata
import logging
import os
import shutil
from collections.abc import Callable, Collection, Mapping
from typing import Any

from glm53_overlay.errors import OverlayError

GB10_MAJOR = 12
"""Compute capability of GB10 and its relatives: 12.x."""

FLASHINFER = "0.7.2.post1"
NOPE_SHAPE = (32, 2176)
"""Heads of one of two ranks, and width of the top-k: 2048 and the pool's tail, in blocks of 128."""

CUDA_MAJOR = 13
PAGE_BYTES = 4096

CONFIG_KEYS = (
    "mhc",
    "mla_use_nope",
    "topk_method",
    "scoring_func",
    "indexer_rope_interleave",
    "num_nextn_predict_layers",
)
"""Keys that vLLM reads and transformers does not know, so no default stands in for them."""

GEOMETRY = {
    "qk_rope_head_dim": 0,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 256,
    "v_head_dim": 256,
    "index_topk": 2048,
    "index_kpool": 4,
    "mla_use_nope": True,
    "index_kpool_always_select_tail": True,
}
"""The one shape of attention that the kernels of FlashInfer and of vLLM's indexer are built for."""

MODEL_TYPE = "glm5_next"
KV_TYPES = ("fp8", "fp8_ds_mla", "fp8_e4m3")

log = logging.getLogger("vllm.glm53")


def before_loading(platform: Any) -> None:
    """Check this host and set what has to be set before a model is imported. Raises OverlayError.

    `platform` is vLLM's; only GB10 has anything to be guarded against.
    """
    if platform.device_type != "cuda":
        return
    capability = platform.get_device_capability()
    if capability is None or capability.major != GB10_MAJOR:
        return
    import torch

    require_flashinfer()
    require_compilers(os.environ)
    require_cuda(torch.version.cuda)
    warn_of_pages(os.sysconf("SC_PAGE_SIZE"))
    switch_off_pdl(type(platform))


def require_flashinfer(
    version_of: Callable[[str], str] = importlib.metadata.version,
    module_of: Callable[[str], Any] = importlib.import_module,
) -> None:
    """Raise OverlayError unless FlashInfer is the one with the kernels for latents without RoPE.

    vLLM asks only whether its functions are there, which an older FlashInfer answers as well.
    """
    try:
        version = version_of("flashinfer-python")
        module = module_of("flashinfer.mla._sparse_mla_sm120")
        shapes: Collection[Any] = module._DECODE_GLM53_NOPE_DISPATCH
    except (ImportError, AttributeError) as error:
        raise _flashinfer(f"has no kernel for GLM-5.3 ({error})") from None
    if version != FLASHINFER:
        raise _flashinfer(f"is {version}")
    if NOPE_SHAPE not in shapes:
        raise _flashinfer(f"has no kernel for {NOPE_SHAPE[0]} heads and top-k {NOPE_SHAPE[1]}")


def _flashinfer(what: str) -> OverlayError:
    return OverlayError(
        "GUARD_FLASHINFER", f"FlashInfer {what}; the engine's lock names {FLASHINFER}."
    )


CUDA = "/usr/local/cuda"
"""Where CUDA's own packages put it."""


def require_compilers(environ: Mapping[str, str]) -> None:
    """Raise OverlayError unless nvcc and ninja are there.

    FlashInfer builds its kernels with them at the first start; without them vLLM finds no
    attention backend, and says something else.
    """
    path = environ.get("PATH", "")
    if not _nvcc(environ, path):
        raise OverlayError(
            "GUARD_COMPILER",
            "There is no nvcc where FlashInfer looks: in bin below CUDA_HOME or CUDA_PATH if one "
            f"is set, else in PATH or {CUDA}/bin.",
        )
    if shutil.which("ninja", path=path) is None:
        raise OverlayError("GUARD_COMPILER", "There is no ninja in PATH: FlashInfer needs it.")


def _nvcc(environ: Mapping[str, str], path: str) -> str | None:
    """Return the one nvcc that FlashInfer and vLLM would take."""
    home = environ.get("CUDA_HOME") or environ.get("CUDA_PATH")
    found = None if home else shutil.which("nvcc", path=path)
    return found or shutil.which("nvcc", path=f"{home or CUDA}/bin")


def require_cuda(version: str | None) -> None:
    """Raise OverlayError for a torch that was built for an older CUDA than sm_121a needs."""
    if version is None or int(version.partition(".")[0]) < CUDA_MAJOR:
        raise OverlayError("GUARD_CUDA", f"torch is built for CUDA {version}, not {CUDA_MAJOR}.0.")


def warn_of_pages(size: int) -> None:
    """Log pages of another size than the one that loading was measured with."""
    if size != PAGE_BYTES:
        log.warning(
            "GUARD_PAGES: memory pages have %d bytes: mapped weights take more of the unified "
            "memory; --safetensors-load-strategy eager reads them instead",
            size,
        )


def switch_off_pdl(platform: Any) -> None:
    """Take programmatic dependent launch from a platform class.

    vLLM allows it from capability 9 on. The vLLM recipe found on SM12x that the kernels of the KDA
    state race with it. A constant of the mHC kernels keeps the answer at import, so this comes
    first.
    """
    platform.is_arch_support_pdl = classmethod(lambda cls: False)


def require_model(hf_config: Any) -> None:
    """Raise OverlayError unless a GLM-5.3 config says all that is read of it, in the one shape."""
    text = getattr(hf_config, "text_config", None) or hf_config
    kinds = (getattr(hf_config, "model_type", ""), getattr(text, "model_type", ""))
    if not any(kind.startswith(MODEL_TYPE) for kind in kinds):
        return
    if missing := [key for key in CONFIG_KEYS if not hasattr(text, key)]:
        raise OverlayError(
            "GUARD_CONFIG", f"config.json has no {', '.join(missing)}; vLLM reads them."
        )
    for key, wanted in GEOMETRY.items():
        found = getattr(text, key, None)
        if found != wanted:
            raise OverlayError(
                "GUARD_GEOMETRY", f"config.json: {key} is {found}; the kernels are for {wanted}."
            )


def require_draft(speculative: Any) -> None:
    """Raise OverlayError unless DFlash2's config.json says that its block sees itself whole.

    vLLM takes a draft with a sliding window for a causal one when the key is missing: drafts are
    then accepted at their first position and almost never later, and nothing else tells.
    """
    if speculative is None or speculative.method != "dflash":
        return
    causal = getattr(speculative.draft_model_config.hf_config, "is_causal", None)
    if causal is not False:
        said = "has no is_causal" if causal is None else f"says is_causal: {causal}"
        raise OverlayError("GUARD_DRAFT", f"The draft's config.json {said}; it must be false.")


def require_engine(config: Any, major: int | None) -> None:
    """Raise OverlayError for a causal draft, and for settings that fail or hang on GB10.

    `config` is vLLM's; `major` the device's compute capability, None without a GPU.
    """
    require_draft(config.speculative_config)
    if major != GB10_MAJOR:
        return
    kv = config.cache_config.cache_dtype
    if kv not in KV_TYPES:
        raise OverlayError(
            "GUARD_KV", f"The KV cache is {kv}: on GB10 sparse MLA has a kernel for fp8 only."
        )
    kernels = config.kernel_config
    if kernels.sparse_indexer_topk_backend != "per_row":
        raise OverlayError(
            "GUARD_TOPK",
            f"--sparse-indexer-topk-backend is {kernels.sparse_indexer_topk_backend}; on GB10 it "
            "must be per_row.",
        )
    if kernels.enable_flashinfer_autotune:
        raise OverlayError(
            "GUARD_AUTOTUNE",
            "FlashInfer's autotuning hangs on GB10: --disable-flashinfer-autotune.",
        )
