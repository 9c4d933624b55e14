"""Ways to break a checkpoint, and whether vLLM's own loader then refuses it.

Run as a program it tries them all: `corruptions.py CHECKPOINT` prints one line of JSON.
"""

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from vllm_model import load, vllm_config

from glm53_overlay.errors import OverlayError

Tensors = dict[str, Tensor]
LAYER, EXPERT = 2, 5
MTP_LAYER = 3


@dataclass(frozen=True)
class Corruption:
    """What is done to one tensor of one expert, and what the refusal must say of it."""

    tensor: str
    change: Callable[[Tensors, str], object]
    says: str
    layer: int = LAYER

    @property
    def prefix(self) -> str:
        return f"model.layers.{self.layer}.mlp.experts.{EXPERT}."

    @property
    def words(self) -> tuple[str, ...]:
        """Layer, expert, tensor and fault, as the refusal must name them."""
        return (f"layers.{self.layer}.", f"expert {EXPERT}, {self.tensor} ", self.says)


def remove(tensors: Tensors, name: str) -> None:
    del tensors[name]


def put(value: Callable[[Tensor], Tensor]) -> Callable[[Tensors, str], None]:
    def change(tensors: Tensors, name: str) -> None:
        tensors[name] = value(tensors[name]).contiguous()

    return change


def add(tensor: Tensor) -> Callable[[Tensors, str], None]:
    def change(tensors: Tensors, name: str) -> None:
        tensors[name] = tensor.clone()

    return change


def with_nan(tensor: Tensor) -> Tensor:
    return torch.where(torch.arange(len(tensor)) == 7, torch.nan, tensor)


def again(tensors: Tensors, name: str) -> None:
    """Put the same tensor into a second file, as after a copy into a folder that was not empty."""
    tensors[f"{AGAIN}{name}"] = tensors[name].clone()


AGAIN = "again:"
MUL1 = torch.tensor([0x83DCD12D - (1 << 32)], dtype=torch.int32)

CORRUPTIONS = {
    "trellis missing": Corruption("gate_proj.trellis", remove, "is missing"),
    "suh missing": Corruption("up_proj.suh", remove, "is missing"),
    "svh missing": Corruption("down_proj.svh", remove, "is missing"),
    "marker missing": Corruption("down_proj.mcg", remove, "is missing"),
    "missing in the MTP layer": Corruption("gate_proj.svh", remove, "is missing", layer=MTP_LAYER),
    "trellis twice": Corruption("up_proj.trellis", again, "comes a second time"),
    "marker twice": Corruption("gate_proj.mcg", again, "comes a second time"),
    "trellis of another bit width": Corruption(
        "gate_proj.trellis", put(lambda t: t[..., :48]), "must have [16, 16, 64]"
    ),
    "trellis cut short": Corruption(
        "down_proj.trellis", put(lambda t: t[:8]), "must have [16, 16, 64]"
    ),
    "trellis of another dtype": Corruption(
        "up_proj.trellis", put(lambda t: t.to(torch.int32)), "is int32 and must be int16"
    ),
    "suh too short": Corruption("gate_proj.suh", put(lambda t: t[:128]), "must have [256]"),
    "suh as bfloat16": Corruption(
        "down_proj.suh", put(lambda t: t.bfloat16()), "is bfloat16 and must be float16"
    ),
    "svh too long": Corruption(
        "up_proj.svh", put(lambda t: torch.cat([t, t])), "has the shape [512]"
    ),
    "svh with a NaN": Corruption("down_proj.svh", put(with_nan), "holds a NaN"),
    "suh with an infinity": Corruption(
        "gate_proj.suh", put(lambda t: t / 0), "holds a NaN or an infinity"
    ),
    "another multiplier": Corruption("up_proj.mcg", put(lambda t: t + 1), "and must hold"),
    "marker of another dtype": Corruption(
        "down_proj.mcg", put(lambda t: t.long()), "is int64 and must be int32"
    ),
    "another codebook's marker": Corruption("gate_proj.mul1", add(MUL1), "marks the codebook mul1"),
    "dense weight beside": Corruption(
        "gate_proj.weight", add(torch.zeros(256, 256)), "is a dense weight"
    ),
    "dense weight in the MTP layer": Corruption(
        "down_proj.weight", add(torch.zeros(256, 256)), "is a dense weight", layer=MTP_LAYER
    ),
    "bias": Corruption("up_proj.bias", add(torch.zeros(256)), "is a bias"),
    "old packed signs": Corruption(
        "gate_proj.su", add(torch.zeros(16, dtype=torch.int16)), "of the old form"
    ),
}


def corrupt(checkpoint: Path, target: Path, corruption: Corruption) -> None:
    """Write a checkpoint that differs from another in this one way."""
    target.mkdir()
    shutil.copy(checkpoint / "config.json", target)
    tensors = load_file(checkpoint / "model.safetensors")
    corruption.change(tensors, corruption.prefix + corruption.tensor)
    second = {name: tensors.pop(name) for name in list(tensors) if name.startswith(AGAIN)}
    save_file(tensors, target / "model.safetensors")
    if second:
        save_file(
            {name.removeprefix(AGAIN): tensor for name, tensor in second.items()},
            target / "model-2.safetensors",
        )


def config_of(checkpoint: Path) -> Any:
    """Return vLLM's configuration for a checkpoint and its MTP layer."""
    return vllm_config(
        checkpoint, speculative_config={"method": "mtp", "num_speculative_tokens": 1}
    )


def refusal(checkpoint: Path, *, draft: bool) -> str:
    """Return what the overlay says of a checkpoint while vLLM loads it; nothing if it loads."""
    try:
        load(config_of(checkpoint), draft=draft)
    except OverlayError as error:
        return str(error)
    return ""


def refused(checkpoint: Path, target: Path, corruption: Corruption) -> bool:
    """Say whether a corrupted copy is refused with layer, expert and tensor."""
    corrupt(checkpoint, target, corruption)
    said = refusal(target, draft=corruption.layer == MTP_LAYER)
    return all(word in said for word in corruption.words)


def main(checkpoint: Path, scratch: Path) -> None:
    caught = [
        name
        for number, (name, corruption) in enumerate(CORRUPTIONS.items())
        if refused(checkpoint, scratch / str(number), corruption)
    ]
    for name in CORRUPTIONS.keys() - set(caught):
        print(f"not refused: {name}", file=sys.stderr)
    print(json.dumps({"refused": len(caught), "tried": len(CORRUPTIONS)}))


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory(prefix="glm53-corruptions-") as folder:
        main(Path(sys.argv[1]), Path(folder))
