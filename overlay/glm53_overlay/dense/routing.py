"""Hands the projections of GLM-5.3 to vLLM's online methods, without a change to vLLM's sources.

vLLM builds MLPs with the checkpoint's configuration, so `Exl3Config` is asked for them. Attention
it builds without one, since no quantised checkpoint has scales for it: `install` gives the two
attention classes the configuration back, marked with their group. A layer that was wanted and not
built ends the start.

fp8 is vLLM's scheme `fp8_per_channel` (one scale an output, one a token): unlike the other two it
does not depend on how ranks cut a weight, and fused projections keep their own scales. q4 is its
only scheme of four bits for linear layers, MXFP4, with activations left in BF16: rounding those to
four bits too, as vLLM does where the device can, makes the error 1.4 times as large and moves no
fewer bytes.
"""

import functools
import importlib
import inspect
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import torch
from vllm.model_executor.layers.linear import LinearMethodBase
from vllm.model_executor.layers.quantization.online.fp8 import Fp8PtpcOnlineLinearMethod
from vllm.model_executor.layers.quantization.online.mxfp4 import Mxfp4OnlineLinearMethod

from glm53_overlay.dense import proof
from glm53_overlay.dense.groups import PROJECTIONS
from glm53_overlay.errors import OverlayError

KDA = ("vllm.models.glm5next.common.kda", "Glm5NextLinearAttention")
MLA = ("vllm.models.glm5next.common.attention", "Glm5NextMLAAttention")
MODEL = ("vllm.models.glm5next.common.model", "Glm5NextModel")
"""The classes that are wrapped: (module, name)."""

_MARK = "_glm53_dense"
_QUANTISED = "_already_called_process_weights_after_loading"
"""vLLM's mark of a layer that it has quantised."""

log = logging.getLogger("vllm.glm53.dense")

_proven: set[tuple[str, torch.Size]] = set()
"""The modes and shapes of weights whose kernels were seen to compute rightly in this process."""


class _Proven(LinearMethodBase):
    """One of vLLM's methods, whose kernel is looked at once for each shape of a weight."""

    mode: str

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """Quantise a layer. Raises OverlayError DENSE_WRONG if the product is not the mode's."""
        if getattr(layer, _QUANTISED, False):
            return
        weight = cast(torch.Tensor, layer.weight)
        kind = (self.mode, weight.shape)
        # Of the tensor: the parameter itself is given another. Kept only where it is needed.
        before = None if kind in _proven else weight.data
        super().process_weights_after_loading(layer)
        if before is not None:
            self._prove(layer, before)
            _proven.add(kind)

    def _prove(self, layer: torch.nn.Module, weight: torch.Tensor) -> None:
        prefix = str(getattr(layer, "prefix", "a projection"))
        said = ""
        with torch.no_grad():
            for found in proof.measure(weight, self.mode, lambda x: self.apply(layer, x)):
                said = f"{found.kernel:.4f}, where {self.mode} should make {found.expected:.4f}"
                if not found.right:
                    raise OverlayError(
                        "DENSE_WRONG",
                        f"{prefix} cannot be {self.mode} here: this device's kernel computes "
                        f"something else (relative error {said}).",
                    )
        log.info("dense: %s %s: relative error %s", prefix, tuple(weight.shape), said)


class WeightOnlyMxfp4(_Proven, Mxfp4OnlineLinearMethod):
    """vLLM's MXFP4 for weights alone, which leaves Marlin of its kernels."""

    activation_quant_key = None
    mode = "q4"


