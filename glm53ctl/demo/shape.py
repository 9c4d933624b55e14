"""The demo model's architecture: GLM's, with every number as small as it still means something."""

from dataclasses import dataclass

ARCHITECTURE = "Glm4MoeForCausalLM"


@dataclass(frozen=True)
class Shape:
    """Sizes that config.json and the weights must agree on.

    Two key-value heads and expert widths that are multiples of 64 let the model be cut in two.
    """

    hidden: int = 128
    layers: int = 3
    dense_layers: int = 1
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    dense_width: int = 256
    experts: int = 8
    experts_per_token: int = 2
    expert_width: int = 64
    context: int = 4096


SHAPE = Shape()


def config(shape: Shape, vocabulary: int, end: int, stops: list[int]) -> dict[str, object]:
    """Return the content of config.json."""
    return {
        "architectures": [ARCHITECTURE],
        "model_type": "glm4_moe",
        "dtype": "float32",
        "vocab_size": vocabulary,
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "first_k_dense_replace": shape.dense_layers,
        "intermediate_size": shape.dense_width,
        "hidden_act": "silu",
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "attention_bias": True,
        "attention_dropout": 0.0,
        "use_qk_norm": True,
        "partial_rotary_factor": 0.5,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5,
        },
        "n_routed_experts": shape.experts,
        "num_experts_per_tok": shape.experts_per_token,
        "n_shared_experts": 1,
        "moe_intermediate_size": shape.expert_width,
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 1.0,
        "num_nextn_predict_layers": 0,
        "max_position_embeddings": shape.context,
        "rms_norm_eps": 1e-05,
        "tie_word_embeddings": False,
        "use_cache": True,
        "bos_token_id": None,
        "eos_token_id": stops,
        "pad_token_id": end,
    }
