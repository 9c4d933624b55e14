"""A stand-in for `vllm serve`: the same words in the log, the same routes, no model.

It exists so that the supervisor's decisions can be tested in seconds; the real engine goes through
the same supervisor in tests/engine. `behaviour.json` in the model directory says, for each rank,
what goes wrong: {"0": {"hang_at": "load"}}.
"""

import json
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

STAGES = {
    "boot": "INFO non-default args",
    "rendezvous": "INFO world_size=2 rank={rank} local_rank=0 distributed_init_method=tcp://x:1",
    "nccl": "INFO rank {rank} in world size 2 is assigned as DP rank 0",
    "load": "INFO Starting to load model x...",
    "kv": "INFO Loading weights took 0.01 seconds",
    "graphs": "INFO GPU KV cache size: 4,096 tokens",
    "api": "INFO init engine (profile, create kv cache, warmup model) took 0.01 s",
    "canary": "INFO:     Application startup complete.",
}
WORKER_STAGES = ("boot", "rendezvous", "nccl", "load", "kv")


def option(name: str, default: str = "") -> str:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


RANK = int(option("--node-rank"))
MODEL = Path(sys.argv[2])


def behaviour() -> dict:
    return json.loads((MODEL / "behaviour.json").read_text()).get(str(RANK), {})


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # a connection is kept, as vLLM's server does

    def log_message(self, *_):
        pass

    def reply(self, text: str, kind: str = "application/json") -> None:
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/v1/models":
            self.reply(json.dumps({"data": [{"id": behaviour().get("model", "glm")}]}))
        elif self.path == "/metrics":
            samples = {"vllm:num_requests_running": 0} | behaviour().get("metrics", {})
            self.reply("".join(f"{k} {v}\n" for k, v in samples.items()), "text/plain")
        elif self.path == "/load":
            self.reply(json.dumps({"server_load": behaviour().get("load", 0)}))
        else:
            self.reply("")

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        message = {"role": "assistant", "content": behaviour().get("answer", "OK.")}
        self.reply(json.dumps({"choices": [{"message": message}]}))


def main() -> None:
    print("env", json.dumps({k: v for k, v in os.environ.items() if k.startswith("VLLM")}))
    wrong = behaviour()
    for stage in STAGES if RANK == 0 else WORKER_STAGES:
        if wrong.get("crash_at") == stage:
            print(wrong.get("last_words", ""), flush=True)
            sys.exit(wrong.get("exit_code", 0))
        if wrong.get("hang_at") == stage:
            time.sleep(1000)
        if stage == "canary":
            address = (option("--host"), int(option("--port")))
            server = ThreadingHTTPServer(address, Handler)
        print(STAGES[stage].format(rank=RANK), flush=True)

    def drain(*_):
        print("drained", flush=True)
        os._exit(0)

    signal.signal(signal.SIGTERM, drain)
    if RANK == 0:
        server.serve_forever()
    time.sleep(1000)


main()