class PerChannelFp8(_Proven, Fp8PtpcOnlineLinearMethod):
    """vLLM's fp8 by channel, which looks for a kernel only when a layer is made."""

    mode = "fp8"

    def create_weights(self, layer: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        """Make a layer's weights. Raises OverlayError DENSE_KERNEL without a kernel."""
        try:
            super().create_weights(layer, *args, **kwargs)
        except ValueError as error:
            raise _no_kernel(str(getattr(layer, "prefix", "a projection")), "fp8", error) from None


def _no_kernel(prefix: str, mode: str, error: ValueError) -> OverlayError:
    return OverlayError("DENSE_KERNEL", f"{prefix} cannot be {mode} here: {error}")


METHODS: dict[str, Callable[[], LinearMethodBase]] = {
    "fp8": PerChannelFp8,
    "q4": WeightOnlyMxfp4,
}


def method(mode: str, prefix: str) -> LinearMethodBase:
    """Return how vLLM keeps a projection. Raises OverlayError DENSE_KERNEL without a kernel."""
    try:
        return METHODS[mode]()
    except ValueError as error:  # vLLM found none, and says why for each
        raise _no_kernel(prefix, mode, error) from None


def install() -> None:
    """Let `Exl3Config` decide about attention too. Raises OverlayError for another vLLM."""
    if broken := list(differences()):
        raise OverlayError("DENSE_CONTRACT", f"vLLM is not as it was: {'; '.join(broken)}.")
    _wrap(KDA, _given_kda)
    _wrap(MLA, _given_mla)
    _wrap(MODEL, _counted)


def differences() -> Iterator[str]:
    """Say in what vLLM builds attention otherwise than the wrappers take for granted."""
    for which, wanted in (
        (KDA, {"config", "vllm_config", "prefix"}),
        (MLA, {"vllm_config", "config", "quant_config", "prefix"}),
        (MODEL, {"vllm_config", "prefix"}),
    ):
        try:
            init = inspect.signature(_class(which).__init__)
        except (ImportError, AttributeError) as error:
            yield f"there is no {which[1]} ({error})"
            continue
        if lost := wanted - init.parameters.keys():
            yield f"{which[1]} takes no {', '.join(sorted(lost))}"
    if "activation_quant_key" not in vars(Mxfp4OnlineLinearMethod):
        yield "Mxfp4OnlineLinearMethod does not say how activations are kept"


def _class(which: tuple[str, str]) -> Any:
    return getattr(importlib.import_module(which[0]), which[1])


def _wrap(which: tuple[str, str], wrapper: Callable[[Any], None]) -> None:
    cls = _class(which)
    if _MARK not in vars(cls):
        wrapper(cls)
        setattr(cls, _MARK, True)


def _of_group(config: Any, group: str) -> Any:
    """Return an EXL3 configuration for one group's layers; any other stays away, as vLLM wants."""
    handed = getattr(config, "of_group", None)
    return None if handed is None else handed(group)


def _given_mla(cls: Any) -> None:
    built = cls.__init__

    @functools.wraps(built)
    def build(self: Any, *args: Any, **kwargs: Any) -> None:
        given = inspect.signature(built).bind(self, *args, **kwargs)
        given.arguments["quant_config"] = _of_group(
            given.arguments["vllm_config"].quant_config, "mla"
        )
        built(*given.args, **given.kwargs)

    cls.__init__ = build


def _given_kda(cls: Any) -> None:
    """KDA has no argument for it: the class sets `quant_config` to None and then reads it.

    So the attribute becomes a property that takes no None for an answer.
    """
    built = cls.__init__

    @functools.wraps(built)
    def build(self: Any, config: Any, vllm_config: Any, prefix: str = "") -> None:
        object.__setattr__(self, "_glm53_config", _of_group(vllm_config.quant_config, "kda"))
        built(self, config, vllm_config, prefix)

    cls.__init__ = build
    cls.quant_config = property(lambda self: self._glm53_config, lambda self, value: None)


def _counted(cls: Any) -> None:
    built = cls.__init__

    @functools.wraps(built)
    def build(self: Any, *, vllm_config: Any, prefix: str = "") -> None:
        built(self, vllm_config=vllm_config, prefix=prefix)
        config = vllm_config.quant_config
        if hasattr(config, "of_group"):
            require_built(config.dense, config.built, vllm_config.model_config.hf_text_config)

    cls.__init__ = build


def require_built(modes: Mapping[str, str], built: Counter[str], text: Any) -> None:
    """Raise OverlayError DENSE_MISSED unless every wanted projection of the model was given out."""
    kinds, mlps = list(text.layer_types), list(text.mlp_layer_types)
    layers = {
        "kda": kinds.count("linear_attention"),
        "mla": len(kinds) - kinds.count("linear_attention"),
        "shared": mlps.count("sparse") if text.n_shared_experts else 0,
        "mlp": mlps.count("dense"),
    }
    for group, mode in modes.items():
        wanted = layers[group] * len(PROJECTIONS[group])
        if mode == "bf16":
            continue
        if built[group] != wanted:
            raise OverlayError(
                "DENSE_MISSED",
                f"dense: {built[group]} of {wanted} projections of {group} became {mode}; vLLM "
                "builds them otherwise than this overlay knows.",
            )
        log.info("dense: %s is %s (%d projections)", group, mode, wanted)
