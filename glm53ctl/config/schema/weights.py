"""Where the weights are, where they come from, and which licences were accepted."""

from typing import Annotated, Literal

from pydantic import Field

from glm53ctl.config.schema.base import Knob, Section

LicenceId = Literal["ShapleyMCG-1.0", "CC-BY-NC-ND-4.0"]


class Weights(Section):
    """Checkpoint and draft."""

    source: Literal["hub", "local"] = "hub"
    """`hub` fetches and verifies pinned revisions; `local` takes the directories as they are."""
    model_dir: Annotated[str, Knob(node_local=True)] = "/var/lib/glm53/weights/model"
    """Directory of the checkpoint. The engine gets this path, never a repository id."""
    draft_dir: Annotated[str, Knob(node_local=True)] = "/var/lib/glm53/weights/draft"
    """Directory of the DFlash2 draft."""
    repo: Annotated[str, Knob(vllm_recipe="MODEL")] = "Mia-AiLab/GLM-5.3-Flash-EXL3-TR3-4bpw"
    """Repository of the checkpoint."""
    revision: Annotated[str, Knob(vllm_recipe="MODEL_REVISION")] = (
        "25a44fdbf16862a46b7cc9921142c6c81350af2f"
    )
    """Commit of the checkpoint."""
    fallback_repo: Annotated[str | None, Knob(vllm_recipe="MODEL_FALLBACK")] = (
        "brandonmusic/GLM-5.3-Flash-tr3-4bpw"
    )
    """Repository with the same bytes, for when the first is missing or incomplete."""
    fallback_revision: str | None = "5ab363a8dcf6405955fd5f99671e01a1c9fb124b"
    """Commit of the checkpoint there."""
    draft_repo: Annotated[str, Knob(vllm_recipe="DFLASH_MODEL", tensorfold="DFLASH2_ID")] = (
        "incoai/GLM-5.3-Flash-DFlash2"
    )
    """Repository of the draft."""
    draft_revision: Annotated[str, Knob(vllm_recipe="DFLASH_REVISION")] = (
        "dc77ff1c99eeb2df044ee3d4f0094eb033fee410"
    )
    """Commit of the draft."""
    token_file: Annotated[
        str | None, Knob(node_local=True, vllm_recipe="HF_TOKEN", tensorfold="HF_TOKEN")
    ] = None
    """File with a Hub token; left out, the systemd credential `hf-token`, and without it none."""
    streams: Annotated[int, Field(ge=1, le=32)] = 8
    """Files that are fetched, or pulled from the head, at the same time."""
    stall_seconds: Annotated[float, Field(gt=0, le=3600)] = 120.0
    """How long no byte may reach the disk before the connections are opened anew."""
    reserve_gib: Annotated[float, Field(ge=0, le=1000)] = 10.0
    """Room that a fetch leaves on the disk."""
    sync_port: Annotated[int, Field(ge=1, le=65535)] = 29522
    """Port on the head, on the fabric, from which workers pull verified files."""
    sync_mb_per_second: Annotated[float | None, Field(gt=0)] = None
    """Limit of a pull in 10^6 bytes a second; left out, none."""


class Licenses(Section):
    """Licences of what is downloaded, by their identifiers."""

    accept: tuple[LicenceId, ...] = ()
    """Accepted licences. Without CC-BY-NC-ND-4.0 (DFlash2, non-commercial) drafting is done by MTP
    and the draft is not downloaded."""
