"""Gathers a bundle on one host: its members by name, every one of them safe to show."""

import contextlib
import getpass
import json
import os
import platform
import pwd
import re
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from glm53ctl import __version__, credentials
from glm53ctl.bench import ledger
from glm53ctl.bundle import allowed
from glm53ctl.bundle.logs import shown
from glm53ctl.config.schema import Config, Paths
from glm53ctl.config.sources import ConfigError, Loaded
from glm53ctl.errors import UserError
from glm53ctl.facts.host import Unknown, run_program
from glm53ctl.facts.node import probe_node
from glm53ctl.redact import Redactor
from glm53ctl.status.snapshot import gather
from glm53ctl.supervise.ledger import read_incidents

UNITS = (
    *("glm53.target", "glm53-rank0.service", "glm53-rank1.service", "glm53-weights.service"),
    *("glm53-watchdog.service", "glm53-bus.socket", "glm53-prepare.service"),
)
_NAMED = re.compile(r"""\bname["']?\s*:\s*["']?([\w.-]+)""")
_SECRET_FILE = re.compile(r"""(?:key|token)_file["']?\s*:\s*["']?([^\n"',}]+)""", re.IGNORECASE)
FEWEST_LETTERS = 3
"""Of a name that is replaced wherever it stands; shorter ones are in every other word."""
README = """\
A support bundle of glm53ctl, made to be shown to strangers.

Addresses, hosts, users, keys and identifiers are replaced: (ip 1) is the same address wherever it
stands, (node 0) the head. Prompts and answers are not in it; lines of logs that could hold any are
left out, which is said where it happened. Only listed settings and facts are shown.
"""


@dataclass
class Bundle:
    """The members of a bundle: text by file name. Nothing gets in but through the redactor."""

    redactor: Redactor
    members: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, text: str) -> None:
        """Add a text, made safe."""
        self.members[name] = self.redactor.text(text)

    def add_json(self, name: str, value: JsonValue) -> None:
        """Add plain data, made safe text by text: its shape is ours and stays."""
        self.members[name] = json.dumps(self._safe(value), indent=1, ensure_ascii=False) + "\n"

    def _safe(self, value: JsonValue) -> JsonValue:
        if isinstance(value, str):
            return self.redactor.text(value)
        if isinstance(value, list):
            return [self._safe(one) for one in value]
        if isinstance(value, dict):
            return {self.redactor.text(key): self._safe(one) for key, one in value.items()}
        return value


def redactor_of(config: Config, environ: Mapping[str, str] = os.environ) -> Redactor:
    """Return a redactor that knows this host's secrets, as far as this user may read them."""
    named = (config.link.token_file, config.api.key_file, config.weights.token_file)
    return _redactor([node.name for node in config.nodes], [n for n in named if n], environ)


def redactor_of_text(text: str, environ: Mapping[str, str] = os.environ) -> Redactor:
    """Return the same for a configuration that cannot be used: names and files as they stand."""
    own = [f"{name}: {value}" for name, value in environ.items() if name.startswith("GLM53_")]
    said = "\n".join([text, *own])
    return _redactor(_NAMED.findall(said), _SECRET_FILE.findall(said), environ)


def _redactor(nodes: Sequence[str], files: Sequence[str], environ: Mapping[str, str]) -> Redactor:
    names = {node: f"(node {rank})" for rank, node in enumerate(dict.fromkeys(nodes))}
    hosts = {socket.gethostname(), socket.gethostname().partition(".")[0]} - names.keys()
    names |= {host: f"(host {number})" for number, host in enumerate(sorted(hosts), 1)}
    people = {user.pw_name for user in pwd.getpwall() if 1000 <= user.pw_uid < 60_000}
    people |= {environ.get("SUDO_USER", ""), _own_name()} - {"root", "glm53"}
    names |= {name: f"(user {number})" for number, name in enumerate(sorted(people - {""}), 1)}
    known = {name: alias for name, alias in names.items() if len(name) >= FEWEST_LETTERS}
    longest = dict(sorted(known.items(), key=lambda item: -len(item[0])))
    return Redactor(tuple(_secrets(files, environ)), longest)


