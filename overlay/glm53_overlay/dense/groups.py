"""Which projections are quantised, and as what. No vLLM and no torch: names only.

Everything that is not named here stays as the checkpoint has it: embeddings, output head, router,
norms, the indexer, `kv_b_proj` (absorbed into the latents, vLLM unpacks it again), and the second
halves of the KDA gates (1.5 % of the bytes, and they steer how the state decays).
"""

from collections.abc import Mapping

from glm53_overlay.errors import OverlayError

PROJECTIONS: dict[str, tuple[str, ...]] = {
    "kda": ("in_proj_qkvbfg_a", "o_proj"),
    "mla": ("fused_qkv_a_proj", "q_b_proj", "o_proj"),
    "shared": ("gate_up_proj", "down_proj"),
    "mlp": ("gate_up_proj", "down_proj"),
}
"""vLLM's names for the projections of each group; it fuses those that read the same input."""

STORED: dict[str, tuple[str, ...]] = {
    "kda": ("q_proj", "k_proj", "v_proj", "b_proj", "f_a_proj", "g_a_proj", "o_proj"),
    "mla": ("q_a_proj", "kv_a_proj_with_mqa", "q_b_proj", "o_proj"),
    "shared": ("gate_proj", "up_proj", "down_proj"),
    "mlp": ("gate_proj", "up_proj", "down_proj"),
}
"""The same by their names in a checkpoint."""

MODES = ("bf16", "fp8", "q4")
"""As the checkpoint has them; an exponent of 4 bits and 3 of mantissa with a scale for each output
channel; MXFP4, four bits with a power of two for every 32 inputs. Of the two latter `routing` says
more."""


def checked(modes: Mapping[str, str]) -> dict[str, str]:
    """Return the mode of every group; what is not named is bf16. Raises OverlayError."""
    if unknown := sorted(set(modes) - set(PROJECTIONS)):
        raise _wrong(f"there is no group {unknown[0]}", PROJECTIONS)
    for group, mode in modes.items():
        if mode not in MODES:
            raise _wrong(f"{group} cannot be {mode}", MODES)
    return {group: modes.get(group, "bf16") for group in PROJECTIONS}


def _wrong(what: str, known: Mapping[str, object] | tuple[str, ...]) -> OverlayError:
    return OverlayError("DENSE_MODE", f"dense: {what}; known are {', '.join(known)}.")


def group_of_mlp(prefix: str) -> str | None:
    """Return the group of a linear layer outside the attention, by its full name."""
    parts = prefix.split(".")
    if "mlp" not in parts:
        return None
    return "shared" if "shared_experts" in parts else "mlp"


def is_projection(group: str, prefix: str) -> bool:
    """Say whether a linear layer of a group is one of its projections, by its full name."""
    return prefix.rpartition(".")[2] in PROJECTIONS[group]
