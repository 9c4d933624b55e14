"""Writes a tiny EXL3 checkpoint and its dense twin, for tests and rehearsals without the weights.

    python -m glm53_overlay.exl3.tiny OUT --layout glm4_moe --tokenizer DIR

makes OUT/exl3 and OUT/dense. Both hold the same numbers: the experts are random trellis bits,
which are always valid, and the twin holds what they decode to, in fp32. Everything else is what
transformers draws at random for such a model. Geometry: the least that can be cut for two ranks.
"""

import argparse
import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PretrainedConfig,
    PreTrainedModel,
)

from glm53_overlay.exl3.encode import random
from glm53_overlay.exl3.format import MARKED, dequantize, marker

HIDDEN = 256
INTERMEDIATE = 256
EXPERTS = 8
BITS = 4
CODEBOOK = "mcg"
DEVIATION = 0.06  # of all weights: 1/sqrt(256), so that outputs have the size of inputs

COMMON: dict[str, Any] = {
    "hidden_size": HIDDEN,
    "intermediate_size": 512,
    "moe_intermediate_size": INTERMEDIATE,
    "n_routed_experts": EXPERTS,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "initializer_range": DEVIATION,
}
LAYOUTS: dict[str, dict[str, Any]] = {
    "glm4_moe": {
        "architectures": ["Glm4MoeForCausalLM"],
        "num_hidden_layers": 3,
        "first_k_dense_replace": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "attention_bias": True,
        "use_qk_norm": True,
        "num_nextn_predict_layers": 1,
    },
    # Attention has the real sizes but for 16 heads: the sparse kernels know no others.
    "glm5_next_text": {
        "architectures": ["Glm5NextForCausalLM"],
        "num_hidden_layers": 4,
        "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "q_lora_rank": 256,
        "linear_num_heads": 4,
        "index_kpool": 4,
        # Read by vLLM, unknown to the class of transformers.
        "mhc": True,
        "mla_use_nope": True,
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
        "indexer_rope_interleave": True,
        "num_nextn_predict_layers": 1,
    },
}
"""The models whose loaders differ: Glm4Moe's is vLLM's general one, Glm5Next has its own."""

LAYOUTS["glm5_next_real"] = LAYOUTS["glm5_next_text"] | {
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 16,
    "num_experts_per_tok": 8,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "q_lora_rank": 1536,
    "linear_num_heads": 64,
    "max_position_embeddings": 65536,
    "initializer_range": 4096**-0.5,
}
"""GLM-5.3-Flash's widths in four layers with 16 experts, for a GPU: its kernels know no others.

Written as the real checkpoint is, text and vision together: vLLM drafts with its own layer (MTP)
only then. `steady`, so that an error of its logits tells of the kernels and not of the model.
"""

MODEL_TYPES = {"glm5_next_real": "glm5_next_text"}
"""The name that transformers knows, where a layout has another."""
WHOLE = "Glm5NextForConditionalGeneration"

QUANTIZATION = {
    "quant_method": "exl3",
    "bits": BITS,
    "codebook": CODEBOOK,
    "head_bits": 16,
    "scope": "glm53_routed_experts_only",
    "non_routed_dtype_policy": "official_source_native",
    "version": "0.0.43",
    "serving_reader_qualified": False,
}

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "generation_config.json",
)

Tensors = dict[str, Tensor]


def write(
    out: Path, layout: str, tokenizer: Path | None = None, seed: int = 0, device: str = "cpu"
) -> None:
    """Write both checkpoints below `out`. `tokenizer` is a checkpoint to take a tokenizer from.

    `device` is where experts are decoded for the twin; real widths take minutes on a CPU.
    """
    config = make_config(layout, tokenizer)
    whole = layout in MODEL_TYPES
    native = _native(config, seed, whole)
    packed: Tensors = {}
    dense: Tensors = {}
    generator = torch.Generator().manual_seed(seed)
    for prefix in _sparse_layers(native):
        for name, k, n in _projections(f"{prefix}.experts", config):
            scale = config.initializer_range
            if whole and name.endswith("down_proj"):
                scale *= _share(config)  # as `steady` has it
            trellis, suh, svh = random(k, n, BITS, scale, generator)
            packed |= {f"{name}.trellis": trellis, f"{name}.suh": suh, f"{name}.svh": svh}
            if CODEBOOK in MARKED:
                mark = torch.tensor([marker(CODEBOOK)], dtype=torch.int32)
                packed[f"{name}.{CODEBOOK}"] = mark
            twin = dequantize(trellis.to(device), suh.to(device), svh.to(device), CODEBOOK)
            dense[f"{name}.weight"] = twin.T.to(_dtype(layout)).contiguous().cpu()
    native = {name: tensor.to(_dtype(layout)) for name, tensor in native.items()}
    described = _whole(config).to_dict() | {"architectures": [WHOLE]} if whole else config.to_dict()
    described["dtype"] = str(_dtype(layout)).removeprefix("torch.")
    quantized = described | {"quantization_config": QUANTIZATION}
    for name, experts, settings in (("exl3", packed, quantized), ("dense", dense, described)):
        _checkpoint(out / name, native | experts, settings, tokenizer)


def make_config(layout: str, tokenizer: Path | None = None) -> PretrainedConfig:
    """Return the configuration of a layout; its vocabulary is the tokenizer's, if there is one."""
    settings = COMMON | LAYOUTS[layout] | {"vocab_size": 512, "pad_token_id": 0, "eos_token_id": 0}
    if tokenizer is not None:
        like = json.loads((tokenizer / "config.json").read_text())
        settings |= {key: like[key] for key in ("vocab_size", "pad_token_id", "eos_token_id")}
    return AutoConfig.for_model(MODEL_TYPES.get(layout, layout), **settings)


