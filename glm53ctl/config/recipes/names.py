"""What the variables of the two shell recipes mean here: data for the import.

Names whose setting carries the value unchanged are not listed: the schema says them
(`Knob(vllm_recipe=..., tensorfold=...)`).
"""

from collections.abc import Mapping
from enum import StrEnum

from glm53ctl.config.catalog import LEAVES


class Recipe(StrEnum):
    """The two shell recipes."""

    VLLM = "vllm"
    TENSORFOLD = "tensorfold"


PROFILE_OF: Mapping[Recipe, str] = {Recipe.VLLM: "vllm-recipe", Recipe.TENSORFOLD: "long"}
"""The profile that has the recipe's own defaults."""

TELLING: Mapping[Recipe, frozenset[str]] = {
    Recipe.VLLM: frozenset(
        {
            "HEAD_IP",
            "WORKER_IP",
            "HEAD_CX7_IF",
            "WORKER_CX7_IF",
            "HEAD_CX7_IB",
            "WORKER_CX7_IB",
            "MODEL",
            "MAX_MODEL_LEN",
            "MAX_NUM_SEQS",
            "MAX_NUM_BATCHED_TOKENS",
            "GPU_MEM_UTIL",
            "KV_CACHE_DTYPE",
            "SPEC_METHOD",
            "DFLASH_TOKENS",
            "LIMIT_MM",
            "EXTRA_ARGS",
        }
    ),
    Recipe.TENSORFOLD: frozenset(
        {
            "WORKER",
            "FABRIC_PEER",
            "DRAFTER",
            "CONTEXT",
            "PARALLEL",
            "KV",
            "DENSE",
            "MAX_TOKENS",
            "VISION",
            "VISION_URLS",
            "SHARED_PREFIX",
            "MEMORY_RESERVE_GIB",
            "SERVED_NAME",
            "MODEL_ID",
            "TF_VERSION",
            "THINKING",
        }
    ),
}
"""Names that only one of the recipes uses."""

SAME_NAME: Mapping[Recipe, Mapping[str, str]] = {
    Recipe.VLLM: {s.knob.vllm_recipe: path for path, s in LEAVES.items() if s.knob.vllm_recipe},
    Recipe.TENSORFOLD: {s.knob.tensorfold: path for path, s in LEAVES.items() if s.knob.tensorfold},
}
"""Settings by the name a recipe gives them."""

WORDS: Mapping[str, Mapping[str, str]] = {
    "DRAFTER": {"dflash2": "dflash", "mtp": "mtp"},
    "KV": {"fp8": "fp8", "bf16": "bfloat16"},
    "KV_CACHE_DTYPE": {"bf16": "bfloat16"},
}
"""Values that are called otherwise here."""

INVERTED = frozenset({"LANGUAGE_MODEL_ONLY"})
"""Switches that say the opposite of their setting."""

SECRETS: Mapping[str, str] = {"VLLM_API_KEY": "api-key", "HF_TOKEN": "hf-token"}
"""Secrets, and the credential that each is here.

No setting is made of them: a file that the service may read itself has to belong to it, and one in
the credential store is handed to it by systemd.
"""

NODE_NAMES = frozenset(
    {
        "HEAD_IP",
        "HEAD_CX7_IF",
        "HEAD_CX7_IB",
        "HEAD_GID",
        "NCCL_IB_GID_INDEX",
        "MASTER_ADDR",
        "WORKER_IP",
        "WORKER_CX7_IF",
        "WORKER_CX7_IB",
        "WORKER_GID",
        "WORKER",
        "WORKER2",
        "WORKER3",
        "FABRIC_PEER",
        "FABRIC_PEER2",
        "FABRIC_PEER3",
    }
)
"""Names that `nodes` is made of."""

_IMAGE = "there is no container image: the program and its libraries are one closure"
_SHIP = "nothing is shipped from the head: each node has its own closure"
_SSH = "no SSH between the nodes: each one runs its own service"
_WEIGHTS = "`glm53ctl weights` fetches, checks and copies against a manifest"
_LIMITS = "supervise.limits bounds each stage of the start"
_TF = "a switch of the TensorFold engine, which is not the one that runs here"
_KERNEL = "kernels are compiled once, when the package is built"
_NCCL = "the plan sets NCCL up from `nodes`; more goes into engine.extra_env"

