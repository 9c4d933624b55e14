"""What moving and verifying the weights costs, as ratios to the tools that one would use instead.

Shards of random bytes on one disk, every run on the same data, the page cache emptied of them
before each, in turn, the median of the rounds. A transfer ends when its bytes are on the disk: the
others' time includes a `sync` of the file system, ours does it along the way. `hf download` and we
fetch from the same fake Hub over loopback; `rsync -a` and one rsync a core copy on the same disk,
we pull over loopback. The limit of a verification is the lower of two: sha256 of memory on all
cores, and reading the shards past the page cache with as many threads as are used. Where few cores
must do both, no program reaches that: "together" is the time in which the machine reads the shards
and hashes as many bytes of memory, neither waiting for the other.

Usage: `python tests/bench/weights.py [--gb 4] [--rounds 3] [--dir DIR]`. Ends with one JSON line:
ratios are ours over theirs in bytes a second, so more than 1 is faster. rsync, sha256sum and
fincore must be installed.
"""

import argparse
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

from hub import Blob, Hub, serving

from glm53ctl.findings import Finding
from glm53ctl.weights.fetch import Fetch
from glm53ctl.weights.hashing import BLOCK_BYTES, blocks
from glm53ctl.weights.head import HeadSource
from glm53ctl.weights.hub import HubSource
from glm53ctl.weights.layout import WeightSet
from glm53ctl.weights.manifest import read_lock
from glm53ctl.weights.patience import Rules
from glm53ctl.weights.progress import Progress
from glm53ctl.weights.record import RecordBook
from glm53ctl.weights.serve import WeightServer
from glm53ctl.weights.verify import hashing_threads, verify_files

REPO, COMMIT, TOKEN = "bench/model", "a" * 40, b"bench-token-of-no-worth"
SHARDS = 16


class Known(Blob):
    """A blob of which the digest is computed once, so that the server does not hash meanwhile."""

    @cached_property
    def sha256(self) -> str:  # type: ignore[override]
        """The digest."""
        return Blob.sha256.fget(self)  # type: ignore[attr-defined, no-any-return]


class Quiet:
    """A watcher that stops the bench at the first complaint."""

    def show(self, progress: Progress) -> None:
        """Look away."""

    def tell(self, finding: Finding) -> None:
        """Fail."""
        raise SystemExit(finding.sentence())


class Run(NamedTuple):
    """Seconds, growth of the page cache in bytes, and peak memory of the process in bytes."""

    seconds: float
    cache: int
    rss: int


# --- what is measured ----------------------------------------------------------------------------


def weight_set(place: Path) -> WeightSet:
    """Return the set that lives under a directory."""
    return WeightSet("model", place / "model", place / "state", ((REPO, COMMIT),), "")


def fetch(place: Path, url: str) -> None:
    """Fetch everything from the fake Hub."""
    Fetch(weight_set(place), [HubSource(REPO, COMMIT, endpoint=url)], Quiet(), Rules()).run()


def sync(place: Path, port: str) -> None:
    """Pull everything from a head."""
    own = weight_set(place)
    source = HeadSource(own, "127.0.0.1", int(port), TOKEN)
    Fetch(own, [source], Quiet(), Rules(), "sync").run()


def verify(place: Path) -> None:
    """Hash every file against the manifest."""
    own = weight_set(place)
    manifest = read_lock(own.lock_file, COMMIT)
    if manifest is None:
        raise SystemExit("there is no manifest")
    book = RecordBook(own.record_file, manifest)
    if verify_files(own, manifest.files, book, Quiet()):
        raise SystemExit("the set is damaged")


JOBS: dict[str, Callable[..., None]] = {"fetch": fetch, "sync": sync, "verify": verify}


