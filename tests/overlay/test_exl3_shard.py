"""Cuts for tensor parallelism: exact where allowed, refused where they would not be."""

import pytest
import torch
from torch import testing

from glm53_overlay.errors import OverlayError
from glm53_overlay.exl3.encode import random
from glm53_overlay.exl3.format import Spec, linear
from glm53_overlay.exl3.shard import Shard

SUFFIXES = ("trellis", "suh", "svh")


def parts(tensors, spec, side, ranks):
    for rank in range(ranks):
        shard = Shard(spec, side, rank, ranks)
        yield shard, [shard.of(s, t) for s, t in zip(SUFFIXES, tensors, strict=True)]


@pytest.fixture
def whole():
    generator = torch.Generator().manual_seed(6)
    tensors = random(512, 512, 4, 0.05, generator)
    return Spec(512, 512, 4, "mcg"), tensors, torch.randn(3, 512, generator=generator)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_cut_by_outputs_gives_the_outputs_side_by_side(whole, ranks):
    spec, tensors, x = whole
    outputs = [linear(x, *part, "mcg") for _, part in parts(tensors, spec, "n", ranks)]
    found = torch.cat(outputs, 1)  # a narrower product may be added up in another order
    testing.assert_close(found, linear(x, *tensors, "mcg"), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_cut_by_inputs_gives_outputs_to_be_summed(whole, ranks):
    spec, tensors, x = whole
    pieces = x.chunk(ranks, 1)
    outputs = [
        linear(pieces[shard.rank], *part, "mcg") for shard, part in parts(tensors, spec, "k", ranks)
    ]
    testing.assert_close(sum(outputs), linear(x, *tensors, "mcg"), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("side", ["k", "n"])
def test_a_part_looks_as_its_spec_says(whole, side):
    spec, tensors, _ = whole
    for shard, part in parts(tensors, spec, side, 2):
        for suffix, tensor in zip(SUFFIXES, part, strict=True):
            dtype, shape = shard.part.tensors[suffix]
            assert (tensor.dtype, tuple(tensor.shape)) == (dtype, shape)


def test_the_real_ranks_have_the_published_shapes():
    gate = Shard(Spec(4096, 2048, 4, "mcg"), "n", 1, 2).part
    down = Shard(Spec(2048, 4096, 4, "mcg"), "k", 1, 2).part
    assert gate.tensors["trellis"][1] == (256, 64, 64)
    assert down.tensors["trellis"][1] == (64, 256, 64)
    assert (gate.k, gate.n, down.k, down.n) == (4096, 1024, 1024, 4096)


@pytest.mark.parametrize(("size", "ranks"), [(384, 2), (2048, 3), (128, 2)])
@pytest.mark.parametrize("side", ["k", "n"])
def test_a_cut_inside_a_hadamard_block_is_refused(side, size, ranks):
    spec = Spec(**{"k": 128, "n": 128, side: size}, bits=4, codebook="mcg")
    with pytest.raises(OverlayError, match=f"EXL3_SHARD: {size} channels .* {ranks} ranks"):
        Shard(spec, side, 0, ranks)


def test_such_a_cut_would_have_been_wrong(whole):
    """Why the rule is 128 and not 16: a cut at 192 of 384 mixes what belongs together."""
    _, (trellis, suh, svh), x = whole
    full = linear(x[:, :384], trellis[:24], suh[:384], svh, "mcg")
    padded = torch.zeros(3, 256)
    padded[:, :192] = x[:, :192]
    first = linear(padded, trellis[:16], suh[:256], svh, "mcg")
    padded = torch.zeros(3, 256)
    padded[:, 64:] = x[:, 192:384]
    second = linear(padded, trellis[8:24], suh[128:384], svh, "mcg")
    assert torch.allclose(first + second, full, atol=1e-4)  # cut in x, at blocks in W: exact
    wrong = linear(x[:, 192:320], trellis[12:20], suh[192:320], svh, "mcg")
    right = full - linear(x[:, :128], trellis[:8], suh[:128], svh, "mcg")
    assert (wrong - right).norm() / right.norm() > 0.4


def test_a_rank_that_does_not_exist_is_refused():
    with pytest.raises(OverlayError, match="EXL3_SHARD: there is no rank 2 of 2"):
        Shard(Spec(256, 256, 4, "mcg"), "n", 2, 2)
