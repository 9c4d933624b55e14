"""Rules of drafting: DFlash2 is right in one shape only."""

from collections.abc import Iterator

from glm53ctl.config.rules.base import Rule, flags_of
from glm53ctl.config.schema import Config
from glm53ctl.findings import Severity

TRAINED_DRAFT = 7
"""Tokens a step that DFlash2 was trained for; its block holds one more."""


def _triton_draft(config: Config) -> Iterator[str]:
    if (config.spec.draft_attention or "").upper() == "TRITON_ATTN":
        yield "TRITON_ATTN for the draft"


def _triton_engine(config: Config) -> Iterator[str]:
    for flag in flags_of(config):
        if flag.means("--attention-backend", "--attention-config", "-ac") and (
            "TRITON_ATTN" in flag.text.upper()
        ):
            yield "TRITON_ATTN for target and draft"


def _triton_env(config: Config) -> Iterator[str]:
    for name, value in config.engine.extra_env.items():
        if "ATTENTION" in name and value.upper() == "TRITON_ATTN":
            yield f"{name} asks for TRITON_ATTN, the draft included"


def _draft_kv(config: Config) -> Iterator[str]:
    if config.spec.draft_kv_dtype != "auto":
        yield f"spec.draft_kv_dtype is {config.spec.draft_kv_dtype}, only auto works"


def _draft_tokens(config: Config) -> Iterator[str]:
    spec = config.spec
    other = spec.tokens is not None and spec.tokens != TRAINED_DRAFT
    if spec.method == "dflash" and other and not spec.force_tokens:
        yield f"spec.tokens is {spec.tokens} for dflash"


def _draft_block(config: Config) -> Iterator[str]:
    spec = config.spec
    if spec.method == "dflash" and spec.force_tokens and (spec.tokens or 0) > TRAINED_DRAFT:
        yield f"spec.tokens is {spec.tokens} for dflash"


def _draft_parallel(config: Config) -> Iterator[str]:
    size = config.spec.draft_tensor_parallel_size
    if size is not None and size != config.world_size:
        yield f"spec.draft_tensor_parallel_size is {size} with {config.world_size} nodes"


def _draft_licence(config: Config) -> Iterator[str]:
    if config.spec.method == "dflash" and config.effective_spec_method != "dflash":
        yield "CC-BY-NC-ND-4.0 is not accepted, so drafting falls back to MTP"


RULES: tuple[Rule, ...] = (
    Rule(
        "draft-triton",
        "CFG_FORBIDDEN",
        ("spec.draft_attention",),
        _triton_draft,
        "it masks the draft's block causally, so the later positions are almost never accepted.",
        "Leave spec.draft_attention out; FLASH_ATTN is chosen then.",
    ),
    Rule(
        "engine-triton",
        "CFG_FORBIDDEN",
        ("engine.extra_args",),
        _triton_engine,
        "it masks the draft's block causally, and has no sparse MLA for the target.",
        "Remove it; the engine finds the right backend.",
    ),
    Rule(
        "env-triton",
        "CFG_FORBIDDEN",
        ("engine.extra_env",),
        _triton_env,
        "it masks the draft's block causally, and has no sparse MLA for the target.",
        "Remove it; the engine finds the right backend.",
    ),
    Rule(
        "draft-kv",
        "CFG_FORBIDDEN",
        ("spec.draft_kv_dtype",),
        _draft_kv,
        "any other type leaves TRITON_ATTN as the draft's only backend on GB10, and acceptance "
        "collapses.",
        "Set spec.draft_kv_dtype to auto.",
    ),
    Rule(
        "draft-tokens",
        "CFG_FORBIDDEN",
        ("spec.tokens",),
        _draft_tokens,
        "DFlash2 was trained to draft 7 tokens a step, and all published figures are for 7.",
        "Leave spec.tokens out, or say spec.force_tokens: true.",
    ),
    Rule(
        "draft-block",
        "CFG_FORBIDDEN",
        ("spec.tokens",),
        _draft_block,
        "the trained block of DFlash2 holds 8 tokens, one of them given, so 7 is the most.",
        "Use 1 to 7.",
    ),
    Rule(
        "draft-parallel",
        "CFG_FORBIDDEN",
        ("spec.draft_tensor_parallel_size",),
        _draft_parallel,
        "vLLM 0.33.0 shards the draft over all ranks whatever is written, so another number "
        "would only look different.",
        "Leave spec.draft_tensor_parallel_size out.",
    ),
    Rule(
        "draft-licence",
        "CFG_LICENSE",
        ("licenses.accept", "spec.method"),
        _draft_licence,
        "DFlash2 is for non-commercial use, and nothing of it is downloaded before that is "
        "accepted.",
        "Accept CC-BY-NC-ND-4.0 in licenses.accept, or set spec.method to mtp.",
        Severity.WARN,
    ),
)
