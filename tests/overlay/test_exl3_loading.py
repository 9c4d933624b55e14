"""What one rank's loader takes of a whole tensor, and where it puts it."""

import pytest
import torch
from torch.nn import Parameter

from glm53_overlay.errors import OverlayError
from glm53_overlay.exl3.encode import random
from glm53_overlay.exl3.format import Spec, marker
from glm53_overlay.exl3.loading import PARAMETERS, PROJECTIONS, ExpertLoader, unwanted

HIDDEN, INTERMEDIATE, COUNT = 256, 512, 3
COLUMN, ROW = Spec(HIDDEN, INTERMEDIATE, 4, "mcg"), Spec(INTERMEDIATE, HIDDEN, 4, "mcg")
WHOLES = {"w1": COLUMN, "w3": COLUMN, "w2": ROW}


def filled(rank, ranks, tensors):
    """A layer's parameters on a rank, after every tensor of every expert came."""
    loader = ExpertLoader("model.layers.7.mlp.experts", COUNT, WHOLES, rank, ranks)
    parameters = {}
    for group, projections in PARAMETERS.items():
        for suffix, (dtype, shape) in loader.shards[projections[0]].part.tensors.items():
            data = torch.zeros(len(projections), COUNT, *shape, dtype=dtype)
            parameters[f"{group}_{suffix}"] = Parameter(data, requires_grad=False)
    for (expert, shard_id, suffix), tensor in tensors.items():
        name = f"{'w2' if shard_id == 'w2' else 'w13'}_{suffix}"
        done = loader(
            parameters[name], tensor, f"experts.routed_experts.{name}", shard_id, expert, True
        )
        assert done is True
    loader.close()
    return parameters


@pytest.fixture(scope="module")
def tensors():
    generator = torch.Generator().manual_seed(8)
    made = {}
    for expert in range(COUNT):
        for shard_id, spec in WHOLES.items():
            parts = random(spec.k, spec.n, 4, 0.05, generator)
            for suffix, tensor in zip(("trellis", "suh", "svh"), parts, strict=True):
                made[expert, shard_id, suffix] = tensor
            made[expert, shard_id, "mcg"] = torch.tensor([marker("mcg")], dtype=torch.int32)
    return made


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_keeps_its_half(rank, tensors):
    mine = filled(rank, 2, tensors)
    half = slice(rank * 256, rank * 256 + 256)
    tiles = slice(rank * 16, rank * 16 + 16)
    for expert in range(COUNT):
        for place, shard_id in enumerate(("w1", "w3")):
            whole = {s: tensors[expert, shard_id, s] for s in ("trellis", "suh", "svh")}
            assert torch.equal(mine["w13_trellis"][place, expert], whole["trellis"][:, tiles])
            assert torch.equal(mine["w13_suh"][place, expert], whole["suh"])
            assert torch.equal(mine["w13_svh"][place, expert], whole["svh"][half])
        whole = {s: tensors[expert, "w2", s] for s in ("trellis", "suh", "svh")}
        assert torch.equal(mine["w2_trellis"][0, expert], whole["trellis"][tiles])
        assert torch.equal(mine["w2_suh"][0, expert], whole["suh"][half])
        assert torch.equal(mine["w2_svh"][0, expert], whole["svh"])


@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_marker_may_be_a_scalar_or_one_element(shape, tensors):
    scalar = torch.tensor(marker("mcg"), dtype=torch.int32).reshape(shape)
    filled(0, 1, {key: scalar if key[2] == "mcg" else t for key, t in tensors.items()})


@pytest.mark.parametrize("expert", range(COUNT))
@pytest.mark.parametrize("shard_id", PROJECTIONS)
@pytest.mark.parametrize("suffix", ["trellis", "suh", "svh", "mcg"])
def test_any_one_of_the_twelve_is_missed(expert, shard_id, suffix, tensors):
    rest = {key: t for key, t in tensors.items() if key != (expert, shard_id, suffix)}
    where = f"layers.7.mlp.experts: expert {expert}, {PROJECTIONS[shard_id]}.{suffix} is missing"
    with pytest.raises(OverlayError, match=f"EXL3_MISSING: model.{where}"):
        filled(1, 2, rest)


def test_no_tensor_that_a_checkpoint_may_hold_is_passed_over():
    assert set(unwanted(COLUMN)) == {"weight", "bias", "su", "sv", "mul1"}
    assert {"mcg", "mul1"} <= set(unwanted(Spec(128, 128, 4, "3inst")))
