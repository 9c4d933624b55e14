"""The plain alternative: `vllm serve` as a unit on each host, kept by `Restart=on-failure` alone.

Public examples look like this one (the best of them adds a wait for /health on the way up, a
longer pause and a start limit, which would only make it slower here). Engine, model, flags and
environment are the product's own, so that nothing but the keeping differs.
"""

from dataclasses import dataclass

import httpx
from waiting import wait_for

from glm53ctl.plan import plan_rank

from .bed import RAIL1
from .side import ANEW_SECONDS, Side

UNIT = """\
[Unit]
Description=vLLM rank {rank}
After=network-online.target

[Service]
Type=simple
ExecStart={command}
{environment}
Restart=on-failure
RestartSec=5
TimeoutStopSec=90
LimitMEMLOCK=infinity

[Install]
WantedBy=multi-user.target
"""
HEALTH_SECONDS = 3.0


@dataclass
class PlainPair(Side):
    """The pair as two independent units."""

    name = "plain"

    def install(self) -> None:
        """Install on both hosts and enable; nothing is started."""
        for rank, host in enumerate(self.hosts):
            host.write(f"/etc/systemd/system/{self.unit_name(rank)}", self._unit(rank))
            host.exec("systemctl", "daemon-reload")
            host.exec("systemctl", "enable", self.unit_name(rank))

    def _unit(self, rank: int) -> str:
        plan = plan_rank(self.config, rank, RAIL1.name)
        environment = {**plan.env, **({"VLLM_API_KEY": self.api_key} if rank == 0 else {})}
        return UNIT.format(
            rank=rank,
            command=" ".join(_quoted(word) for word in plan.argv),
            environment="\n".join(
                f"Environment={_quoted(f'{k}={v}')}" for k, v in environment.items()
            ),
        )

    def remove(self) -> None:
        """Stop and disable what `install` brought."""
        for rank, host in enumerate(self.hosts):
            host.exec("systemctl", "disable", "--now", self.unit_name(rank), timeout=120)

    def unit_name(self, rank: int) -> str:
        """Return the name of a rank's unit."""
        return f"vllm-rank{rank}.service"

    def trouble(self, ranks: tuple[int, ...]) -> str | None:
        """Return what an operator's monitoring would see: a unit's state, or the health route."""
        for rank in ranks:
            state = self.unit(rank, "ActiveState")
            if state != "active":
                return f"unit of rank {rank} is {state}"
        if 0 in ranks:
            try:
                code = httpx.get(f"{self.url}/health", timeout=HEALTH_SECONDS, trust_env=False)
            except httpx.HTTPError as error:
                return f"/health: {type(error).__name__}"
            if code.status_code != httpx.codes.OK:
                return f"/health: {code.status_code}"
        return None

    def said(self, since: float) -> str:
        """Return the state of both units: there is nothing else to ask."""
        states = []
        for rank in range(len(self.hosts)):
            seen = self._shown(rank, "ActiveState", "Result")
            what = f"{seen['ActiveState']} ({seen['Result']})" if seen else "cannot be asked"
            states.append(f"{self.unit_name(rank)} {what}")
        return ", ".join(states)

    def _shown(self, rank: int, *properties: str) -> dict[str, str]:
        """Return properties of a rank's unit; none while its host boots or has no power."""
        host = self.hosts[rank]
        if not host.running:
            return {}
        show = ("systemctl", "show", "-p", ",".join(properties), self.unit_name(rank))
        done = host.exec(*show, check=False)
        lines = done.stdout.splitlines() if done.returncode == 0 else []
        return dict(line.split("=", 1) for line in lines)

    def given_up(self) -> bool:
        """A unit that is at rest with no job for it stays so: nothing else would start it."""
        for rank, host in enumerate(self.hosts):
            if not host.running:
                return False
            seen = self._shown(rank, "ActiveState", "Job")
            if seen.get("ActiveState") in ("inactive", "failed") and seen.get("Job") in ("", "0"):
                return True
        return False

    def start_anew(self) -> None:
        """Restart both, the worker first; one that hangs is not waited for."""
        for rank in (1, 0):
            wait_for(lambda rank=rank: self._shown(rank, "ActiveState"), "its host", ANEW_SECONDS)
            for order in (("kill", "-s", "KILL"), ("reset-failed",)):
                self.hosts[rank].exec("systemctl", *order, self.unit_name(rank), check=False)
            self.hosts[rank].exec("systemctl", "restart", self.unit_name(rank), timeout=120)


def _quoted(word: str) -> str:
    """Quote a word for a unit file: specifiers and variables are taken literally."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