def _dtype(layout: str) -> torch.dtype:
    """Return how native tensors are stored: a GPU's engine computes in BF16, like the real ones."""
    return torch.bfloat16 if layout in MODEL_TYPES else torch.float32


def _native(config: PretrainedConfig, seed: int, whole: bool) -> Tensors:
    """Return all tensors but the routed experts', by their names in a checkpoint.

    `whole` is with the vision tower, and with the names of such a checkpoint.
    """
    torch.manual_seed(seed)
    model = random_model(config)
    if whole:
        steady(model)
    with tempfile.TemporaryDirectory() as scratch:
        model.save_pretrained(scratch)  # undoes what transformers fuses
        files = Path(scratch).glob("*.safetensors")
        tensors = {name: tensor for file in files for name, tensor in load_file(file).items()}
    kept = {name: tensor for name, tensor in tensors.items() if ".mlp.experts." not in name}
    if not whole:
        kept = {
            name.replace("model.language_model.", "model."): tensor
            for name, tensor in kept.items()
            if "model.visual." not in name
        }
    for name, tensor in kept.items():
        if tensor.dim() > 1 and not tensor.any():  # left at zero, it would do nothing
            kept[name] = torch.randn(tensor.shape) * config.initializer_range
        elif whole and name.endswith("e_score_correction_bias"):
            # Random routers choose other experts at the least rounding, and then two right engines
            # differ. That every choice is computed rightly, the kernels' own tests show.
            kept[name] = 4.0 * torch.randperm(len(tensor)).to(tensor.dtype)
    return kept | dict(_mtp(kept, config))


def random_model(config: PretrainedConfig) -> PreTrainedModel:
    """Return a model with random weights. Of Glm5Next there is only the whole, eyes included."""
    if config.model_type != "glm5_next_text":
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    return AutoModelForImageTextToText.from_config(_whole(config), dtype=torch.float32)


def steady(model: PreTrainedModel) -> None:
    """Make a random model answer to a small error in a product with one, as a trained one does.

    In a random one every layer outweighs all before it, so that errors grow from layer to layer: of
    4 % in the products of four layers come 27 % in the logits. So the residual stream is given more
    weight than what a layer adds.
    """
    config = model.config.get_text_config()
    model.get_input_embeddings().weight.data /= config.initializer_range
    for name, weight in model.named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight", "experts.down_proj")):
            weight.data *= _share(config)


def _share(config: PretrainedConfig) -> float:
    """Return by how much what a layer adds is made smaller: all of them add up to the stream."""
    return float((2 * config.num_hidden_layers) ** -0.5)


def _whole(text: PretrainedConfig) -> PretrainedConfig:
    """Return the configuration of a model with a small vision tower before the language model."""
    vision = {"depth": 1, "hidden_size": 64, "intermediate_size": 64, "num_heads": 2}
    vision["out_hidden_size"] = text.hidden_size
    return AutoConfig.for_model("glm5_next", text_config=text.to_dict(), vision_config=vision)


def _mtp(native: Tensors, config: PretrainedConfig) -> Iterator[tuple[str, Tensor]]:
    """Yield the multi-token-prediction layer: a copy of the last one, with what joins it.

    Embedding and output head are the model's own, as in the real checkpoint.
    """
    last, new = config.num_hidden_layers - 1, config.num_hidden_layers
    layers = re.compile(rf"(.*\.layers\.){last}\.(?!hc_)(.*)")
    found = [(match, native[name]) for name in native if (match := layers.fullmatch(name))]
    for match, tensor in found:
        yield f"{match[1]}{new}.{match[2]}", tensor.clone()
    prefix = f"{found[0][0][1]}{new}"
    for norm in ("enorm", "hnorm", "shared_head.norm"):
        yield f"{prefix}.{norm}.weight", torch.ones(config.hidden_size)
    joined = torch.randn(config.hidden_size, 2 * config.hidden_size)
    yield f"{prefix}.eh_proj.weight", joined * config.initializer_range


def _sparse_layers(native: Tensors) -> list[str]:
    """Return the prefixes of the layers' MLPs that have routed experts, by their routers."""
    routers = (re.fullmatch(r"(.*\.mlp)\.gate\.weight", name) for name in native)
    return sorted(match[1] for match in routers if match)


def _projections(prefix: str, config: PretrainedConfig) -> Iterator[tuple[str, int, int]]:
    """Yield the name, inputs and outputs of every projection of a layer's experts."""
    hidden, inner = config.hidden_size, config.moe_intermediate_size
    for expert in range(config.n_routed_experts):
        yield f"{prefix}.{expert}.gate_proj", hidden, inner
        yield f"{prefix}.{expert}.up_proj", hidden, inner
        yield f"{prefix}.{expert}.down_proj", inner, hidden


def _checkpoint(
    folder: Path, tensors: Tensors, config: dict[str, Any], tokenizer: Path | None
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    if tokenizer is not None:
        for name in TOKENIZER_FILES:
            shutil.copyfile(tokenizer / name, folder / name)


def main() -> None:
    """Write the two checkpoints that the command line asks for."""
    parser = argparse.ArgumentParser(description="Write a tiny EXL3 checkpoint and a dense twin.")
    parser.add_argument("out", type=Path, help="folder for exl3/ and dense/")
    parser.add_argument("--layout", choices=LAYOUTS, default="glm4_moe")
    parser.add_argument("--tokenizer", type=Path, help="checkpoint to take a tokenizer from")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="where experts are decoded")
    given = parser.parse_args()
    write(given.out, given.layout, given.tokenizer, given.seed, given.device)


if __name__ == "__main__":
    main()
