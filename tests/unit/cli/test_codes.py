"""The codes under which anything is reported: searchable words, each with one meaning.

They are collected from the sources, so that a new one cannot slip by.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import glm53ctl

ROOT = Path(glm53ctl.__file__).parent
CODE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")

CODE_AT = {
    "UserError": 0,
    "CanaryError": 0,
    "Finding": 0,
    "Loss": 0,
    "ConfigError": 0,
    "EngineError": 0,
    "Rule": 1,
    "fail": 0,
    "_fail": 0,
    "_finding": 0,
    "loss": 0,
    "Incident": 0,
    "Trouble": 0,
}
"""What makes a report, and which argument is its code (or the keyword `code`)."""

SEVERAL_ROOMS = {
    "FETCH_DISK_FULL": "no room for the weights: for the doctor, and for a fetch",
    "CACHE_REVISION": "other weights than the pinned ones: for the doctor, and for a fetch",
    "CACHE_NOT_WRITABLE": "the cache is another user's: for the doctor, and for a fetch",
    "API_KEY_IN_ARGV": "a key in a command line: of the configuration, and of a report",
    "CFG_FORBIDDEN": "a setting that does not work: of the configuration, and of a report",
    "FILE_UNREADABLE": "a file that cannot be read, whatever it is for",
    "FILE_REFUSED": "a file that cannot be written, whatever it is for",
    "MEM_FLOOR": "memory below the floor: seen by the doctor, and ended by the supervisor",
    "MEM_FOREIGN": "others have the memory: before a start, and for `reclaim`",
    "NET_MASTER_LOOPBACK": "the ranks cannot meet there: by configuration, or as the host is",
    "PEER_HELD": "the peer is held: for the doctor, and for the supervisor",
    "CONTROL_DENIED": "what the service keeps, files and sockets, is root's and its own",
    "ENGINE_MISSING": "the prefix holds no engine: before a start, and for `engine check`",
    "ENGINE_WEDGED": "requests run and nothing moves: for the supervisor, and for the watchdog",
    "LOG_NONE": "no engine has run on this host: for `logs`, and for `explain`",
    "PORT_IN_USE": "somebody holds a port: the engine's, or the link's",
    "RANK_STALE": "what is left of an earlier run: for the doctor, and of the rank's own engine",
    "RANK_UNKNOWN": "the configuration has no such rank: for `rank`, and for `logs`",
    "STOPPED": "the pair was stopped on command",
}
"""Codes that more than one room reports, with the one meaning they have."""


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", None) or getattr(node.func, "attr", "")
            if name in CODE_AT:
                yield name, node


def code_of(name: str, call: ast.Call) -> str | None:
    """Return the code of a report where it is written out."""
    position = CODE_AT[name]
    given = [word.value for word in call.keywords if word.arg == "code"]
    given += call.args[position : position + 1]
    if given and isinstance(given[0], ast.Constant):
        return str(given[0].value)
    return None


def reported() -> dict[str, set[str]]:
    """Return every code that is written out in a report, and the rooms that report it."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in sorted(ROOT.rglob("*.py")):
        for name, call in calls(ast.parse(file.read_text())):
            if code := code_of(name, call):
                found[code].add(file.relative_to(ROOT).parts[0].removesuffix(".py"))
    return found


def test_codes_are_found_at_all():
    assert {"API_UNREACHABLE", "PAIR_DOWN", "MEM_FOREIGN", "CFG_UNKNOWN_KEY", "HELD"} <= set(
        reported()
    )


def test_every_code_is_upper_snake():
    assert [code for code in reported() if not CODE.fullmatch(code)] == []


def test_a_code_belongs_to_one_room_or_says_why_not():
    shared = {code: rooms for code, rooms in reported().items() if len(rooms) > 1}
    assert set(shared) == set(SEVERAL_ROOMS), shared
