"""The pair link: supervisors find each other, say who they are, and notice when one is gone.

The head listens on its fabric address, every other rank connects to it. A connection that closes
means a dead supervisor (the kernel closes it for the dead); silence on an open one means a cable,
a switch or a host without power. The two have different patience: see `config.schema.Link`.
"""

import asyncio
import contextlib
import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from glm53ctl.config.schema import Config
from glm53ctl.config.schema import Link as LinkRules
from glm53ctl.config.switched import Switched
from glm53ctl.facts.node import NodeFacts
from glm53ctl.findings import Finding, Severity
from glm53ctl.supervise.identity import Identity, mismatches
from glm53ctl.supervise.pace import pause
from glm53ctl.supervise.post import Post
from glm53ctl.supervise.report import PeerView, RankReport
from glm53ctl.supervise.wire import (
    MAX_LINE_BYTES,
    Beat,
    Channel,
    Command,
    Facts,
    Introduce,
    Leave,
    LinkDeniedError,
    Message,
    Taken,
    open_channel,
)

HANDSHAKE_SECONDS = 5.0
RETRY_SECONDS = 0.3
SEND_SECONDS = 1.0
RECONNECT_AFTER_SECONDS = 3.0
"""Silence after which a worker opens a fresh connection: TCP's own retries back off for longer."""
REFUSAL_SECONDS = 10.0
"""How long a refusal tells how things are: who still does not fit calls again much sooner."""
READ_SECONDS = 0.1
"""How long reading what has come already may take."""


@dataclass
class Peer:
    """One other rank: what is known of it, and since when it has been quiet."""

    rank: int
    post: Post = field(default_factory=Post)
    channel: Channel | None = None
    identity: Identity | None = None
    report: RankReport | None = None
    facts: NodeFacts | None = None
    refusal: tuple[Finding, ...] = ()
    refused_at: float = -math.inf
    heard_at: float = 0.0
    closed_at: float | None = None
    left: bool = False

    @property
    def connected(self) -> bool:
        """Whether there is an accepted connection (it may still be silent)."""
        return self.channel is not None

    def adopt(self, channel: Channel, identity: Identity, now: float) -> None:
        """Take a fresh connection of a peer that fits; an older one is superseded."""
        if self.channel is not None:
            self.channel.close()
        self.channel, self.identity, self.heard_at = channel, identity, now
        self.post.meet(identity.run_id, now)
        self.refusal, self.closed_at, self.left, self.facts = (), None, False, None

    def refuse(self, problems: Sequence[Finding], now: float) -> None:
        """Note why a connection of this peer was not taken."""
        self.refusal, self.refused_at = tuple(problems), now

    def refusals(self, now: float) -> tuple[Finding, ...]:
        """Return why the peer is refused; nothing once it calls no more."""
        return self.refusal if now - self.refused_at < REFUSAL_SECONDS else ()

    def lost(self, rules: LinkRules, run_id: str, now: float) -> str | None:
        """Say why the peer that began an epoch as `run_id` counts as lost, or None."""
        if self.identity is None or self.identity.run_id != run_id:
            return "its supervisor started anew"
        if self.closed_at is not None and now - self.closed_at >= rules.closed_grace_seconds:
            return "it was stopped" if self.left else "its supervisor is gone"
        if now - self.heard_at > rules.silence_grace_seconds:
            return f"nothing was heard of it for {now - self.heard_at:.0f} s"
        return None

    def view(self, now: float) -> PeerView:
        """Return the peer as `status` shows it."""
        if self.refusals(now):
            state = "refused"
        elif self.identity is None:
            state = "absent"
        elif self.channel is None:
            state = "closed"
        else:
            state = "silent" if now - self.heard_at > RECONNECT_AFTER_SECONDS else "connected"
        silent = now - self.heard_at if self.identity is not None else 0.0
        return PeerView(state=state, silent_seconds=round(silent, 1), report=self.report)


