"""Compiles `exllamav3_ext` once, from the sources in the wheel of exllamav3.

Without it exllamav3 compiles at its first import, for minutes and into a user's cache. Run by
exllamav3-ext.nix: `python exllamav3_ext.py build_ext --build-lib DIR` beside `exllamav3_ext/` and
`cuda_flags.py`, the wheel's own list of sources and flags.
"""

import os
from pathlib import Path

import cuda_flags
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

SOURCES = "exllamav3_ext"

setup(
    name=SOURCES,
    version=os.environ["version"],  # noqa: SIM112 - mkDerivation's attributes, as they are spelt
    ext_modules=[
        CUDAExtension(
            SOURCES,
            [os.path.relpath(source) for source in cuda_flags.extension_sources(SOURCES)],
            include_dirs=[str(Path(SOURCES).resolve())],
            extra_compile_args={
                "cxx": ["-Ofast"],
                "nvcc": cuda_flags.cuda_cflags(os.environ["CUDA_HOME"]),
            },
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
