"""A node with small sets, and what it hears, for the weights' tests."""

import json
import os
import signal
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from hub import Blob, Hub
from safetensors.numpy import save
from waiting import wait_for

from glm53ctl.config.schema import Config
from glm53ctl.findings import Finding
from glm53ctl.weights.fetch import Fetch
from glm53ctl.weights.hub import HubSource
from glm53ctl.weights.layout import WeightSet, weight_sets
from glm53ctl.weights.patience import Rules
from glm53ctl.weights.progress import Progress

MIRROR, COMMIT = "mirror/model", "a" * 40
ORIGIN, ORIGIN_COMMIT = "origin/model", "b" * 40
QUICK = Rules(
    streams=3,
    stall_seconds=60.0,
    reserve_bytes=0,
    backoff_seconds=0.01,
    backoff_max_seconds=0.02,
    attempts=4,
)
IMPATIENT = replace(QUICK, stall_seconds=2.0)
"""For what is about stalls. Hub and fetcher are one process: held up itself, it sees one, too."""


def reap(pid: int) -> None:
    """Wait for a fork to end: one of a process with threads may hang for ever."""
    try:
        wait_for(lambda: os.waitpid(pid, os.WNOHANG)[0], f"process {pid} to end")
    except AssertionError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def shard(number: int, size: int = 120_000) -> bytes:
    """Return a small valid safetensors file; every number has other bytes."""
    generator = np.random.default_rng(number)
    return save({f"t{number}": generator.integers(0, 255, size, dtype=np.uint8)})


def make_repo(shards: int = 4, size: int = 120_000) -> dict[str, Blob]:
    """Return a checkpoint: shards, an index, a configuration, and what does not belong to a set."""
    names = [f"model-{n:05}-of-{shards:05}.safetensors" for n in range(1, shards + 1)]
    index = json.dumps({"weight_map": {f"t{n}": name for n, name in enumerate(names, 1)}})
    return {
        ".gitattributes": Blob(b"*.safetensors filter=lfs\n", lfs=False),
        "config.json": Blob(b'{"model_type": "glm5_next"}', lfs=False),
        "docs/paper.pdf": Blob(b"%PDF", lfs=True),
        **{name: Blob(shard(n, size)) for n, name in enumerate(names, 1)},
        "model.safetensors.index.json": Blob(index.encode(), lfs=False),
    }


def wanted_bytes(repo: dict[str, Blob]) -> int:
    return sum(b.size for n, b in repo.items() if "/" not in n and not n.startswith("."))


@dataclass
class Ears:
    """A watcher that remembers."""

    told: list[Finding] = field(default_factory=list)
    shown: list[Progress] = field(default_factory=list)

    def show(self, progress: Progress) -> None:
        self.shown.append(progress)

    def tell(self, finding: Finding) -> None:
        self.told.append(finding)

    @property
    def codes(self) -> list[str]:
        return [finding.code for finding in self.told]


@dataclass
class World:
    """A node, the Hub, and what is said."""

    root: Path
    hub: Hub
    ears: Ears = field(default_factory=Ears)

    @property
    def config(self) -> Config:
        return Config.model_validate(
            {
                "nodes": [
                    {"name": "a", "address": "127.0.0.1"},
                    {"name": "b", "address": "127.0.0.1"},
                ],
                "weights": {
                    "model_dir": str(self.root / "weights/model"),
                    "draft_dir": str(self.root / "weights/draft"),
                    "repo": MIRROR,
                    "revision": COMMIT,
                    "fallback_repo": ORIGIN,
                    "fallback_revision": ORIGIN_COMMIT,
                    "reserve_gib": 0,
                    "stall_seconds": 60,
                },
                "licenses": {"accept": ["ShapleyMCG-1.0"]},
                "paths": {
                    "state_dir": str(self.root / "state"),
                    "run_dir": str(self.root / "run"),
                },
            }
        )

    @property
    def weight_set(self) -> WeightSet:
        return weight_sets(self.config)[0]

    def sources(self, token: str | None = None) -> list[HubSource]:
        return [
            HubSource(MIRROR, COMMIT, token, ORIGIN, self.hub.url),
            HubSource(ORIGIN, ORIGIN_COMMIT, token, None, self.hub.url),
        ]

    def fetch(self, rules: Rules = QUICK, token: str | None = None) -> None:
        """Fetch and switch, as the command does."""
        Fetch(self.weight_set, self.sources(token), self.ears, rules).run()
        self.weight_set.activate()

    @property
    def file(self) -> Path:
        """A shard as it lies in the set."""
        return self.weight_set.directory / "model-00002-of-00004.safetensors"

    def is_right(self) -> bool:
        """Compare every file with the repository: the test's own opinion, by content."""
        wrong = self.wrong_files()
        if wrong:
            print(f"wrong: {wrong}")
        return not wrong

    def wrong_files(self) -> set[str]:
        """Return the names of files that are missing, too many, or have other bytes."""
        repo = self.hub.repos[(ORIGIN, ORIGIN_COMMIT)]
        directory = self.weight_set.directory
        names = {n for n in repo if "/" not in n and not n.startswith(".")}
        here = {path.name for path in directory.iterdir()}
        other = {n for n in names & here if (directory / n).read_bytes() != repo[n].content}
        return (names ^ here) | other
