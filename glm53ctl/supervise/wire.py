"""Authenticated lines: what goes over the pair link, and how it is told from a stranger's.

Both nodes know one secret. Each connection begins with a nonce from both sides; the key of the
connection is derived from secret and nonces, and every message carries its number and a MAC made
with it. So the secret never travels, and a recorded or injected message is refused. Contents are
not encrypted: states, counters, facts of a node, the settings that both share and, with a loss, the
last lines of an engine's log, on a cable between two machines.
"""

import asyncio
import hashlib
import hmac
import json
import secrets
import uuid
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from glm53ctl.config.switched import Switched
from glm53ctl.facts.node import NodeFacts
from glm53ctl.supervise.identity import Identity
from glm53ctl.supervise.report import Loss, RankReport, Trial

PROTOCOL = "glm53-link/1"
MAX_LINE_BYTES = 1 << 20
_NONCE_BYTES = 32


class Introduce(BaseModel):
    """First message of both sides: who it is, its settings of one run, and its switch."""

    type: Literal["introduce"] = "introduce"
    identity: Identity
    overrides: tuple[str, ...] = ()
    switched: Switched = Switched()


class Beat(BaseModel):
    """I am alive, and this is how I am."""

    type: Literal["beat"] = "beat"
    report: RankReport


class Facts(BaseModel):
    """Either way: what the fabric looks like from here, for the coming start."""

    type: Literal["facts"] = "facts"
    facts: NodeFacts


class Launch(BaseModel):
    """Head to worker: start your engine for this epoch, on these facts of all nodes by rank."""

    type: Literal["launch"] = "launch"
    epoch: int
    facts: tuple[NodeFacts, ...] = ()


class Ready(BaseModel):
    """Head to worker: the pair has answered."""

    type: Literal["ready"] = "ready"
    epoch: int


class End(BaseModel):
    """Either way: the epoch is over, for this cause."""

    type: Literal["end"] = "end"
    loss: Loss


class Command(BaseModel):
    """An operator's wish. A worker passes it to the head; the head tells everybody.

    A restart with `switched` changes the profile first; with `trial` (to the head) it is taken back
    unless it proves itself. `keep` and `undo` decide that, for the trial of the same id. One that
    `follows` the head is no operator's: nobody has looked at anything. The `id` stays with an order
    on all its ways: it may come more than once, and holds once.
    """

    type: Literal["command"] = "command"
    id: str = Field(default_factory=lambda: uuid.uuid4().hex)
    action: Literal["stop", "restart", "resume", "keep", "undo"]
    overrides: tuple[str, ...] = ()
    switched: Switched | None = None
    trial: Trial | None = None
    reason: str = ""
    follows: bool = False


class Taken(BaseModel):
    """Either way: the order with this id has arrived; until then it is said again."""

    type: Literal["taken"] = "taken"
    id: str


class Leave(BaseModel):
    """The sender ends on command; the closed connection that follows is no crash.

    One that `returns` only reads its configuration anew.
    """

    type: Literal["leave"] = "leave"
    returns: bool = False


Message = Introduce | Beat | Facts | Launch | Ready | End | Command | Taken | Leave
_ENVELOPE = TypeAdapter(tuple[str, str])
"""A line: the MAC and the text it is for."""
_MESSAGE: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="type")])


class LinkDeniedError(Exception):
    """The other side does not know the secret, or does not speak this protocol."""


@dataclass
class Channel:
    """One connection after its nonces were exchanged: messages in both directions."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    key: bytes
    speaks_first: bool
    sent: int = 0
    received: int = 0

    async def send(self, message: Message) -> None:
        """Send one message. Raises ConnectionError when the connection is gone."""
        body = message.model_dump_json()
        mac = self._mac(self.speaks_first, self.sent, body)
        self.sent += 1
        self.writer.write(json.dumps([mac, body]).encode() + b"\n")
        await self.writer.drain()

    async def receive(self) -> Message:
        """Return the next message; ConnectionError at the end, LinkDeniedError for a forgery."""
        mac, body = _decode(await _line(self.reader))
        expected = self._mac(not self.speaks_first, self.received, body)
        if not hmac.compare_digest(mac, expected):
            raise LinkDeniedError("the other node uses another pair token")
        self.received += 1
        try:
            return _MESSAGE.validate_json(body)
        except ValidationError as error:
            raise LinkDeniedError(f"the other node speaks another version: {error}") from error

    def _mac(self, from_first: bool, number: int, body: str) -> str:
        """MAC over direction, number and text, so that nothing can be replayed or reflected."""
        text = f"{int(from_first)}:{number}:{body}".encode()
        return hmac.new(self.key, text, hashlib.sha256).hexdigest()

    def close(self) -> None:
        """Close at once; what was not sent is dropped."""
        self.writer.close()


async def open_channel(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: bytes, *, speaks_first: bool
) -> Channel:
    """Exchange nonces on a fresh connection; the side that connected speaks first."""
    ours = secrets.token_hex(_NONCE_BYTES)
    writer.write(f"{PROTOCOL} {ours}\n".encode())
    await writer.drain()
    protocol, _, theirs = (await _line(reader)).decode("ascii", "replace").strip().partition(" ")
    if protocol != PROTOCOL or len(theirs) != 2 * _NONCE_BYTES:
        raise LinkDeniedError(f"the other side speaks {protocol[:20]!r}, not {PROTOCOL!r}")
    first, second = (ours, theirs) if speaks_first else (theirs, ours)
    key = hmac.new(token, f"{PROTOCOL} {first} {second}".encode(), hashlib.sha256).digest()
    return Channel(reader, writer, key, speaks_first)


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        line = await reader.readline()
    except ValueError as error:  # longer than the reader's limit
        raise LinkDeniedError("the other side sent a line that is too long") from error
    if not line.endswith(b"\n"):
        raise ConnectionError("the other side closed the connection")
    return line


def _decode(line: bytes) -> tuple[str, str]:
    try:
        return _ENVELOPE.validate_json(line)
    except ValidationError as error:
        raise LinkDeniedError("the other side sent something that is no message") from error
