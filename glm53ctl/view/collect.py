"""Gathers the view on one host: the supervisors, the engine's metrics, sensors, and the records.

Nothing is read while nobody looks: rates and percentiles reach from one look to the next.
"""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from glm53ctl.api import authorization
from glm53ctl.bench import ledger
from glm53ctl.bench.result import Result
from glm53ctl.config.schema import Config
from glm53ctl.errors import UserError
from glm53ctl.facts.host import HERE, Host, Unknown
from glm53ctl.facts.memory import probe_memory
from glm53ctl.facts.network import device_of
from glm53ctl.facts.nvml import GpuFacts, probe_gpus
from glm53ctl.facts.rails import probe_rails
from glm53ctl.plan import read_secret
from glm53ctl.plan.ranks import api_key, base_url
from glm53ctl.status.snapshot import Snapshot, gather
from glm53ctl.supervise import control
from glm53ctl.supervise.ledger import Incident, read_incidents
from glm53ctl.supervise.report import Phase, RankReport
from glm53ctl.view.engine import History, heard, read
from glm53ctl.view.model import EngineView, NodeView, PairView
from glm53ctl.view.node import NodeHistory, NodeReading, elsewhere

FRESH_SECONDS = 1.0
"""Who asks again within this time gets the same view: ten open pages cost what one does."""
ENGINE_SECONDS = 2.0
"""How long the engine may take to tell its metrics."""


def _client() -> httpx.Client:
    """Return a client that lasts: making one loads certificates, which takes longer than asking."""
    return httpx.Client(timeout=ENGINE_SECONDS, trust_env=False)


@dataclass
class Gatherer:
    """Makes views for whoever looks; safe to call from several threads.

    `load` returns the configuration that holds now. `host` and `gpus` are where facts come from.
    """

    load: Callable[[], Config]
    host: Host = HERE
    gpus: Callable[[], tuple[GpuFacts, ...] | Unknown] = probe_gpus
    _engine: History = field(default_factory=History)
    _node: NodeHistory = field(default_factory=NodeHistory)
    _view: PairView | None = None
    _at: float = 0.0
    _bench: tuple[tuple[int, int], Result | None] = ((0, 0), None)
    _client: httpx.Client = field(default_factory=_client)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def view(self) -> PairView:
        """Return the pair as it is now. Takes milliseconds; up to 2 s when the engine is slow.

        Raises UserError when the configuration or the control sockets cannot be read.
        """
        with self._lock:
            if self._view is None or time.monotonic() - self._at >= FRESH_SECONDS:
                self._view = self._gather(self.load())
                self._at = time.monotonic()
            return self._view

    def _gather(self, config: Config) -> PairView:
        snapshot = gather(config)
        here = tuple(rank for rank in range(config.world_size) if _is_here(config, rank))
        engine, why = self._engine_view(config, snapshot, head_is_here=0 in here)
        return PairView(
            at=time.time(),
            snapshot=snapshot,
            engine=engine,
            engine_unknown=why,
            nodes=self._nodes(config, snapshot, here),
            incidents=_incidents(config),
            bench=self._last_bench(config),
        )

    # --- the engine -----------------------------------------------------------------------------

    def _engine_view(
        self, config: Config, snapshot: Snapshot, *, head_is_here: bool
    ) -> tuple[EngineView | None, str]:
        """Return the engine, or why there is nothing to say about it."""
        head = _report(snapshot, 0)
        if not head_is_here:
            if head is not None and head.counters is not None:
                return heard(head.counters), ""
            return None, "the head, which serves the API, says nothing of its engine"
        if head is None or head.engine.pid is None:
            self._engine.forget()
            return None, "no engine runs on the head"
        try:
            self._engine.add(read(self._metrics(config), time.monotonic()))
        except (httpx.HTTPError, ValueError, UserError) as error:
            if head.phase is Phase.STARTING:
                return None, "the engine is starting"
            return None, f"the engine does not tell its metrics ({error or type(error).__name__})"
        return self._engine.view(config.effective_spec_method), ""

    def _metrics(self, config: Config) -> str:
        """Fetch the engine's exposition, which the pair's API guards with its key."""
        headers = authorization(read_secret(api_key(config), os.environ))
        answer = self._client.get(f"{base_url(config)}/metrics", headers=headers)
        return answer.raise_for_status().text

    # --- the machines ---------------------------------------------------------------------------

    def _nodes(
        self, config: Config, snapshot: Snapshot, here: tuple[int, ...]
    ) -> tuple[NodeView, ...]:
        if here:
            reading = NodeReading(
                at=time.monotonic(),
                memory=probe_memory(self.host),
                gpus=self.gpus(),
                rails=probe_rails(config.nodes[here[0]].address, self.host),
            )
            self._node.add(reading)
        return tuple(
            self._one(config, snapshot, rank, rank in here) for rank in range(len(config.nodes))
        )

    def _one(self, config: Config, snapshot: Snapshot, rank: int, is_here: bool) -> NodeView:
        name, floor = config.nodes[rank].name, config.memory.floor_gib
        if is_here:
            return self._node.view(rank, name, floor)
        report = _report(snapshot, rank)
        return elsewhere(rank, name, None if report is None else report.memory_available_gib, floor)

    # --- the records ----------------------------------------------------------------------------

    def _last_bench(self, config: Config) -> Result | None:
        """Return the newest result; the ledger is read again only when it has changed."""
        path = Path(config.paths.state_dir) / ledger.NAME
        try:
            status = path.stat()
            mark = (status.st_mtime_ns, status.st_size)
            if mark != self._bench[0]:
                self._bench = mark, next(reversed(ledger.read(path)), None)
        except (OSError, UserError):
            return None
        return self._bench[1]


def _is_here(config: Config, rank: int) -> bool:
    """Say whether this is the host of a rank: by its address, or by its supervisor's socket."""
    address = config.nodes[rank].address
    if address.is_loopback or control.socket_path(Path(config.paths.run_dir), rank).exists():
        return True
    try:
        return device_of(address) is not None
    except OSError:  # a sandbox in which addresses cannot be listed
        return False


def _report(snapshot: Snapshot, rank: int) -> RankReport | None:
    return next((report for report in snapshot.ranks if report.rank == rank), None)


def _incidents(config: Config) -> tuple[Incident, ...]:
    """Return them newest first; ranks of one host share the record, and each writes every loss."""
    newest = reversed(read_incidents(Path(config.paths.state_dir)))
    return tuple({(i.at, i.code, i.rank, i.epoch): i for i in newest}.values())
