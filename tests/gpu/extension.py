"""Builds the part of exllamav3_ext 1.6.5 that the overlay calls, for the GPU at hand."""

import os
import sys
from pathlib import Path
from types import ModuleType

SOURCES = (
    "quant/reconstruct.cu",
    "quant/hadamard.cu",
    "quant/pack.cu",
    "quant/util.cu",
    "quant/exl3_devctx.cu",
    "quant/exl3_moe.cu",
    "quant/exl3_moe_coop.cu",
    "quant/comp_units/exl3_moe_inst_k4_cb1.cu",
    "quant/comp_units/exl3_moe_inst_k4_cb2.cu",
    "quant/comp_units/exl3_moe_coop_inst_k4.cu",
)
FLAGS = ("-O3", "--use_fast_math")


def build(sources: Path, folder: Path) -> ModuleType:
    """Compile the subset from `exllamav3/exllamav3_ext` of an unpacked wheel into `folder`.

    It takes the place of the module `exllamav3_ext`, so the overlay runs as it does on an
    appliance. About a minute on 16 cores.
    """
    import torch
    from torch.utils.cpp_extension import load

    major, minor = torch.cuda.get_device_capability()
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", f"{major}.{minor}")
    os.environ.setdefault("MAX_JOBS", str(os.cpu_count()))
    own = Path(__file__).parent / "ext"
    folder.mkdir(parents=True, exist_ok=True)
    module: ModuleType = load(
        "exllamav3_ext",
        [str(sources / name) for name in SOURCES]
        + [str(own / name) for name in ("bind.cpp", "stubs.cu")],
        extra_include_paths=[str(sources)],
        extra_cflags=["-O2"],
        extra_cuda_cflags=list(FLAGS),
        build_directory=str(folder),
    )
    sys.modules["exllamav3_ext"] = module
    return module
