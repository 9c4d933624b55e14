"""Checks of a host: memory, GPU, ports, clock, kernel, limits, libraries, past boots."""

import re
from collections import Counter
from collections.abc import Iterator

from glm53ctl.checks.registry import Node, fail, node_check, ok, pair_check, warn
from glm53ctl.checks.wanted import share_gib
from glm53ctl.facts.host import known
from glm53ctl.facts.memory import MemoryFacts, gib
from glm53ctl.facts.nvml import GpuFacts
from glm53ctl.facts.system import DRIVER_DIR
from glm53ctl.findings import Finding

SWAP_RESIDUE_GIB = 1.0
SHMEM_RESIDUE_GIB = 8.0
LOADED_PERCENT = 90
HOT_CELSIUS = 85
STUCK_MHZ, STUCK_WATTS, COOL_CELSIUS = 900, 25.0, 75
"""A board that negotiated too little power: all three under load, and no throttle reason."""
SKEW_WARN_SECONDS, SKEW_FAIL_SECONDS = 2.0, 60.0
RESETS = 2
FOUR_KIB = 4096


@node_check("PROBE_UNKNOWN")
def probes(node: Node) -> Iterator[Finding]:
    """Check that what decides about a start could be read."""
    deciding = {"network", "network.probes", "memory"}
    deciding |= {"rdma", "gpus"} if node.wanted.rdma else set()
    for name, why in node.facts.unknowns().items():
        if name in deciding:
            yield warn(
                "PROBE_UNKNOWN",
                f"nothing is known of {name}: {why}.",
                "Make it readable, or look by other means.",
                where=name,
            )


# --- memory --------------------------------------------------------------------------------------


@node_check("MEM_PAGECACHE", "MEM_FOREIGN", "MEM_SWAP_RESIDUE")
def memory_for_the_gpu(node: Node) -> Iterator[Finding]:
    """Check that enough memory is free for the share that the engine takes."""
    memory, share = known(node.facts.memory), node.wanted.utilisation
    if memory is None or share is None or node.serving or not memory.total:
        return
    need = share_gib(share, memory)
    if gib(memory.available) < need:
        yield _foreign(node, memory, need)
        return
    if gib(memory.free) < need:
        yield warn(
            "MEM_PAGECACHE",
            f"{gib(memory.free):.1f} GiB are free and {gib(memory.available):.1f} available: the "
            "page cache holds the rest, and CUDA on GB10 counts it as used.",
            f"drop_caches (glm53-reclaim.service does), then wait for MemFree >= {need:.1f} GiB.",
            f"Cached: {gib(memory.cached):.1f} GiB",
        )
    if gib(memory.swap_used) >= SWAP_RESIDUE_GIB:
        yield warn(
            "MEM_SWAP_RESIDUE",
            f"{gib(memory.swap_used):.1f} GiB are still in swap, with room for them in memory.",
            "Cycle swap before the load: swapoff -a && swapon -a.",
        )


def _foreign(node: Node, memory: MemoryFacts, need: float) -> Finding:
    largest = known(node.facts.processes) or ()
    return fail(
        "MEM_FOREIGN",
        f"{gib(memory.available):.1f} GiB of memory are available, {need:.1f} are needed"
        + (
            f"; {largest[0].name} (pid {largest[0].pid}) has {gib(largest[0].rss_kib):.1f} GiB."
            if largest
            else "."
        ),
        "Stop what else runs on this machine.",
        *(f"pid {one.pid} {gib(one.rss_kib):.1f} GiB {one.command or one.name}" for one in largest),
    )


@node_check("MEM_FLOOR")
def memory_floor(node: Node) -> Iterator[Finding]:
    """Check that more memory is available than the floor at which the pair is stopped."""
    memory = known(node.facts.memory)
    if memory is not None and gib(memory.available) < node.wanted.floor_gib:
        yield fail(
            "MEM_FLOOR",
            f"{memory.available // 1024} MiB are available, below the floor of "
            f"{node.wanted.floor_gib:g} GiB.",
            "Admit no work and stop both ranks before the kernel has to choose.",
        )


