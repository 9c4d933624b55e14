"""What the logits of a checkpoint ought to be: the model of transformers in fp32, and the dense
modes as `glm53_overlay.dense.reference` computes them. Nothing of vLLM is in it.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from sitting import Answer
from transformers import AutoModelForImageTextToText, AutoTokenizer

from glm53_overlay.dense.error import computing
from glm53_overlay.dense.groups import PROJECTIONS


def first_logits(
    folder: Path, modes: Sequence[str], prompts: Sequence[str], device: str
) -> Iterator[list[Answer]]:
    """Yield for each mode the first token of every prompt, with all logprobs, as a server says."""
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).to(device)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = [torch.tensor([tokenizer(prompt).input_ids], device=device) for prompt in prompts]
    for mode in modes:
        with torch.inference_mode(), computing(model, dict.fromkeys(PROJECTIONS, mode)):
            yield [_answer(model(input_ids=text, use_cache=False).logits[0, -1]) for text in texts]


def _answer(logits: torch.Tensor) -> Answer:
    found = logits.log_softmax(0).tolist()
    logprobs = {f"token_id:{token}": value for token, value in enumerate(found)}
    return Answer((max(logprobs, key=lambda token: logprobs[token]),), (logprobs,))
