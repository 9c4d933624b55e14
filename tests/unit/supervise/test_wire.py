"""The authenticated lines: what a stranger, a replay or a reflection gets."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glm53ctl.supervise.wire import (
    Channel,
    Launch,
    LinkDeniedError,
    Ready,
    open_channel,
)

TOKEN = b"secret" * 6


class Pipe:
    """A writer that feeds the other side's reader, and keeps what went over it."""

    def __init__(self) -> None:
        self.reader = asyncio.StreamReader()
        self.lines: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.lines.append(data)
        self.reader.feed_data(data)

    async def drain(self) -> None: ...

    def close(self) -> None:
        self.reader.feed_eof()


async def channels(first=TOKEN, second=TOKEN):
    there, back = Pipe(), Pipe()
    made = await asyncio.gather(
        open_channel(back.reader, there, first, speaks_first=True),
        open_channel(there.reader, back, second, speaks_first=False),
    )
    return *made, there, back


def test_what_is_sent_arrives_in_both_directions():
    async def scenario():
        one, two, *_ = await channels()
        await one.send(Launch(epoch=1))
        await two.send(Ready(epoch=1))
        assert await two.receive() == Launch(epoch=1)
        assert await one.receive() == Ready(epoch=1)

    asyncio.run(scenario())


def test_the_secret_never_travels():
    async def scenario():
        one, _two, there, back = await channels()
        await one.send(Launch(epoch=1))
        assert not any(TOKEN in line for line in there.lines + back.lines)

    asyncio.run(scenario())


def test_another_secret_is_refused():
    async def scenario():
        one, two, *_ = await channels(second=b"another")
        await one.send(Launch(epoch=1))
        with pytest.raises(LinkDeniedError, match="another pair token"):
            await two.receive()

    asyncio.run(scenario())


@pytest.mark.parametrize("forgery", ["replayed", "reflected", "altered"])
def test_a_forged_line_is_refused(forgery):
    async def scenario():
        one, two, there, back = await channels()
        await one.send(Launch(epoch=1))
        await two.receive()
        line = there.lines[-1]
        if forgery == "replayed":
            there.write(line)
            receiver = two
        elif forgery == "reflected":
            back.write(line)
            receiver = one
        else:
            await one.send(Launch(epoch=2))
            mac, body = json.loads(there.lines[-1])
            there.reader._buffer.clear()
            there.write(json.dumps([mac, body.replace("2", "3")]).encode() + b"\n")
            receiver = two
        with pytest.raises(LinkDeniedError):
            await receiver.receive()

    asyncio.run(scenario())


@given(st.binary(max_size=200))
def test_no_bytes_whatsoever_end_in_anything_but_a_refusal(data):
    async def scenario():
        reader = asyncio.StreamReader()
        reader.feed_data(data + b"\n")
        reader.feed_eof()
        channel = Channel(reader, Pipe(), b"k", speaks_first=True)
        with pytest.raises((LinkDeniedError, ConnectionError)):
            await channel.receive()

    asyncio.run(scenario())


def test_a_stranger_s_greeting_is_refused():
    async def scenario():
        reader = asyncio.StreamReader()
        reader.feed_data(b"SSH-2.0-OpenSSH_9.2\r\n")
        with pytest.raises(LinkDeniedError, match="SSH-2"):
            await open_channel(reader, Pipe(), TOKEN, speaks_first=False)

    asyncio.run(scenario())
