"""A fake OpenAI server for measuring clients: it writes tokens as fast as it can, or at a pace.

There is no model behind it, and it says so in its Server header. It runs as a process of its own,
so that it does not share an interpreter with the client:

    python fast_server.py [--pace SECONDS] [--text TEXT] [--context WORDS] [--whole] [--key KEY]

prints its port. Tokens a request are its max_tokens; a prompt has as many as it has words. A prompt
that begins as an earlier one did counts as cached as far as that goes. Prompts beyond --context are
refused, and who does not name the --key; with --whole an answer is one write.
"""

import argparse
import asyncio
import json
import re
import sys
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from subprocess import PIPE, Popen

HEAD = b"HTTP/1.1 200 OK\r\nServer: fake-fast\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s"
REFUSAL = b"HTTP/1.1 400 Bad Request\r\nServer: fake-fast\r\nContent-Length: %d\r\n\r\n%s"
STREAM = (
    b"HTTP/1.1 200 OK\r\nServer: fake-fast\r\nContent-Type: text/event-stream\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
DATA = re.compile(rb"data: .*")
METRICS = """\
# TYPE vllm:spec_decode_num_drafts counter
vllm:spec_decode_num_drafts_total{{engine="0"}} {drafts}
# TYPE vllm:spec_decode_num_accepted_tokens counter
vllm:spec_decode_num_accepted_tokens_total{{engine="0"}} {accepted}
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos counter
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="0"}} {first}
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="1"}} {second}
# TYPE vllm:prefix_cache_hits counter
vllm:prefix_cache_hits_total{{engine="0"}} {hits}
"""


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(content: dict) -> bytes:
    return chunk(b"data: " + json.dumps(content).encode() + b"\n\n")


def delta(**said: str) -> bytes:
    return event({"choices": [{"index": 0, "delta": said, "finish_reason": None}]})


class Fake:
    """Answers on every connection until it is closed."""

    def __init__(self, pace: float, text: str, context: int, whole: bool, key: str) -> None:
        self.pace, self.text, self.context, self.whole = pace, text, context, whole
        self.key = key
        self.drafts = self.hits = 0
        self.seen: list[list[str]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                path = head.split(" ", 2)[1]
                length = next(
                    (int(v) for k, _, v in (line.partition(":") for line in head.split("\r\n"))
                     if k.lower() == "content-length"), 0,
                )  # fmt: skip
                body = await reader.readexactly(length)
                if self.key and f"Bearer {self.key}" not in head:
                    writer.write(REFUSAL % (0, b""))
                elif path == "/v1/chat/completions":
                    await self.stream(writer, json.loads(body))
                else:
                    kind, said = self.plain(path)
                    writer.write(HEAD % (kind, len(said), said))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def plain(self, path: str) -> tuple[bytes, bytes]:
        if path == "/metrics":
            n = self.drafts
            said = METRICS.format(
                drafts=n, accepted=n * 1.5, first=n * 0.9, second=n * 0.6, hits=self.hits
            )
            return b"text/plain", said.encode()
        data = {"version": "0.0.fake"} if path == "/version" else {"data": [{"id": "fake"}]}
        return b"application/json", json.dumps(data).encode()

    def cached(self, words: list[str]) -> int:
        def alike(old: list[str]) -> int:
            pairs = zip(words, old, strict=False)
            return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

        same = max(map(alike, self.seen), default=0)
        self.seen.append(words)
        return min(same, len(words) - 1)

    async def stream(self, writer: asyncio.StreamWriter, body: dict) -> None:
        words = body["messages"][0]["content"].split()
        if len(words) > self.context:
            said = json.dumps({"error": {"message": f"maximum context length is {self.context}"}})
            writer.write(REFUSAL % (len(said), said.encode()))
            return
        cached = self.cached(words)
        del self.seen[:-20]
        self.hits += cached
        self.drafts += body["max_tokens"]
        begin = STREAM + delta(role="assistant", content="")
        if self.text:
            tokens = [delta(content=self.text)] + [delta(content=" .")] * (body["max_tokens"] - 1)
        else:
            tokens = [delta(content=f" {n}") for n in range(body["max_tokens"])]
        usage = {"prompt_tokens": len(words), "completion_tokens": len(tokens)}
        end = event({"choices": [], "usage": usage}) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
        if self.whole:
            said = b"".join(line + b"\n\n" for line in DATA.findall(b"".join([*tokens, end])))
            writer.write(HEAD % (b"text/event-stream", len(said), said))
            return
        writer.write(begin)
        for token in tokens:
            writer.write(token)
            if self.pace:
                await asyncio.sleep(self.pace)
            await writer.drain()
        writer.write(end)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pace", type=float, default=0.0)
    parser.add_argument("--text", default="")
    parser.add_argument("--context", type=int, default=1_000_000)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--key", default="")
    said = parser.parse_args()
    fake = Fake(said.pace, said.text, said.context, said.whole, said.key)
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def running(*options: str):
    """Run the server and yield its address."""
    process = Popen([sys.executable, Path(__file__), *options], stdout=PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


if __name__ == "__main__":
    asyncio.run(main())
