"""What the engine takes over from the environment of its supervisor."""

from collections.abc import Mapping

INHERITED = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TZDIR",
        "TMPDIR",
        "LD_LIBRARY_PATH",
        "LOCALE_ARCHIVE",
        "SSL_CERT_FILE",
        "NIX_SSL_CERT_FILE",
        # Compilers of kernels that are built while the engine starts.
        "CC",
        "CXX",
        "CPATH",
        "LIBRARY_PATH",
        "CUDA_HOME",
        "CUDA_PATH",
        "TORCH_CUDA_ARCH_LIST",
        "FLASHINFER_CUDA_ARCH_LIST",
        "TRITON_LIBCUDA_PATH",
        "TRITON_PTXAS_PATH",
        # Two ranks on one host see one GPU each.
        "CUDA_VISIBLE_DEVICES",
        "NVIDIA_VISIBLE_DEVICES",
    }
)
"""What the engine takes over from its supervisor. Not proxies (it is offline), not the
supervisor's systemd variables (it must not speak for the unit or find its credentials), no
preloaded library (a second NCCL collides with the engine's), and none of the engine's own
switches: those are settings, or `engine.extra_env`."""


def inherit(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the part of the supervisor's environment that the engine sees."""
    return {
        name: value
        for name, value in environ.items()
        if name in INHERITED or name.startswith("LC_")
    }
