"""The GPUs as NVML sees them. Without the library or the driver, everything is unknown."""

from collections.abc import Callable
from typing import Any

from glm53ctl.facts.host import Fact, Unknown


class GpuProcess(Fact):
    """A process that uses the GPU."""

    pid: int
    name: str = ""
    used_mib: int | None = None


class GpuFacts(Fact):
    """One GPU. None means that the source did not say: NVML on GB10 leaves out several."""

    name: str = ""
    driver: str = ""
    sm_clock_mhz: int | None = None
    max_sm_clock_mhz: int | None = None
    power_watts: float | None = None
    utilisation_percent: int | None = None
    temperature_celsius: int | None = None
    throttled_by: tuple[str, ...] | None = None
    """What holds the clock down; empty where nothing does."""
    processes: tuple[GpuProcess, ...] = ()


_HOLDS_DOWN = {
    0x002: "clock setting",
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "software thermal",
    0x040: "hardware thermal",
    0x080: "power brake",
    0x100: "display clock",
}
"""Bits of nvmlClocksEventReasons. An idle GPU (bit 0) is slow because nobody wants it faster."""


def load_nvml() -> Any:
    """Return the module pynvml, initialised, or `Unknown`; the caller shuts it down."""
    try:
        import pynvml  # costs a moment, and only a machine with a GPU needs it
    except ImportError as error:
        return Unknown(unknown=f"nvidia-ml-py is not installed: {error}")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Unknown(unknown=f"no NVIDIA driver answers: {error}")
    return pynvml


def _asked(nvml: Any, question: Callable[..., Any], *arguments: Any) -> Any:
    """Return NVML's answer, or None for what this GPU does not support."""
    try:
        return question(*arguments)
    except nvml.NVMLError:
        return None


def _process(nvml: Any, entry: Any) -> GpuProcess:
    name = _asked(nvml, nvml.nvmlSystemGetProcessName, entry.pid) or ""
    used = entry.usedGpuMemory
    return GpuProcess(
        pid=entry.pid,
        name=name.decode(errors="replace") if isinstance(name, bytes) else name,
        used_mib=None if used is None else used >> 20,
    )


def _gpu(nvml: Any, index: int, driver: str) -> GpuFacts:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    power = _asked(nvml, nvml.nvmlDeviceGetPowerUsage, handle)
    load = _asked(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
    held = _asked(nvml, nvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
    running = _asked(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle)
    return GpuFacts(
        name=_asked(nvml, nvml.nvmlDeviceGetName, handle) or "",
        driver=driver,
        sm_clock_mhz=_asked(nvml, nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
        max_sm_clock_mhz=_asked(nvml, nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM),
        power_watts=None if power is None else power / 1000,
        utilisation_percent=None if load is None else load.gpu,
        temperature_celsius=_asked(
            nvml, nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU
        ),
        throttled_by=None
        if held is None
        else tuple(reason for bit, reason in _HOLDS_DOWN.items() if held & bit),
        processes=tuple(_process(nvml, entry) for entry in running or ()),
    )


def probe_gpus(load: Callable[[], Any] = load_nvml) -> tuple[GpuFacts, ...] | Unknown:
    """Read every GPU."""
    nvml = load()
    if isinstance(nvml, Unknown):
        return nvml
    try:
        driver = _asked(nvml, nvml.nvmlSystemGetDriverVersion) or ""
        return tuple(_gpu(nvml, i, driver) for i in range(nvml.nvmlDeviceGetCount()))
    except nvml.NVMLError as error:
        return Unknown(unknown=f"NVML: {error}")
    finally:
        nvml.nvmlShutdown()


def probe_power(load: Callable[[], Any] = load_nvml) -> float | None:
    """Return what the busiest GPU draws, in watts, and ask for nothing else; None if unknown."""
    nvml = load()
    if isinstance(nvml, Unknown):
        return None
    try:
        gpus = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        drawn = [_asked(nvml, nvml.nvmlDeviceGetPowerUsage, gpu) for gpu in gpus]
        return max((power / 1000 for power in drawn if power is not None), default=None)
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()
