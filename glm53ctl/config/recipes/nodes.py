"""`nodes` from the recipes' names for the two machines."""

from ipaddress import AddressValueError, IPv4Address

from pydantic import JsonValue

from glm53ctl.config.recipes import names
from glm53ctl.config.recipes.names import Recipe
from glm53ctl.config.recipes.shell import Assigned
from glm53ctl.config.recipes.work import Note, Taken, Verdict, Work, number
from glm53ctl.errors import UserError

_NAMES = ("spark-head", "spark-worker", "spark-worker2", "spark-worker3")

_WORKERS = ("WORKER", "WORKER2", "WORKER3")


def _ipv4(text: str) -> str | None:
    try:
        return str(IPv4Address(text))
    except AddressValueError:
        return None


def _assumed(work: Work, name: str, address: str) -> str:
    """Return the recipe's default address, and say that it was assumed."""
    reason = f"assumed to be {address}, the recipe's default; it must be on the ConnectX-7 link"
    work.notes.append(Note(0, name, Verdict.CHANGED, reason))
    return address


def _within_tp(work: Work, workers: list[Assigned]) -> list[Assigned]:
    """Return as many workers as TP has ranks beside the head, and note the others."""
    ranks = number(work.variables["TP"].value) if "TP" in work.variables else None
    if not isinstance(ranks, int) or ranks < 2:
        return workers
    for variable in workers[ranks - 1 :]:
        reason = f"TP is {ranks}: the head and {ranks - 1} of the workers run"
        work.note(variable, Verdict.NO_COUNTERPART, reason)
    return workers[: ranks - 1]


def _workers(work: Work) -> list[str | None]:
    """Return the workers' addresses, None for one that is only known by a name."""
    if work.recipe is Recipe.VLLM:
        return [_ipv4(work.text("WORKER_IP") or _assumed(work, "WORKER_IP", "10.0.0.2"))]
    named = [v for name in _WORKERS if (v := work.variables.get(name)) and v.value]
    ranks = [variable.name.removeprefix("WORKER") for variable in _within_tp(work, named)]
    return [
        _ipv4(work.text(f"FABRIC_PEER{rank}") or work.text(f"WORKER{rank}").rpartition("@")[2])
        for rank in ranks
    ]


def _head(work: Work, given: str | None) -> str | None:
    if work.recipe is Recipe.VLLM:
        return _ipv4(given or work.text("HEAD_IP") or _assumed(work, "HEAD_IP", "10.0.0.1"))
    return _ipv4(given or work.text("MASTER_ADDR"))


def _node(work: Work, rank: int, address: str) -> dict[str, JsonValue]:
    """Return one node; left out is what the recipe leaves out."""
    node: dict[str, JsonValue] = {"name": _NAMES[rank], "address": address}
    side = "HEAD" if rank == 0 else "WORKER"
    if work.recipe is Recipe.TENSORFOLD:
        return node
    if interface := work.text(f"{side}_CX7_IF"):
        node["interface"] = interface
    if devices := work.text(f"{side}_CX7_IB"):
        node["hcas"] = [device.strip() for device in devices.split(",") if device.strip()]
    if gid := work.text(f"{side}_GID") or work.text("NCCL_IB_GID_INDEX"):
        node["gid_index"] = number(gid)
    return node


def make_nodes(work: Work, head_address: str | None) -> None:
    """Make `nodes` of the names that describe the machines.

    Raises UserError for a given address that is none.
    """
    if head_address is not None and _ipv4(head_address) is None:
        message = f"--head-address {head_address} is no IPv4 address."
        fix = "Give the head's address on the fabric, such as 10.10.0.1."
        raise UserError("CFG_TYPE", message, fix)
    said = [v for name, v in work.variables.items() if name in names.NODE_NAMES]
    addresses = [_head(work, head_address), *_workers(work)]
    known = [address for address in addresses if address is not None]
    if len(known) < max(2, len(addresses)):
        what, how = "a worker's IPv4 address", "write `nodes` yourself"
        if addresses[0] is None:
            what, how = "the head's address", f"say it with --head-address ADDRESS, or {how}"
        reason = f"not read: {what} on the fabric is not in the file: {how}"
        work.notes.append(Note(0, "nodes", Verdict.NOT_READ, reason))
        return
    line = min((variable.line for variable in said), default=0)
    key = ", ".join(variable.name for variable in said) or "nodes"
    nodes: list[JsonValue] = [_node(work, rank, address) for rank, address in enumerate(known)]
    work.taken["nodes"] = Taken(nodes, line, key)
