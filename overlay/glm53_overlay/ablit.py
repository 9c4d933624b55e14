"""Takes one direction out of the attention's output, layer by layer, while weights are loaded.

    W' = W - alpha * r (r' W)        W [hidden, heads], r the unit direction [hidden]

with `alpha` 1 nothing of W's output points along r any more. The tensors are changed on their way
from the file to vLLM's loader: before ranks cut them and before anything quantises them. So every
rank computes the same, and the edit is the same with whatever number of ranks and for whatever
type the layers are kept in. The files stay as they are.

Off unless `ablit.enable` says so. Nothing falls back: a direction of another size, a layer that
does not come, a weight that is already quantised end the start.
"""

import functools
import importlib
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glm53_overlay.errors import OverlayError
from glm53_overlay.settings import AblitSettings

CLASSES = (
    ("vllm.models.glm5next.common.model", "Glm5NextModel", False),
    ("vllm.models.glm5next.common.mtp", "Glm5NextMTP", True),
)
"""Who loads the layers: (module, class, is it the MTP block)."""

_O_PROJ = re.compile(r"(?:^|\.)layers\.(\d+)\.self_attn\.o_proj\.weight$")
_EDITED = "_glm53_ablit"
_EDIT = "_glm53_edit"
_EDIT_OF = "_glm53_edit_of"

log = logging.getLogger("vllm.glm53.ablit")


def read_direction(settings: AblitSettings) -> Tensor:
    """Return the unit direction fp32 [hidden_size]. Raises OverlayError ABLIT_DIRECTION."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = Path(settings.direction)
    if path.suffix != ".safetensors":
        raise _wrong(f"{settings.direction!r} is no .safetensors file; no direction is shipped")
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise _wrong(f"{path} cannot be read: {error}") from None
    if len(tensors) != 1:
        raise _wrong(f"{path} holds {len(tensors)} tensors instead of one")
    vector = next(iter(tensors.values())).float().flatten()
    if len(vector) != settings.hidden_size:
        raise _wrong(
            f"{path} has {len(vector)} numbers and was said to be for a hidden size of "
            f"{settings.hidden_size}; a direction of another checkpoint is not used"
        )
    norm = vector.norm()
    if not torch.isfinite(norm) or norm == 0:
        raise _wrong(f"{path} holds no direction: its length is {float(norm)}")
    return vector / norm


def _wrong(what: str) -> OverlayError:
    return OverlayError("ABLIT_DIRECTION", f"ablit.direction: {what}.")


def project(weight: Tensor, direction: Tensor, alpha: float) -> Tensor:
    """Return W - alpha r (r' W) in W's dtype; computed in fp32."""
    wide = weight.float()
    return (wide - alpha * torch.outer(direction, direction @ wide)).to(weight.dtype)


@dataclass
class Edit:
    """The edit of one model's weights as they stream by."""

    direction: Tensor
    alpha: float
    wanted: frozenset[int]
    done: set[int] = field(default_factory=set)

    def stream(self, weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        """Yield every weight, those of the wanted layers edited. Raises OverlayError."""
        for name, weight in weights:
            found = _O_PROJ.search(name)
            if found is None or int(found[1]) not in self.wanted:
                yield name, weight
                continue
            layer = int(found[1])
            yield name, self._edited(layer, weight)
            self.done.add(layer)

    def _edited(self, layer: int, weight: Tensor) -> Tensor:
        if not weight.is_floating_point() or weight.element_size() < 2:
            raise OverlayError(
                "ABLIT_WEIGHT", f"ablit: o_proj of layer {layer} is {weight.dtype}, not native."
            )
        if weight.shape[0] != len(self.direction):
            raise OverlayError(
                "ABLIT_DIRECTION",
                f"ablit: o_proj of layer {layer} writes {weight.shape[0]} numbers, the direction "
                f"has {len(self.direction)}.",
            )
        fresh = project(weight, self.direction.to(weight.device), self.alpha)
        change = (fresh.float() - weight.float()).norm() / weight.float().norm()
        log.info("ablit: layer %d, alpha %g, rel_l2 %.4e", layer, self.alpha, float(change))
        return fresh

    def close(self) -> None:
        """Raise OverlayError when a layer that was to be edited never came."""
        if missing := sorted(self.wanted - self.done):
            raise _no_layers(f"no o_proj of layer {', '.join(map(str, missing))} was loaded")


def _no_layers(what: str) -> OverlayError:
    return OverlayError("ABLIT_LAYERS", f"ablit.layers: {what}.")


def _drafts_itself() -> bool:
    """Say whether the model's own MTP block will be loaded, too."""
    from vllm.config import get_current_vllm_config

    speculative = get_current_vllm_config().speculative_config
    return speculative is not None and speculative.method == "mtp"


def layers_of(settings: AblitSettings, count: int, *, mtp: bool) -> frozenset[int]:
    """Return the layers to edit: of the model's own `count`, or of the MTP blocks behind them."""
    first, last = map(int, settings.layers.split("-"))
    chosen = range(first, last + 1)
    if mtp:
        return frozenset(n for n in chosen if n >= count) if settings.include_mtp else frozenset()
    return frozenset(n for n in chosen if n < count)


def install(settings: AblitSettings) -> None:
    """Wrap the models' `load_weights`. Raises OverlayError before anything is loaded."""
    direction = read_direction(settings)
    for module, name, mtp in CLASSES:
        cls = _class(module, name)
        if not hasattr(cls, _EDITED):
            cls.load_weights = _editing(cls.load_weights, settings, direction, mtp=mtp)
            setattr(cls, _EDITED, True)
    whole = _class("vllm.model_executor.model_loader.base_loader", "BaseModelLoader")
    if not hasattr(whole, _EDITED):
        whole.load_model = _closing(whole.load_model)
        setattr(whole, _EDITED, True)
    log.warning(
        "ablit: o_proj of layers %s is edited while loading, alpha %g; published quality figures "
        "are without it",
        *(settings.layers, settings.alpha),
    )


def _class(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise OverlayError("ABLIT_MODEL", f"ablit: this engine has no {name}: {error}.") from None


def _editing(
    loader: Callable[[Any, Iterable[tuple[str, Tensor]]], set[str]],
    settings: AblitSettings,
    direction: Tensor,
    *,
    mtp: bool,
) -> Callable[[Any, Iterable[tuple[str, Tensor]]], set[str]]:
    def edit_of(model: Any) -> Edit:
        # vLLM calls it once for each run of names below it: shards may bring others in between.
        if not hasattr(model, _EDIT):
            count = int(model.config.num_hidden_layers)
            wanted = layers_of(settings, count, mtp=mtp)
            if not (wanted or mtp or _drafts_itself()):
                raise _no_layers(f"{settings.layers} is beyond the model's {count} layers")
            object.__setattr__(model, _EDIT, Edit(direction, settings.alpha, wanted))
        return getattr(model, _EDIT)

    @functools.wraps(loader)
    def load_weights(self: Any, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        return loader(self, edit_of(self).stream(weights))

    setattr(load_weights, _EDIT_OF, edit_of)
    return load_weights


def _closing(loader: Callable[..., torch.nn.Module]) -> Callable[..., torch.nn.Module]:
    """Wrap the loading of a whole model: afterwards every edit must have been made."""

    @functools.wraps(loader)
    def load_model(*args: Any, **kwargs: Any) -> torch.nn.Module:
        model = loader(*args, **kwargs)
        for module in model.modules():
            edit_of = getattr(getattr(type(module), "load_weights", None), _EDIT_OF, None)
            if edit_of is not None:
                edit_of(module).close()  # also where the weights came by another way
        return model

    return load_model
