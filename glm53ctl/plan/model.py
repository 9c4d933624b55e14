"""What the supervisor of one rank starts: a command line, an environment and where secrets are."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True)
class SecretSource:
    """Where a secret is read at launch; its content never enters a plan.

    `file` is an explicit path; without it, the systemd credential `credential` is taken if the
    unit has one, and else there is no secret. `setting` names the file in messages.
    """

    credential: str
    file: str | None = None
    setting: str = ""

    def __str__(self) -> str:
        return f"<from {self.file or f'credential {self.credential}'}>"


@dataclass(frozen=True)
class RankPlan:
    """The engine of one rank, complete but for secrets and the inherited environment.

    `argv` starts with the path of `vllm`, `serve` and the model directory. `base_url` is where
    this rank serves clients, as seen from its own node; only rank 0 has one.
    """

    rank: int
    node: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    secret_env: Mapping[str, SecretSource] = field(default_factory=dict)
    base_url: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "env", MappingProxyType(dict(self.env)))
        object.__setattr__(self, "secret_env", MappingProxyType(dict(self.secret_env)))

    @property
    def health_url(self) -> str | None:
        """Where the engine answers 200 once it serves (without a key)."""
        return None if self.base_url is None else f"{self.base_url}/health"

    @property
    def metrics_url(self) -> str | None:
        """Where the engine counts requests and tokens (without a key)."""
        return None if self.base_url is None else f"{self.base_url}/metrics"