@node_check("MEM_NOT_RETURNED")
def memory_returned(node: Node) -> Iterator[Finding]:
    """Check that shared memory of a past engine is gone."""
    memory = known(node.facts.memory)
    running = node.serving or any(
        unit.get("ActiveState") in ("active", "activating")
        for unit in known(node.facts.units) or ()
        if "-rank" in unit.id
    )
    if memory is not None and not running and gib(memory.shmem) >= SHMEM_RESIDUE_GIB:
        yield warn(
            "MEM_NOT_RETURNED",
            f"{gib(memory.shmem):.1f} GiB of shared memory are still held, and no rank runs here.",
            "Wait; do not start yet. If it stays, look into /dev/shm and for processes left over.",
            f"MemFree: {gib(memory.free):.1f} GiB",
        )


# --- GPU -----------------------------------------------------------------------------------------


@node_check("GPU_CLOCK_STUCK", "GPU_THERMAL", "GPU_IDLE")
def gpu_clock(node: Node) -> Iterator[Finding]:
    """Check that the GPU is as fast as it should be under load; idle clocks say nothing."""
    for gpu in known(node.facts.gpus) or ():
        if gpu.utilisation_percent is None or gpu.sm_clock_mhz is None:
            continue
        state = f"{gpu.sm_clock_mhz} MHz, {_watts(gpu)}, {gpu.temperature_celsius} °C"
        if gpu.utilisation_percent < LOADED_PERCENT:
            yield ok("GPU_IDLE", f"not under load ({gpu.utilisation_percent} %): {state}.")
        elif (gpu.temperature_celsius or 0) >= HOT_CELSIUS:
            yield warn(
                "GPU_THERMAL",
                f"hot under load: {state}.",
                "Apply a clock cap (power.max_gpu_clock_mhz) and look at the airflow.",
            )
        elif _is_stuck(gpu):
            yield fail(
                "GPU_CLOCK_STUCK",
                f"a low clock under full load, cool and at low power: {state}. The power supply "
                "negotiated too little.",
                "Remove AC power for 60 s on this node; nothing else clears it.",
            )


def _watts(gpu: GpuFacts) -> str:
    return "power unknown" if gpu.power_watts is None else f"{gpu.power_watts:.2f} W"


def _is_stuck(gpu: GpuFacts) -> bool:
    return (
        (gpu.sm_clock_mhz or STUCK_MHZ) < STUCK_MHZ
        and (gpu.power_watts or 0.0) < STUCK_WATTS
        and (gpu.temperature_celsius or 0) < COOL_CELSIUS
    )


@node_check("GPU_CLOCK_CAP_MISSING")
def clock_cap(node: Node) -> Iterator[Finding]:
    """Check that the cap of the GPU clock that the settings ask for holds; a reboot forgets it."""
    cap = known(node.facts.clock_cap)
    if cap is None:
        return
    asked = f"{cap.low_mhz},{cap.cap_mhz}"
    if cap.boot_id != _boot_id(node) or (cap.seen_mhz is not None and cap.seen_mhz > cap.cap_mhz):
        seen = f", and {cap.seen_mhz} MHz were seen" if cap.seen_mhz is not None else ""
        yield warn(
            "GPU_CLOCK_CAP_MISSING",
            f"the clock cap {asked} MHz was not set since the boot{seen}.",
            "Restart glm53-prepare.service before the ranks start.",
        )


def _boot_id(node: Node) -> str:
    kernel = known(node.facts.kernel)
    return kernel.boot_id if kernel else ""


# --- ports and ranks -----------------------------------------------------------------------------


