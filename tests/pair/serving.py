"""The product, installed on both hosts of the bed as an owner installs it, and asked how it is."""

import secrets
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml
from waiting import wait_for

from glm53ctl.config.schema import Config
from glm53ctl.config.sources import load
from glm53ctl.demo.run import DemoFiles
from glm53ctl.status.snapshot import Snapshot, assemble
from glm53ctl.supervise import control
from glm53ctl.supervise.report import RankReport

from .bed import CHECKOUT, ENGINE, LAN, MODEL, RAIL1, SPARKS, Bed, Host, Product

SERVICES = CHECKOUT / "services"
RUN_DIR = Path("/run/glm53")
START_SECONDS = 240.0
"""Deadline of a start with two real engines on one machine; nothing measures it."""

PLACES = {
    ".service": "/etc/systemd/system/{}",
    ".target": "/etc/systemd/system/{}",
    ".sysusers.conf": "/etc/sysusers.d/{}",
    ".tmpfiles.conf": "/etc/tmpfiles.d/{}",
}
"""Where an owner without a package puts the files of `services/`, by the ends of their names."""


_PREPARE = """
import sys
from pathlib import Path
from glm53ctl.demo.run import DemoFiles, prepare
prepare(DemoFiles(Path(sys.argv[1])), Path(sys.argv[2]), print, lambda _: None)
"""


