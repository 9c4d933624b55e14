"""The codes of findings and errors: one meaning each. Writes docs/codes.md.

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
    "ABLIT_DIRECTION": "The direction of ablit is no vector of the hidden size.",
    "ABLIT_LAYERS": "None of the layers that ablit shall change was loaded.",
    "ABLIT_MODEL": "The engine lacks what ablit changes.",
    "ABLIT_WEIGHT": "A projection that ablit shall change is quantised.",
    "API_BUSY": "The server takes no more requests for now.",
    "API_DEV_MODE": "Routes for development are open to clients.",
    "API_ELSEWHERE": "The API is asked for on a worker, and the head serves it.",
    "API_ERROR": "The server's answer broke off, or is an error of its own.",
    "API_GUARDED": "Every route that needs a key asks for it.",
    "API_KEY_IN_ARGV": "An API key stands in a command line, where `ps` and logs show it.",
    "API_LOOPBACK": "The API is reached from this machine only.",
    "API_NOT_TEXT": "A question or a key holds characters that cannot be sent.",
    "API_NO_KEY": "The API is open to the network and asks for no key.",
    "API_PARTIAL_KEY": "Some routes ask for the key and others do not.",
    "API_REFUSED": "The server answers a command with an error status.",
    "API_SERVER_ERROR": "The server failed over a request; not the client's fault.",
    "API_UNREACHABLE": "Nothing answers at the address of the API.",
    "BENCH_NOTHING_KEPT": "The ledger holds no result of that bench.",
    "BENCH_NOTHING_TO_COMPARE": "The ledger does not hold two results that can be compared.",
    "BENCH_NO_TOKENS": "A measured answer ended without tokens, or without their count.",
    "BENCH_REFUSED": "The measured server refuses the bench's request.",
    "BENCH_UNREACHABLE": "The measured server gives no answer.",
    "BUS_MISSING": "The watchdog cannot reach systemd over D-Bus.",
    "BUS_REFUSED": "systemd does not do what the watchdog asked for.",
    "CACHE_DANGLING": "A link of the weights' cache leads nowhere.",
    "CACHE_NOT_WRITABLE": "The service's user cannot write its own cache.",
    "CACHE_REVISION": "Weights of another revision would be loaded, or none would be found.",
    "CACHE_TRUNCATED": "A file of the weights is shorter than it should be.",
    "CANARY_MODEL": "The engine serves another model name than the canary asks for.",
    "CANARY_NO_ANSWER": "The canary got no answer from the engine.",
    "CFG_CANARY": "The canary cannot judge what it is set to judge.",
    "CFG_CHAT_TEMPLATE": "The chat template is missing or does not parse.",
    "CFG_DUPLICATE_KEY": "A key stands twice in the configuration.",
    "CFG_ENGINE_ARGUMENT": "The engine does not know an argument, or not its value.",
    "CFG_FILE": "A configuration file cannot be read.",
    "CFG_FORBIDDEN": "A value or a combination that is known not to work.",
    "CFG_GLOO_IFNAME": "Gloo is told of a network device that this host lacks.",
    "CFG_GRAPH_SIZES": "CUDA graphs are missing for batch sizes that speculation needs.",
    "CFG_INVALID": "The configuration has mistakes; each is listed with its own code.",
    "CFG_LICENSE": "A licence is not accepted.",
    "CFG_MEDIA_HOSTS": "Media may be fetched from hosts that nobody listed.",
    "CFG_MEMORY": "The memory settings do not leave the host what it needs.",
    "CFG_MISSING": "A setting that has no default is left out.",
    "CFG_MM_BUDGET": "Images of one request could fill much of the context.",
    "CFG_PROFILE": "There is no profile of that name.",
    "CFG_RANGE": "A value is outside of what its setting allows.",
    "CFG_SWITCHED": "A switch of profile holds over the file.",
    "CFG_SWITCH_OVER": "A switch of profile no longer holds, since the file names another one now.",
    "CFG_SYNTAX": "The file is not valid YAML.",
    "CFG_TIMING": "Two limits of time contradict each other.",
    "CFG_TOOL_PARSER": "Tool calls come back as text: a wrong parser or template.",
    "CFG_TYPE": "A value is of another type than its setting.",
    "CFG_UNKNOWN_KEY": "There is no setting of that name.",
    "CONTROL_DENIED": "What the service keeps, files and sockets, is for root and its own user.",
    "DEMO_MODEL": "The demo's model cannot be written.",
    "DEMO_TARGET": "The folder for the demo's model holds other files.",
    "DENSE_CONTRACT": "vLLM's quantised linear layers are not as the dense modes know them.",
    "DENSE_KERNEL": "This device has no kernel for a dense mode.",
    "DENSE_MISSED": "A dense mode did not reach all projections that it is for.",
    "DENSE_MODE": "There is no dense mode, or no group of projections, of that name.",
    "DENSE_WRONG": "The kernel of a dense mode computes something else on this device.",
    "DEPLOY_REBOOT": "A machine was switched and must be rebooted: another kernel, driver or rail.",
    "ENGINE": "The engine is there and imports.",
    "ENGINE_BROKEN": "The engine is there and does not work.",
    "ENGINE_BUSY": "The engine works; it only looks as if it stood still.",
    "ENGINE_DISK": "The disk has no room for the engine.",
    "ENGINE_ERROR": "The engine failed while it started, with an error that is not known here.",
    "ENGINE_FAILED": "The engine ended with an error that has no name of its own here.",
    "ENGINE_MISSING": "There is no engine where engine.prefix says.",
    "ENGINE_PACKAGES": "pip could not install the engine's packages.",
    "ENGINE_PLATFORM": "The CPU engine is not locked for this kind of machine.",
    "ENGINE_PREFIX": "The engine's folder cannot be written.",
    "ENGINE_PYTHON": "The Python that the CPU engine needs is not there.",
    "ENGINE_SOURCES": "What the CPU engine is built from is not there.",
    "ENGINE_TORCH": "The CPU build of torch is not to be had from where pip looked.",
    "ENGINE_WEDGED": "Requests run and nothing moves.",
    "EXECUTE_TIMEOUT": "One step of the engine took longer than vLLM allows.",
    "EXL3_BATCH": "A batch has more tokens than the EXL3 kernels made room for.",
    "EXL3_CONFIG": "The checkpoint's quantization_config is none that EXL3 can be.",
    "EXL3_EXTENSION": "exllamav3_ext is missing, or of another version.",
    "EXL3_KERNEL": "No EXL3 kernel can decode these experts.",
    "EXL3_LAYER": "A layer wants of its experts what EXL3 does not know.",
    "EXL3_MISSING": "An EXL3 tensor is missing in the checkpoint.",
    "EXL3_SHARD": "The experts cannot be cut for this number of ranks.",
    "EXL3_SPEC": "An EXL3 tensor has bits, a codebook or a shape that the format does not know.",
    "EXL3_TENSOR": "An EXL3 tensor of the checkpoint is not what its layer needs.",
    "FACTS_FILE": "A file of recorded facts cannot be read as one.",
    "FETCH_BAD_TOKEN": "The hub refuses the token; without it, the repository may be readable.",
    "FETCH_BUSY": "Another process works on the same weights.",
    "FETCH_DISK_FAILED": "The disk refuses to read or write the weights.",
    "FETCH_DISK_FULL": "The disk has no room for the weights.",
    "FETCH_FAILED": "A transfer of weights failed; it is tried again.",
    "FETCH_FILE_MISSING": "The source lacks a file of the manifest.",
    "FETCH_GATED": "The repository's terms were not accepted.",
    "FETCH_RATE_LIMITED": "The hub asks to wait.",
    "FETCH_REPO_DIFFERS": "The hub offers other files than the lock names.",
    "FETCH_REPO_INCOMPLETE": "The repository lacks a file that a checkpoint needs.",
    "FETCH_REPO_MISSING": "The repository is not on the hub.",
    "FETCH_REVISION_MISSING": "The pinned revision is not on the hub.",
    "FETCH_STALLED": "A transfer stands still.",
    "FETCH_WRONG_BYTES": "What was received has another digest than the manifest.",
    "FILE_REFUSED": "A file that was named cannot be written.",
    "FILE_UNREADABLE": "A file that was named cannot be read.",
    "GPU_CLOCK_CAP_MISSING": "The cap of the GPU clock was not set since the boot.",
    "GPU_CLOCK_STUCK": "A low clock at low power under full load: the power supply.",
    "GPU_DRIVER_MISMATCH": "Driver library and kernel module are of two versions.",
    "GPU_IDLE": "The GPU is not under load, so its clock says nothing.",
    "GPU_NOT_FOUND": "The engine sees no GPU.",
    "GPU_OUT_OF_MEMORY": "CUDA has no memory left.",
    "GPU_THERMAL": "The GPU is hot.",
    "GPU_XID": "The driver reports a fault of the GPU.",
    "GUARD_AUTOTUNE": "FlashInfer's autotuning is on, which hangs on GB10.",
    "GUARD_COMPILER": "FlashInfer finds no nvcc or no ninja to compile with.",
    "GUARD_CONFIG": "The checkpoint's config.json lacks what vLLM reads.",
    "GUARD_CUDA": "torch is built for another CUDA.",
    "GUARD_DRAFT": "The draft's config.json says what breaks drafting.",
    "GUARD_FLASHINFER": "FlashInfer is missing, or not of the locked version.",
    "GUARD_GEOMETRY": "The checkpoint has other sizes than the kernels are for.",
    "GUARD_KV": "The KV cache has a type for which GB10 has no sparse-MLA kernel.",
    "GUARD_TOPK": "The indexer's top-k has a backend that does not work on GB10.",
    "HELD": "The rank waits for an operator: starting again would not help.",
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
    "LICENSE_NOT_ACCEPTED": "Weights are not fetched, because their licence is not accepted.",
    "LOAD_STALLED": "Loading makes no progress.",
    "LOG_NONE": "No engine has left a log on this host.",
    "LOG_UNREADABLE": "The engine's log cannot be read.",
    "MEM_CGROUP_LIMIT": "The unit's own memory limit ended a process.",
    "MEM_FLOOR": "Less memory is available than the floor.",
    "MEM_FOREIGN": "Somebody else has the memory.",
    "MEM_FRAGMENTED": "Memory is free and not in one piece.",
    "MEM_GUARD": "Memory ran out, and the watchdog ended the rank.",
    "MEM_HOST_OOM": "The kernel had no memory left and ended a process.",
    "MEM_LOW": "Memory runs low.",
    "MEM_NOT_RETURNED": "The memory of the last run has not come back.",
    "MEM_NVRM_RETRY": "The driver had to ask twice for memory, and got it.",
    "MEM_PAGECACHE": "The page cache has the memory, which CUDA on GB10 counts as used.",
    "MEM_REFUSING": "Memory is so low that new requests are refused (503).",
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
    "NOPE_CONTRACT": "vLLM's sparse MLA is not as the padded way through it knows it.",
    "NOT_READY": "The demo's pair does not serve.",
    "OUTPUT_DEGENERATE": "The model's answer is none.",
    "OVERLAY_CONTRACT": "vLLM is not as the overlay knows it.",
    "OVERLAY_FAILED": "The overlay's kernels compute something else than the reference.",
    "OVERLAY_REFUSED": "The plugin in the engine does not let it start, and says why.",
    "OVERLAY_SETTINGS": "The overlay was given settings that it cannot read.",
    "OVERLAY_UNKNOWN": "The overlay could not check itself.",
    "OVERLAY_UNVERIFIED": "The overlay's kernels were not compared with the reference.",
    "OVERLAY_VLLM": "The overlay does not know this version of vLLM on this platform.",
    "PAGE_NOT_SERVED": "The page cannot listen where it shall.",
    "PAIR_CLOSURE": "The nodes run two generations of the system.",
    "PAIR_CONFIG": "The nodes have two configurations.",
    "PAIR_DOWN": "No rank runs on this host.",
    "PAIR_ENGINE": "The nodes have different engines.",
    "PAIR_RANK": "Two nodes are of the same rank.",
    "PAIR_TOKEN": "The pair token is missing, too short, or another on the peer.",
    "PAIR_VERSION": "The nodes have different releases of glm53ctl.",
    "PAIR_WEIGHTS": "The nodes have different weights.",
    "PEER_ABSENT": "The other node was not heard of.",
    "PEER_HELD": "The other node is held.",
    "PLAN_ARGV": "vLLM's own parser refuses the planned command line.",
    "PLAN_ENGINE": "The engine cannot be asked about a command line.",
    "PLAN_NO_GPU": "There is nothing to plan for: the configuration is of the CPU engine.",
    "PLAN_NO_ROOM": "What is configured does not fit the machine's memory.",
    "PLAN_SECRET": "The file of a secret cannot be read, or does not hold one line.",
    "PLOT_FORMAT": "A picture's name has an ending that is not known.",
    "PLOT_UNAVAILABLE": "Pictures need matplotlib, which is not installed.",
    "PORT_IN_USE": "Somebody listens on a port of the pair.",
    "PORT_REFUSED": "The host lets nobody listen on a port of the pair.",
    "PREFILL_BUSY": "A long prompt is being read.",
    "PREPARE_FAILED": "Clock cap or memory reserve could not be set.",
    "PROBE_FAILED": "The pair says ready, and the watchdog's requests get no answer.",
    "PROBE_UNKNOWN": "A fact that decides about a start could not be read.",
    "RANK_IDLE_ABORT": "A rank without work was ended by a timeout of its own.",
    "RANK_IPC_REMOVED": "Shared memory of a rank was removed by a logout.",
    "RANK_IPC_RISK": "A logout would remove shared memory of a rank.",
    "RANK_LOST": "One rank is gone.",
    "RANK_REFUSED": "A rank of `up` or of the demo does not start.",
    "RANK_RUNS": "Another supervisor of this rank runs on this host.",
    "RANK_STALE": "A rank of a run that is over is still there.",
    "RANK_UNKNOWN": "There is no such rank, or this host is none.",
    "RDMA_GID": "The GID index is right.",
    "RDMA_GID_DRIFT": "The address moved to another GID index.",
    "RDMA_GID_EMPTY": "The GID index does not hold the address as RoCE v2.",
    "RDMA_GID_EXTRA_LINKLOCAL": "A second link-local address moves the others in the GID table.",
    "RDMA_MEMLOCK": "A rank may not lock the memory that RDMA needs.",
    "REQ_BUDGET_SPENT": "Thinking used all of max_tokens.",
    "REQ_CONTEXT": "A request is longer than the context; the client's fault.",
    "REQ_EFFORT": "A request names an effort that is not known.",
    "REQ_EFFORT_COERCED": "An effort that the template does not know becomes another.",
    "REQ_EXTENSION": "A request names a field for an extension that this server has not.",
    "REQ_EXTRA_BODY": "A literal extra_body is ignored.",
    "REQ_FOREIGN": "A request names a field that is not served.",
    "REQ_GUIDED": "A request's guided fields contradict each other, or are not valid.",
    "REQ_GUIDED_IGNORED": "A guided field of a request is ignored by vLLM.",
    "REQ_KEY": "The server wants another API key.",
    "REQ_KWARGS_NOT_OBJECT": "chat_template_kwargs is no object.",
    "REQ_MM_LIMIT": "A request has too many images or videos; the client's fault.",
    "REQ_MODEL": "The server knows no such model or path.",
    "REQ_OK": "Nothing is wrong with the request.",
    "REQ_REFUSED": "The server refused a request.",
    "REQ_ROLE": "A message has a role that the template does not write.",
    "REQ_SHAPE": "A request's body is not one of the API.",
    "RUN_DIR_UNUSABLE": "The directory of the sockets cannot be used by who runs this.",
    "SECRET_FILE_MODE": "Others may read a file with secrets.",
    "SPEC_ACCEPT_COLLAPSE": "Later drafted positions are hardly ever accepted.",
    "SPEC_OK": "The draft is accepted as usual.",
    "SPEC_TOO_FEW": "Too few drafts to judge.",
    "START_PROGRESS": "The start makes progress.",
    "STOPPED": "The pair was stopped on command.",
    "STOPS_CONTRACT": "vLLM's stop strings are not as the overlay knows them.",
    "STOP_SLOW": "A rank still runs after it was told to stop.",
    "SUPERVISOR_LOST": "A supervisor is gone: killed, crashed, or given up by systemd.",
    "SUPERVISOR_REFUSED": "A supervisor ended because its configuration cannot be used.",
    "SUPERVISOR_STUCK": "A supervisor runs and does not answer.",
    "SWITCH_BENCH": "The words after `--bench` are no bench that can be run.",
    "SWITCH_KEPT": "The new profile serves, and was kept.",
    "SWITCH_NOTHING": "The pair runs with that profile already.",
    "SWITCH_NO_MEASURE": "There is no measurement to compare the new profile with.",
    "SWITCH_PLACE": "A switch cannot change `nodes`, `link` or `paths`.",
    "SWITCH_RUNNING": "Another switch is under way.",
    "SWITCH_UNDONE": "The new profile did not prove itself, and the old one is back.",
    "SYNC_DENIED": "The head does not accept the worker's pair token.",
    "SYNC_NOT_READY": "The head has not verified the weights yet.",
    "TIME_SKEW": "A clock is wrong.",
    "TIME_UNREADABLE": "A time was given that cannot be read as one.",
    "TOOL_NAME_STRAY_TOKEN": "The model appended a stray token to a tool's name.",
    "UNIT_START_LIMIT": "systemd gave up: too many starts.",
    "UNIT_START_LIMIT_MISPLACED": "The start limit is where systemd does not read it.",
    "UNIT_TIMEOUT_SHORT": "systemd or vLLM ends a start that still makes progress.",
    "UNIT_WATCHDOG": "systemd's watchdog ended the supervisor.",
    "UP_NOT_LOCAL": "`up` is for one host, and a node has an address elsewhere.",
    "WARMUP_FAILED": "Requests of the warm-up before READY failed.",
    "WARMUP_LATE": "The warm-up before READY ended at its limit, without all shapes.",
    "WATCHDOG_GAVE_UP": "The watchdog tried its remedy often enough.",
    "WEIGHTS_DAMAGED": "A file of the weights is not what was verified.",
    "WEIGHTS_KEYS": "The checkpoint holds other tensors than the model wants.",
    "WEIGHTS_LOCAL": "weights.source is `local`: nothing is fetched or verified.",
    "WEIGHTS_LOCKED": "The lock of the weights is not what the hub offers.",
    "WEIGHTS_MANIFEST": "The manifest of the weights cannot be read.",
    "WEIGHTS_MISSING": "Weights, or a file of them, are not there.",
    "WEIGHTS_REVISION": "The pinned revision is not a commit.",
    "WEIGHTS_TWICE": "Weights were put here by hand beside files that are here already.",
    "WEIGHTS_UNREADABLE": "A file of the checkpoint cannot be read.",
    "WEIGHTS_UNVERIFIED": "A file of the weights was not verified, or was changed since.",
}
"""Code to meaning, of everything that is reported anywhere: by the program, the overlay or Nix."""

_INTRO = """\
# Codes

Written by `python -m glm53ctl.codes`; a test keeps it equal to the code.

Each finding and each error carries a code with one meaning, for searching and for programs.
`doctor` finds it by a check of facts, `config check` by a rule, `explain` by a line of a log. Where
nothing is named, the command that was typed says it, or what runs: the supervisor, the watchdog,
the fetcher, the engine's overlay (`ABLIT_`, `DENSE_`, `EXL3_`, `GUARD_`, `OVERLAY_`).

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
