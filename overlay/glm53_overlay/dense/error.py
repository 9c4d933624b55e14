"""What a mode costs in accuracy: logits of a small GLM-5.3 against those of its BF16 weights.

The model is transformers' own with random weights, so the figure compares modes; it is not that of
the checkpoint, whose weights are not needed here. Projections are computed by `reference`, to which
`tests/gpu/engine.py` holds vLLM's kernels.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from glm53_overlay.dense import reference
from glm53_overlay.dense.groups import STORED, checked, group_of_mlp

TOKENS = 64


def logit_error(modes: Mapping[str, str], device: torch.device) -> float:
    """Return the relative error (Frobenius) that a mode for each group makes in the logits."""
    model = _model().to(device)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(1, model.config.text_config.vocab_size, (1, TOKENS), generator=generator)
    tokens = tokens.to(device)
    wanted = _logits(model, tokens)
    with computing(model, modes):
        found = _logits(model, tokens)
    return float((found - wanted).norm() / wanted.norm())


@contextmanager
def computing(model: Any, modes: Mapping[str, str]) -> Iterator[None]:
    """Let a GLM-5.3 of transformers in fp32 compute its projections as each group's mode does."""
    with ExitStack() as stack:
        for group, mode in checked(modes).items():
            for layer in _projections(model, group) if mode != "bf16" else ():
                stack.enter_context(_computed(layer, mode))
        yield


@cache
def _model() -> Any:
    """Return the model, made to answer to small errors as a trained one does.

    `steady`, and with routers that always choose the same experts: random ones choose others at
    the least error.
    """
    from glm53_overlay.exl3 import tiny

    torch.manual_seed(0)
    model = tiny.random_model(tiny.make_config("glm5_next_text")).float().eval()
    tiny.steady(model)
    for name, bias in (*model.named_buffers(), *model.named_parameters()):
        if name.endswith("e_score_correction_bias"):
            bias.data = 100.0 * torch.arange(len(bias), dtype=bias.dtype)
    for weight in model.parameters():
        weight.data = weight.data.bfloat16().float()  # as the checkpoint has them
    return model


def _logits(model: Any, tokens: Tensor) -> Tensor:
    with torch.inference_mode():
        return model(input_ids=tokens, use_cache=False).logits.float()


def _projections(model: Any, group: str) -> Iterator[nn.Linear]:
    """Yield the projections of one group, by their names in a checkpoint."""
    for name, module in model.named_modules():
        named = name.rpartition(".")[2] in STORED[group]
        if named and isinstance(module, nn.Linear) and _group(model, name) == group:
            yield module


def _group(model: Any, name: str) -> str | None:
    found = re.search(r"language_model\.layers\.(\d+)\.(.*)", name)
    if found is None:  # the vision tower
        return None
    if not found[2].startswith("self_attn."):
        return group_of_mlp(found[2])
    kind = model.config.text_config.layer_types[int(found[1])]
    return "kda" if kind == "linear_attention" else "mla"


@contextmanager
def _computed(layer: nn.Linear, mode: str) -> Iterator[None]:
    """Let a layer compute as a mode does."""
    layer.forward = lambda x: reference.linear(x, layer.weight, mode)
    try:
        yield
    finally:
        del layer.forward
