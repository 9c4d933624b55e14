"""The encoder finds near weights, and random bits are a tensor of the wanted size."""

import pytest
import torch

from glm53_overlay.exl3 import encode as encoder
from glm53_overlay.exl3.format import STATES, codebook_table, dequantize, windows


@pytest.mark.parametrize("codebook", ["mcg", "mul1"])
@pytest.mark.parametrize(("bits", "limit"), [(2, 0.30), (4, 0.085)])
def test_a_ring_is_near_the_values_it_stands_for(codebook, bits, limit):
    """Published for whole matrices: 0.262 at 2 bits, 0.069 at 4; one tile may be some worse."""
    table = codebook_table(codebook).float()
    values = torch.randn(256, generator=torch.Generator().manual_seed(3)) * table.std()
    ring = encoder.nearest_ring(values, bits, codebook)
    assert torch.equal(ring & ((STATES >> bits) - 1), ring.roll(-1) >> bits), "not a ring"
    error = (table[ring] - values).norm() / values.norm()
    assert error < limit


def test_a_matrix_survives_being_encoded():
    weight = torch.randn(128, 128, generator=torch.Generator().manual_seed(4)) * 0.03
    trellis, suh, svh = encoder.encode(weight, 2, "mcg")
    assert trellis.shape == (8, 8, 32)
    assert (suh.dtype, svh.dtype) == (torch.float16, torch.float16)
    back = dequantize(trellis, suh, svh, "mcg")
    assert (back - weight).norm() / weight.norm() == pytest.approx(0.262, abs=0.02)


def test_random_bits_have_the_wanted_deviation():
    made = encoder.random(256, 256, 4, 0.02, torch.Generator().manual_seed(5))
    weight = dequantize(*made, "mcg")
    assert float(weight.std()) == pytest.approx(0.02, rel=0.02)
    assert len(windows(made[0]).unique()) > 40000
