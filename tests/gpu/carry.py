"""Takes the engine onto a machine without a network: wheels in pieces, joined and installed there.

    python tests/gpu/carry.py fetch .carry/wheels          # here: the lock's versions, for x86_64
    python tests/gpu/carry.py pack .carry/wheels .carry/pieces
    python tests/gpu/carry.py take STORE PIECE...          # there, as often as pieces arrive
    python tests/gpu/carry.py install STORE PREFIX         # there: an environment with bin/vllm

A piece is no larger than what may travel at once. Each is checked when it is taken, so that one
that came broken is sent again alone; taking one twice does nothing. What the machine's own image
serves well enough is not carried.
"""

import argparse
import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

REPOSITORY = Path(__file__).parents[2]
LOCK = REPOSITORY / "lock/engine-cuda-aarch64.txt"
LISTED = "pieces.json"
PIECE_MIB = 58

IMAGE_HAS = (
    r"nvidia-(cublas|cufft|cufile|curand|cusolver|cusparse|cusparselt-cu13|cudnn-cu13|nvshmem-cu13"
    r"|cuda-cupti|cuda-nvrtc|cuda-runtime|cuda-nvcc|cuda-crt|cuda-cccl|nvtx|nvjitlink|nvvm)"
    r"|nvidia-cutlass-dsl-libs-cu12|torchaudio|pynvvideocodec|sentry-sdk|fastapi-cloud-cli"
    r"|numpy|numba|llvmlite|opencv-python-headless"
)
"""Packages of the lock that an image with CUDA 13 and a torch of its own has."""

SOURCES = ("sdnotify==0.3.2",)
"""What our programs need and the engine's lock lacks: pure Python without a published wheel."""

PLATFORMS = (
    *(f"manylinux_2_{minor}" for minor in range(39, 4, -1)),
    "manylinux2014", "manylinux2010", "manylinux1",
)  # fmt: skip
"""Up to glibc 2.39; pip matches them one by one."""


def requirements(lock: str) -> list[str]:
    """Return `name==version` of what is carried, from the text of a lock."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", lock, re.MULTILINE)
    return [f"{n}=={v}" for n, v in found if not re.fullmatch(IMAGE_HAS, n.lower())]


def pack(wheels: Path, out: Path, piece_bytes: int) -> list[Path]:
    """Write a tar of all wheels in pieces below `out`, and the list of the pieces."""
    out.mkdir(parents=True, exist_ok=True)
    sink = _Pieces(out, piece_bytes)
    with tarfile.open(fileobj=sink, mode="w|") as tar:  # type: ignore[call-overload]
        for wheel in sorted(wheels.glob("*.whl")):
            tar.add(wheel, wheel.name)
    sink.close()
    (out / LISTED).write_text(json.dumps({p.name: _digest(p) for p in sink.made}, indent=1) + "\n")
    return sink.made


class _Pieces(io.RawIOBase):
    """A file to write to that goes on in the next one when it is full."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder, self.size, self.made, self._file = folder, size, list[Path](), None
        self._file: IO[bytes] | None

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        left = memoryview(data)
        while left:
            if self._file is None or self._file.tell() >= self.size:
                self._next()
            assert self._file is not None
            room = self.size - self._file.tell()
            self._file.write(left[:room])
            left = left[room:]
        return len(data)

    def _next(self) -> None:
        if self._file is not None:
            self._file.close()
        self.made.append(self.folder / f"wheels.{len(self.made):03d}")
        self._file = self.made[-1].open("wb")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        super().close()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def take(store: Path, pieces: Sequence[Path]) -> list[str]:
    """Copy pieces that are whole to `store`; return the names of those that still are to come.

    The list of pieces must be beside the first of them or in the store already.
    """
    store.mkdir(parents=True, exist_ok=True)
    for piece in pieces:
        beside = piece.parent / LISTED
        if beside.exists() and not (store / LISTED).exists():
            shutil.copyfile(beside, store / LISTED)
    wanted: dict[str, str] = json.loads((store / LISTED).read_text())
    for piece in pieces:
        if piece.name == LISTED:
            continue
        if _digest(piece) != wanted.get(piece.name):
            raise SystemExit(f"{piece} is not what {LISTED} says: send it again")
        shutil.copyfile(piece, store / piece.name)
    return [name for name in wanted if not (store / name).exists()]


