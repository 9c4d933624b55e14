"""What people paste into reports, as facts: the output of the usual tools, by file name.

`ip-addr.json`, `gids.txt`, `meminfo` and so on, below a folder of the node they are from.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError

from glm53ctl.facts.memory import MemoryFacts, parse_meminfo
from glm53ctl.facts.network import Network, parse_interfaces
from glm53ctl.facts.node import Boot, ClockCap, NodeFacts, PeerState, WeightsFacts
from glm53ctl.facts.nvml import GpuFacts, GpuProcess
from glm53ctl.facts.processes import Listener, Process
from glm53ctl.facts.rdma import RdmaPort, gid_of
from glm53ctl.facts.system import (
    DRIVER_DIR,
    Clock,
    Disk,
    Libraries,
    Owner,
    parse_clock,
    parse_units,
)

Files = Mapping[str, str]
"""Name to text, of one node."""

HEAD, WORKER = "head", "worker"
_SECTION = re.compile(r"^### (\S+)$", re.M)
_LISTEN = re.compile(r"LISTEN\s+\d+\s+\d+\s+(\S+):(\d+)\s.*?\(\(\"([^\"]+)\",pid=(\d+)")
_STAT = re.compile(r"^(\S{10})\s+(\d+)\s+(\d+)\s+(\S+)$", re.M)
_LINK = re.compile(r"^link (\S+)/(\d+) state (\S+)(?:.* netdev (\S+))?", re.M)
_SNAPSHOT = re.compile(r"/snapshots/([0-9a-f]{40})/")
_MAIN = re.compile(r"/refs/main\s*->\s*([0-9a-f]{40})")
_NUMBER = re.compile(r"-?[\d.]+")


def split_sections(text: str) -> dict[str, str]:
    """Split one text into its files: each begins with a line `### name`."""
    parts = _SECTION.split(text)
    return {
        name: body.strip("\n") + "\n" for name, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def by_node(files: Files) -> dict[str, dict[str, str]]:
    """Group files by the folder they are in; what is in none belongs to every node."""
    common = {name: text for name, text in files.items() if "/" not in name}
    nodes: dict[str, dict[str, str]] = {}
    for name, text in files.items():
        node, slash, rest = name.partition("/")
        if slash:
            nodes.setdefault(node, dict(common))[rest] = text
    return nodes or {"": common}


def _pairs(text: str) -> dict[str, str]:
    """Read `name=value` words."""
    return dict(word.split("=", 1) for word in text.split() if "=" in word)


def _network(files: Files) -> Network | None:
    text = files.get("ip-addr.json") or files.get("ip-link.json")
    interfaces = parse_interfaces(text) if text else None
    return Network(interfaces=interfaces) if isinstance(interfaces, tuple) else None


def _devinfo(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Read `ibv_devinfo`: blocks that begin with hca_id."""
    for block in text.split("hca_id:")[1:]:
        lines = block.splitlines()
        fields = (line.split(":", 1) for line in lines[1:] if ":" in line)
        yield lines[0].strip(), {name.strip(): value.strip() for name, value in fields}


def _rdma(files: Files) -> tuple[RdmaPort, ...] | None:
    """Merge what `rdma link`, a GID table and `ibv_devinfo` say about the same ports."""
    ports: dict[str, dict[str, Any]] = {}
    for device, number, state, netdev in _LINK.findall(files.get("rdma-link.txt", "")):
        ports[device] = {"port": int(number), "state": state, "netdev": netdev or None}
    for line in files.get("gids.txt", "").splitlines():
        words = line.split(maxsplit=4)
        if len(words) < 5 or not words[2].isdigit():
            continue
        port = ports.setdefault(words[0], {})
        port.setdefault("gids", ())
        if gid := gid_of(int(words[2]), words[3], words[4].removeprefix("IB/")):
            port["gids"] += (gid,)
    for device, said in _devinfo(files.get("ibv_devinfo.txt", "")):
        port = ports.setdefault(device, {})
        port.setdefault("state", said.get("state", "").split(" ")[0].removeprefix("PORT_"))
        if said.get("active_mtu"):
            port["active_mtu"] = int(said["active_mtu"].split()[0])
    found = tuple(RdmaPort(device=device, **fields) for device, fields in ports.items())
    return found or None


