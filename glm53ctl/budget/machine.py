"""Machines as data: what their makers say and what was measured on them."""

from dataclasses import dataclass

GIB = 2**30


@dataclass(frozen=True)
class Machine:
    """One rank's machine.

    `bandwidth` of its memory and `link` of one direction to its peer in bytes/s, `flops` of dense
    BF16 in 1/s; `round_seconds` is one small all-reduce. `kv_row` is what one token of one sparse
    MLA layer takes in the KV cache, in bytes: 656 in the packed rows of SM120, 512 on SM90.
    `unified`: the GPU has no memory of its own. `unpacks`: long prefills may decode experts to
    fp16 (docs/exl3.md).
    """

    name: str
    memory: int
    bandwidth: float
    flops: float
    multiprocessors: int
    link: float
    round_seconds: float
    kv_row: int
    unified: bool
    unpacks: bool


GB10 = Machine(
    name="gb10",
    memory=round(121.69 * GIB),  # as CUDA reports it
    bandwidth=273e9,
    flops=125e12,
    multiprocessors=48,
    link=108.9e9 / 8,  # one rail, measured by the vLLM recipe; the cable has two
    round_seconds=25e-6,  # assumed: nobody has published it
    kv_row=656,
    unified=True,
    unpacks=False,
)
H200 = Machine(
    name="h200",
    memory=round(139.8 * GIB),
    bandwidth=4.8e12,
    flops=989e12,
    multiprocessors=132,
    link=450e9,
    round_seconds=8e-6,  # assumed
    kv_row=512,
    unified=False,
    unpacks=True,
)
MACHINES = {machine.name: machine for machine in (GB10, H200)}
"""Every machine by its name."""