def _own_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _secrets(named: Sequence[str], environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the secrets of this host that can be read: they must be in no bundle, in no shape."""
    files = [credentials.find(name, environ) for name in credentials.NAMES]
    for file in [*files, *map(Path, named)]:
        if file is not None:
            with contextlib.suppress(OSError, UnicodeDecodeError):
                yield from (word for word in file.read_text().split() if len(word) > FEWEST_LETTERS)


def collect(loaded: Loaded, rank: int, lines: int, redactor: Redactor) -> dict[str, str]:
    """Return the members of the bundle of this host, which is the one of `rank`.

    What cannot be read is missing, and says why; a bundle is wanted most when much is broken.
    """
    config = loaded.config
    bundle = _begun(redactor)
    bundle.add_json("config.json", _config(loaded))
    facts = probe_node(config, rank).model_dump(mode="json")
    bundle.add_json("facts.json", allowed.picked(facts, allowed.FACTS))
    with contextlib.suppress(UserError):  # the sockets are another user's
        status = gather(config).model_dump(mode="json")
        bundle.add_json("status.json", allowed.picked(status, allowed.STATUS))
    _add_history(bundle, Path(config.paths.state_dir), lines)
    return bundle.members


def collect_unconfigured(error: ConfigError, lines: int, redactor: Redactor) -> dict[str, str]:
    """Return what a bundle can hold of a host whose configuration cannot be used, and why not.

    What ran before the mistake was made is in the default places.
    """
    bundle = _begun(redactor)
    bundle.add("config.txt", "".join(f"{finding.sentence()}\n" for finding in error.findings))
    _add_history(bundle, Path(Paths().state_dir), lines)
    return bundle.members


def _begun(redactor: Redactor) -> Bundle:
    bundle = Bundle(redactor)
    bundle.add("README", README)
    bundle.add_json("versions.json", _versions())
    return bundle


def _add_history(bundle: Bundle, state: Path, lines: int) -> None:
    _add_records(bundle, state)
    for file in sorted((state / "logs").glob("*.log")):
        bundle.add(f"logs/{file.name}", "\n".join(shown(_tail(file, lines))) + "\n")
    for unit in UNITS:
        bundle.add(f"units/{unit}.txt", _unit(unit))
        said = run_program(
            ("journalctl", "--no-hostname", "-o", "short-iso", "-n", str(lines), "-u", unit)
        )
        text = said.unknown if isinstance(said, Unknown) else "\n".join(shown(said.splitlines()))
        bundle.add(f"journal/{unit}.txt", text + "\n")


def _versions() -> dict[str, JsonValue]:
    release = platform.freedesktop_os_release() if os.path.exists("/etc/os-release") else {}
    return {
        "glm53ctl": __version__,
        "closure": os.environ.get("GLM53_CLOSURE", ""),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "system": release.get("PRETTY_NAME", ""),
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _config(loaded: Loaded) -> dict[str, JsonValue]:
    shown_settings = allowed.settings(loaded.config)
    return {
        path: {"value": value, "from": loaded.origins[path].layer.value}
        for path, value in shown_settings.items()
    }


def _add_records(bundle: Bundle, state: Path) -> None:
    incidents: list[JsonValue] = [one.model_dump(mode="json") for one in read_incidents(state)]
    bundle.add_json("incidents.json", allowed.picked(incidents, allowed.LOSS))
    with contextlib.suppress(UserError):
        kept = ledger.read(state / ledger.NAME)
        results: list[JsonValue] = [one.model_dump(mode="json") for one in kept]
        bundle.add_json("bench.json", allowed.picked(results, allowed.BENCH))


def _tail(file: Path, lines: int) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
    except OSError as error:
        return [f"ERROR: it cannot be read: {error.strerror}"]


def _unit(unit: str) -> str:
    said = run_program(("systemctl", "show", unit, "--property", ",".join(allowed.UNIT)))
    return said.unknown if isinstance(said, Unknown) else said
