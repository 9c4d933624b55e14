"""All tensors of the demo checkpoint, by the names under which a GLM checkpoint keeps them."""

from collections.abc import Iterator
from math import sqrt

import numpy as np

from glm53ctl.demo.shape import Shape
from glm53ctl.demo.streams import Floats, spread
from glm53ctl.demo.tokenizer import DemoTokenizer
from glm53ctl.demo.vocabulary import RESERVED_DIMENSIONS, embeddings, output_rows

ATTENTION_GAIN = 1.2
MLP_GAIN = 0.5
"""How loud the layers are beside the embedding: loud enough that the choice between followers is
theirs, not so loud that they drown out which words may follow."""

FOCUS = 2.0
"""Scale of the query and key norms: attention looks at a few positions, not at all alike."""


def tensors(shape: Shape, tokenizer: DemoTokenizer) -> Iterator[tuple[str, Floats]]:
    """Yield every tensor with its name."""
    yield "model.embed_tokens.weight", embeddings(tokenizer, shape.hidden)
    for layer in range(shape.layers):
        prefix = f"model.layers.{layer}"
        yield from _attention(f"{prefix}.self_attn", shape)
        if layer < shape.dense_layers:
            yield from _mlp(f"{prefix}.mlp", shape.hidden, shape.dense_width)
        else:
            yield from _experts(f"{prefix}.mlp", shape)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            name = f"{prefix}.{norm}.weight"
            yield name, spread(name, (shape.hidden,), 0.05, around=1.0)
    yield "model.norm.weight", np.ones(shape.hidden, np.float32)
    yield "lm_head.weight", output_rows(tokenizer, shape.hidden)


def _attention(prefix: str, shape: Shape) -> Iterator[tuple[str, Floats]]:
    inside = shape.heads * shape.head_dim
    widths = {
        "q": inside,
        "k": shape.kv_heads * shape.head_dim,
        "v": shape.kv_heads * shape.head_dim,
    }
    for letter, width in widths.items():
        yield _matrix(f"{prefix}.{letter}_proj.weight", width, shape.hidden)
        bias = f"{prefix}.{letter}_proj.bias"
        yield bias, spread(bias, (width,), 0.1)
    yield _writer(f"{prefix}.o_proj.weight", shape.hidden, inside, ATTENTION_GAIN)
    for letter in "qk":
        norm = f"{prefix}.{letter}_norm.weight"
        yield norm, spread(norm, (shape.head_dim,), 0.1, around=FOCUS)


def _mlp(prefix: str, hidden: int, width: int) -> Iterator[tuple[str, Floats]]:
    yield _matrix(f"{prefix}.gate_proj.weight", width, hidden)
    yield _matrix(f"{prefix}.up_proj.weight", width, hidden)
    yield _writer(f"{prefix}.down_proj.weight", hidden, width, MLP_GAIN)


def _experts(prefix: str, shape: Shape) -> Iterator[tuple[str, Floats]]:
    yield _matrix(f"{prefix}.gate.weight", shape.experts, shape.hidden, 2.0)
    bias = f"{prefix}.gate.e_score_correction_bias"
    yield bias, spread(bias, (shape.experts,), 0.02)
    for expert in range(shape.experts):
        yield from _mlp(f"{prefix}.experts.{expert}", shape.hidden, shape.expert_width)
    yield from _mlp(f"{prefix}.shared_experts", shape.hidden, shape.expert_width)


def _matrix(name: str, rows: int, columns: int, gain: float = 1.0) -> tuple[str, Floats]:
    """Return a matrix that maps values of deviation one to values of deviation `gain`."""
    return name, spread(name, (rows, columns), gain / sqrt(columns))


def _writer(name: str, hidden: int, width: int, gain: float) -> tuple[str, Floats]:
    """Return a matrix whose product is added to the hidden state."""
    name, matrix = _matrix(name, hidden, width, gain)
    matrix[list(RESERVED_DIMENSIONS)] = 0.0
    return name, matrix
