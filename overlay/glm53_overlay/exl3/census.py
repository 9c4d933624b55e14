"""Every tensor of an EXL3 checkpoint of GLM-5.3-Flash, from its config.json alone.

What a checkpoint must hold can so be counted without its 164 GiB, and compared with an index: the
packed tensors by name, dtype and shape, the native ones by name. Plain Python: no torch, no vLLM.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

BYTES = {"I16": 2, "F16": 2, "I32": 4}
"""Size of an element, by the names that safetensors uses."""

TILE = 16
PROJECTIONS = ("gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True)
class Entry:
    """One tensor: its name in the checkpoint, dtype and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of its data."""
        return prod(self.shape) * BYTES[self.dtype]


def packed(prefix: str, k: int, n: int, bits: int, codebook: str = "mcg") -> Iterator[Entry]:
    """Yield the tensors of one EXL3 projection, k inputs to n outputs."""
    yield Entry(f"{prefix}.trellis", "I16", (k // TILE, n // TILE, TILE * bits))
    yield Entry(f"{prefix}.suh", "F16", (k,))
    yield Entry(f"{prefix}.svh", "F16", (n,))
    if codebook != "3inst":
        yield Entry(f"{prefix}.{codebook}", "I32", (1,))


def routed(config: Mapping[str, Any]) -> Iterator[Entry]:
    """Yield the packed tensors of the routed experts, those of the MTP layers included."""
    text, quantized = config["text_config"], config["quantization_config"]
    hidden, inner = text["hidden_size"], text["moe_intermediate_size"]
    layers = [i for i, kind in enumerate(text["mlp_layer_types"]) if kind == "sparse"]
    for layer in [*layers, *_mtp_layers(text)]:
        for expert in range(text["n_routed_experts"]):
            for projection in PROJECTIONS:
                prefix = f"model.language_model.layers.{layer}.mlp.experts.{expert}.{projection}"
                k, n = (inner, hidden) if projection == "down_proj" else (hidden, inner)
                yield from packed(prefix, k, n, quantized["bits"], quantized["codebook"])


def native(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of all other tensors."""
    text = config["text_config"]
    yield from ("lm_head.weight", "model.language_model.embed_tokens.weight")
    yield "model.language_model.norm.weight"
    kinds = zip(text["layer_types"], text["mlp_layer_types"], strict=True)
    for layer, (attention, mlp) in enumerate(kinds):
        names = (_KDA if attention == "linear_attention" else _MLA, _NORMS, _MIXING)
        yield from _below(f"model.language_model.layers.{layer}", *names)
        yield from _below(f"model.language_model.layers.{layer}.mlp", _MLP[mlp])
    for layer in _mtp_layers(text):
        yield from _below(f"model.language_model.layers.{layer}", _MLA, _NORMS, _MTP)
        yield from _below(f"model.language_model.layers.{layer}.mlp", _MLP["sparse"])
    for block in range(config["vision_config"]["depth"]):
        yield from _below(f"model.visual.blocks.{block}", _VISION_BLOCK)
    yield from _below("model.visual", _VISION)


def _mtp_layers(text: Mapping[str, Any]) -> range:
    first: int = text["num_hidden_layers"]
    return range(first, first + text["num_nextn_predict_layers"])


def _below(prefix: str, *groups: str) -> Iterator[str]:
    """Yield the full names of groups of words; one that ends in a dot is of a module's weight."""
    for word in " ".join(groups).split():
        yield f"{prefix}.{word}weight" if word.endswith(".") else f"{prefix}.{word}"


_NORMS = "input_layernorm. post_attention_layernorm."
_KDA = """
    self_attn.q_proj. self_attn.k_proj. self_attn.v_proj. self_attn.o_proj. self_attn.o_norm.
    self_attn.q_conv1d. self_attn.k_conv1d. self_attn.v_conv1d. self_attn.b_proj.
    self_attn.f_a_proj. self_attn.f_b_proj. self_attn.g_a_proj. self_attn.g_b_proj.
    self_attn.A_log self_attn.dt_bias
"""
_MLA = """
    self_attn.q_a_proj. self_attn.q_a_layernorm. self_attn.q_b_proj. self_attn.o_proj.
    self_attn.kv_a_proj_with_mqa. self_attn.kv_a_layernorm. self_attn.kv_b_proj.
    self_attn.indexer.wq_b. self_attn.indexer.wk. self_attn.indexer.weights_proj.
    self_attn.indexer.k_norm. self_attn.indexer.k_norm.bias
    self_attn.indexer.index_kpool_compress_ape self_attn.indexer.index_kpool_compress_gate
"""
_MIXING = "hc_attn_fn hc_attn_base hc_attn_scale hc_ffn_fn hc_ffn_base hc_ffn_scale"
_MLP = {
    "dense": "gate_proj. up_proj. down_proj.",
    "sparse": """
        gate. gate.e_score_correction_bias
        shared_experts.gate_proj. shared_experts.up_proj. shared_experts.down_proj.
    """,
}
_MTP = "enorm. hnorm. eh_proj. shared_head.norm."
_VISION_BLOCK = """
    norm1. norm2. attn.qkv. attn.qkv.bias attn.proj. attn.proj.bias attn.q_norm. attn.k_norm.
    mlp.gate_proj. mlp.gate_proj.bias mlp.up_proj. mlp.up_proj.bias mlp.down_proj.
    mlp.down_proj.bias
"""
_VISION = """
    patch_embed.proj. patch_embed.proj.bias post_layernorm. downsample. downsample.bias
    merger.proj. merger.post_projection_norm. merger.post_projection_norm.bias
    merger.gate_proj. merger.up_proj. merger.down_proj.
"""
