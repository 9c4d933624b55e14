"""The reference backend against unpacked weights, and two ranks against one."""

import pytest
import torch
from torch import testing

from glm53_overlay.exl3.encode import random
from glm53_overlay.exl3.experts import Experts, Projection
from glm53_overlay.exl3.format import Spec, dequantize, swiglu
from glm53_overlay.exl3.reference import TorchBackend
from glm53_overlay.exl3.shard import Shard

COUNT, HIDDEN, INTERMEDIATE, TOP_K = 4, 256, 256, 2


def projection(k, n, seed):
    generator = torch.Generator().manual_seed(seed)
    made = [random(k, n, 4, k**-0.5, generator) for _ in range(COUNT)]
    return Projection(*(torch.stack(part) for part in zip(*made, strict=True)))


def experts(limit=10.0):
    return Experts(
        projection(HIDDEN, INTERMEDIATE, 1),
        projection(HIDDEN, INTERMEDIATE, 2),
        projection(INTERMEDIATE, HIDDEN, 3),
        bits=4,
        codebook="mcg",
        swiglu_limit=limit,
    )


def part(whole, side, rank, k, n):
    shard = Shard(Spec(k, n, 4, "mcg"), side, rank, 2)
    names = ("trellis", "suh", "svh")
    return Projection(*(torch.stack([shard.of(s, t) for t in getattr(whole, s)]) for s in names))


def batch(tokens, scale=1.0):
    generator = torch.Generator().manual_seed(tokens)
    x = torch.randn(tokens, HIDDEN, generator=generator) * scale
    ids = torch.rand(tokens, COUNT, generator=generator).topk(TOP_K).indices
    return x, ids, torch.rand(tokens, TOP_K, generator=generator)


def by_token(model, x, ids, weights):
    """The definition, one token and one choice at a time, from unpacked weights."""
    out = torch.zeros_like(x)
    for token in range(len(x)):
        for choice in range(ids.shape[1]):
            e = int(ids[token, choice])
            gate, up, down = (
                dequantize(p.trellis[e], p.suh[e], p.svh[e], model.codebook)
                for p in (model.gate, model.up, model.down)
            )
            inner = swiglu(x[token] @ gate, x[token] @ up, model.swiglu_limit)
            out[token] += weights[token, choice] * (inner @ down)
    return out


@pytest.mark.parametrize("limit", [0.0, 0.5])
def test_it_is_the_definition(limit):
    model = experts(limit)
    x, ids, weights = batch(5)
    found = TorchBackend(model).run(x, ids, weights)
    testing.assert_close(found, by_token(model, x, ids, weights), rtol=1e-4, atol=1e-5)


def test_two_ranks_add_up_to_one():
    whole = experts()
    x, ids, weights = batch(7)
    ranks = [
        Experts(
            part(whole.gate, "n", rank, HIDDEN, INTERMEDIATE),
            part(whole.up, "n", rank, HIDDEN, INTERMEDIATE),
            part(whole.down, "k", rank, INTERMEDIATE, HIDDEN),
            4,
            "mcg",
            10.0,
        )
        for rank in range(2)
    ]
    assert [(r.count, r.hidden, r.intermediate) for r in ranks] == [(COUNT, HIDDEN, 128)] * 2
    summed = sum(TorchBackend(rank).run(x, ids, weights) for rank in ranks)
    testing.assert_close(summed, TorchBackend(whole).run(x, ids, weights), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("foreign", [-1, COUNT, 1000])
def test_an_id_that_is_no_expert_contributes_nothing(foreign):
    backend = TorchBackend(experts())
    x, ids, weights = batch(6)
    without = weights.clone()
    without[:, 1] = 0
    ids_with = ids.clone()
    ids_with[:, 1] = foreign
    found = backend.run(x, ids_with, weights)
    testing.assert_close(found, backend.run(x, ids, without), rtol=1e-4, atol=1e-5)


def test_the_dtype_of_the_input_is_the_output_s():
    backend = TorchBackend(experts())
    x, ids, weights = batch(3)
    exact = backend.run(x, ids, weights)
    rounded = backend.run(x.bfloat16(), ids.int(), weights)
    assert rounded.dtype == torch.bfloat16
    assert (rounded.float() - exact).norm() / exact.norm() < 1e-2


def test_no_tokens_are_no_work():
    x, ids, weights = batch(3)
    assert TorchBackend(experts()).run(x[:0], ids[:0], weights[:0]).shape == (0, HIDDEN)
