"""The product, installed on both hosts of the bed as an owner installs it, and asked how it is."""

import contextlib
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from waiting import wait_for

from glm53ctl.demo.model import make_model
from glm53ctl.demo.run import DemoFiles
from glm53ctl.status.snapshot import Snapshot, assemble
from glm53ctl.supervise import control
from glm53ctl.supervise.report import RankReport

from .bed import CHECKOUT, ENGINE, MODEL, RAIL1, SPARKS, Bed, Product
from .side import START_SECONDS, Side

SERVICES = CHECKOUT / "services"
RUN_DIR = Path("/run/glm53")
HASTE: dict[str, dict[str, float]] = {
    "supervise": {
        "backoff_seconds": 0.5,
        "backoff_max_seconds": 2,
        "crash_limit": 100,
        "frozen_seconds": 2,
    },
    "link": {"silence_grace_seconds": 5},
}
"""The settings that are not an owner's: tests hurt the pair more often than one would put up with,
and would mostly wait."""

PLACES = {
    ".service": "/etc/systemd/system/{}",
    ".timer": "/etc/systemd/system/{}",
    ".socket": "/etc/systemd/system/{}",
    ".path": "/etc/systemd/system/{}",
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
class ServingPair(Side):
    """The pair as the units of `services/` keep it."""

    token: str = field(default_factory=lambda: secrets.token_hex(32))

    name = "glm53"

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
            secrets = {"pair-token": self.token, **({} if rank else {"api-key": self.api_key})}
            for name, secret in secrets.items():
                host.write(f"/etc/credstore/glm53.{name}", f"{secret}\n", mode=0o600)
            self.configure(rank)
            host.exec("systemctl", "daemon-reload")
            host.exec("systemctl", "enable", "glm53.target", self.unit_name(rank))

    def configure(self, rank: int, **sections: dict[str, Any]) -> None:
        """Write a host's configuration, with some sections changed."""
        merged = {name: {**self.settings.get(name, {}), **new} for name, new in sections.items()}
        file = yaml.safe_dump(self.settings | merged)
        self.hosts[rank].write("/etc/glm53/config.yaml", file)

    def remove(self) -> None:
        """Stop and disable what `install` brought."""
        for rank, host in enumerate(self.hosts):
            host.exec("systemctl", "disable", "--now", "glm53.target", self.unit_name(rank))

    def unit_name(self, rank: int) -> str:
        """Return the name of a rank's unit."""
        return f"glm53-rank{rank}.service"

    def start_anew(self) -> None:
        """Restart both, after whatever held them."""
        for rank, host in enumerate(self.hosts):
            host.exec("systemctl", "reset-failed", self.unit_name(rank), check=False)
            host.exec("systemctl", "restart", "--no-block", self.unit_name(rank))
        wait_for(lambda: any(self.report(rank) for rank in (0, 1)), "a supervisor")
        for host in self.hosts:
            host.exec("glm53ctl", "resume", check=False)

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

    def trouble(self, ranks: tuple[int, ...]) -> str | None:
        """Return what a rank's status says is wrong; a silent supervisor is a word, too."""
        for rank in ranks:
            report = self.report(rank)
            if report is None:
                return f"rank {rank} does not answer"
            if report.phase != "ready":
                return report.status_line()
        return None

    def said(self, since: float) -> str:
        """Return the finding that status shows, or the loss, if it is not of an earlier fault."""
        snapshot = self.snapshot()
        if snapshot.findings and not snapshot.ready:
            finding = snapshot.findings[0]
            return f"{finding.code}: {finding.message}"
        loss = snapshot.last_loss
        return f"{loss.code}: {loss.message}" if loss and loss.at >= since else "nothing"

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
            wait_for(lambda rank=rank: self.unit(rank, "ActiveState") == "active", "READY=1", 60)  # type: ignore[misc]
        return snapshot

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


@contextlib.contextmanager
def running(bed: Bed, product: Product) -> Iterator[None]:
    """Boot the bed with what there is of the product; inside, this process is a client on the LAN.

    Before and after, all of the bed is removed: also what a killed run or a trial by hand left.
    """
    with bed.lock():
        bed.down()
        try:
            make_model(product.model)
            bed.up(product if product.why_not() is None else None)
            with bed.network.inside():
                yield
        finally:
            bed.down()
            shutil.rmtree(DemoFiles(bed.state / "demo").run_dir, ignore_errors=True)


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
        "api": {"host": "0.0.0.0"},  # as an owner whose LAN may use it has it
        **HASTE,
    }
