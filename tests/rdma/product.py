"""The product in the guests: its facts, its verdict, and what it would tell each rank."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pair.bed.layout import RAIL1, SPARKS

from glm53ctl.checks.fabric import Resolution
from glm53ctl.checks.start import fabric_of_pair
from glm53ctl.config.schema import Config
from glm53ctl.facts.node import NodeFacts
from glm53ctl.findings import Finding
from glm53ctl.plan import plan_rank

from .guests import Guests, Job, Machine, program

SETTINGS = {
    "nodes": [{"name": spark.name, "address": RAIL1.address(spark)} for spark in SPARKS],
    "licenses": {"accept": ["ShapleyMCG-1.0"]},
}
CONFIG_FILE = "/etc/glm53/config.yaml"
NOT_READY = 3
PRELOADED = Path(__file__).with_name("preloaded.py")
PIPES = "/run/preloaded"
LOAD_SECONDS = 600.0
_ASK = 'cd "$1" && printf %s "$2" >asked && cat told && cat complaint >&2 && exit "$(cat status)"'


@dataclass(frozen=True)
class Rank:
    """What a rank would be started with."""

    resolution: Resolution
    env: dict[str, str]

    def codes(self) -> list[str]:
        """Return what was found on the way, where it is no praise."""
        return [finding.code for finding in self.resolution.findings]


@dataclass(frozen=True)
class Product:
    """`glm53ctl` as it is typed in both guests; the head judges, as it does at a start."""

    guests: Guests

    def install(self) -> None:
        """Write the configuration of both, and load the program."""
        for machine in self.guests.machines.values():
            machine.write(CONFIG_FILE, yaml.safe_dump(SETTINGS))
            machine.write(f"{PIPES}/preloaded.py", PRELOADED.read_text())
            machine.start(program("python"), f"{PIPES}/preloaded.py", PIPES)
        for machine in self.guests.machines.values():
            there = ("sh", "-c", 'until [ -p "$1" ]; do sleep 0.2; done', "sh", f"{PIPES}/status")
            machine.exec(*there, seconds=LOAD_SECONDS)

    def start(self, machine: Machine, *words: str) -> Job:
        """Start `glm53ctl` in a guest with these words, for the rank of that guest."""
        rank = list(self.guests.machines.values()).index(machine)
        command = shlex.join([*words, "--config", CONFIG_FILE, "--rank", str(rank)])
        return machine.start("sh", "-c", _ASK, "sh", PIPES, command)

    def record(self) -> list[NodeFacts]:
        """Return the facts of both, as `glm53ctl doctor record` writes them."""
        machines = self.guests.machines.values()
        jobs = [self.start(machine, "doctor", "record", "-") for machine in machines]
        return [NodeFacts.model_validate_json(job.wait().stdout) for job in jobs]

    def doctor(self, machine: Machine) -> list[Finding]:
        """Return what `glm53ctl doctor --json` finds in one guest, its exit status checked."""
        done = self.start(machine, "doctor", "--json").wait(check=False)
        report: dict[str, Any] = json.loads(done.stdout)
        assert done.status == (NOT_READY if report["failures"] else 0)
        return [Finding.model_validate(one) for one in report["findings"]]


def config(*pins: dict[str, object], **sections: dict[str, object]) -> Config:
    """Return the configuration of the guests, with `pins` of the nodes in their order."""
    nodes = [dict(node) for node in SETTINGS["nodes"]]
    for node, pinned in zip(nodes, pins, strict=False):
        node |= pinned
    return Config.model_validate(SETTINGS | {"nodes": nodes} | sections)


def ranks(facts: Sequence[NodeFacts], settings: Config | None = None) -> list[Rank]:
    """Return what each rank would be told, found and planned as an epoch does it."""
    settings = settings or config()
    return [
        Rank(found, dict(plan_rank(found.applied_to(settings, rank), rank).env))
        for rank, found in enumerate(fabric_of_pair(settings, facts))
    ]


def save(facts: NodeFacts, folder: Path) -> Path:
    """Write facts as a file for `doctor --facts`."""
    file = folder / f"{facts.node}.json"
    file.write_text(facts.model_dump_json())
    return file