def _gpus(files: Files) -> tuple[GpuFacts, ...] | None:
    rows = files.get("nvidia-smi.csv", "").strip().splitlines()
    apps = files.get("nvidia-smi-apps.csv", "").strip().splitlines()[1:]
    users = tuple(
        GpuProcess(pid=int(pid), name=name.strip(), used_mib=int(used))
        for pid, name, used in (line.split(",") for line in apps if line.count(",") == 2)
    )
    if len(rows) < 2:
        return (GpuFacts(processes=users),) if users else None
    names = [name.split("[")[0].strip() for name in rows[0].split(",")]
    said = dict(zip(names, (value.strip() for value in rows[1].split(",")), strict=False))

    def number(name: str) -> float | None:
        found = _NUMBER.match(said.get(name, ""))
        return float(found[0]) if found else None

    def whole(name: str) -> int | None:
        value = number(name)
        return None if value is None else int(value)

    return (
        GpuFacts(
            sm_clock_mhz=whole("clocks.sm"),
            power_watts=number("power.draw"),
            utilisation_percent=whole("utilization.gpu"),
            temperature_celsius=whole("temperature.gpu"),
            processes=users,
        ),
    )


def _memory(files: Files) -> MemoryFacts | None:
    text = files.get("meminfo") or files.get("meminfo-after-kill")
    if text:
        facts = parse_meminfo(text)
        return facts if isinstance(facts, MemoryFacts) else None
    rows = files.get("memavail.csv", "").split()[1:]
    if not rows:
        return None
    available = int(float(rows[0].split(",")[1]) * 1024)
    return MemoryFacts(total=0, free=0, available=available)


def _processes(files: Files) -> tuple[Process, ...] | None:
    found = []
    for line in files.get("top-rss.txt", "").splitlines():
        words = line.split(maxsplit=4)
        if len(words) >= 4 and words[0].isdigit():
            rest = " ".join(words[3:])
            found.append(
                Process(pid=int(words[0]), rss_kib=int(words[1]), name=words[3], command=rest)
            )
    return tuple(found) or None


def _listeners(files: Files) -> tuple[Listener, ...] | None:
    found = tuple(
        Listener(address=address, port=int(port), pid=int(pid), name=name)
        for address, port, name, pid in _LISTEN.findall(files.get("ss.txt", ""))
    )
    return found or None


def _clock(files: Files, node: str) -> Clock | None:
    text = files.get("timedatectl.txt")
    if text is None:
        return None
    offset = _pairs(files.get("control-rtt.txt", "")).get("offset_s")
    # The offset was measured by the head: it is the other's.
    measured = float(offset) if offset and node != HEAD else None
    return parse_clock(text).model_copy(update={"offset_seconds": measured})


def _disks(files: Files) -> tuple[Disk, ...] | None:
    rows = [line.split() for line in files.get("df.txt", "").splitlines()[1:]]
    found = tuple(
        Disk(path=row[4], total=int(row[1]), free=int(row[3])) for row in rows if len(row) == 5
    )
    return found or None


def _mode(text: str) -> int:
    """Return the mode that `ls` spells as rwxr-xr-x."""
    return sum(1 << (8 - i) for i, letter in enumerate(text[1:10]) if letter != "-")


def _owners(files: Files) -> tuple[Owner, ...] | None:
    found = tuple(
        Owner(path=path, uid=int(uid), gid=int(gid), mode=_mode(mode))
        for mode, uid, gid, path in _STAT.findall(files.get("stat.txt", ""))
    )
    return found or None


def _uid(files: Files, node: str) -> int | None:
    found = re.match(r"uid=(\d+)", files.get("id.txt", ""))
    return int(found[1]) if found else None


def _cap(files: Files) -> ClockCap | None:
    said = _pairs(files.get("boot.txt", ""))
    if "configured_lgc" not in said:
        return None
    low, _, high = said["configured_lgc"].partition(",")
    seen = said.get("observed_max_sm_clock")
    return ClockCap(cap_mhz=int(high), low_mhz=int(low), seen_mhz=int(seen) if seen else None)


