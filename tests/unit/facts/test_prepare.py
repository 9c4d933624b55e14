"""What root does for a start: applied, checked, restored; and the page cache."""

from types import SimpleNamespace

import pytest

from glm53ctl import prepare
from glm53ctl.config.schema import Config, Paths
from glm53ctl.errors import UserError
from glm53ctl.facts.host import Host, Unknown
from glm53ctl.facts.memory import KIB_IN_GIB
from glm53ctl.facts.node import probe_clock_cap

NODES = [{"name": "a", "address": "10.0.0.1"}, {"name": "b", "address": "10.0.0.2"}]


def config(**settings) -> Config:
    return Config.model_validate({"nodes": NODES, **settings})


class Machine:
    """A tree with the files that are written, a GPU, and a kernel that frees what is dropped."""

    def __init__(self, root, *, total=120, free=110, available=115, swap=0.0):
        self.root, self.clock, self.locked, self.ran = root, 1500, None, []
        self.memory = {"total": total, "free": free, "available": available, "swap": swap}
        for name in ("proc/sys/vm", "proc/sys/kernel/random", "run/glm53"):
            (root / name).mkdir(parents=True)
        (root / "proc/sys/vm/min_free_kbytes").write_text("67584\n")
        (root / "proc/sys/vm/drop_caches").write_text("")
        (root / "proc/sys/kernel/random/boot_id").write_text("b2\n")
        self.host = self
        self.path = Host(root).path

    def read(self, name):
        if name != "/proc/meminfo":
            return Host(self.root).read(name)
        dropped = self.path("/proc/sys/vm/drop_caches").read_text() == "1"
        free = self.memory["available"] if dropped else self.memory["free"]
        rows = {
            "MemTotal": self.memory["total"],
            "MemFree": free,
            "MemAvailable": self.memory["available"],
            "SwapTotal": 16,
            "SwapFree": 16 - self.memory["swap"],
        }
        return "".join(f"{name}: {round(gib * KIB_IN_GIB)} kB\n" for name, gib in rows.items())

    def line(self, name):
        return Host(self.root).line(name)

    def run(self, argv):
        self.ran.append(argv)
        return ""

    def nvml(self):
        """Stands in for pynvml."""

        def lock(_, low, high):
            self.locked = (low, high)
            self.clock = min(self.clock, high)

        return SimpleNamespace(
            NVMLError=RuntimeError,
            NVML_CLOCK_SM=1,
            nvmlShutdown=lambda: None,
            nvmlDeviceGetCount=lambda: 1,
            nvmlDeviceGetHandleByIndex=lambda index: index,
            nvmlDeviceSetGpuLockedClocks=lock,
            nvmlDeviceResetGpuLockedClocks=lambda _: setattr(self, "locked", None),
            nvmlDeviceGetClockInfo=lambda *_: self.clock,
        )


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def apply(machine, settings, nvml=None):
    return list(prepare.apply(settings, machine, nvml or machine.nvml))


def failing(machine, name, error):
    """NVML of which one function fails."""

    def fail(*_):
        raise RuntimeError(error)

    module = machine.nvml()
    setattr(module, name, fail)
    return lambda: module


CAP = {"power": {"max_gpu_clock_mhz": 2200}}
RESERVE = {"memory": {"reserve_gib": 2}}


# --- applied, checked, restored ------------------------------------------------------------------


def test_without_a_setting_nothing_is_done(machine):
    assert apply(machine, config()) == []
    assert machine.locked is None
    assert machine.line("/proc/sys/vm/min_free_kbytes") == "67584"


def test_a_cap_is_set_seen_to_hold_and_written_down_with_the_boot(machine):
    machine.clock = 3003
    assert apply(machine, config(**CAP)) == ["the GPU's clock is capped at 2200 MHz (2200 MHz now)"]
    assert machine.locked == (0, 2200)
    record = probe_clock_cap(config(**CAP), machine)
    assert (record.cap_mhz, record.seen_mhz, record.boot_id) == (2200, 2200, "b2")


def test_a_cap_that_does_not_hold_is_an_error(machine, monkeypatch):
    monkeypatch.setattr(prepare, "_VERIFY_SECONDS", 0.05)
    deaf = machine.nvml()
    deaf.nvmlDeviceSetGpuLockedClocks = lambda *_: None
    machine.clock = 3003
    with pytest.raises(UserError) as error:
        apply(machine, config(**CAP), lambda: deaf)
    assert error.value.code == "PREPARE_FAILED"
    assert "3003" in error.value.message


def test_without_a_driver_or_the_right_a_cap_is_an_error(machine):
    with pytest.raises(UserError, match="no driver"):
        apply(machine, config(**CAP), lambda: Unknown(unknown="no driver"))
    refusing = failing(machine, "nvmlDeviceSetGpuLockedClocks", "Insufficient Permissions")
    with pytest.raises(UserError, match="Insufficient"):
        apply(machine, config(**CAP), refusing)


def test_a_reserve_is_set_and_the_kernel_s_own_value_comes_back(machine):
    apply(machine, config(**RESERVE))
    apply(machine, config(**RESERVE))  # again, without a stop between
    assert machine.line("/proc/sys/vm/min_free_kbytes") == str(2 * KIB_IN_GIB)
    assert list(prepare.restore(Paths(), machine, machine.nvml)) == [
        "the kernel's reserve is as it was"
    ]
    assert machine.line("/proc/sys/vm/min_free_kbytes") == "67584"


