"""The codes of findings: one meaning each. Writes docs/codes.md.

`python -m glm53ctl.codes [FILE]`
"""

import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from glm53ctl.checks import CHECKS
from glm53ctl.config.rules import RULES
from glm53ctl.diagnose.table import SIGNATURES

TARGET = Path("docs/codes.md")

MEANINGS = {
    "API_DEV_MODE": "Routes for development are open to clients.",
    "API_GUARDED": "Every route that needs a key asks for it.",
    "API_KEY_IN_ARGV": "An API key stands in a command line, where `ps` and logs show it.",
    "API_LOOPBACK": "The API is reached from this machine only.",
    "API_NO_KEY": "The API is open to the network and asks for no key.",
    "API_PARTIAL_KEY": "Some routes ask for the key and others do not.",
    "CACHE_DANGLING": "A link of the weights' cache leads nowhere.",
    "CACHE_NOT_WRITABLE": "The service's user cannot write its own cache.",
    "CACHE_REVISION": "Weights of another revision would be loaded, or none would be found.",
    "CACHE_TRUNCATED": "A file of the weights is shorter than it should be.",
    "CFG_CANARY": "The canary cannot judge what it is set to judge.",
    "CFG_CHAT_TEMPLATE": "The chat template is missing or does not parse.",
    "CFG_ENGINE_ARGUMENT": "The engine does not know an argument, or not its value.",
    "CFG_FORBIDDEN": "A value or a combination that is known not to work.",
    "CFG_GLOO_IFNAME": "Gloo is told of a network device that this host lacks.",
    "CFG_GRAPH_SIZES": "CUDA graphs are missing for batch sizes that speculation needs.",
    "CFG_LICENSE": "A licence is not accepted.",
    "CFG_MEDIA_HOSTS": "Media may be fetched from hosts that nobody listed.",
    "CFG_MEMORY": "The memory settings do not leave the host what it needs.",
    "CFG_MM_BUDGET": "Images of one request could fill much of the context.",
    "CFG_TIMING": "Two limits of time contradict each other.",
    "CFG_TOOL_PARSER": "Tool calls come back as text: a wrong parser or template.",
    "ENGINE_BUSY": "The engine works; it only looks as if it stood still.",
    "ENGINE_ERROR": "The engine failed while it started, with an error that is not known here.",
    "ENGINE_FAILED": "The engine ended with an error that has no name of its own here.",
    "ENGINE_WEDGED": "Requests run and nothing moves.",
    "EXECUTE_TIMEOUT": "One step of the engine took longer than vLLM allows.",
    "FETCH_BAD_TOKEN": "The hub refuses the token; without it, the repository may be readable.",
    "FETCH_DISK_FULL": "The disk has no room for the weights.",
    "FETCH_GATED": "The repository's terms were not accepted.",
    "FETCH_RATE_LIMITED": "The hub asks to wait.",
    "FETCH_REPO_MISSING": "The repository is not on the hub.",
    "FETCH_REVISION_MISSING": "The pinned revision is not on the hub.",
    "FETCH_STALLED": "A transfer stands still.",
    "GPU_CLOCK_CAP_MISSING": "The cap of the GPU clock was not set since the boot.",
    "GPU_CLOCK_STUCK": "A low clock at low power under full load: the power supply.",
    "GPU_DRIVER_MISMATCH": "Driver library and kernel module are of two versions.",
    "GPU_IDLE": "The GPU is not under load, so its clock says nothing.",
    "GPU_NOT_FOUND": "The engine sees no GPU.",
    "GPU_OUT_OF_MEMORY": "CUDA has no memory left.",
    "GPU_THERMAL": "The GPU is hot.",
    "GPU_XID": "The driver reports a fault of the GPU.",
    "HOST_FILES_LIMIT": "The engine may open no more files.",
    "HOST_RESET_LOOP": "The machine went down repeatedly while the engine was loading.",
    "HOST_SHM_FULL": "Shared memory (/dev/shm) is full.",
    "IDLE": "No request runs, so nothing has to move.",
    "JIT_CACHE_STALE": "A compiled kernel of another version was loaded.",
    "JIT_CACHE_UNKEYED": "Two versions share one cache of compiled kernels.",
    "JIT_NO_COMPILER": "A kernel shall be compiled, and there is no compiler.",
    "KERNEL_CPPC": "The CPU frequency driver is not in the mode that a Spark needs.",
    "KERNEL_PAGE_SIZE": "The kernel's pages have another size than 4 KiB.",
    "KV_TOO_SMALL": "One full request does not fit the KV cache.",
    "LAUNCH_FAILED": "The host made no process for the engine.",
    "LIB_LIBCUDA": "The engine does not find the driver's library.",
    "LIB_TRITON_LDCONFIG": "Triton looks for the driver with a program that is not there.",
    "LOAD_STALLED": "Loading makes no progress.",
    "MEM_CGROUP_LIMIT": "The unit's own memory limit ended a process.",
    "MEM_FLOOR": "Less memory is available than the floor.",
    "MEM_FOREIGN": "Somebody else has the memory.",
    "MEM_FRAGMENTED": "Memory is free and not in one piece.",
    "MEM_HOST_OOM": "The kernel had no memory left and ended a process.",
    "MEM_NOT_RETURNED": "The memory of the last run has not come back.",
    "MEM_NVRM_RETRY": "The driver had to ask twice for memory, and got it.",
    "MEM_PAGECACHE": "The page cache has the memory, which CUDA on GB10 counts as used.",
    "MEM_SWAP_RESIDUE": "Pages of the last run are still in swap.",
    "MM_HOST_OOM": "The images or the video of one request used up the memory.",
    "MODEL_ILLEGAL_ACCESS": "A kernel read or wrote where it must not.",
    "NCCL_IB": "NCCL uses RDMA.",
    "NCCL_INIT_FAILED": "NCCL could not set up its communicator.",
    "NCCL_INIT_STALL": "NCCL's communicator does not come together, and nothing says why.",
    "NCCL_SOCKET_FALLBACK": "NCCL uses TCP instead of RDMA.",
    "NCCL_TIMEOUT": "One rank did not take part in a collective.",
    "NCCL_VERSION": "The ranks run different versions of NCCL.",
    "NET_ADDRESS_MISSING": "No network device of the host has the node's address.",
    "NET_CABLES_SWAPPED": "A cable joins one rail's port to the other rail's.",
    "NET_FABRIC": "The node's address is on a device that works.",
    "NET_FABRIC_DEGRADED": "The fabric works, slower than it could.",
    "NET_HCA_DOWN": "An RDMA device is down, missing, or another port's.",
    "NET_HOSTNAME": "The host's name leads to an address that others reach.",
    "NET_HOSTNAME_LOOPBACK": "The host's name leads to a loopback address.",
    "NET_HOST_IP_INFERRED": "vLLM chose the node's address itself, and not the fabric's.",
    "NET_IF_DOWN": "The network device of the fabric has no carrier, or does not exist.",
    "NET_MASTER_LOOPBACK": "The ranks would meet at an address that only their own host reaches.",
    "NET_MTU_MISMATCH": "The ends of a rail have different MTUs.",
    "NET_NEIGH": "The peer answers packets of the full size.",
    "NET_NEIGH_FAILED": "The peer is not reached, although the link is up.",
    "NET_RAIL_DOWN": "A rail lost its carrier or its address.",
    "NET_RAIL_UNREACHABLE": "A rail's other end does not answer, although the link is up.",
    "NET_TWIN_RAILS": "Two rails are used.",
    "NIX_CUDA_ARCH": "Code for this GPU is not built.",
    "NIX_UNFREE": "The evaluation refuses CUDA's licence.",
    "NIX_WHEEL_MISSING": "A locked wheel is for another machine.",
    "NODE_MISMATCH": "The nodes differ in something that should be equal.",
    "OUTPUT_DEGENERATE": "The model's answer is none.",
    "OVERLAY_REFUSED": "The plugin in the engine does not let it start, and says why.",
    "PEER_ABSENT": "The other node was not heard of.",
    "PEER_HELD": "The other node is held.",
    "PORT_IN_USE": "Somebody listens on a port of the pair.",
    "PREFILL_BUSY": "A long prompt is being read.",
    "PROBE_UNKNOWN": "A fact that decides about a start could not be read.",
    "RANK_IDLE_ABORT": "A rank without work was ended by a timeout of its own.",
    "RANK_IPC_REMOVED": "Shared memory of a rank was removed by a logout.",
    "RANK_IPC_RISK": "A logout would remove shared memory of a rank.",
    "RANK_LOST": "One rank is gone.",
    "RANK_STALE": "A rank of a run that is over is still there.",
    "RDMA_GID": "The GID index is right.",
    "RDMA_GID_DRIFT": "The address moved to another GID index.",
    "RDMA_GID_EMPTY": "The GID index does not hold the address as RoCE v2.",
    "RDMA_GID_EXTRA_LINKLOCAL": "A second link-local address moves the others in the GID table.",
    "RDMA_MEMLOCK": "A rank may not lock the memory that RDMA needs.",
    "REQ_BUDGET_SPENT": "Thinking used all of max_tokens.",
    "REQ_CONTEXT": "A request is longer than the context; the client's fault.",
    "REQ_EFFORT_COERCED": "An effort that the template does not know becomes another.",
    "REQ_EXTRA_BODY": "A literal extra_body is ignored.",
    "REQ_KWARGS_NOT_OBJECT": "chat_template_kwargs is no object.",
    "REQ_MM_LIMIT": "A request has too many images or videos; the client's fault.",
    "REQ_OK": "Nothing is wrong with the request.",
    "SECRET_FILE_MODE": "Others may read a file with secrets.",
    "SPEC_ACCEPT_COLLAPSE": "Later drafted positions are hardly ever accepted.",
    "SPEC_OK": "The draft is accepted as usual.",
    "SPEC_TOO_FEW": "Too few drafts to judge.",
    "START_PROGRESS": "The start makes progress.",
    "TIME_SKEW": "A clock is wrong.",
    "TOOL_NAME_STRAY_TOKEN": "The model appended a stray token to a tool's name.",
    "UNIT_START_LIMIT": "systemd gave up: too many starts.",
    "UNIT_START_LIMIT_MISPLACED": "The start limit is where systemd does not read it.",
    "UNIT_TIMEOUT_SHORT": "systemd or vLLM ends a start that still makes progress.",
    "UNIT_WATCHDOG": "systemd's watchdog ended the supervisor.",
    "WARMUP_FAILED": "Requests of the warm-up before READY failed.",
    "WARMUP_LATE": "The warm-up before READY ended at its limit, without all shapes.",
    "WEIGHTS_KEYS": "The checkpoint holds other tensors than the model wants.",
    "WEIGHTS_UNREADABLE": "A file of the checkpoint cannot be read.",
}
"""Code to meaning, for everything that checks, rules and signatures may report."""

