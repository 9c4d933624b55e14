"""Named sets of defaults, as data. A file, the environment or the command line wins over them."""

from collections.abc import Mapping

from pydantic import JsonValue

from glm53ctl.config.schema import ProfileName

Tree = Mapping[str, JsonValue]

VLLM_RECIPE: Tree = {
    "serve": {
        "max_model_len": 900_000,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 1024,
        "prefix_caching": True,
    },
    "kv": {"dtype": "fp8", "gpu_memory_utilization": 0.87},
    "spec": {"method": "dflash"},  # 7 tokens a step; a number here would bind mtp as well
    "dense": "bf16",
    "media": {"enable": True, "images": 4, "videos": 1, "skip_profiling": True},
}
"""The figures of the vLLM recipe."""

LONG: Tree = {
    "serve": {
        "max_model_len": 1_048_576,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 1024,
        "prefix_caching": True,
        "default_max_tokens": 32_768,
    },
    "kv": {"dtype": "fp8", "gpu_memory_utilization": 0.87},
    "spec": {"method": "dflash"},  # 7 tokens a step; a number here would bind mtp as well
    "dense": "q4",  # what it saves is the room for the longer window
    "media": {
        "enable": True,
        "images": 50,
        "videos": 4,
        "max_frames": 128,
        "request_image_tokens": 16_384,
        "skip_profiling": True,
    },
    "api": {"reasoning_field": "both", "deterministic": True},
}
"""The figures of the TensorFold recipe: the model's whole window, more media."""

DEMO: Tree = {
    # Both ranks on this machine: a laptop has no second Spark.
    "nodes": [
        {"name": "demo-0", "address": "127.0.0.1"},
        {"name": "demo-1", "address": "127.0.0.1"},
    ],
    "engine": {"platform": "cpu", "dtype": "float32", "enforce_eager": True},
    "weights": {"source": "local"},
    "serve": {
        "max_model_len": 2048,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 512,
        "prefix_caching": True,
    },
    "kv": {"dtype": "auto", "bytes": 33_554_432},  # the CPU engine sizes by bytes, in 32 MiB here
    "spec": {"method": "none"},
    "media": {"enable": False},
    # The tiny model has a template of its own, which knows no efforts.
    "thinking": {"parser": "glm45", "tool_parser": "glm47", "template": "checkpoint"},
    "warmup": {"enable": False},  # nothing is compiled on a CPU
    "memory": {"floor_gib": 0.3, "start_gib": 2.0},
}
"""Two CPU ranks of a tiny model, for a laptop without a GPU."""

PROFILES: Mapping[ProfileName, Tree] = {"vllm-recipe": VLLM_RECIPE, "long": LONG, "demo": DEMO}
"""Every profile by its name."""
