"""How fast the bench's client is itself: against a fake server that writes as fast as it can.

Prints one JSON line: tokens/s that the client takes from one stream and from 200 at once. Both
programs share the machine, so each is a lower bound. `python tests/bench/client.py [TOKENS]`
"""

import asyncio
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "unit/bench"))
from fast_server import running

from glm53ctl.bench.client import Server, ask


async def rate(url: str, streams: int, tokens: int) -> float:
    """Tokens/s of all streams, from the first question to the last token, reading included."""
    async with Server(url, "fake").client() as client:
        await asyncio.gather(*(ask(client, "warm", 2) for _ in range(streams)))
        began = time.monotonic()
        asked = (ask(client, "count", tokens) for _ in range(streams))
        answers = await asyncio.gather(*asked)
        seconds = time.monotonic() - began
    assert all(answer.tokens == tokens == len(answer.arrivals) for answer in answers)
    return streams * tokens / seconds


def main(tokens: int) -> None:
    """Measure three times each and print the medians."""
    found = {}
    with running() as url:
        for streams in (1, 200):
            each = tokens if streams == 1 else max(tokens // streams, 50)
            rates = sorted(asyncio.run(rate(url, streams, each)) for _ in range(3))
            found[f"streams_{streams}"] = round(rates[1])
    print(json.dumps(found | {"unit": "tok/s"}))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40_000)
