"""Our decoder gives what exllamav3's kernel gave on a GPU: one tile per codebook and bit width.

`golden/tiles.json` is written by tests/gpu/exl3.py from the kernel `reconstruct`.
"""

import json
from pathlib import Path

import pytest
import torch

from glm53_overlay.exl3 import format as exl3

TILES = json.loads((Path(__file__).parent / "golden/tiles.json").read_text())


def words(digits: str) -> torch.Tensor:
    """Read int16 words from hexadecimal digits, four each."""
    values = [int(digits[at : at + 4], 16) for at in range(0, len(digits), 4)]
    return torch.tensor([v - (1 << 16) if v >= 1 << 15 else v for v in values], dtype=torch.int16)


def test_there_is_a_tile_of_every_codebook_and_width():
    assert set(TILES) == set(exl3.MULTIPLIER)
    assert all(set(TILES[codebook]) == {str(bits) for bits in range(1, 9)} for codebook in TILES)


@pytest.mark.parametrize("codebook", TILES)
@pytest.mark.parametrize("bits", range(1, 9))
def test_a_tile_decodes_to_the_bits_the_kernel_wrote(codebook, bits):
    tile = TILES[codebook][str(bits)]
    decoded = exl3.decode(words(tile["trellis"]).view(1, 1, 16 * bits), codebook)
    assert torch.equal(decoded.view(torch.int16).flatten(), words(tile["weights"]))
