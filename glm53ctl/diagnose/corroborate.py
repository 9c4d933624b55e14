"""Facts beside a log that make its verdict certain, or another one."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from glm53ctl.diagnose.diagnosis import Diagnosis
from glm53ctl.diagnose.signature import Confidence
from glm53ctl.findings import Severity

Mtus = Mapping[str, list[int]]
"""RDMA device to the active MTU that each node says, in bytes."""

_MTU = re.compile(r"active_mtu:\s*(\d{1,9})\b")


def read_mtus(devinfos: Iterable[str]) -> Mtus:
    """Read the active MTU of each device from `ibv_devinfo` of each node."""
    found: dict[str, list[int]] = defaultdict(list)
    for text in devinfos:
        for block in text.split("hca_id:")[1:]:
            if mtu := _MTU.search(block):
                found[block.split()[0]].append(int(mtu[1]))
    return found


def with_mtus(one: Diagnosis, mtus: Mtus) -> Diagnosis:
    """Confirm lost packets as unequal MTU, or say that it is not that."""
    finding = one.finding
    if finding.code != "NET_MTU_MISMATCH":
        return one
    said = next((pair for hca, pair in mtus.items() if hca in finding.message), [])
    if len(said) < 2:
        return one
    if len(set(said)) > 1:
        text = f"{finding.message} Here the active MTU is {' and '.join(map(str, said))}."
        return replace(
            one,
            finding=finding.model_copy(update={"message": text}),
            confidence=Confidence.CERTAIN,
        )
    changed = {
        "code": "NET_RAIL_UNREACHABLE",
        "severity": Severity.WARN,
        "message": f"packets to the peer are lost although both ends have the MTU {said[0]}: this "
        "rail does not reach its twin.",
        "fix": "Check subnet and cable of that rail with `glm53ctl doctor`, or use one rail.",
    }
    return replace(one, finding=finding.model_copy(update=changed))


_AVAILABLE = re.compile(r"^MemAvailable:\s+(\d{1,15}) kB", re.MULTILINE)
_WANTED = re.compile(r"GiB are free and (\d+(?:\.\d+)?) are wanted")


def with_memory(one: Diagnosis, meminfo: str) -> Diagnosis:
    """Tell the page cache from another process by what the kernel could hand out (meminfo)."""
    wanted, available = _WANTED.search(one.finding.message), _AVAILABLE.search(meminfo)
    if wanted is None or available is None:
        return one
    gib = int(available[1]) / (1 << 20)
    seen = one.finding.message.partition(":")[0]
    if gib >= float(wanted[1]):
        changed = {
            "code": "MEM_PAGECACHE",
            "severity": Severity.FAIL,
            "message": f"{seen}, MemAvailable is {gib:.1f} GiB: the rest is page cache.",
            "fix": "Drop the clean page cache on this node, then start again.",
        }
    else:
        changed = {
            "code": "MEM_FOREIGN",
            "severity": Severity.FAIL,
            "message": f"{seen}, MemAvailable is only {gib:.1f} GiB: processes hold the rest.",
            "fix": "Stop them: `glm53ctl doctor` names them.",
        }
    return replace(
        one, finding=one.finding.model_copy(update=changed), confidence=Confidence.CERTAIN
    )
