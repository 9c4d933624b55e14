"""Libraries, kernels and packages that are missing or made for another machine."""

from glm53ctl.diagnose.signature import Confidence, Signature
from glm53ctl.findings import Severity

TABLE = (
    Signature(
        "NIX_UNFREE",
        ("has an unfree license",),
        r"Package \W(?P<package>[\w.+-]+)\W in .* has an unfree license",
        "{package} is unfree, and this nixpkgs does not allow it.",
        "Set nixpkgs.config.allowUnfree, or a predicate that lists the CUDA packages.",
    ),
    Signature(
        "NIX_CUDA_ARCH",
        ("no kernel image is available",),
        r"no kernel image is available for execution on the device",
        "a library holds no kernel image for this GPU (GB10 is 12.1).",
        "Build it for compute capability 12.1.",
    ),
    Signature(
        "NIX_CUDA_ARCH",
        ("no compatible archs", "CUDA target architectures"),
        r"(?P<what>Not building .+?) as no compatible archs",
        "the build left kernels out ({what})< for the target {target}>.",
        "Build for an architecture that those kernels know, and look at the log again.",
        also=(r"CUDA target architectures: (?P<target>\S+)",),
    ),
    Signature(
        "LIB_LIBCUDA",
        ("libcuda.so.1",),
        r"libcuda\.so\.1: cannot open shared object file|libcuda\.so\.1.*cannot find",
        "libcuda.so.1 is not found; on NixOS it lies in /run/opengl-driver/lib.",
        "On NixOS set hardware.graphics.enable and the NVIDIA driver; elsewhere put the host's "
        "libcuda.so.1 where /run/opengl-driver/lib is expected.",
    ),
    Signature(
        "LIB_TRITON_LDCONFIG",
        ("/sbin/ldconfig",),
        r"No such file or directory: '/sbin/ldconfig'",
        "Triton looks for libcuda with /sbin/ldconfig, which this system does not have.",
        "Set TRITON_LIBCUDA_PATH to the directory of libcuda.so.1 (the plan does).",
    ),
    Signature(
        "JIT_NO_COMPILER",
        ("nvcc", "ninja"),
        r"Could not find nvcc|nvcc(?:' |: )(?:not found|command not found)|"
        r"No such file or directory: '(?:\S*/)?(?:nvcc|ninja)'|Ninja is required to load C\+\+",
        "FlashInfer compiles its kernels at run time and finds no nvcc or ninja.",
        "Put both into the service's PATH and set CUDA_HOME; the package of this project does.",
    ),
    Signature(
        "JIT_CACHE_STALE",
        ("undefined symbol",),
        r"(?P<file>\S*(?:cached_ops|torch_extensions|\.triton|flashinfer)\S*\.so): "
        r"undefined symbol",
        "a compiled kernel in a cache is of another version: {file}.",
        "Remove that cache directory; it is filled again at the next start.",
        severity=Severity.WARN,
    ),
    Signature(
        "GPU_DRIVER_MISMATCH",
        ("version mismatch", "version is insufficient"),
        r"Driver/library version mismatch|CUDA driver version is insufficient",
        "the NVIDIA kernel module and the user-space libraries are of different versions.",
        "Reboot after the update of the driver; if that is done, update the older of the two.",
    ),
    Signature(
        "GPU_NOT_FOUND",
        ("No CUDA GPUs", "no NVIDIA GPU", "Failed to infer device type"),
        r"No CUDA GPUs are available|no NVIDIA GPU detected|Failed to infer device type",
        "the engine sees no GPU.",
        "Check `nvidia-smi`, and that the unit may open /dev/nvidia*.",
        confidence=Confidence.LIKELY,
    ),
)
