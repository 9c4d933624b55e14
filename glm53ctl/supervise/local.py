"""All ranks of one host in the foreground: what `glm53ctl up` and the demo run.

On a pair of Sparks systemd does this, one unit a node. Here each rank is a child process, started
anew when it dies, as `Restart=always` would.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from glm53ctl.checks.start import check_start
from glm53ctl.config.schema import Config
from glm53ctl.config.sources import clear_override
from glm53ctl.errors import EXIT_BAD_INPUT, UserError
from glm53ctl.supervise.proctree import (
    adopt_orphans,
    die_with_parent,
    kill_descendants,
    reap_orphans,
    wait_for_children,
)

RESTART_SECONDS = 1.0
GUARD_SECONDS = 15.0
"""How long the guards of killed supervisors may take to end what was theirs."""
STOP_MARGIN_SECONDS = 20.0


@dataclass
class LocalPair:
    """The ranks of a configuration whose nodes are all this host.

    Start it from a thread that outlives it: the kernel stops the ranks when that thread ends.
    `options` are the command-line options that make the ranks read the same configuration.
    """

    config: Config
    options: Sequence[str]
    ranks: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    _due: dict[int, float] = field(default_factory=dict)

    def start(self) -> None:
        """Start all ranks, with the configuration as it is: nothing of an earlier run."""
        adopt_orphans()
        clear_override(self.config)
        for rank in range(self.config.world_size):
            self.start_rank(rank)

    def start_rank(self, rank: int) -> None:
        """Start one rank; an earlier process of it must have ended."""
        with self._log(rank).open("ab") as log:
            self.ranks[rank] = subprocess.Popen(
                [sys.executable, "-m", "glm53ctl", "rank", str(rank), *self.options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C here is for this program to hand on, in order
                preexec_fn=_stop_with_parent,
            )

    def _log(self, rank: int) -> Path:
        directory = Path(self.config.paths.state_dir) / "logs"
        directory.mkdir(parents=True, exist_ok=True)
        return directory / f"supervisor{rank}.log"

    def tend(self) -> bool:
        """Start dead ranks anew; False when the pair was stopped on command (all ended with 0)."""
        now = time.monotonic()
        reap_orphans(keep={process.pid for process in self.ranks.values()})
        codes = {rank: process.poll() for rank, process in self.ranks.items()}
        if all(code == 0 for code in codes.values()):
            return False
        for rank, code in codes.items():
            if code == EXIT_BAD_INPUT:
                raise UserError("RANK_REFUSED", f"rank {rank} does not start: {self._last(rank)}")
            if code is None or code == 0:
                self._due.pop(rank, None)
            elif now >= self._due.setdefault(rank, now + RESTART_SECONDS):
                self.start_rank(rank)
        return True

    def _last(self, rank: int) -> str:
        lines = self._log(rank).read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def stop(self) -> int:
        """Stop the head first, so that it can drain, then the others; return what is left."""
        rules = self.config.supervise
        patience = self.config.serve.drain_seconds + rules.stop_grace_seconds + STOP_MARGIN_SECONDS
        for rank in sorted(self.ranks):
            process = self.ranks[rank]
            process.terminate()
            try:
                process.wait(patience)
            except subprocess.TimeoutExpired:
                process.kill()
        # A guard knows which shared memory its engine had; killed, it could not remove any.
        wait_for_children(GUARD_SECONDS)
        return len(kill_descendants(rules.stop_grace_seconds))


def _stop_with_parent() -> None:
    die_with_parent(signal.SIGTERM)


def require_local(config: Config) -> None:
    """Refuse a configuration whose nodes are not all this host."""
    foreign = [node.name for node in config.nodes if not node.address.is_loopback]
    if foreign:
        raise UserError(
            "UP_NOT_LOCAL",
            f"`up` runs all ranks on this host, but {', '.join(foreign)} has an address elsewhere.",
            "On the nodes, start the units: `systemctl start glm53.target`.",
        )


def require_startable(config: Config) -> None:
    """Refuse at once what a rank would wait for: somebody sits in front of this."""
    for rank in range(config.world_size):
        for finding in check_start(config, rank):
            raise UserError(finding.code, finding.message, finding.fix)
