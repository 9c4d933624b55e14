"""A model built and filled by vLLM itself, in this process, with one rank and no engine around."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

import torch
from torch import nn
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import init_distributed_environment, initialize_model_parallel
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader import get_model


def vllm_config(checkpoint: Path, **arguments) -> VllmConfig:
    return EngineArgs(
        model=str(checkpoint),
        skip_tokenizer_init=True,
        dtype="float32",
        enforce_eager=True,
        max_model_len=256,
        max_num_batched_tokens=256,
        **arguments,
    ).create_engine_config()


@cache
def _one_rank() -> None:
    folder = tempfile.mkdtemp()  # a file: a port that is free now may be taken a moment later
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    init_distributed_environment(1, 0, f"file://{folder}/store", 0, "gloo")
    initialize_model_parallel(1, 1)
    torch.accelerator.empty_cache = lambda: None  # vLLM's CPU worker does the same


def load(config: VllmConfig, *, draft: bool = False) -> nn.Module:
    """Return the model with its weights; `draft` loads the MTP layers instead."""
    with set_current_vllm_config(config):
        _one_rank()
        model_config = config.speculative_config.draft_model_config if draft else None
        return get_model(vllm_config=config, model_config=model_config)