_INTRO = """\
# Codes

Written by `python -m glm53ctl.codes`; a test keeps it equal to the code.

Each finding carries a code with one meaning, for searching and for programs. `doctor` finds it by
a check of facts, `config check` by a rule, `explain` by a line of a log; where nothing is named,
the supervisor, the watchdog, the fetcher or the request linter says it.

| code | meaning | found by |
|---|---|---|
"""


def finders() -> dict[str, list[str]]:
    """Return by what each code is found."""
    found: dict[str, list[str]] = defaultdict(list)
    for check in CHECKS:
        for code in check.codes:
            found[code].append(f"`doctor`: {check.name}")
    for rule in RULES:
        found[rule.code].append("`config check`")
    for signature in SIGNATURES:
        found[signature.code].append("`explain`")
    return {code: list(dict.fromkeys(names)) for code, names in found.items()}


def render() -> str:
    """Return the whole page."""
    found = finders()
    rows = (
        f"| `{code}` | {meaning} | {', '.join(found.get(code, []))} |\n"
        for code, meaning in sorted(MEANINGS.items())
    )
    return _INTRO + "".join(rows) + "\n" + _checks()


def _checks() -> str:
    lines = ["## What `glm53ctl doctor` checks\n\n", "| check | holds when |\n", "|---|---|\n"]
    lines += [f"| {check.name} | {check.says} |\n" for check in CHECKS]
    return "".join(lines)


def main(arguments: Sequence[str]) -> None:
    """Write the page to the given file or to its place in the repository."""
    target = Path(arguments[0]) if arguments else TARGET
    target.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
