"""The other way through FlashInfer's sparse MLA on GB10, should the native one prove wrong there.

GLM-5.3's latents have 512 numbers and no RoPE. FlashInfer has a kernel for exactly that
(`nope: native`). `pad576` takes the one for 512 + 64 instead: queries get 64 zeros. vLLM's row of
656 bytes has room for 64 RoPE values and its writer fills it with zeros, so every product with them
is zero, and so are the sums: the scores are the same, and values are the latents in both. It reads
no more of the cache's rows than before.
"""

import functools
import importlib
import inspect
from typing import Any

from torch import Tensor
from torch.nn.functional import pad

from glm53_overlay.errors import OverlayError

MODULE = "vllm.v1.attention.backends.mla.flashinfer_mla_sparse_sm120"
CLASS = "FlashInferMLASparseSM120Impl"
ROPE = 64
_PARAMETERS = "self q kv_cache topk_indices_physical"
_MARK = "_glm53_pad576"


def padded(query: Tensor) -> Tensor:
    """Return queries [..., 512] as [..., 576], the new numbers zero."""
    return pad(query, (0, ROPE))


def install() -> None:
    """Let the backend for GB10 pad its queries. Raises OverlayError NOPE_CONTRACT."""
    try:
        cls = getattr(importlib.import_module(MODULE), CLASS)
        found = " ".join(inspect.signature(cls._run_mqa_kernel).parameters)
    except (ImportError, AttributeError) as error:
        raise _changed(f"has no {CLASS}._run_mqa_kernel ({error})") from None
    if found != _PARAMETERS:
        raise _changed(f"calls it with ({found})")
    wrap(cls)


def _changed(what: str) -> OverlayError:
    return OverlayError("NOPE_CONTRACT", f"engine.nope: pad576: this vLLM {what}.")


def wrap(cls: Any) -> None:
    """Wrap the one method of a backend that calls the kernel."""
    if hasattr(cls, _MARK):
        return
    run = cls._run_mqa_kernel

    @functools.wraps(run)
    def _run_mqa_kernel(self: Any, q: Tensor, kv_cache: Tensor, topk: Tensor) -> Tensor:
        before, self.qk_rope_head_dim = self.qk_rope_head_dim, ROPE
        try:
            return run(self, padded(q), kv_cache, topk)
        finally:
            self.qk_rope_head_dim = before

    cls._run_mqa_kernel = _run_mqa_kernel
    setattr(cls, _MARK, True)