def unpack(store: Path, wheels: Path) -> list[Path]:
    """Join the pieces of a store and unpack the wheels. All of them must be there."""
    if missing := take(store, ()):
        raise SystemExit(f"{len(missing)} pieces are missing: {' '.join(missing)}")
    wheels.mkdir(parents=True, exist_ok=True)
    names = sorted(json.loads((store / LISTED).read_text()))
    source = io.BufferedReader(_Joined([store / name for name in names]))
    with tarfile.open(fileobj=source, mode="r|") as tar:
        tar.extractall(wheels, filter="data")
    return sorted(wheels.glob("*.whl"))


class _Joined(io.RawIOBase):
    """Pieces read as the one file they were cut from."""

    def __init__(self, pieces: Sequence[Path]) -> None:
        self._files: Iterator[IO[bytes]] = (path.open("rb") for path in pieces)
        self._file = next(self._files, None)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        while self._file is not None:
            if count := self._file.readinto(buffer):  # type: ignore[attr-defined]
                return int(count)
            self._file.close()
            self._file = next(self._files, None)
        return 0


def install(store: Path, prefix: Path) -> None:
    """Make an environment that has the wheels, then our programs, then what the image has."""
    wheels = unpack(store, store / "wheels")
    made = [sys.executable, "-m", "venv", "--without-pip", "--clear", str(prefix)]
    subprocess.run(made, check=True)
    python = str(prefix / "bin/python")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index",
           "--no-deps", "--no-compile"]  # fmt: skip
    subprocess.run([*pip, *map(str, wheels)], check=True)
    ours = [str(REPOSITORY), str(REPOSITORY / "overlay")]
    subprocess.run([*pip, "--no-build-isolation", *ours], check=True)
    # A line of a .pth file comes last in the path: the environment's own packages win.
    site, image = (site_packages(each) for each in (python, sys.executable))
    (site / "image.pth").write_text(f"{image}\n")


def site_packages(python: str) -> Path:
    """Return where an interpreter's own packages are."""
    asked = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    return Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())


def fetch(wheels: Path) -> None:
    """Download the wheels for x86_64 and Python 3.12."""
    platforms = [word for p in PLATFORMS for word in ("--platform", f"{p}_x86_64")]
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
         "--python-version", "3.12", "--implementation", "cp", *platforms, "-d", str(wheels),
         *requirements(LOCK.read_text())],
        check=True,
    )  # fmt: skip
    built = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(wheels)]
    subprocess.run([*built, *SOURCES], check=True)


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description="Carry the engine to a machine without a network.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, words in (
        ("fetch", ["wheels"]),
        ("pack", ["wheels", "out"]),
        ("install", ["store", "prefix"]),
    ):
        command = commands.add_parser(name)
        for word in words:
            command.add_argument(word, type=Path)
    taking = commands.add_parser("take")
    taking.add_argument("store", type=Path)
    taking.add_argument("pieces", type=Path, nargs="+")
    given = parser.parse_args()
    match given.command:
        case "fetch":
            fetch(given.wheels)
        case "pack":
            made = pack(given.wheels, given.out, PIECE_MIB << 20)
            print(f"{len(made)} pieces in {given.out}")
        case "take":
            missing = take(given.store, given.pieces)
            print(f"{len(missing)} pieces are still to come: {' '.join(missing[:3])}")
        case "install":
            install(given.store, given.prefix)
    return 0


if __name__ == "__main__":
    sys.exit(main())