NO_COUNTERPART: Mapping[str, str] = {
    "ABLIT_METHOD": "only the projection exists here, so nothing is chosen silently",
    "BUILD": _IMAGE,
    "CACHE_ROOT": "caches lie in the service's own directory",
    "COMM": _TF,
    "CONTAINER_NAME": _IMAGE,
    "COPY": _TF,
    "COPY_CODE": _TF,
    "COPY_MAX": _TF,
    "DFLASH2_REVISION": "the draft is pinned for vLLM: weights.draft_revision",
    "DISPLAY_KV_BACKEND": _TF,
    "DISPLAY_KV_MIB": _TF,
    "DRAFT_POLICY": _TF,
    "DRY_RUN": "a plan is shown by a command, not by a setting",
    "EXPECTED_SHARDS": _WEIGHTS,
    "FILL_BUDGET_MS": _TF,
    "FILL_DRAFTS": _TF,
    "FORCE_SYNC": _WEIGHTS,
    "FOREGROUND": "the units always run in the foreground of systemd",
    "GLM53_EXPOSE_CACHE_RESET": "it would open routes that no key guards",
    "GLM53_HOST_MEM_HYGIENE": "memory.start_gib is checked before every start",
    "GLM53_KV_OFFLOAD": "not offered yet",
    "GLM53_MIXED_PREFILL_CHUNK": "vLLM's own scheduler decides",
    "GLM53_WARMUP_CANARY": "the canary is part of every start: `canary`",
    "HF_BIN": _WEIGHTS,
    "HF_CACHE": "weights.model_dir and weights.draft_dir say where weights lie",
    "HF_HOME": "weights.model_dir and weights.draft_dir say where weights lie",
    "HF_HUB_OFFLINE": "the engine never asks the Hub",
    "IMAGE": _IMAGE,
    "IMAGE_DIGEST": _IMAGE,
    "IMAGE_EXTRAS": _IMAGE,
    "IMAGE_FREE_GB": _IMAGE,
    "IMAGE_TAG": _IMAGE,
    "BASE_IMAGE": _IMAGE,
    "KDA_CHUNKED": _TF,
    "KERNEL_CACHE": _KERNEL,
    "KV_POOL_GIB": "kv.bytes sizes the cache in bytes",
    "KV_TIER_DIR": _TF,
    "KV_TIER_GIB": _TF,
    "LOG_DIR": "logs lie in paths.state_dir and in the journal",
    "MEMORY_RESERVE_GIB": "TensorFold sizes its pool by it; here kv.bytes sizes the cache and "
    "memory.floor_gib guards the host",
    "MIN_FREE_GB": "the manifest says how much is missing",
    "MODEL_CACHE_NAME": "weights.model_dir says where weights lie",
    "MODEL_ID": "TensorFold's checkpoint is another quantisation: weights.repo names the one "
    "that vLLM loads",
    "MULTI_PREFILL": _TF,
    "NCCL_HOST_DIR": _NCCL,
    "NCCL_SO_NAME": _NCCL,
    "NNODES": "the number of `nodes`",
    "NUCLEUS_UNION": _TF,
    "PREPARE": "a start checks what it needs every time",
    "PULL": _IMAGE,
    "QUANTIZATION": "the checkpoint says it",
    "RAILS": "hcas of a node lists one device a rail",
    "READY_TIMEOUT": _LIMITS,
    "REFRESH_WEIGHTS": _WEIGHTS,
    "RSYNC_OPTS": "weights are pulled by the worker; weights.sync_mb_per_second bounds it",
    "SKIP_BUILD": _IMAGE,
    "SKIP_DOWNLOAD": _WEIGHTS,
    "SKIP_OVERLAY_VERIFY": "the overlay checks itself at every start",
    "SKIP_PULL": _IMAGE,
    "SKIP_SHIP": _SHIP,
    "SKIP_SYNC": _WEIGHTS,
    "SOCKET_IFNAME": "interface of a node says it",
    "SPILL_DIR": _TF,
    "SPILL_GIB": _TF,
    "SPLIT": _TF,
    "STATE_DIR": "paths.state_dir says where this program keeps its files",
    "STOP_TIMEOUT": "serve.drain_seconds lets requests finish, supervise.stop_grace_seconds bounds "
    "what follows",
    "STREAM_SMOOTH": _TF,
    "STREAM_SMOOTH_MS": _TF,
    "TAIL": "journalctl shows as many lines of the logs as it is asked for",
    "TF_REPO": _TF,
    "TF_VERSION": _TF,
    "TILELANG_HOST_CACHE": _KERNEL,
    "TRITON_HOST_CACHE": _KERNEL,
    "USE_HOST_NCCL": "the engine brings its own NCCL; a second one makes its libraries collide",
    "WAIT_TIMEOUT": _LIMITS,
    "WORKER_HOME": _SSH,
    "WORKER_NCCL_HOST_DIR": _NCCL,
    "WORKER_SSH": _SSH,
    "WORKER_USER": _SSH,
}
"""Names that have no setting here, and why or what takes their place."""

OWNED = "the plan sets it itself, and engine.extra_env does not take it"
"""Of variables of the engine that are in every plan."""

OF_TENSORFOLD: Mapping[str, str] = {
    "ABLIT": "in TensorFold it chooses other weights; `ablit` here edits the loaded ones",
    "MODEL_REVISION": "it pins TensorFold's checkpoint, which is another quantisation",
}
"""Names that the other recipe uses for something else."""

FAMILIES: tuple[tuple[str, str], ...] = (
    ("EXL3_", "the EXL3 method has one path for every size of batch"),
    ("GLM53_", "it tunes a patch of the recipe's vLLM, which is not in this one"),
    ("TF_", _TF),
    ("TENSORFOLD_", _TF),
    ("GHCR_", _IMAGE),
    ("NFS_", _WEIGHTS),
    ("NCCL_", _NCCL),
    ("WORKER_WEIGHTS", _WEIGHTS),
    ("WORKER_HF_CACHE", _WEIGHTS),
)
"""Beginnings of names that have no setting here."""