def test_what_a_failed_start_has_set_is_taken_back(machine):
    with pytest.raises(UserError, match="no driver"):
        apply(machine, config(**RESERVE, **CAP), lambda: Unknown(unknown="no driver"))
    assert list(prepare.restore(Paths(), machine, machine.nvml)) == [
        "the kernel's reserve is as it was"
    ]
    assert machine.line("/proc/sys/vm/min_free_kbytes") == "67584"


def test_a_cap_that_cannot_be_read_back_is_taken_back(machine):
    blind = failing(machine, "nvmlDeviceGetClockInfo", "Unknown Error")
    with pytest.raises(UserError, match="Unknown Error"):
        apply(machine, config(**CAP), blind)
    assert machine.locked == (0, 2200)
    list(prepare.restore(Paths(), machine, machine.nvml))
    assert machine.locked is None


def test_what_was_set_is_taken_back_whatever_the_settings_say_now(machine):
    apply(machine, config(**CAP))
    assert list(prepare.restore(Paths(), machine, machine.nvml)) == [
        "the GPU's clock is free again"
    ]
    assert machine.locked is None
    assert list(prepare.restore(Paths(), machine, machine.nvml)) == []


def test_it_is_taken_back_under_a_configuration_that_cannot_be_used_any_more(
    tmp_path, machine, monkeypatch
):
    apply(machine, config(**RESERVE))
    monkeypatch.setattr(prepare.restore, "__defaults__", (machine, machine.nvml))
    (tmp_path / "config.yaml").write_text("nodes: nowhere\n")
    with pytest.raises(UserError):
        prepare.prepare_command(tmp_path / "config.yaml", undo=True)
    assert machine.line("/proc/sys/vm/min_free_kbytes") == "67584"


# --- the page cache ------------------------------------------------------------------------------

SHARE = config(kv={"gpu_memory_utilization": 0.85})  # of 120 GiB: 102 and 1.5 to spare


def test_a_cache_in_the_way_is_dropped(tmp_path):
    machine = Machine(tmp_path, free=2, available=117)
    assert prepare.reclaim(SHARE, machine) == "2.0 GiB were free, 117.0 are"


def test_enough_free_memory_is_left_alone(machine):
    prepare.reclaim(SHARE, machine)
    assert machine.path("/proc/sys/vm/drop_caches").read_text() == ""
    assert machine.ran == []


def test_nothing_is_dropped_when_it_would_not_suffice(tmp_path):
    machine = Machine(tmp_path, free=80, available=86)
    with pytest.raises(UserError) as error:
        prepare.reclaim(SHARE, machine)
    assert error.value.code == "MEM_FOREIGN"
    assert machine.path("/proc/sys/vm/drop_caches").read_text() == ""


@pytest.mark.parametrize(
    ("available", "ran"), [(117, [("swapoff", "-a"), ("swapon", "-a")]), (105, [])]
)
def test_swap_is_cycled_where_there_is_room_for_it(tmp_path, available, ran):
    machine = Machine(tmp_path, free=104, available=available, swap=9)
    prepare.reclaim(SHARE, machine)
    assert machine.ran == ran


def test_swap_is_on_again_after_it_could_not_be_taken_off(tmp_path, monkeypatch):
    machine = Machine(tmp_path, free=104, available=117, swap=9)
    answers = {"swapoff": Unknown(unknown="swapoff: timed out")}
    monkeypatch.setattr(
        machine, "run", lambda argv: machine.ran.append(argv[0]) or answers.get(argv[0], "")
    )
    with pytest.raises(UserError, match="swapoff: timed out"):
        prepare.reclaim(SHARE, machine)
    assert machine.ran == ["swapoff", "swapon"]


def test_swap_has_longer_than_a_look(monkeypatch):
    limits = []

    def run(argv, timeout, **_):
        limits.append(timeout)
        return SimpleNamespace(returncode=0, stdout="", stderr="")

    monkeypatch.setattr("subprocess.run", run)
    (host,) = prepare.reclaim.__defaults__
    host.run(("swapoff", "-a"))
    assert limits == [prepare.SWAP_SECONDS]


def test_memory_that_does_not_come_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(prepare, "RECLAIM_SECONDS", 0.0)
    machine = Machine(tmp_path, free=2, available=117)
    machine.path("/proc/sys/vm/drop_caches").unlink()
    machine.path("/proc/sys/vm/drop_caches").symlink_to("/dev/null")
    with pytest.raises(UserError) as error:
        prepare.reclaim(SHARE, machine)
    assert error.value.code == "MEM_PAGECACHE"


def test_a_request_is_a_file_that_the_answer_removes(tmp_path, machine):
    asked = config(paths={"run_dir": str(tmp_path / "run/glm53")})
    prepare.request_reclaim(asked)
    request = tmp_path / "run/glm53" / prepare.REQUEST
    assert request.exists()
    prepare.reclaim(SHARE, machine)
    assert not request.exists()


def test_a_request_under_a_configuration_that_cannot_be_used_is_removed_all_the_same(
    tmp_path, monkeypatch
):
    """systemd would start the service for it again and again, and then give the request up."""
    monkeypatch.setattr(prepare, "Paths", lambda: Paths(run_dir=str(tmp_path)))
    (tmp_path / prepare.REQUEST).touch()
    (tmp_path / "config.yaml").write_text("nodes: nowhere\n")
    with pytest.raises(UserError):
        prepare.reclaim_command(tmp_path / "config.yaml")
    assert not (tmp_path / prepare.REQUEST).exists()