def child(places: tuple[Path, ...], name: str, *words: str) -> Run:
    """Run one of our jobs in a process of its own; the time to start Python is not counted."""
    before = resident(*places)
    process = subprocess.Popen(
        [sys.executable, __file__, "--job", name, *words], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    seconds = float(process.stdout.read() or "nan")
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{name} failed")
    print(f"{name:<16} user {usage.ru_utime:.1f} s  system {usage.ru_stime:.1f} s")
    return Run(seconds, resident(*places) - before, usage.ru_maxrss * 1024)


def command(*words: str, environ: dict[str, str] | None = None) -> float:
    """Run somebody else's program; return seconds until its bytes are on the disk."""
    began = time.monotonic()
    subprocess.run(
        words, check=True, env={**os.environ, **(environ or {})}, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.sync()
    return time.monotonic() - began


def parallel_rsync(source: Path, target: Path) -> float:
    """Copy with one rsync a core, each with its share of the files."""
    names = sorted(path.name for path in source.iterdir())
    count = os.cpu_count() or 1
    target.mkdir(parents=True)
    began = time.monotonic()
    processes = [
        subprocess.Popen(
            ["rsync", "-a", *(str(source / name) for name in names[part::count]), f"{target}/"]
        )
        for part in range(count)
    ]
    if any(process.wait() for process in processes):
        raise SystemExit("rsync failed")
    os.sync()
    return time.monotonic() - began


# --- limits --------------------------------------------------------------------------------------


def hash_memory(size: int) -> None:
    """Make sha256 digests of `size` bytes of memory, on all cores at once."""
    data, count = os.urandom(BLOCK_BYTES), os.cpu_count() or 1
    with ThreadPoolExecutor(count) as pool:
        for done in [
            pool.submit(lambda: [hashlib.sha256(data) for _ in range(size // count // BLOCK_BYTES)])
            for _ in range(count)
        ]:
            done.result()


def read_disk(directory: Path) -> None:
    """Read every file past the page cache, with as many threads as hash."""

    def read(path: Path) -> None:
        for _ in blocks(path, path.stat().st_size):
            pass

    with ThreadPoolExecutor(hashing_threads()) as pool:
        list(pool.map(read, [path for path in directory.iterdir() if path.is_file()]))


def timed(*works: Callable[[], None]) -> float:
    """Return the seconds until the last of some works, begun at once, is done."""
    began = time.monotonic()
    with ThreadPoolExecutor(len(works)) as pool:
        for done in [pool.submit(work) for work in works]:
            done.result()
    return time.monotonic() - began


# --- the ground ----------------------------------------------------------------------------------


def resident(*directories: Path) -> int:
    """Bytes of the page cache that hold files of directories: what we read and what we wrote.

    What the fake Hub reads is not counted, as the real one is elsewhere.
    """
    paths = [str(path) for each in directories for path in each.rglob("*") if path.is_file()]
    if not paths:
        return 0
    words = ["fincore", "--bytes", "--noheadings", "--output", "RES", *paths]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return sum(map(int, done.stdout.split()))


def forget(directory: Path) -> None:
    """Put a directory's files on the disk and out of the page cache."""
    os.sync()
    for path in directory.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def make_shards(directory: Path, size: int) -> dict[str, Blob]:
    """Write safetensors shards of random bytes, `size` bytes together, and their configuration."""
    directory.mkdir(parents=True)
    each = size // SHARDS
    files = {"config.json": b"{}"}
    for number in range(1, SHARDS + 1):
        header = json.dumps(
            {f"t{number}": {"dtype": "U8", "shape": [each], "data_offsets": [0, each]}}
        ).encode()
        path = directory / f"model-{number:05}-of-{SHARDS:05}.safetensors"
        with path.open("wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            for _ in range(0, each, 1 << 24):
                file.write(os.urandom(min(1 << 24, each - (file.tell() - 8 - len(header)))))
    (directory / "config.json").write_bytes(files["config.json"])
    forget(directory)
    return {
        path.name: Known(path, lfs=path.suffix == ".safetensors")
        for path in sorted(directory.iterdir())
    }


def measure(place: Path, size: int, rounds: int) -> dict[str, float]:
    """Run everything in turn and return the ratios."""
    shards = place / "shards"
    repo = make_shards(shards, size)
    total = sum(blob.size for blob in repo.values())
    seconds: dict[str, list[float]] = {}
    ours: list[Run] = []

    def note(name: str, value: float) -> None:
        seconds.setdefault(name, []).append(value)
        print(f"{name:<16} {value:7.2f} s  {total / value / 1e6:7.0f} MB/s", flush=True)

    def note_run(name: str, run: Run) -> None:
        ours.append(run)
        print(f"{name:<16} cache {run.cache / total:+.3f}  rss {run.rss / 1e6:.0f} MB")
        note(name, run.seconds)

    hub = Hub({(REPO, COMMIT): repo})
    with serving(hub):
        environ = {"HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "*"}
        hf = str(Path(sys.executable).parent / "hf")
        for _ in range(rounds):
            shutil.rmtree(place / "ours", ignore_errors=True)
            forget(shards)
            note_run("fetch", child((place / "ours",), "fetch", str(place / "ours"), hub.url))
            forget(shards)
            target = place / "theirs"
            note(
                "hf download",
                command(
                    *(hf, "download", REPO, "--revision", COMMIT, "--local-dir", str(target)),
                    environ={**environ, "HF_HOME": str(place / "hf")},
                ),
            )
            forget(target)
            shutil.rmtree(target)
    source = weight_set(place / "ours").directory
    for _ in range(rounds):
        forget(source)
        note("sha256sum", command("sha256sum", *(str(path) for path in sorted(source.iterdir()))))
        forget(source)
        note("limit: disk", timed(partial(read_disk, source)))
        note("limit: memory", timed(partial(hash_memory, total)))
        note("together", timed(partial(read_disk, source), partial(hash_memory, total)))
        note_run("verify", child((place / "ours",), "verify", str(place / "ours")))
    server = WeightServer(("127.0.0.1", 0), TOKEN, lambda: (weight_set(place / "ours"),))
    server.start()
    for _ in range(rounds):
        for name in ("rsync -a", "parallel rsync"):
            target = place / "copy"
            forget(source)
            if name == "rsync -a":
                target.mkdir()
                note(name, command("rsync", "-a", f"{source}/", f"{target}/"))
            else:
                note(name, parallel_rsync(source, target))
            forget(target)
            shutil.rmtree(target)
        forget(source)
        note_run(
            "sync",
            child(
                (place / "ours", place / "worker"),
                "sync",
                str(place / "worker"),
                str(server.server_port),
            ),
        )
        shutil.rmtree(place / "worker")
    server.shutdown()
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    limit = max(middle["limit: disk"], middle["limit: memory"])
    return {
        "verify_vs_limit": limit / middle["verify"],
        "verify_vs_together": middle["together"] / middle["verify"],
        "verify_vs_sha256sum": middle["sha256sum"] / middle["verify"],
        "fetch_vs_hf": middle["hf download"] / middle["fetch"],
        "sync_vs_best_rsync": min(middle["rsync -a"], middle["parallel rsync"]) / middle["sync"],
        "peak_rss_mb": max(run.rss for run in ours) / 1e6,
        "cache_growth": max(run.cache for run in ours) / total,
    }


def main() -> None:
    """Parse, measure, print."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--gb", type=float, default=4.0, help="size of the shards together")
    words.add_argument("--rounds", type=int, default=3)
    words.add_argument("--dir", type=Path, default=None, help="where: decides the disk")
    words.add_argument("--job", nargs="+", help=argparse.SUPPRESS)
    given = words.parse_args()
    if given.job:
        name, *rest = given.job
        began = time.monotonic()
        JOBS[name](Path(rest[0]), *rest[1:])
        print(time.monotonic() - began)
        return
    for tool in ("fincore", "rsync", "sha256sum"):
        if shutil.which(tool) is None:
            raise SystemExit(f"{tool} is not installed")
    with tempfile.TemporaryDirectory(dir=given.dir, prefix="glm53-bench-") as place:
        ratios = measure(Path(place), int(given.gb * 1e9), given.rounds)
    print(json.dumps({name: round(value, 3) for name, value in ratios.items()}))


if __name__ == "__main__":
    main()
