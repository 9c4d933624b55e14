"""What only root may do for a start: the GPU's clock cap, the kernel's reserve, the page cache.

`glm53-prepare.service` applies and restores, `glm53-reclaim.service` frees; the ranks themselves
run without privileges and ask for the latter by a file (`request_reclaim`).
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from glm53ctl.checks.wanted import load_gib
from glm53ctl.config.schema import Config, Paths
from glm53ctl.config.sources import load
from glm53ctl.errors import UserError
from glm53ctl.facts.host import HERE, Host, Unknown, run_program
from glm53ctl.facts.memory import KIB_IN_GIB, MemoryFacts, gib, probe_memory
from glm53ctl.facts.node import ClockCap, preparation_dir
from glm53ctl.facts.nvml import load_nvml
from glm53ctl.options import ConfigOption

MIN_FREE = "/proc/sys/vm/min_free_kbytes"
DROP_CACHES = "/proc/sys/vm/drop_caches"
RECLAIM_SECONDS = 60.0
"""How long free memory may take to appear after the cache was dropped."""
SWAP_RESIDUE_GIB = 1.0
SWAP_SECONDS = 200.0
"""How long swap may take to be read back; the unit has 300 s for all of it."""
REQUEST = "reclaim"
_POLL_SECONDS = 0.5
_VERIFY_SECONDS = 2.0


def request_file(paths: Paths) -> Path:
    """Return the file by which a rank asks for free memory; a path unit waits for it."""
    return Path(paths.run_dir, REQUEST)


# --- applied before the ranks, restored after them -----------------------------------------------


def apply(config: Config, host: Host = HERE, nvml: Callable[[], Any] = load_nvml) -> Iterator[str]:
    """Set what the configuration asks for, check that it holds, and say each in a sentence.

    Raises UserError when something asked for cannot be had.
    """
    state = host.path(str(preparation_dir(config.paths)))
    state.mkdir(parents=True, exist_ok=True)
    if config.memory.reserve_gib is not None:
        yield _reserve(config.memory.reserve_gib, state, host)
    if config.power.max_gpu_clock_mhz is not None:
        yield _cap(config.power.max_gpu_clock_mhz, state, host, nvml)


def restore(paths: Paths, host: Host = HERE, nvml: Callable[[], Any] = load_nvml) -> Iterator[str]:
    """Take back what `apply` set, by its own records."""
    state = host.path(str(preparation_dir(paths)))
    before = state / "min_free_kbytes"
    if before.exists():
        _write(host, MIN_FREE, before.read_text().strip())
        before.unlink()
        yield "the kernel's reserve is as it was"
    record = state / "clock_cap.json"
    if record.exists():
        _with_gpus(nvml, lambda module, gpu: module.nvmlDeviceResetGpuLockedClocks(gpu))
        record.unlink()
        yield "the GPU's clock is free again"


def _reserve(wanted_gib: float, state: Path, host: Host) -> str:
    wanted, record = str(round(wanted_gib * KIB_IN_GIB)), state / "min_free_kbytes"
    if not record.exists():  # a second start must not take our own value for the kernel's
        record.write_text(host.line(MIN_FREE))
    _write(host, MIN_FREE, wanted)
    if host.line(MIN_FREE) != wanted:
        raise _not_held(f"{MIN_FREE} is {host.line(MIN_FREE)} after {wanted} was written.")
    return f"the kernel keeps {wanted_gib:g} GiB free"


def _cap(cap_mhz: int, state: Path, host: Host, nvml: Callable[[], Any]) -> str:
    def lock(module: Any, gpu: Any) -> None:
        module.nvmlDeviceSetGpuLockedClocks(gpu, 0, cap_mhz)

    path, boot = state / "clock_cap.json", host.line("/proc/sys/kernel/random/boot_id")
    record = ClockCap(cap_mhz=cap_mhz, boot_id=boot)
    _with_gpus(nvml, lock)
    path.write_text(record.model_dump_json())  # by now: looking may fail, and it is to be undone
    seen = _settled_clock(cap_mhz, nvml)
    path.write_text(record.model_copy(update={"seen_mhz": seen}).model_dump_json())
    if seen > cap_mhz:
        raise _not_held(f"the GPU runs at {seen} MHz after its clock was capped at {cap_mhz}.")
    return f"the GPU's clock is capped at {cap_mhz} MHz ({seen} MHz now)"


def _settled_clock(cap_mhz: int, nvml: Callable[[], Any]) -> int:
    """Return the highest clock of the GPUs, after giving them a moment to come down."""

    def clock(module: Any, gpu: Any) -> int:
        return int(module.nvmlDeviceGetClockInfo(gpu, module.NVML_CLOCK_SM))

    limit = time.monotonic() + _VERIFY_SECONDS
    while (seen := max(_with_gpus(nvml, clock), default=0)) > cap_mhz:
        if time.monotonic() > limit:
            break
        time.sleep(_POLL_SECONDS / 5)
    return seen


def _with_gpus(nvml: Callable[[], Any], act: Callable[[Any, Any], Any]) -> list[Any]:
    """Do something with each GPU. Raises UserError without a driver or without the right to."""
    module = nvml()
    if isinstance(module, Unknown):
        raise _not_held(f"the GPU cannot be reached: {module.unknown}.")
    try:
        gpus = range(module.nvmlDeviceGetCount())
        return [act(module, module.nvmlDeviceGetHandleByIndex(index)) for index in gpus]
    except module.NVMLError as error:
        raise _not_held(f"NVML refuses: {error}.") from error
    finally:
        module.nvmlShutdown()


def _write(host: Host, name: str, text: str) -> None:
    try:
        host.path(name).write_text(text)
    except OSError as error:
        raise _not_held(f"{name}: {error.strerror}.") from error


def _not_held(message: str) -> UserError:
    return UserError("PREPARE_FAILED", message, "Run it as root, on the host itself.", exit_code=1)


# --- the page cache ------------------------------------------------------------------------------


PATIENT = Host(run=partial(run_program, seconds=SWAP_SECONDS))
"""This machine, for programs that work: gigabytes of swap are not read in the time of a look."""


def reclaim(config: Config, host: Host = PATIENT) -> str:
    """Turn clean page cache into free memory, and swapped pages into resident ones.

    CUDA on GB10 counts the page cache as used. Nothing is dropped when it would not suffice:
    that memory belongs to somebody. Raises UserError then.
    """
    request = host.path(str(request_file(config.paths)))
    request.unlink(missing_ok=True)  # first: what is asked for from here on is a new request
    memory = _memory(host)
    need = load_gib(config, memory)
    if gib(memory.available) < need:
        raise UserError(
            "MEM_FOREIGN",
            f"{gib(memory.available):.1f} GiB of memory are available, {need:.1f} are needed.",
            "Stop what else runs on this machine.",
            exit_code=1,
        )
    said = []
    if gib(memory.free) < need:
        os.sync()
        _write(host, DROP_CACHES, "1")
        free = gib(_wait_for_free(host, need).free)
        said.append(f"{gib(memory.free):.1f} GiB were free, {free:.1f} are")
    if SWAP_RESIDUE_GIB <= gib(memory.swap_used) <= gib(memory.available) - need:
        # Both, whatever becomes of the first: one that was ended halfway has taken swap away.
        for done in [host.run((program, "-a")) for program in ("swapoff", "swapon")]:
            if isinstance(done, Unknown):
                raise _not_held(f"{done.unknown}.")
        said.append(f"{gib(memory.swap_used):.1f} GiB are back from swap")
    return "; ".join(said) or f"{gib(memory.free):.1f} GiB are free, {need:.1f} are needed"


def _memory(host: Host) -> MemoryFacts:
    memory = probe_memory(host)
    if isinstance(memory, Unknown):
        raise _not_held(f"{memory.unknown}.")
    return memory


def _wait_for_free(host: Host, need: float) -> MemoryFacts:
    limit = time.monotonic() + RECLAIM_SECONDS
    while gib((memory := _memory(host)).free) < need:
        if time.monotonic() > limit:
            raise UserError(
                "MEM_PAGECACHE",
                f"{gib(memory.free):.1f} GiB are free {RECLAIM_SECONDS:.0f} s after the page cache "
                f"was dropped, {need:.1f} are needed.",
                "Look who reads and writes files meanwhile.",
                exit_code=1,
            )
        time.sleep(_POLL_SECONDS)
    return memory


def request_reclaim(config: Config) -> None:
    """Ask for free memory without privileges: glm53-reclaim.path waits for this file."""
    request_file(config.paths).touch()


# --- commands ------------------------------------------------------------------------------------


def prepare_command(
    config: ConfigOption = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take it back.")] = False,
) -> None:
    """Set clock cap and memory reserve for the ranks (what glm53-prepare.service runs)."""
    # Root without capabilities cannot read what belongs to the ranks' user.
    try:
        settings = load(config, rules=False, with_run=False).config
    except UserError:
        if undo:  # the records are to be used up all the same: they go with the unit
            _say(restore(Paths()))
        raise
    _say(restore(settings.paths) if undo else apply(settings))


def _say(sentences: Iterator[str]) -> None:
    for sentence in sentences:
        print(sentence)


def reclaim_command(config: ConfigOption = None) -> None:
    """Turn page cache into free memory (what glm53-reclaim.service runs)."""
    try:
        settings = load(config, rules=False, with_run=False).config
    except UserError:
        # Where the units have it: a request that stays would have systemd start this again at once.
        with contextlib.suppress(OSError):
            request_file(Paths()).unlink(missing_ok=True)
        raise
    print(reclaim(settings))
