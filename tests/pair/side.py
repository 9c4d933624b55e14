"""A pair of engines on the two hosts of the bed, seen from outside: by whom it is kept is a side's.

The product is one side (`serving.py`), two plain units as others ship them the other (`plain.py`).
What is measured of a fault is seen with the same eyes on both: processes in the kernel's tables,
answers to a client on the LAN, and what the side says of itself.
"""

import os
import re
import secrets
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml
from waiting import wait_for

from glm53ctl.config.schema import Config
from glm53ctl.config.sources import load

from .bed import LAN, SPARKS, Bed, Host

START_SECONDS = 240.0
"""Deadline of a start with two real engines on one machine; nothing measures it."""
ANEW_SECONDS = 60.0
"""Longer than the pause of any unit before its next start."""
CLIENT_SECONDS = 10.0
"""How long a client waits for its few tokens."""

_TITLES = (
    ("guard", re.compile(r"glm53ctl\.supervise\.guard")),  # its arguments are the engine's
    ("EngineCore", re.compile(r"^VLLM::EngineCore")),
    ("Worker", re.compile(r"^VLLM::Worker")),
    ("main", re.compile(r"bin/vllm serve ")),
    ("supervisor", re.compile(r"glm53ctl rank ")),
    ("watchdog", re.compile(r"glm53ctl watchdog")),
)
"""What a process is, by the first pattern that its command line matches."""
ENGINE = ("main", "EngineCore", "Worker")


@dataclass
class Side(ABC):
    """One way to keep the pair, on both hosts; rank 0 is on the head."""

    bed: Bed
    folder: Path
    settings: dict[str, Any]
    api_key: str = field(default_factory=lambda: secrets.token_hex(16))
    config: Config = field(init=False)

    name = ""

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

    # --- what a side does its own way -----------------------------------------------------------

    @abstractmethod
    def install(self) -> None:
        """Install on both hosts and enable; nothing is started."""

    @abstractmethod
    def remove(self) -> None:
        """Stop and disable what `install` brought."""

    @abstractmethod
    def unit_name(self, rank: int) -> str:
        """Return the name of a rank's unit."""

    @abstractmethod
    def trouble(self, ranks: tuple[int, ...]) -> str | None:
        """Return what the side itself says is wrong, asked on these hosts; None if all is well."""

    @abstractmethod
    def said(self, since: float) -> str:
        """Return the sentence with which it explains what it went through after a Unix time."""

    @abstractmethod
    def start_anew(self) -> None:
        """Bring it back by hand, as an operator would."""

    def given_up(self) -> bool:
        """Say whether it will never serve again without a hand; False if that cannot be told."""
        return False

    # --- what is seen from outside --------------------------------------------------------------

    def processes(self, rank: int) -> dict[int, str]:
        """Return the side's processes on a host: pids of this machine, and what each is."""
        found = {}
        for file in self.hosts[rank].cgroup.payload.rglob("cgroup.procs"):
            for pid in _words(file):
                line = b" ".join(_bytes(Path(f"/proc/{pid}/cmdline")).split(b"\0")).decode()
                title = next((title for title, pattern in _TITLES if pattern.search(line)), None)
                if title is not None:
                    found[int(pid)] = title
        return found

    def engine(self, rank: int) -> set[int]:
        """Return the engine's processes on a host, as pids of this machine."""
        return {pid for pid, title in self.processes(rank).items() if title in ENGINE}

    def pid(self, rank: int, title: str) -> int:
        """Return one process of a rank by what it is; systemd may be about to start it anew."""

        def found() -> list[int]:
            return [pid for pid, is_a in self.processes(rank).items() if is_a == title]

        return min(wait_for(found, f"a {title} on {self.hosts[rank].name}", ANEW_SECONDS))

    def send(self, rank: int, title: str, signum: int) -> None:
        """Send a signal to one process of a rank."""
        os.kill(self.pid(rank, title), signum)

    def unit(self, rank: int, property_name: str) -> str:
        """Return a property of a rank's unit."""
        return self.hosts[rank].output(
            "systemctl", "show", "-P", property_name, self.unit_name(rank)
        )

    @property
    def url(self) -> str:
        """The server, as clients on the LAN know it."""
        return f"http://{LAN.address(SPARKS[0])}:{self.config.api.port}"

    def post(self, max_tokens: int, timeout: float) -> httpx.Response:
        """Ask the canary's question from the LAN, as a client."""
        return httpx.post(
            f"{self.url}/v1/chat/completions",
            json={
                "model": self.config.serve.model_name,
                "messages": [{"role": "user", "content": self.config.canary.prompt}],
                "temperature": 0,
                "max_tokens": max_tokens,
                "chat_template_kwargs": {"enable_thinking": False},
            },
            headers={"Authorization": f"Bearer {self.api_key}"},
            timeout=timeout,
            trust_env=False,
        )

    def ask(self, timeout: float = 60.0) -> str:
        """Return the answer to the canary's question."""
        answer = self.post(self.config.canary.max_tokens, timeout)
        answer.raise_for_status()
        return str(answer.json()["choices"][0]["message"]["content"])

    def serves(self) -> bool:
        """Say whether a client gets the right answer."""
        try:
            return self.ask(CLIENT_SECONDS) == self.config.canary.expect
        except httpx.HTTPError:
            return False

    def until_serving(self, seconds: float = START_SECONDS) -> None:
        """Wait until clients get the right answer. AssertionError, with evidence, if never."""
        try:
            wait_for(self.serves, f"{self.name} to serve", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.evidence()}") from error

    def evidence(self) -> str:
        """Return the end of the journals, for a test that failed."""
        options = ("-n", "60", "-o", "short-precise")
        return "\n".join(f"{host.name}:\n{host.journal(*options)}" for host in self.hosts)


def _words(file: Path) -> list[str]:
    return _bytes(file).decode().split()


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:  # a cgroup or a process that is just gone
        return b""
