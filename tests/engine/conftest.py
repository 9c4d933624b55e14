"""The real two-rank CPU engine under real supervisors, with the demo's model."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import psutil
import pytest
import yaml
from waiting import wait_for

from glm53ctl.config.sources import load
from glm53ctl.demo.run import DemoFiles, prepare
from glm53ctl.errors import UserError
from glm53ctl.facts.ports import free_ports
from glm53ctl.status.snapshot import Snapshot, gather
from glm53ctl.supervise.local import LocalPair
from glm53ctl.supervise.proctree import adopt_orphans, descendants, shared_memory
from glm53ctl.supervise.report import RankReport

REPOSITORY = Path(__file__).parents[2]
START_SECONDS = 600.0
COMMAND_SECONDS = 600.0
STOP_SECONDS = 120.0
STAGE_LIMITS = dict.fromkeys(("boot", "rendezvous", "nccl", "api", "canary"), START_SECONDS)
"""A slow machine is no loss here: what stands still fails the test that waits for it."""
TEST_SECONDS = 2400
"""One test may wait for several starts; one that hangs never ends."""


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.engine)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TEST_SECONDS))


@pytest.fixture(scope="session")
def engine_prefix() -> Path:
    prefix = Path(os.environ.get("GLM53_ENGINE", REPOSITORY / ".engine"))
    assert (prefix / "bin/vllm").exists(), f"no engine in {prefix}: run `make setup` first"
    return prefix


class Bed:
    """A directory with model, token and configuration, and the supervisors started from it."""

    def __init__(self, root: Path, files: DemoFiles, **changes: dict[str, object]) -> None:
        self.root = root
        self.settings = yaml.safe_load(files.config.read_text())
        api, master, link = free_ports(3)
        self.settings |= {
            "api": {"port": api},
            "fabric": {"master_port": master, "link_port": link},
            "paths": {"state_dir": str(root / "state"), "run_dir": str(root / "run")},
        }
        self.settings["supervise"] = {
            "backoff_seconds": 0.1,
            "frozen_seconds": 2,
            "crash_limit": 100,
            "limits": STAGE_LIMITS,
        }
        for section, values in changes.items():
            self.settings[section] = {**self.settings.get(section, {}), **values}
        self.path = self.write("config.yaml")
        self.config = load(self.path).config
        self.children: list[subprocess.Popen] = []

    def write(self, name: str, **changes) -> Path:
        path = self.root / name
        path.write_text(yaml.safe_dump(self.settings | changes))
        return path

    def start_rank(self, rank: int, path: Path | None = None) -> subprocess.Popen:
        with (self.root / f"supervisor{rank}.log").open("ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", "glm53ctl", "rank", str(rank), "-c", str(path or self.path)],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.children.append(child)
        return child

    def stop(self) -> None:
        for child in self.children:
            child.terminate()
        late = []
        for child in self.children:
            try:
                child.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                late.append(child.args)
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        self.children = []
        assert not late, f"did not end in {STOP_SECONDS:.0f} s: {late}"

    def snapshot(self) -> Snapshot:
        return gather(self.config)

    def report(self, rank: int) -> RankReport:
        """What a rank says of itself; one that is held up has no answer at first."""

        def said() -> RankReport | None:
            return next((one for one in self.snapshot().ranks if one.rank == rank), None)

        return wait_for(said, f"rank {rank} to answer")

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a `glm53ctl` command with this bed's configuration."""
        return subprocess.run(
            [sys.executable, "-m", "glm53ctl", *words, "--config", str(self.path)],
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )

    def status(self, state: str) -> dict:
        """What `glm53ctl status --json` says in this state; who is held up is not in it."""

        def said() -> dict | None:
            done = self.command("status", "--json")
            assert done.returncode in (0, 3), done.stderr
            status = json.loads(done.stdout)
            return status if status["state"] == state else None

        return wait_for(said, f"status to say {state!r}")


@pytest.fixture(scope="session")
def demo_files(engine_prefix, tmp_path_factory) -> DemoFiles:
    files = DemoFiles(tmp_path_factory.mktemp("demo"))
    make = partial(prepare, files, engine_prefix, print, lambda _: None)
    try:
        make()
    except UserError:  # the first start on a slow machine may take longer than the demo waits
        make()
    yield files
    shutil.rmtree(files.run_dir, ignore_errors=True)


@pytest.fixture
def bed(demo_files, tmp_path):
    made = Bed(tmp_path, demo_files)
    yield made
    made.stop()


class ServingPair(Bed):
    """A pair that is kept alive as `glm53ctl up` keeps it, and can be hurt."""

    def __init__(self, root: Path, files: DemoFiles, **changes: dict[str, object]) -> None:
        super().__init__(root, files, **changes)
        adopt_orphans()
        self.pair = LocalPair(self.config, ["--config", str(self.path)])
        self._abandoned = threading.Event()
        self._over = threading.Event()
        self._tender = threading.Thread(target=self._tend)
        self._tending = threading.Lock()
        self._segments: set[int] = set()

    def start_rank(self, rank: int, path: Path | None = None) -> None:
        assert path is None, "both ranks of a serving pair have one configuration"
        self.pair.start_rank(rank)

    def _tend(self) -> None:
        # The thread lives as long as the pair: what it started is told to stop when it ends.
        while not self._over.wait(0.05):
            with self._tending:
                if not self._abandoned.is_set():
                    self.pair.tend()

    def tend(self) -> None:
        """From now on, start dead supervisors anew."""
        self._tender.start()

    def abandon(self) -> None:
        """From now on, let dead supervisors lie."""
        with self._tending:
            self._abandoned.set()

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        # Who tends reaps what ends below this process: the command's exit status would be lost.
        with self._tending:
            return super().command(*words)

    def close(self) -> int:
        self.abandon()
        left = self.pair.stop()
        self._over.set()
        if self._tender.is_alive():
            self._tender.join()
        return left

    def until_ready(self, epoch: int = 0) -> Snapshot:
        def ready():
            snapshot = self.snapshot()
            return snapshot if snapshot.ready and snapshot.epoch > epoch else None

        snapshot = wait_for(ready, f"an epoch after {epoch} to be ready", START_SECONDS)
        for rank in self.pair.ranks.values():
            self._segments |= shared_memory(descendants(rank.pid))
        return snapshot

    def segments_left(self) -> set[int]:
        """Inodes of shared memory of its engines that are still there; others use it, too."""
        with os.scandir("/dev/shm") as entries:
            return self._segments & {entry.inode() for entry in entries}

    def engine_processes(self) -> set[psutil.Process]:
        """All processes below the supervisors, guards included."""
        return {p for rank in self.pair.ranks.values() for p in descendants(rank.pid)}

    def engine_main(self, rank: int) -> int:
        return self.report(rank).engine.pid

    def worker(self, rank: int) -> int:
        processes = self.report(rank).engine.processes
        return next(pid for pid, title in processes.items() if "Worker" in title)


@pytest.fixture(scope="module")
def serving(demo_files, tmp_path_factory):
    pair = ServingPair(tmp_path_factory.mktemp("pair"), demo_files)
    yield pair
    assert pair.close() == 0, "processes were left behind"
    assert not pair.segments_left(), "shared memory was left behind"


def alive(processes) -> set[psutil.Process]:
    """Those that are there; a zombie may still hold memory, so it counts. Pids are given again."""
    return {process for process in processes if process.is_running()}


def hurt(pid: int, signum: int) -> float:
    os.kill(pid, signum)
    return time.monotonic()


KILL, STOP = signal.SIGKILL, signal.SIGSTOP
