"""Memory, units, clock, disks, devices, libraries and the GPU, each from a tree or a stand-in."""

import os
from types import SimpleNamespace

import pytest
from stand_ins import Programs

from glm53ctl.facts import nvml
from glm53ctl.facts.host import HERE, Host, Unknown, run_program
from glm53ctl.facts.memory import gib, parse_meminfo, probe_memory
from glm53ctl.facts.processes import probe_listeners, probe_processes
from glm53ctl.facts.system import (
    parse_units,
    probe_clock,
    probe_devices,
    probe_disks,
    probe_kernel,
    probe_libraries,
    probe_owners,
    probe_units,
)

MEMINFO = """\
MemTotal:       127601213 kB
MemFree:          2167040 kB
MemAvailable:   122683392 kB
Cached:         119537664 kB
SwapTotal:       16777212 kB
SwapFree:         7340032 kB
"""


def write(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


# --- programs and files --------------------------------------------------------------------------


def test_a_program_that_is_missing_fails_or_hangs_is_unknown(monkeypatch):
    assert run_program(("true",)) == ""
    assert "not installed" in run_program(("glm53-no-such-program",)).unknown
    assert "ended with 3: so" in run_program(("sh", "-c", "echo so >&2; exit 3")).unknown
    monkeypatch.setattr("glm53ctl.facts.host.PROGRAM_SECONDS", 0.05)
    assert "timed out" in run_program(("sleep", "9")).unknown


def test_a_file_that_cannot_be_read_is_unknown_with_its_name(tmp_path):
    assert "/proc/nothing" in Host(tmp_path).read("/proc/nothing").unknown
    assert Host(tmp_path).line("/proc/nothing") == ""


# --- memory --------------------------------------------------------------------------------------


def test_memory_with_pressure(tmp_path):
    write(tmp_path, "proc/meminfo", MEMINFO)
    write(tmp_path, "proc/pressure/memory", "some avg10=1.50 avg60=0 total=1\nfull avg10=0.25\n")
    memory = probe_memory(Host(tmp_path))
    assert round(gib(memory.free), 1) == 2.1
    assert round(gib(memory.swap_used), 1) == 9.0
    assert (memory.pressure_some, memory.pressure_full) == (1.5, 0.25)


def test_a_kernel_without_pressure_says_the_rest(tmp_path):
    write(tmp_path, "proc/meminfo", MEMINFO)
    assert probe_memory(Host(tmp_path)).pressure_some is None


def test_half_a_meminfo_is_unknown():
    assert "MemFree" in parse_meminfo("MemTotal: 1 kB\nMemAvailable: 1 kB\n").unknown


# --- the system ----------------------------------------------------------------------------------


def test_units_are_blocks_of_properties():
    text = "Id=glm53-rank0.service\nActiveState=failed\n\nId=glm53.target\nActiveState=active\n"
    first, second = parse_units(text)
    assert (first.id, first.get("ActiveState"), first.get("User")) == (
        "glm53-rank0.service",
        "failed",
        "",
    )
    assert second.get("ActiveState") == "active"


def test_without_a_service_manager_units_and_clock_are_unknown():
    host = Host(run=Programs(systemctl=Unknown(unknown="no bus")))
    assert probe_units(host) == Unknown(unknown="no bus")
    assert isinstance(probe_clock(host), Unknown)


def test_the_clock_says_whether_a_server_was_reached():
    assert probe_clock(Host(run=Programs(timedatectl="NTPSynchronized=no\n"))).synchronised is False


def test_the_kernel_and_what_the_hosts_file_says_of_its_name(tmp_path):
    write(tmp_path, "proc/sys/kernel/hostname", "spark-1\n")
    write(tmp_path, "proc/sys/kernel/osrelease", "6.17.13-nvidia\n")
    write(tmp_path, "etc/hosts", "127.0.0.1 localhost\n127.0.1.1 spark-1 # own\n10.0.0.2 spark-2\n")
    kernel = probe_kernel(Host(tmp_path))
    assert (kernel.release, kernel.hostname_addresses) == ("6.17.13-nvidia", ("127.0.1.1",))
    assert kernel.page_size == os.sysconf("SC_PAGE_SIZE")


def test_a_directory_that_is_not_there_yet_has_the_room_of_the_one_above(tmp_path):
    here, there = probe_disks((str(tmp_path), f"{tmp_path}/a/b"), HERE)
    assert here.total == there.total > 0


def test_owners_of_what_exists(tmp_path):
    path = write(tmp_path, "etc/secret", "x")
    path.chmod(0o640)
    (owner,) = probe_owners(("/etc/secret", "/etc/none"), Host(tmp_path))
    assert (owner.path, owner.uid, owner.mode) == ("/etc/secret", os.getuid(), 0o640)


def test_device_nodes_by_their_own_names(tmp_path):
    write(tmp_path, "dev/nvidia0", "")
    (tmp_path / "dev/nvidia-caps").mkdir()
    write(tmp_path, "dev/infiniband/uverbs0", "")
    found = [device.path for device in probe_devices(Host(tmp_path))]
    assert found == ["/dev/nvidia0", "/dev/infiniband/uverbs0"]


def test_libraries_where_the_engine_looks(tmp_path):
    write(tmp_path, "run/opengl-driver/lib/libcuda.so.1", "")
    write(tmp_path, "opt/x/libibverbs.so.1", "")
    found = probe_libraries("/opt/x", Host(tmp_path))
    assert found.driver_dir
    assert set(found.found) == {"/run/opengl-driver/lib/libcuda.so.1", "/opt/x/libibverbs.so.1"}


def test_processes_come_without_their_arguments():
    largest = probe_processes()
    assert largest == tuple(sorted(largest, key=lambda one: -one.rss_kib))
    assert all(process.command == "" for process in largest)
    assert not isinstance(probe_listeners(), Unknown)


# --- the GPU -------------------------------------------------------------------------------------


class NvmlError(Exception):
    pass


def refuse(*_):
    raise NvmlError("Not Supported")


def fake_nvml(**answers):
    """Stands in for pynvml on a machine with one GPU; what is not answered is not supported."""
    names = [
        "SystemGetDriverVersion",
        "DeviceGetName",
        "DeviceGetClockInfo",
        "DeviceGetMaxClockInfo",
        "DeviceGetPowerUsage",
        "DeviceGetUtilizationRates",
        "DeviceGetTemperature",
        "DeviceGetCurrentClocksEventReasons",
        "DeviceGetComputeRunningProcesses",
        "SystemGetProcessName",
    ]
    calls = {f"nvml{name}": answers.get(name, refuse) for name in names}
    return SimpleNamespace(
        NVMLError=NvmlError,
        NVML_CLOCK_SM=1,
        NVML_TEMPERATURE_GPU=0,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        **calls,
    )


def test_a_gpu_with_its_users():
    module = fake_nvml(
        DeviceGetClockInfo=lambda *_: 2200,
        DeviceGetPowerUsage=lambda _: 45_500,
        DeviceGetComputeRunningProcesses=lambda _: [SimpleNamespace(pid=7, usedGpuMemory=1 << 30)],
        SystemGetProcessName=lambda _: "VLLM::EngineCore",
    )
    (gpu,) = nvml.probe_gpus(lambda: module)
    assert (gpu.sm_clock_mhz, gpu.power_watts) == (2200, 45.5)
    assert gpu.processes == (nvml.GpuProcess(pid=7, name="VLLM::EngineCore", used_mib=1024),)


def test_the_power_is_asked_for_alone():
    module = fake_nvml(DeviceGetPowerUsage=lambda _: 45_500)
    del module.nvmlDeviceGetComputeRunningProcesses, module.nvmlDeviceGetClockInfo
    assert nvml.probe_power(lambda: module) == 45.5
    assert nvml.probe_power(fake_nvml) is None
    assert nvml.probe_power(lambda: Unknown(unknown="no driver")) is None


@pytest.mark.parametrize(
    ("bits", "reasons"), [(0, ()), (1, ()), (0x25, ("power cap", "software thermal"))]
)
def test_what_holds_a_clock_down(bits, reasons):
    module = fake_nvml(DeviceGetCurrentClocksEventReasons=lambda _: bits)
    (gpu,) = nvml.probe_gpus(lambda: module)
    assert gpu.throttled_by == reasons


def test_what_a_gpu_does_not_support_is_none():
    (gpu,) = nvml.probe_gpus(fake_nvml)
    assert gpu == nvml.GpuFacts()


def test_without_a_driver_the_gpu_is_unknown():
    why = Unknown(unknown="no NVIDIA driver answers")
    assert nvml.probe_gpus(lambda: why) == why
