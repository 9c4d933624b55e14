"""Writes a DFlash2 draft with random weights: the real architecture, fewer layers.

    python tests/gpu/draft.py OUT TARGET

fits the checkpoint TARGET: its hidden size, its vocabulary, its layers. What such a draft proposes
is chance, so nearly nothing is accepted; that is what makes it a test of losslessness.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

HEAD_DIM = 128
CONV_TAPS, CONV_GROUP = 4, 64
RANK, TOP_K = 64, 8
BLOCK = 8
"""Tokens of the trained block: one given, seven drafted."""
DEVIATION = 0.02


def config(target: dict[str, Any], layers: int = 2) -> dict[str, Any]:
    """Return the draft's config.json for a target's."""
    text = target.get("text_config", target)
    hidden, depth = text["hidden_size"], text["num_hidden_layers"]
    heads = max(hidden // HEAD_DIM, 2)
    return {
        "architectures": ["DFlash2DraftModel"],
        "model_type": "qwen3",
        "dtype": "bfloat16",
        "hidden_size": hidden,
        "intermediate_size": 3 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": max(heads // 4, 2),
        "head_dim": HEAD_DIM,
        "vocab_size": text["vocab_size"],
        "max_position_embeddings": text["max_position_embeddings"],
        "rms_norm_eps": 1e-6,
        "is_causal": False,
        "sliding_window": 2048,
        "use_sliding_window": True,
        "layer_types": ["sliding_attention"] * layers,
        "tie_word_embeddings": False,
        "dflash_config": {
            "mask_token_id": text["vocab_size"] - 1,
            # Where the real one listens, in proportion: early, in the middle, late.
            "target_layer_ids": sorted({0, depth // 2 - 1, depth - 2}),
            "conv_kernel_size": CONV_TAPS,
            "conv_group_size": CONV_GROUP,
            "selector_rank": RANK,
            "selector_top_k": TOP_K,
            "block_size": BLOCK,
        },
    }


def shapes(made: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the tensors of a draft, by their names in its checkpoint."""
    hidden, inner, vocab = made["hidden_size"], made["intermediate_size"], made["vocab_size"]
    queries = made["num_attention_heads"] * HEAD_DIM
    keys = made["num_key_value_heads"] * HEAD_DIM
    dflash = made["dflash_config"]
    found: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, hidden * len(dflash["target_layer_ids"])),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
        "candidate_selector.predecessor_codebook": (vocab, dflash["selector_rank"]),
        "candidate_selector.successor_codebook": (vocab, dflash["selector_rank"]),
        "candidate_selector.hidden_projection.weight": (dflash["selector_rank"], hidden),
    }
    taps = dflash["conv_kernel_size"]
    groups = hidden // dflash["conv_group_size"]
    for layer in range(made["num_hidden_layers"]):
        each: dict[str, tuple[int, ...]] = {
            "input_layernorm.weight": (hidden,),
            "post_attention_layernorm.weight": (hidden,),
            "self_attn.q_proj.weight": (queries, hidden),
            "self_attn.k_proj.weight": (keys, hidden),
            "self_attn.v_proj.weight": (keys, hidden),
            "self_attn.o_proj.weight": (hidden, queries),
            "self_attn.q_norm.weight": (HEAD_DIM,),
            "self_attn.k_norm.weight": (HEAD_DIM,),
            "mlp.gate_proj.weight": (inner, hidden),
            "mlp.up_proj.weight": (inner, hidden),
            "mlp.down_proj.weight": (hidden, inner),
        }
        for conv in ("attention_conv", "mlp_conv"):
            each[f"{conv}.base_kernel"] = (2, taps, hidden)
            each[f"{conv}.kernel_projection.weight"] = (2 * taps * groups, hidden)
        found |= {f"layers.{layer}.{name}": shape for name, shape in each.items()}
    return found


def write(out: Path, target: Path, seed: int = 0) -> None:
    """Write the draft of a checkpoint. Needs torch."""
    import torch
    from safetensors.torch import save_file

    made = config(json.loads((target / "config.json").read_text()))
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        name: torch.ones(shape, dtype=torch.bfloat16)
        if name.endswith("norm.weight")
        else (torch.randn(shape, generator=generator) * DEVIATION).bfloat16()
        for name, shape in shapes(made).items()
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(made, indent=1) + "\n")
    save_file(tensors, out / "model.safetensors", {"format": "pt"})


def main() -> int:
    """Write what the command line asks for."""
    parser = argparse.ArgumentParser(description="Write a random DFlash2 draft for a checkpoint.")
    parser.add_argument("out", type=Path)
    parser.add_argument("target", type=Path)
    given = parser.parse_args()
    write(given.out, given.target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