def _boots(files: Files) -> tuple[Boot, ...] | None:
    """Return the boots that the supervisor's marks name and the journal shows to be over."""
    if "list-boots.json" not in files or "state.jsonl" not in files:
        return None
    over = {one["boot_id"] for one in json.loads(files["list-boots.json"]) if one["index"] < 0}
    marks = [json.loads(line) for line in files["state.jsonl"].splitlines() if line.strip()]
    last = {mark["boot_id"]: mark["stage"] for mark in marks}
    return tuple(Boot(boot_id=boot, stage=stage) for boot, stage in last.items() if boot in over)


def _peer(files: Files) -> PeerState | None:
    if "peer-state.json" not in files:
        return None
    said = json.loads(files["peer-state.json"])
    return PeerState(name=said["peer"], state=said["state"], reason=said.get("reason", ""))


def _weights(files: Files) -> WeightsFacts | None:
    fields: dict[str, Any] = {}
    if "manifest.json" in files:
        fields["total_bytes"] = int(json.loads(files["manifest.json"])["total_bytes"])
        cached = files.get("cache.txt", "")
        fields["valid_bytes"] = sum(map(int, re.findall(r"(\d+) bytes valid", cached)))
        orphans = re.findall(r"^(\S+\.incomplete) (\d+)$", cached, re.M)
        fields["orphans"] = {name: int(size) for name, size in orphans}
    if tree := files.get("tree.txt"):
        fields["snapshots"] = tuple(dict.fromkeys(_SNAPSHOT.findall(tree)))
        fields["main"] = next(iter(_MAIN.findall(tree)), "")
        environment = _pairs(files.get("env.txt", ""))
        fields["offline"] = environment.get("HF_HUB_OFFLINE") == "1"
        fields["revision"] = environment.get("MODEL_REVISION", "")
        served = re.search(r"vllm serve (\S+)", files.get("argv.txt", ""))
        fields["model"] = served[1] if served else ""
    drafts = {node: files.get(f"{node}-draft.txt", "").strip() for node in (HEAD, WORKER)}
    if all(drafts.values()):
        fields["drafts"] = drafts
    return WeightsFacts(**fields) if fields else None


def _libraries(files: Files) -> Libraries | None:
    if "ls.txt" not in files:
        return None
    found = [line for line in files["ls.txt"].splitlines() if line.startswith("/")]
    return Libraries(
        found=tuple(found),
        driver_dir=f"{DRIVER_DIR}/libcuda.so.1" in found,
        search_path=_pairs(files.get("env.txt", "")).get("LD_LIBRARY_PATH", ""),
    )


_READERS: dict[str, Callable[[Files], object | None]] = {
    "network": _network,
    "rdma": _rdma,
    "gpus": _gpus,
    "memory": _memory,
    "processes": _processes,
    "listeners": _listeners,
    "disks": _disks,
    "owners": _owners,
    "clock_cap": _cap,
    "boots": _boots,
    "peer": _peer,
    "weights": _weights,
    "libraries": _libraries,
}
_TEXTS = re.compile(
    r"(argv|util|caller-env)\.txt|[\w.-]+\.(env|service|nix)|wheels\.lock\.json|eval\.log"
)


@contextmanager
def _named(fact: str) -> Iterator[None]:
    """Make whatever a reader stumbles over a ValueError of one line that names the fact."""
    try:
        yield
    except ValidationError as error:
        raise ValueError(f"{fact}, {error.errors()[0]['msg']}") from error
    except (ValueError, LookupError, TypeError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"{fact}, {error}") from error


def facts_of(node: str, files: Files) -> NodeFacts:
    """Return what the files of one node tell. Raises ValueError for a file in disorder."""
    fields: dict[str, object | None] = {}
    for name, reader in _READERS.items():
        with _named(name):
            fields[name] = reader(files)
    with _named("clock"):
        fields["clock"] = _clock(files, node)
    with _named("service_uid"):
        fields["service_uid"] = _uid(files, node)
    if "systemctl-show.txt" in files:
        fields["units"] = parse_units(files["systemctl-show.txt"])
    told = {name: fact for name, fact in fields.items() if fact is not None}
    texts = {name: text for name, text in files.items() if _TEXTS.fullmatch(name)}
    return NodeFacts.model_validate({"node": node, "texts": texts, **told})
