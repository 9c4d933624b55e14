"""What is done and read on this node before each start: kernels, free memory, the fabric's facts.

All nodes' facts are judged together, on the head: two halves of a fabric that do not match hang
without a word. So a waiting rank looks again every few seconds and tells the others, and no epoch
begins on facts that are older than the epoch before it.
"""

import asyncio
import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address

from glm53ctl.checks.start import check_fabric, short_of_free_memory
from glm53ctl.config.schema import Config
from glm53ctl.facts.host import known
from glm53ctl.facts.node import NodeFacts, probe_fabric
from glm53ctl.findings import Finding
from glm53ctl.prepare import request_reclaim
from glm53ctl.supervise.selfcheck import check_kernels, is_wanted

log = logging.getLogger("glm53ctl")

AGAIN_SECONDS = 5.0
"""How often a waiting node looks again."""
RECLAIM_SECONDS = 60.0
"""How long the page cache may take to become free memory; then the start is tried without."""
POLL_SECONDS = 0.5


@dataclass
class Survey:
    """The facts of this node for the coming start."""

    rank: int
    facts: NodeFacts | None = None
    fault: Finding | None = None
    """Why the engine of this node must not serve."""
    outlook: tuple[Finding, ...] = ()
    """What stands between this node and peers that have not come."""
    _verified: str | None = None
    _taken_at: float = -math.inf
    _looked_at: float = -math.inf
    _has_room: bool = False

    @property
    def has_looked(self) -> bool:
        """Whether this node was looked at for the coming start."""
        return self._taken_at > -math.inf

    def is_due(self, far: Sequence[IPv4Address]) -> bool:
        """Say whether it is time to look (again), or a rail of the others was not asked yet."""
        network = known(self.facts.network) if self.facts is not None else None
        met = network is None or network.asked(far)
        return not met or time.monotonic() - self._taken_at >= AGAIN_SECONDS

    async def look_out(self, config: Config) -> None:
        """Look whether it is the cable that peers have not come, where it is time."""
        if time.monotonic() - self._looked_at < AGAIN_SECONDS:
            return
        seen = await asyncio.to_thread(probe_fabric, config, self.rank)
        self.outlook = tuple(check_fabric(config, [seen]))
        self._looked_at = time.monotonic()

    async def take(self, config: Config, far: Sequence[IPv4Address] = ()) -> None:
        """Check the kernels once, make room in memory before each start, and read the facts.

        `far` are the addresses of the other nodes' rails, as far as they are known.
        """
        prefix = config.engine.prefix
        if is_wanted(config) and config.engine.verify_overlay and self._verified != prefix:
            self.fault = await check_kernels(config, self.rank)
            told = self.fault is None or self.fault.code != "OVERLAY_UNKNOWN"
            self._verified = prefix if told else None
        if not self._has_room:
            await _make_room(config)
            self._has_room = True
        if config.spans_hosts:
            self.facts = await asyncio.to_thread(probe_fabric, config, self.rank, far)
        self.outlook = ()
        self._taken_at = time.monotonic()

    def verify_again(self) -> None:
        """Forget what was found of the kernels, and look before the next start: somebody has."""
        self.fault = self._verified = None
        self.facts, self._taken_at = None, -math.inf

    def forget(self) -> None:
        """Begin anew: an epoch is based on what was known."""
        self.facts, self._taken_at, self._has_room = None, -math.inf, False


async def _make_room(config: Config) -> None:
    """Have the page cache dropped where it stands in the way, and wait for the memory."""
    if not short_of_free_memory(config):
        return
    try:
        request_reclaim(config)
    except OSError as error:
        log.warning("free memory cannot be asked for: %s", error.strerror)
        return
    limit = time.monotonic() + RECLAIM_SECONDS
    while short_of_free_memory(config) and time.monotonic() < limit:
        await asyncio.sleep(POLL_SECONDS)
