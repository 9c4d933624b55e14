"""The few lines of a long log that can matter, found fast and in order.

A log of 100 MB holds a few hundred of them. Looking for fixed texts in large pieces costs a
fraction of looking at every line; only lines that hold one are ever decoded.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Protocol

PIECE = 1 << 17
"""What is searched at a time, in bytes: it stays in the processor's cache."""
LONGEST_LINE = 8192
"""What is kept of a line, in bytes."""
ENOUGH = 500
"""Lines with the same text after which it is no longer looked for: a flood says nothing new."""


class Readable(Protocol):
    """What bytes can be read from."""

    def read(self, size: int = -1, /) -> bytes:
        """Read up to `size` bytes; none at the end."""


def telling(
    stream: Readable, literals: Collection[bytes], always: Collection[bytes] = ()
) -> Iterator[str]:
    """Yield the lines that hold one of `literals`, in order, as text.

    Those of `always` are looked for to the end. Memory stays flat whatever the stream holds.
    """
    seen: Counter[bytes] = Counter()
    wanted = {*literals, *always}
    rest = b""
    while piece := stream.read(PIECE):
        piece = rest + piece.replace(b"\r", b"\n")
        cut = piece.rfind(b"\n") + 1
        rest = piece[cut:]
        if len(rest) > PIECE:  # no line at all: keep its beginning
            rest = rest[:LONGEST_LINE]
        yield from _lines_of(piece[:cut], wanted, seen)
        wanted -= {text for text, count in seen.items() if count >= ENOUGH and text not in always}
    yield from _lines_of(rest, wanted, seen)


def _lines_of(piece: bytes, wanted: Iterable[bytes], seen: Counter[bytes]) -> Iterator[str]:
    spans = set()
    for text in wanted:
        at = piece.find(text)
        while at >= 0:
            seen[text] += 1
            start = piece.rfind(b"\n", 0, at) + 1
            end = piece.find(b"\n", at)
            end = len(piece) if end < 0 else end
            spans.add((start, end))
            at = piece.find(text, end)
    for start, end in sorted(spans):
        yield piece[start : min(end, start + LONGEST_LINE)].decode("utf-8", errors="replace")