@dataclass
class PairLink:
    """The link of one rank to the others: a hub on the head, a spoke elsewhere.

    `report` is called for every beat; messages other than beats arrive in `inbox` as
    (rank, message); `changed` is set whenever anything happens. `overrides` are the settings of
    this run, `switched` what the profile was switched to: the head's hold for all. `posts` are
    those of the link before this one.
    """

    config: Config
    rank: int
    token: bytes
    identity: Identity
    report: Callable[[], RankReport]
    changed: asyncio.Event
    overrides: tuple[str, ...] = ()
    switched: Switched = field(default_factory=Switched)
    posts: defaultdict[int, Post] = field(default_factory=lambda: defaultdict(Post))
    inbox: asyncio.Queue[tuple[int, Message]] = field(default_factory=asyncio.Queue)
    peers: dict[int, Peer] = field(init=False)
    stranger: Finding | None = None
    stranger_at: float = -math.inf
    is_open: bool = False
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _server: asyncio.Server | None = None

    def __post_init__(self) -> None:
        others = range(1, self.config.world_size) if self.rank == 0 else (0,)
        self.peers = {rank: Peer(rank, self.posts[rank]) for rank in others}

    async def open(self) -> None:
        """Start listening (head) or connecting (others). Raises OSError if the port is taken."""
        if self.rank != 0:
            self._own(asyncio.create_task(self._connect()))
        elif self.peers:
            self._server = await asyncio.start_server(
                self._accept,
                str(self.config.head.address),
                self.config.fabric.link_port,
                limit=MAX_LINE_BYTES,
            )
        self.is_open = True

    async def close(self, *, returns: bool = False) -> None:
        """Say goodbye, and whether it is for a moment only, and close everything."""
        self.is_open = False
        await self.broadcast(Leave(returns=returns))
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for peer in self.peers.values():
            if peer.channel is not None:
                peer.channel.close()

    @property
    def complete(self) -> bool:
        """Whether every other rank that this one talks to is connected and fits."""
        return all(peer.connected for peer in self.peers.values())

    def refusals(self, now: float) -> tuple[Finding, ...]:
        """Return why connections are refused now; a stranger's only while a peer is missing."""
        found = [f for peer in self.peers.values() for f in peer.refusals(now)]
        recent = now - self.stranger_at < REFUSAL_SECONDS
        if self.stranger is not None and recent and not self.complete:
            found.insert(0, self.stranger)
        return tuple(found)

    async def order(self, command: Command) -> None:
        """Send an order that must not be lost: it is said again until it is confirmed."""
        for peer in self.peers.values():
            peer.post.owed[command.id] = command
        await self.broadcast(command)

    def in_reach(self) -> bool:
        """Say whether all others will hear an order, even if the link is just being made anew."""
        now = time.monotonic()
        return all(peer.post.in_reach(now) for peer in self.peers.values())

    def is_owing(self) -> bool:
        """Say whether somebody in reach has yet to confirm an order, and can over this link."""
        now = time.monotonic()
        return self.is_open and any(
            peer.post.owed and peer.post.in_reach(now) for peer in self.peers.values()
        )

    def take_back(self) -> list[Command]:
        """Return the orders that nobody confirmed and nobody will: they are owed no longer."""
        now = time.monotonic()
        found: list[Command] = []
        for peer in self.peers.values():
            if not peer.post.in_reach(now):
                found += peer.post.owed.values()
                peer.post.owed.clear()
        return found

    async def broadcast(self, message: Message, said: dict[int, Channel] | None = None) -> None:
        """Send to every connected peer; one that does not take it in time is left to its fate.

        With `said`, it is sent over connections that are not in there, and they are noted.
        """
        said = {} if said is None else said
        for rank, peer in self.peers.items():
            if peer.channel is not None and said.get(rank) is not peer.channel:
                said[rank] = peer.channel
                with contextlib.suppress(ConnectionError, TimeoutError):
                    async with asyncio.timeout(SEND_SECONDS):
                        await peer.channel.send(message)

    def _own(self, task: "asyncio.Task[None] | None") -> None:
        """Keep a task so that `close` can end it."""
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one incoming connection (head)."""
        if not self.is_open:  # it came before `close`, which knows nothing of it: it comes again
            writer.close()
            return
        self._own(asyncio.current_task())
        origin = writer.get_extra_info("peername")
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                channel = await open_channel(reader, writer, self.token, speaks_first=False)
                peer = await self._welcome(channel)
            if peer is not None:
                await self._converse(peer, channel)
        except LinkDeniedError as error:
            self._deny(f"a connection from {origin[0]} was refused: {error}.")
        except (ConnectionError, TimeoutError):
            pass  # a stranger that went away; a peer comes back
        except asyncio.CancelledError:
            pass  # `close`; nobody awaits this task, and asyncio would log it as a failure
        finally:
            writer.close()
            self.changed.set()

    def _deny(self, message: str) -> None:
        """Note a stranger."""
        self.stranger_at = time.monotonic()
        self.stranger = Finding(
            code="PAIR_TOKEN",
            severity=Severity.FAIL,
            message=message,
            fix="Put the same pair token on both nodes.",
        )

    async def _welcome(self, channel: Channel) -> Peer | None:
        """Exchange identities (head): the worker first, so that strangers learn nothing."""
        try:
            theirs = await channel.receive()
        except LinkDeniedError:
            await channel.send(Leave())  # whose MAC tells the other side that the secrets differ
            raise
        if not isinstance(theirs, Introduce):
            raise LinkDeniedError("the other node did not introduce itself")
        await channel.send(self._introduction())
        return self._judge(channel, theirs.identity)

    def _introduction(self) -> Introduce:
        return Introduce(identity=self.identity, overrides=self.overrides, switched=self.switched)

    def _follow(self, head: Introduce) -> None:
        """Take over what a reboot of one node loses, or a node that was away did not hear of."""
        order = Command(
            action="restart", overrides=head.overrides, switched=head.switched, follows=True
        )
        self.inbox.put_nowait((head.identity.rank, order))

    def _judge(self, channel: Channel, theirs: Identity) -> Peer | None:
        """Adopt the connection if the two fit; else keep the reasons and return None."""
        problems = mismatches(self.identity, theirs)
        peer = self.peers.get(theirs.rank)
        if problems or peer is None:
            for known in (peer,) if peer is not None else self.peers.values():
                if not known.connected:
                    known.refuse(problems, time.monotonic())
            return None
        peer.adopt(channel, theirs, time.monotonic())
        self.stranger = None
        self.changed.set()
        return peer

    async def _connect(self) -> None:
        """Keep a connection to the head (every other rank)."""
        address, port = str(self.config.head.address), self.config.fabric.link_port
        peer = self.peers[0]
        while True:
            try:
                await self._attempt(peer, address, port)
            except ConnectionRefusedError:
                if peer.closed_at is None:  # the host lives, its supervisor does not
                    peer.closed_at = time.monotonic()
            except LinkDeniedError as error:
                self._deny(f"the head at {address}:{port} refused the link: {error}.")
            except (OSError, TimeoutError):
                pass  # silence, which the peer's own clock measures
            self.changed.set()
            await asyncio.sleep(RETRY_SECONDS)

    async def _attempt(self, peer: Peer, address: str, port: int) -> None:
        """Connect once, introduce, and talk until the connection ends."""
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            reader, writer = await asyncio.open_connection(address, port, limit=MAX_LINE_BYTES)
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                channel = await open_channel(reader, writer, self.token, speaks_first=True)
                await channel.send(self._introduction())
                theirs = await channel.receive()
            if not isinstance(theirs, Introduce):
                raise LinkDeniedError("the head did not introduce itself")
            if (theirs.overrides, theirs.switched) != (self.overrides, self.switched):
                self._follow(theirs)
            elif self._judge(channel, theirs.identity) is not None:
                await self._converse(peer, channel)
        finally:
            writer.close()

    async def _converse(self, peer: Peer, channel: Channel) -> None:
        """Beat and listen until the connection closes or is superseded."""
        beating = asyncio.create_task(self._beat(channel))
        try:
            for order in tuple(peer.post.owed.values()):
                await channel.send(order)
            while True:
                message = await self._next(channel)
                peer.heard_at, peer.closed_at = time.monotonic(), None
                peer.post.hear(message, peer.heard_at)
                self._take(peer, message)
                if isinstance(message, Command):
                    await channel.send(Taken(id=message.id))
        except ConnectionError:
            if peer.channel is channel:
                peer.closed_at = time.monotonic()
        finally:
            beating.cancel()
            if peer.channel is channel:
                peer.channel = None
            self.changed.set()

    async def _next(self, channel: Channel) -> Message:
        """Return the next message. Raises TimeoutError after too long a silence.

        Who was held up for that long itself finds its patience at an end and the words that came
        meanwhile at once: they are read first.
        """
        try:
            async with asyncio.timeout(self._patience()):
                return await channel.receive()
        except TimeoutError:
            async with asyncio.timeout(READ_SECONDS):
                return await channel.receive()

    def _patience(self) -> float:
        """Return after how much silence this side hangs up: soon where it can call again itself.

        The head does when the silence is a loss, and after its word for that: the peer is absent
        then, which TCP itself would notice a quarter of an hour later.
        """
        if self.rank != 0:
            return RECONNECT_AFTER_SECONDS
        return self.config.link.silence_grace_seconds + RECONNECT_AFTER_SECONDS

    def _take(self, peer: Peer, message: Message) -> None:
        if isinstance(message, Beat):
            news = peer.report is None or peer.report.phase != message.report.phase
            peer.report = message.report
            if news:
                self.changed.set()
            return
        if isinstance(message, Facts):
            peer.facts = message.facts
        if isinstance(message, Facts | Taken):
            self.changed.set()
            return
        peer.left = peer.left or isinstance(message, Leave)
        self.inbox.put_nowait((peer.rank, message))
        self.changed.set()

    async def _beat(self, channel: Channel) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                await channel.send(Beat(report=self.report()))
                await pause(self.config.link.beat_seconds)
