r"""A client's `stop` strings end the answer, not the thoughts before it.

vLLM looks for them in all that is generated, so a client that stops at "\n\n" would get a thought
of one paragraph and no answer. A prompt that ends with `<think>` leaves thoughts open; until
`</think>` comes, the request's strings are put aside. Nothing else of it changes.
"""

import functools
import inspect
from collections.abc import Iterator
from typing import Any

from glm53_overlay.errors import OverlayError

OPENS, CLOSES = "<think>", "</think>"
_MARK = "_glm53_stops"


def differences() -> Iterator[str]:
    """Say in what vLLM's detokenizer differs from the one that this is written for."""
    from vllm.v1.engine import detokenizer

    for owner, name, expected in (
        (detokenizer.IncrementalDetokenizer, "from_new_request", "tokenizer request"),
        (detokenizer.BaseIncrementalDetokenizer, "update", "self new_token_ids stop_terminated"),
    ):
        found = " ".join(inspect.signature(getattr(owner, name)).parameters)
        if found != expected:
            yield f"{owner.__name__}.{name} takes ({found})"


def install() -> None:
    """Wrap the making of detokenizers. Raises OverlayError STOPS_CONTRACT for another vLLM."""
    from vllm.v1.engine.detokenizer import IncrementalDetokenizer

    made = IncrementalDetokenizer.from_new_request
    if hasattr(made, _MARK):
        return
    if broken := list(differences()):
        raise OverlayError("STOPS_CONTRACT", f"vLLM is not as it was: {'; '.join(broken)}.")

    @functools.wraps(made)
    def from_new_request(cls: Any, tokenizer: Any, request: Any) -> Any:
        detokenizer = made.__func__(cls, tokenizer, request)
        if getattr(detokenizer, "stop", None) and (end := open_until(tokenizer, request)):
            hold_back(detokenizer, end)
        return detokenizer

    setattr(from_new_request, _MARK, True)
    IncrementalDetokenizer.from_new_request = classmethod(from_new_request)


def open_until(tokenizer: Any, request: Any) -> int | None:
    """Return the token that ends the thoughts which the prompt leaves open, if it does."""
    prompt = request.prompt_token_ids or ()
    opens, closes = tokenizer.convert_tokens_to_ids([OPENS, CLOSES])
    known = {opens, closes}.isdisjoint({None, getattr(tokenizer, "unk_token_id", None)})
    return closes if known and prompt and prompt[-1] == opens else None


def hold_back(detokenizer: Any, end: int) -> None:
    """Put a detokenizer's stop strings aside until the token `end`."""
    strings, update = detokenizer.stop, detokenizer.update
    detokenizer.stop = []

    def waiting(new_token_ids: list[int], stop_terminated: bool) -> str | None:
        if end not in new_token_ids:
            return update(new_token_ids, stop_terminated)
        after = new_token_ids.index(end) + 1
        thoughts, answer = new_token_ids[:after], new_token_ids[after:]
        update(thoughts, stop_terminated and not answer)
        detokenizer.stop, detokenizer.update = strings, update
        return update(answer, stop_terminated) if answer else None

    detokenizer.update = waiting
