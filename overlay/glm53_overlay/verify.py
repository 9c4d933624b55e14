"""The self-check before serving: `python -m glm53_overlay.verify` in the engine's Python.

Is this the vLLM that the overlay knows, does the device compute what the format says, and the same
each time? Random EXL3 experts in the shape of one rank of two are enough: decoding does not depend
on the values. Prints one line of JSON; exit status 1 when a check failed.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial

import torch
from torch import Tensor

from glm53_overlay import contract
from glm53_overlay.exl3.encode import random
from glm53_overlay.exl3.experts import Backend, Experts, Projection
from glm53_overlay.exl3.format import dequantize, swiglu
from glm53_overlay.exl3.kernels import make_backend

HIDDEN, INTERMEDIATE = 4096, 1024
"""GLM-5.3-Flash on one of two ranks."""

EXPERTS, TOP_K = 8, 8
BITS, CODEBOOK, LIMIT = 4, "mcg", 10.0
TOKENS = {"cuda": (1, 8, 96, 640, 1280), "cpu": (1, 8)}
"""Batch sizes that reach each way a device's backend has of computing."""

TOLERANCE = 5e-3
"""Largest relative error (Frobenius). The kernels round to fp16 between their steps, which makes
1e-3 of it; a wrong decode makes 1.4."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str


def random_experts(device: torch.device, seed: int = 0) -> Experts:
    """Return EXPERTS random experts of one rank's shape on a device."""
    generator = torch.Generator().manual_seed(seed)

    def projection(k: int, n: int) -> Projection:
        made = (random(k, n, BITS, k**-0.5, generator) for _ in range(EXPERTS))
        return Projection(*(torch.stack(part).to(device) for part in zip(*made, strict=True)))

    gate, up = projection(HIDDEN, INTERMEDIATE), projection(HIDDEN, INTERMEDIATE)
    return Experts(gate, up, projection(INTERMEDIATE, HIDDEN), BITS, CODEBOOK, LIMIT)


def expected(experts: Experts, x: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
    """Return the routed sum from unpacked weights, fp32: another way than any backend's."""
    chosen = torch.zeros(len(x), experts.count, device=x.device)
    chosen.scatter_(1, ids.long(), weights.float())
    out = torch.zeros(x.shape, device=x.device)
    for expert in range(experts.count):
        gate, up, down = (
            dequantize(p.trellis[expert], p.suh[expert], p.svh[expert], experts.codebook)
            for p in (experts.gate, experts.up, experts.down)
        )
        inner = swiglu(x.float() @ gate, x.float() @ up, experts.swiglu_limit)
        out += (inner @ down) * chosen[:, expert : expert + 1]
    return out


def batch(tokens: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return random activations bf16 [T, H], and ids and weights of the chosen experts [T, k]."""
    generator = torch.Generator().manual_seed(tokens)
    x = torch.randn(tokens, HIDDEN, generator=generator).bfloat16()
    scores = torch.rand(tokens, EXPERTS, generator=generator)
    weights, ids = scores.softmax(1).topk(TOP_K)
    return x.to(device), ids.int().to(device), weights.to(device)


def checks(device: torch.device) -> Iterator[Check]:
    """Yield every check on a device, the cheap ones first."""
    yield _look("vllm", _known_vllm)
    yield _look("contract", _kept_contract)
    sizes = TOKENS[device.type]
    made: list[tuple[Experts, Backend]] = []

    def backend() -> tuple[bool, str]:
        experts = random_experts(device)
        made.append((experts, make_backend(experts, device, max(sizes), TOP_K)))
        return True, type(made[0][1]).__name__

    yield _look("backend", backend)
    for tokens in sizes if made else ():
        yield _look(f"{tokens} tokens", partial(_right, *made[0], tokens, device))
        yield _look(f"{tokens} tokens again", partial(_same, made[0][1], tokens, device))


def _right(
    experts: Experts, backend: Backend, tokens: int, device: torch.device
) -> tuple[bool, str]:
    given = batch(tokens, device)
    found, wanted = backend.run(*given).float(), expected(experts, *given)
    error = float((found - wanted).norm() / wanted.norm())
    return error <= TOLERANCE, f"relative error {error:.1e} <= {TOLERANCE}"


def _same(backend: Backend, tokens: int, device: torch.device) -> tuple[bool, str]:
    first, second = (backend.run(*batch(tokens, device)).clone() for _ in range(2))
    same = torch.equal(first, second)
    return same, "the same" if same else "differ bit by bit"


def dense_checks(device: torch.device) -> Iterator[Check]:
    """Yield what each mode of the dense projections costs in accuracy."""
    from glm53_overlay.dense.groups import MODES

    for mode in MODES[1:]:
        yield _look(f"dense {mode}", partial(_dense, mode, device))


def _dense(mode: str, device: torch.device) -> tuple[bool, str]:
    from glm53_overlay.dense.error import logit_error
    from glm53_overlay.dense.groups import PROJECTIONS

    error = logit_error(dict.fromkeys(PROJECTIONS, mode), device)
    return 0 < error < 1, f"logits of a small random model differ from bf16's by {error:.1%}"


def _look(name: str, looks: Callable[[], tuple[bool, str]]) -> Check:
    try:
        return Check(name, *looks())
    except Exception as error:  # also a driver's: what else was looked at is told all the same
        return Check(name, False, str(error).partition("\n")[0])


def _known_vllm() -> tuple[bool, str]:
    import vllm
    from vllm.platforms import current_platform

    contract.require_known(vllm.__version__, current_platform.device_type)
    return True, f"{vllm.__version__} on {current_platform.device_type}"


def _kept_contract() -> tuple[bool, str]:
    contract.require_kept()
    return True, "kept"


def main() -> int:
    """Check, print, and return the exit status."""
    parser = argparse.ArgumentParser(description="Check the overlay in this engine.")
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=TOKENS, default=default, help="default: what is there")
    parser.add_argument("--dense", action="store_true", help="also what `dense` costs")
    given = parser.parse_args()
    device = torch.device(given.device)
    found = [*checks(device), *(dense_checks(device) if given.dense else ())]
    print(json.dumps({"checks": [asdict(check) for check in found]}))
    return 0 if all(check.ok for check in found) else 1


if __name__ == "__main__":
    sys.exit(main())