@node_check("PORT_IN_USE")
def ports(node: Node) -> Iterator[Finding]:
    """Check that nobody else listens on the ports of the head."""
    users = {p.pid: p.name for gpu in known(node.facts.gpus) or () for p in gpu.processes}
    if node.serving:
        return
    for key, port in node.wanted.ports.items():
        for one in known(node.facts.listeners) or ():
            if one.port != port:
                continue
            name = users.get(one.pid or 0) or one.name or "another process"
            yield fail(
                "PORT_IN_USE",
                f"port {port} ({key}) is held by {name}"
                + (f" (pid {one.pid})." if one.pid else "."),
                "Stop that process; it is left from another run, or somebody else's.",
                *(
                    f"pid {pid} {title} uses the GPU"
                    for pid, title in users.items()
                    if pid == one.pid
                ),
                where=key,
            )


@pair_check("RANK_STALE")
def stale_rank(nodes: tuple[Node, ...]) -> Iterator[Finding]:
    """Check that no rank runs without the others: it holds memory and never comes back to life."""
    ranks = {
        unit.id.removesuffix(".service"): (node.name, unit.get("ActiveState"))
        for node in nodes
        for unit in known(node.facts.units) or ()
        if re.fullmatch(r"glm53-rank\d\.service", unit.id)
    }
    dead = [name for name, (_, state) in ranks.items() if state in ("failed", "inactive")]
    for name, (node, state) in ranks.items():
        if state == "active" and dead:
            finding = fail(
                "RANK_STALE",
                f"{name} is {state} while {', '.join(dead)} is {ranks[dead[0]][1]}: it is left "
                "from a run that is over.",
                "Stop both units, wait until the memory is back, then start.",
                where=f"{name}.service",
            )
            yield finding.model_copy(update={"node": node})


@node_check("PEER_HELD")
def peer_held(node: Node) -> Iterator[Finding]:
    """Check that the peer may start."""
    peer = known(node.facts.peer)
    if peer is not None and peer.state == "HELD":
        yield fail(
            "PEER_HELD",
            f"{peer.name} is held ({peer.reason or 'no reason given'}): no start until somebody "
            "has looked.",
            f"Look at {peer.name}, then `glm53ctl resume` there.",
        )


@node_check("HOST_RESET_LOOP")
def reset_loop(node: Node) -> Iterator[Finding]:
    """Check that the machine did not go down twice while the engine was loading."""
    boots = known(node.facts.boots) or ()
    stages = Counter(boot.stage for boot in boots if boot.stage in ("load", "prefill"))
    if sum(stages.values()) >= RESETS:
        names = ", ".join(boot.boot_id for boot in boots)
        stage = stages.most_common(1)[0][0]
        yield fail(
            "HOST_RESET_LOOP",
            f"the machine went down {sum(stages.values())} times in stage {stage} (boots {names}).",
            "HELD until an operator clears it (`glm53ctl resume`): look at power, heat and kernel.",
        )


@node_check("RANK_IPC_RISK")
def shared_memory_kept(node: Node) -> Iterator[Finding]:
    """Check that logging out does not take the rank's shared memory away."""
    for unit in known(node.facts.units) or ():
        user = unit.get("User")
        if "-rank" not in unit.id or unit.get("PrivateIPC") == "yes":
            continue
        if (
            re.fullmatch(r"[0-9]{1,10}", user)
            and int(user) >= 1000
            and unit.get("RemoveIPC") == "yes"
        ):
            yield fail(
                "RANK_IPC_RISK",
                f"{unit.id} runs as the login user {user}: logind removes its shared memory when "
                "that user logs out.",
                "Run it as a system user, or set RemoveIPC=no in logind.conf.",
                where=unit.id,
            )


# --- kernel, clock, limits, libraries ------------------------------------------------------------


@node_check("KERNEL_PAGE_SIZE")
def page_size(node: Node) -> Iterator[Finding]:
    """Check that pages have 4 KiB: with larger ones the driver hangs copying mapped files."""
    kernel = known(node.facts.kernel)
    if kernel is not None and node.wanted.rdma and kernel.page_size != FOUR_KIB:
        yield fail(
            "KERNEL_PAGE_SIZE",
            f"this kernel ({kernel.release}) has pages of {kernel.page_size} bytes.",
            "Boot a kernel with pages of 4096 bytes.",
        )


