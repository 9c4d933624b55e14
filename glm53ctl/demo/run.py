"""The demo: two real vLLM ranks on this machine's CPU, with a tiny model, from nothing.

What it shows is the machinery, not the model: the weights are random and the answers are babble,
but each word of them went through both ranks.
"""

import hashlib
import json
import secrets
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

from glm53ctl.api import Question, stream_answer
from glm53ctl.config.schema import Config
from glm53ctl.config.sources import load
from glm53ctl.demo.model import make_model
from glm53ctl.errors import EXIT_NOT_READY, UserError
from glm53ctl.facts.ports import free_ports
from glm53ctl.plan import plan_rank
from glm53ctl.status.snapshot import Snapshot, gather
from glm53ctl.supervise.local import LocalPair, require_startable

PROMPT = "What keeps two ranks in step?"
ANSWER_TOKENS = 24
START_LIMIT_SECONDS = 300.0
POLL_SECONDS = 0.25

Watch = Callable[[Snapshot], None]


@dataclass(frozen=True)
class DemoFiles:
    """The files of one demo, all under one directory but for the sockets."""

    root: Path

    @property
    def config(self) -> Path:
        """The configuration of the pair."""
        return self.root / "config.yaml"

    @property
    def model(self) -> Path:
        """The checkpoint."""
        return self.root / "model"

    @property
    def canary(self) -> Path:
        """What one rank alone answered to the canary's prompt."""
        return self.root / "canary.json"

    @property
    def token(self) -> Path:
        """The pair token."""
        return self.root / "pair-token"

    @property
    def run_dir(self) -> Path:
        """Directory of the sockets; short, since the path of a socket has 108 bytes at most."""
        name = hashlib.sha256(str(self.root.resolve()).encode()).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"glm53-demo-{name}"


def prepare(
    files: DemoFiles, engine: Path, report: Callable[[str], object], watch: Watch
) -> Config:
    """Make what is missing: model, token, recorded answer, configuration. Return the latter.

    `report` gets a sentence before what takes long, `watch` every snapshot on the way.
    """
    files.root.mkdir(parents=True, exist_ok=True)
    digest = make_model(files.model)
    if not files.token.exists():
        files.token.touch(mode=0o600)
        files.token.write_text(secrets.token_hex(32) + "\n")
    recorded = _read_canary(files)
    if recorded is None or recorded["model"] != digest:
        report("First one rank alone answers, for the record: two must then say the same.")
        answer = _record(files, engine, watch)
        files.canary.write_text(json.dumps({"model": digest, "answer": answer}) + "\n")
    else:
        answer = recorded["answer"]
    return _write_config(files.config, _settings(files, engine, ranks=2, expect=answer))


def _read_canary(files: DemoFiles) -> dict[str, str] | None:
    try:
        recorded: dict[str, str] = json.loads(files.canary.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return recorded


def _settings(
    files: DemoFiles, engine: Path, *, ranks: int, expect: str | None
) -> dict[str, object]:
    """Return the configuration; without `expect` any answer passes the canary."""
    return {
        "profile": "demo",
        "nodes": [
            {"name": f"demo-{rank}", "address": "127.0.0.1", "cpus": str(rank)}
            for rank in range(ranks)
        ],
        "engine": {"prefix": str(engine.resolve())},
        "weights": {"model_dir": str(files.model.resolve())},
        "link": {"token_file": str(files.token.resolve())},
        "canary": {
            "prompt": PROMPT,
            "expect": expect or "",
            "match": "contains" if expect is None else "exact",
            "max_tokens": ANSWER_TOKENS,
        },
        "paths": {
            "state_dir": str((files.root / "state").resolve()),
            "run_dir": str(files.run_dir),
        },
    }


def _write_config(path: Path, settings: dict[str, object]) -> Config:
    path.write_text(yaml.safe_dump(settings, sort_keys=False))
    return load(path).config


def _record(files: DemoFiles, engine: Path, watch: Watch) -> str:
    """Let one rank answer the canary's prompt: what two ranks must then answer too."""
    settings = _settings(files, engine, ranks=1, expect=None)
    settings["paths"] = {
        "state_dir": str((files.root / "recording").resolve()),
        "run_dir": f"{files.run_dir}-recording",
    }
    api, master, link = free_ports(3)
    settings["api"] = {"port": api}
    settings["fabric"] = {"master_port": master, "link_port": link}
    path = files.root / "config-single.yaml"
    config = _write_config(path, settings)
    pair = LocalPair(config, ["--config", str(path)])
    try:
        start(pair, watch)
        return ask(config, PROMPT, ANSWER_TOKENS)
    finally:
        pair.stop()


def start(pair: LocalPair, watch: Watch, limit_seconds: float = START_LIMIT_SECONDS) -> Snapshot:
    """Start a pair and wait until it serves. Raises UserError when it cannot or does not."""
    require_startable(pair.config)
    pair.start()
    limit = time.monotonic() + limit_seconds
    while True:
        if not pair.tend():
            raise UserError("STOPPED", "the pair was stopped.", exit_code=EXIT_NOT_READY)
        snapshot = gather(pair.config)
        watch(snapshot)
        if snapshot.ready:
            return snapshot
        if time.monotonic() > limit:
            raise _not_ready(snapshot)
        time.sleep(POLL_SECONDS)


def _not_ready(snapshot: Snapshot) -> UserError:
    reasons = [finding.sentence() for finding in snapshot.findings]
    if snapshot.last_loss is not None:
        reasons.append(snapshot.last_loss.message)
    why = "; ".join(reasons) or f"it is still {snapshot.state}"
    return UserError("NOT_READY", f"the pair does not serve: {why}.", exit_code=EXIT_NOT_READY)


def ask(config: Config, text: str, max_tokens: int, on_piece: Callable[[str], object] = str) -> str:
    """Ask the pair at temperature 0 without thinking; hand on each piece, return the answer."""
    question = Question(text, max_tokens, temperature=0.0, think=False)
    base_url = plan_rank(config, 0).base_url or ""
    answer = ""
    for piece in stream_answer(base_url, config.serve.model_name, {}, question):
        answer += piece.text
        on_piece(piece.text)
    return answer


def summary(
    snapshot: Snapshot, answer: str, ready_seconds: float, left_behind: int
) -> dict[str, object]:
    """Return what one demo showed, for `--json`."""
    return {
        "ranks": [
            {
                "rank": report.rank,
                "pid": report.engine.pid,
                "state": report.phase.value,
                "engine": report.engine.version,
            }
            for report in snapshot.ranks
        ],
        "answer": answer,
        "epoch": snapshot.epoch,
        "ready_seconds": ready_seconds,
        "left_behind": left_behind,
    }
