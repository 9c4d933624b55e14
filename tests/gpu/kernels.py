"""Builds FlashInfer's kernels for an H200 ahead, where there is an nvcc and no GPU.

    CUDA_HOME=DIR ENGINE/bin/python tests/gpu/kernels.py OUT

(also `curand.h`, through CPATH if CUDA_HOME has none, and any libcuda.so to link against, through
LIBRARY_PATH.)
The first start of an engine builds three of FlashInfer's modules, one of which takes more than six
minutes on 32 cores; a machine that is lent by the minute should not wait for that. `whole.sh` puts
what OUT has where FlashInfer looks first.
"""

import argparse
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ARCHITECTURE = "9.0a"


def build(out: Path) -> list[Path]:
    """Compile the modules that serving GLM-5.3 with a draft takes; return the libraries."""
    os.environ.setdefault("FLASHINFER_CUDA_ARCH_LIST", ARCHITECTURE)
    os.environ.setdefault("FLASHINFER_WORKSPACE_BASE", str(out / "work"))
    import torch
    from flashinfer.jit.attention.modules import gen_batch_mla_module
    from flashinfer.jit.sampling import gen_sampling_module
    from flashinfer.jit.topk import gen_topk_module

    bf16, fp8 = torch.bfloat16, torch.float8_e4m3fn
    modules = [
        gen_topk_module(),
        gen_sampling_module(),
        gen_batch_mla_module("fa3", bf16, fp8, bf16, torch.int32, 512, 0, False),
    ]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda module: module.build(), modules))
    made = []
    for module in modules:
        made.append(out / module.name / f"{module.name}.so")
        made[-1].parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(module.get_library_path(), made[-1])
    return made


def main() -> int:
    """Build into the folder that the command line names."""
    parser = argparse.ArgumentParser(description="Build FlashInfer's kernels ahead.")
    parser.add_argument("out", type=Path)
    for library in build(parser.parse_args().out):
        print(f"{library}: {library.stat().st_size >> 20} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
