"""Our own chat template for GLM-5.3, and what vLLM's parser must know about it.

The checkpoint's template always thinks. vLLM recognises it by its text and then ignores
`enable_thinking: false`, since without a switch the thoughts would come out as the answer. It
looks at the checkpoint's template even when another one is served, so with ours every answer
without thinking would be taken for thoughts.
"""

from pathlib import Path

from glm53_overlay.errors import OverlayError
from glm53_overlay.settings import ApiSettings

PATH = Path(__file__).with_name("glm53.jinja")
_QUESTION = "_glm53_always_thinks"


def install(settings: ApiSettings) -> None:
    """Tell vLLM's parser that our template obeys. Raises OverlayError OVERLAY_CONTRACT."""
    if settings.template != "appliance":
        return
    from vllm.parser import glm47_moe

    if not hasattr(glm47_moe, _QUESTION):
        raise OverlayError(
            "OVERLAY_CONTRACT", f"vLLM is not as it was: {glm47_moe.__name__} has no {_QUESTION}."
        )
    setattr(glm47_moe, _QUESTION, _obeys)


def _obeys(tokenizer: object) -> bool:
    return False
