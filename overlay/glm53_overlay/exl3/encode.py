"""A small EXL3 encoder for tests and tools: plain rounding to the nearest trellis, on the CPU.

It knows nothing of calibration data, so its weights are worse than a real quantiser's; a tile
takes about 0.1 s. Random trellis bits are a valid tensor too, and cost nothing: see `tiny`.
"""

import torch
from torch import Tensor

from glm53_overlay.exl3.format import (
    STATES,
    TILE,
    codebook_table,
    encode_order,
    hadamard,
    pack,
)

SYMBOLS = TILE * TILE


def encode(
    weight: Tensor, bits: int, codebook: str, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Return trellis, suh and svh for a weight [k, n], such that y = x @ weight.

    Random signs and the Hadamard matrices make the weights look Gaussian; one scale for the whole
    tensor, kept in suh, brings them to the codebook's deviation.
    """
    generator = torch.Generator().manual_seed(seed)
    suh = _signs(weight.shape[0], generator)
    svh = _signs(weight.shape[1], generator)
    rotated = hadamard(hadamard((suh.unsqueeze(1) * weight.float() * svh).T.contiguous()).T)
    scale = codebook_table(codebook).float().std() / rotated.std()
    tiles = encode_order(rotated * scale)
    states = torch.stack([nearest_ring(tile, bits, codebook) for tile in tiles.flatten(0, 1)])
    trellis = pack(states.view(*tiles.shape[:2], SYMBOLS), bits)
    return trellis, (suh / scale).half(), svh.half()


def random(
    k: int, n: int, bits: int, deviation: float, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Return trellis, suh and svh of random weights [k, n] with about this standard deviation.

    The MCG and 3INST codebooks have a deviation of 1.244, which svh takes back.
    """
    words = torch.randint(
        -(1 << 15), 1 << 15, (k // TILE, n // TILE, TILE * bits), generator=generator
    )
    svh = _signs(n, generator) * (deviation / 1.244)
    return words.to(torch.int16), _signs(k, generator).half(), svh.half()


def _signs(count: int, generator: torch.Generator) -> Tensor:
    return torch.randint(0, 2, (count,), generator=generator) * 2.0 - 1.0


def nearest_ring(values: Tensor, bits: int, codebook: str) -> Tensor:
    """Return the ring of windows whose values are nearest, least squares: [256] -> int64 [256].

    Viterbi over the 65,536 windows. A ring has no beginning, so the first pass starts in its
    middle with any window, and the second, from the start, is held to what the first found there.
    """
    half = SYMBOLS // 2
    free = _best_chain(values.float().roll(-half), bits, codebook, seam=None)
    # The window before the start, seen by the first pass right in its middle.
    seam = int(free[half - 1]) % (STATES >> bits)
    return _best_chain(values.float(), bits, codebook, seam)


def _best_chain(values: Tensor, bits: int, codebook: str, seam: int | None) -> Tensor:
    """Return the best chain of windows; with `seam`, it begins and ends with these shared bits.

    A window is (shared << bits) | new, its successor's shared bits are its low 16-bits: so the
    costs of all windows, seen as [2^bits, shared], reduce over their leading bits.
    """
    shared, leading = STATES >> bits, 1 << bits
    table = codebook_table(codebook).float().view(shared, leading)
    if seam is None:
        entry = torch.zeros(shared)
    else:
        entry = torch.full((shared,), torch.inf)
        entry[seam] = 0.0
    cost = (entry.unsqueeze(1) + (table - values[0]).square()).flatten()
    choices = torch.empty((len(values), shared), dtype=torch.uint8)
    for step in range(1, len(values)):
        entry, best = cost.view(leading, shared).min(0)
        choices[step] = best.to(torch.uint8)
        cost = (entry.unsqueeze(1) + (table - values[step]).square()).flatten()
    if seam is None:
        window = int(cost.argmin())
    else:
        window = (int(cost.view(leading, shared)[:, seam].argmin()) * shared) + seam
    chain = [window]
    for step in range(len(values) - 1, 0, -1):
        overlap = chain[-1] >> bits
        chain.append(int(choices[step, overlap]) * shared + overlap)
    return torch.tensor(chain[::-1])