@dataclass
class ServingPair:
    """The pair on the two hosts, rank 0 on the head."""

    bed: Bed
    folder: Path
    settings: dict[str, Any]
    api_key: str = field(default_factory=lambda: secrets.token_hex(16))
    token: str = field(default_factory=lambda: secrets.token_hex(32))
    config: Config = field(init=False)

    def __post_init__(self) -> None:
        # As the supervisors will read it, credentials included.
        credentials = self.folder / "credentials"
        credentials.mkdir()
        (credentials / "api-key").write_text(self.api_key)
        file = self.folder / "config.yaml"
        file.write_text(yaml.safe_dump(self.settings))
        self.config = load(file, environ={"CREDENTIALS_DIRECTORY": str(credentials)}).config

    @property
    def hosts(self) -> list[Host]:
        """The hosts by rank."""
        return [self.bed.hosts[spark] for spark in SPARKS]

    # --- installing -----------------------------------------------------------------------------

    def install(self) -> None:
        """Install on both hosts and enable; nothing is started."""
        for rank, host in enumerate(self.hosts):
            for file in sorted(SERVICES.iterdir()):
                for end, place in PLACES.items():
                    if file.name.endswith(end):
                        name = f"{file.name.removesuffix(end)}.conf" if "conf" in end else file.name
                        host.push(file, place.format(name), 0o644)
            host.exec("systemd-sysusers")
            host.exec("systemd-tmpfiles", "--create", check=False)  # 73: others' lines
            host.write("/etc/glm53/config.yaml", yaml.safe_dump(self.settings))
            for name, secret in (("api-key", self.api_key), ("pair-token", self.token)):
                host.write(f"/etc/credstore/glm53.{name}", f"{secret}\n", mode=0o600)
            host.exec("systemctl", "daemon-reload")
            host.exec("systemctl", "enable", "glm53.target", f"glm53-rank{rank}.service")

    # --- asking ---------------------------------------------------------------------------------

    def report(self, rank: int) -> RankReport | None:
        """Ask a rank's supervisor; None while there is none.

        Its socket is reached through the file system of its host: that costs nothing, while every
        `glm53ctl status` takes the time of a core away from the engines.
        """
        leader = self.hosts[rank].cgroup.leader()
        if leader is None:
            return None
        root = Path(f"/proc/{leader}/root")
        path = control.socket_path(root / RUN_DIR.relative_to("/"), rank)
        answer = control.ask(path, control.Request(action="report"))
        return answer.report if answer else None

    def snapshot(self) -> Snapshot:
        """Return the picture of the pair from both supervisors' own words."""
        reports = {rank: self.report(rank) for rank in range(len(self.hosts))}
        known = {rank: report for rank, report in reports.items() if report is not None}
        return assemble(self.config, known, time.time())

    def until_ready(self, epoch: int = 0) -> Snapshot:
        """Wait until an epoch after `epoch` serves, for both supervisors and for systemd."""

        def serves() -> Snapshot | None:
            snapshot = self.snapshot()
            return snapshot if snapshot.ready and snapshot.epoch > epoch else None

        try:
            snapshot = wait_for(serves, f"an epoch after {epoch} to be ready", START_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.evidence()}") from error
        for rank in range(len(self.hosts)):
            wait_for(lambda rank=rank: self.unit(rank, "ActiveState") == "active", "READY=1", 10)  # type: ignore[misc]
        return snapshot

    def unit(self, rank: int, property_name: str) -> str:
        """Return a property of a rank's unit."""
        unit = f"glm53-rank{rank}.service"
        return self.hosts[rank].output("systemctl", "show", "-P", property_name, unit)

    def ask(self) -> str:
        """Ask the canary's question from the LAN, as a client."""
        canary = self.config.canary
        answer = httpx.post(
            f"{self.url}/v1/chat/completions",
            json={
                "model": self.config.serve.model_name,
                "messages": [{"role": "user", "content": canary.prompt}],
                "temperature": 0,
                "max_tokens": canary.max_tokens,
                "chat_template_kwargs": {"enable_thinking": False},
            },
            headers={"Authorization": f"Bearer {self.api_key}"},
            timeout=60,
            trust_env=False,
        )
        answer.raise_for_status()
        return str(answer.json()["choices"][0]["message"]["content"])

    @property
    def url(self) -> str:
        """The server, as clients on the LAN know it."""
        return f"http://{LAN.address(SPARKS[0])}:{self.config.api.port}"

    def pid(self, rank: int, title: str) -> str:
        """Return the pid, on its host, of an engine process of a rank by a part of its title."""
        report = self.report(rank)
        assert report is not None
        return str(next(p for p, name in report.engine.processes.items() if title in name))

    def engine(self, rank: int) -> set[int]:
        """Return the pids of a rank's engine on its host."""
        report = self.report(rank)
        return set(report.engine.processes) if report else set()

    def alive(self, rank: int, pids: set[int]) -> set[int]:
        """Return those of the pids that are processes of the rank's host."""
        return pids & {
            int(x) for x in self.hosts[rank].output("ls", "/proc").split() if x.isdigit()
        }

    def evidence(self) -> str:
        """Return the end of journals and engine logs, for a test that failed."""
        parts = []
        for host in self.hosts:
            options = ("-n", "60", "-o", "short-precise", "-u", "glm53*")
            parts.append(f"{host.name}:\n{host.journal(*options)}")
            logs = (host.merged / "var/lib/glm53/logs").glob("*.log")
            for log in sorted(logs, key=lambda path: path.stat().st_mtime)[-1:]:
                parts.append(f"{log.name}:\n{log.read_text(errors='replace')[-3000:]}")
        return "\n".join(parts)


def demo_settings(files: DemoFiles, product: Product) -> dict[str, Any]:
    """Return the configuration of the demo model on the hosts of the bed.

    One rank alone, on this machine, answers the canary's question for the record, the first time.
    """
    # In a process of its own: at its end it kills all that is below it, and here that is the bed.
    program = [sys.executable, "-c", _PREPARE, str(files.root), str(product.engine)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    recorded = yaml.safe_load(files.config.read_text())
    return {
        "profile": "demo",
        "nodes": [
            {"name": spark.name, "address": RAIL1.address(spark), "cpus": str(rank)}
            for rank, spark in enumerate(SPARKS)
        ],
        "engine": {"prefix": str(ENGINE)},
        "weights": {"model_dir": str(MODEL)},
        "canary": recorded["canary"],
        "api": {"host": LAN.address(SPARKS[0])},
        # Tests hurt the pair more often than an owner would put up with.
        "supervise": {"backoff_seconds": 0.5, "crash_limit": 100, "frozen_seconds": 2},
        "link": {"silence_grace_seconds": 5},
    }