@node_check("TIME_SKEW")
def clock(node: Node) -> Iterator[Finding]:
    """Check that the clock agrees with the head's and with a time server."""
    facts = known(node.facts.clock)
    if facts is None:
        return
    offset = facts.offset_seconds
    server = f"NTPSynchronized={'yes' if facts.synchronised else 'no'}"
    if offset is not None and abs(offset) > SKEW_WARN_SECONDS:
        far = f"{abs(offset):.0f} s ({abs(offset) / 86_400:.0f} days)"
        say = fail if abs(offset) > SKEW_FAIL_SECONDS else warn
        yield say(
            "TIME_SKEW",
            f"the clock is {far} {'behind' if offset < 0 else 'ahead of'} the head's; {server}.",
            "Let the node reach a time server (the head can be one), or set the clock.",
            *([f"clock: {facts.time}"] if facts.time else []),
        )
    elif facts.synchronised is False and offset is None:
        yield warn(
            "TIME_SKEW",
            f"no time server was reached ({server}): certificates and logs need a right clock.",
            "Let the node reach a time server.",
        )


@node_check("RDMA_MEMLOCK")
def memory_lock(node: Node) -> Iterator[Finding]:
    """Check that the ranks may lock the memory that RDMA registers."""
    for unit in known(node.facts.units) or ():
        limit = unit.get("LimitMEMLOCK")
        if "-rank" in unit.id and limit and limit != "infinity":
            yield fail(
                "RDMA_MEMLOCK",
                f"{unit.id} may lock {limit} bytes: registering RDMA buffers fails.",
                "Set LimitMEMLOCK=infinity in the unit; PAM limits do not count for services.",
                where=unit.id,
            )


@node_check("LIB_LIBCUDA")
def driver_library(node: Node) -> Iterator[Finding]:
    """Check that the engine finds the driver's library, which it opens by name."""
    libraries = known(node.facts.libraries)
    if libraries is None or not node.wanted.rdma or libraries.driver_dir:
        return
    found = [path for path in libraries.found if path.endswith("/libcuda.so.1")]
    if found and "/nix/store" not in libraries.search_path:
        return
    elsewhere = f"; it is in {', '.join(found)}" if found else ""
    yield fail(
        "LIB_LIBCUDA",
        f"there is no libcuda.so.1 in {DRIVER_DIR}{elsewhere}, and programs built by Nix look "
        "nowhere else."
        if found
        else f"libcuda.so.1 was not found, neither in {DRIVER_DIR} nor where distributions put it.",
        f"Put a link to the driver's libcuda.so.1 into {DRIVER_DIR}."
        if found
        else "Install the NVIDIA driver.",
    )


@pair_check("NODE_MISMATCH")
def alike(nodes: tuple[Node, ...]) -> Iterator[Finding]:
    """Check that both nodes run the same kernel, driver and program."""
    for name, values in _compared(nodes):
        told = [value for value in values if value]
        if len(told) == len(nodes) and len(set(told)) > 1:
            pairs = ", ".join(f"{v} on {n.name}" for v, n in zip(values, nodes, strict=True))
            yield warn(
                "NODE_MISMATCH",
                f"{name} differs: {pairs}.",
                "Bring both nodes to the same state.",
                where=name,
            )


def _compared(nodes: tuple[Node, ...]) -> Iterator[tuple[str, list[str]]]:
    kernels = [known(node.facts.kernel) for node in nodes]
    yield "the kernel", [kernel.release if kernel else "" for kernel in kernels]
    gpus = [known(node.facts.gpus) or () for node in nodes]
    yield "the NVIDIA driver", [gpu[0].driver if gpu else "" for gpu in gpus]
    software = [known(node.facts.software) for node in nodes]
    yield "glm53ctl", [one.version if one else "" for one in software]
    yield "the system closure", [one.closure if one else "" for one in software]
