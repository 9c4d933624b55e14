"""What is native in an EXL3 checkpoint comes whole, too.

vLLM asks whether every parameter was loaded only where nothing is quantised, and would serve what
happened to lie in the memory of the others. Routed experts count for themselves (`loading.py`).
"""

import functools
import re
from collections.abc import Callable
from typing import Any

from glm53_overlay.errors import OverlayError

_MARK = "_glm53_native"
_NAME = re.compile("'([^']+)'")


def install(quantization: str) -> None:
    """Have vLLM count the parameters of models that are quantised so; not of drafts.

    The MTP block shares its embedding with the model, so it does not load one.
    """
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader as Loader

    if not hasattr(Loader, _MARK):
        Loader.load_weights = _counting(Loader.load_weights, quantization)
        Loader.track_weights_loading = _refusing(Loader.track_weights_loading)
        setattr(Loader, _MARK, True)


def _counting(load: Callable[..., None], quantization: str) -> Callable[..., None]:
    @functools.wraps(load)
    def load_weights(self: Any, model: Any, model_config: Any) -> None:
        if model_config.quantization == quantization and model_config.runner_type != "draft":
            self.enable_weights_track = True
        load(self, model, model_config)

    return load_weights


def _refusing(track: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(track)
    def track_weights_loading(*args: Any, **kwargs: Any) -> None:
        try:
            track(*args, **kwargs)
        except ValueError as error:
            missing = sorted(_NAME.findall(str(error))) or [str(error)]
            more = f", and so are {len(missing) - 1} more" * (len(missing) > 1)
            text = f"{missing[0]} (vLLM's name) is missing in the checkpoint{more}."
            raise OverlayError("EXL3_MISSING", text) from None

    return track_weights_loading
