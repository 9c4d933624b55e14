"""Memory: on GB10 the host's and the GPU's are one."""

from glm53ctl.diagnose.signature import Confidence, Groups, Signature
from glm53ctl.findings import Severity

_FREE = (
    r"Free memory on device \S+ \((?P<free>\d+(?:\.\d+)?)/(?P<total>\d+(?:\.\d+)?) GiB\) on "
    r"startup is less than desired GPU memory utilization \([\d.]+, (?P<need>\d+(?:\.\d+)?) GiB\)"
)
_NVRM = "NV_ERR_NO_MEMORY"
SHORT_OF_IT = 0.1
"""Share of all memory up to which a shortage is what the last engine has not given back yet."""
FULL_CACHE = 0.3
"""Share of free memory below which the page cache is the usual reason on a dedicated host."""


def _mostly_cache(found: Groups) -> bool:
    return float(found["free"]) <= FULL_CACHE * float(found["total"])


def _nearly_enough(found: Groups) -> bool:
    return float(found["need"]) - float(found["free"]) <= SHORT_OF_IT * float(found["total"])


TABLE = (
    Signature(
        "MM_HOST_OOM",
        ("scheduled_encoder_inputs={", _NVRM),
        r"(?:num_computed_tokens=\[(?P<tokens>\d+)\].*)?scheduled_encoder_inputs=\{[^}]",
        "an image or video was in the encoder <({tokens} tokens computed before it) >when the "
        "unified memory ran out (NV_ERR_NO_MEMORY).",
        "Lower media.images, media.max_frames or the size of images; no memory is reserved for "
        "the encoder.",
        also=(r"\[NV_ERR_NO_MEMORY\]",),
        needs_also=True,
    ),
    Signature(
        "MEM_HOST_OOM",
        ("oom-kill:constraint=CONSTRAINT_NONE", "Out of memory: Killed process"),
        r"oom-kill:constraint=(?P<constraint>CONSTRAINT_NONE).*?"
        r"(?:task_memcg=\S*?(?P<unit>[\w@.-]+\.service)\S*?,)?task=(?P<task>[^,]+),pid=(?P<pid>\d+)|"
        r"Out of memory: Killed process (?P<pid_>\d+) \((?P<task_>[^)]+)\)",
        "the kernel ran out of host memory< ({constraint})> and killed {task} (pid {pid})"
        "< of {unit}><, which held {shmem_gib} GiB of shared memory>.",
        "Leave more memory to the host: a smaller kv.bytes, fewer or smaller media; wait until "
        "memory has come back before the next start.",
        also=(r"Out of memory: Killed process .*shmem-rss:(?P<shmem_kb>\d+)kB",),
    ),
    Signature(
        "MEM_CGROUP_LIMIT",
        ("oom-kill:constraint=CONSTRAINT_MEMCG", "Memory cgroup out of memory: Killed process"),
        r"oom-kill:constraint=CONSTRAINT_MEMCG.*?oom_memcg=(?P<group>[^,]+).*task=(?P<task>[^,]+)|"
        r"Memory cgroup out of memory: Killed process \d+ \((?P<task_>[^)]+)\)",
        "{task} was killed by the memory limit of its control group< ({group})>, not by the host.",
        "Remove MemoryMax from that unit: the supervisor's memory floor guards the host.",
    ),
    Signature(
        "MEM_HOST_OOM",
        ("killed by the OOM killer", "result 'oom-kill'"),
        r"(?P<unit>[\w@.-]+\.service): (?:A process of this unit has been killed by the OOM killer|"
        r"Failed with result 'oom-kill')",
        "the kernel killed a process of {unit} because memory ran out.",
        "`journalctl -k` says whose memory it was: the host's, or what a limit of the unit leaves.",
        confidence=Confidence.SYMPTOM,
    ),
    Signature(
        "MEM_FRAGMENTED",
        (_NVRM, " zone "),
        r"NVRM: .*\[NV_ERR_NO_MEMORY\]",
        "the driver was refused memory while no large contiguous block was free (buddyinfo): the "
        "host's memory is in pieces after a long uptime.",
        "Free the page cache and compact memory before the load; reboot if it stays like this.",
        also=(r"zone\s+Normal(?:\s+\d+){6,10}?(?:\s+0){3,}\s*$",),
        needs_also=True,
    ),
    Signature(
        "MEM_FRAGMENTED",
        ("page allocation failure",),
        r"page allocation failure: order:(?P<order>[1-9]\d*)",
        "the kernel found no contiguous block of order {order} although memory may be free.",
        "Free the page cache and compact memory before the load; reboot if it comes back.",
    ),
    Signature(
        "MEM_PAGECACHE",
        ("Free memory on device",),
        _FREE,
        "only {free}/{total} GiB are free and {need} are wanted: on GB10 the page cache counts "
        "as used, and copied weights fill it.",
        "Drop the clean page cache on this node, then start again; `glm53ctl doctor` names "
        "processes if it is something else.",
        confidence=Confidence.LIKELY,
        when=_mostly_cache,
    ),
    Signature(
        "MEM_PAGECACHE",
        ("exceeds device memory budget",),
        r"buffer_size \((?P<buffer>[\d,.]+) B\) exceeds device memory budget "
        r"\((?P<budget>[\d,.]+) B\)",
        "the loader's buffer of {buffer} bytes does not fit the {budget} bytes that are free: on "
        "GB10 the page cache counts as used.",
        "Drop the clean page cache on this node, then start again.",
        confidence=Confidence.LIKELY,
    ),
    Signature(
        "MEM_NOT_RETURNED",
        ("Free memory on device",),
        _FREE,
        "{free}/{total} GiB are free and {need} are wanted: what the last engine held has not "
        "come back yet.",
        "Wait until memory has come back, then start again; if it stays, `glm53ctl doctor` names "
        "who holds it.",
        severity=Severity.WARN,
        confidence=Confidence.LIKELY,
        when=_nearly_enough,
    ),
    Signature(
        "MEM_FOREIGN",
        ("Free memory on device",),
        _FREE,
        "only {free}/{total} GiB are free and {need} are wanted: another process holds the rest.",
        "Stop it: `glm53ctl doctor` names it.",
        confidence=Confidence.LIKELY,
    ),
    Signature(
        "KV_TOO_SMALL",
        ("KV cache is needed", "No available memory for the cache blocks"),
        r"(?:max seq len \((?P<window>\d+)\).*?)?\(?(?P<need>[\d.]+) GiB\)? KV cache is needed, "
        r"which is larger than the available KV cache memory \((?P<have>[\d.]+) GiB\)|"
        r"No available memory for the cache blocks",
        "the KV cache has no room for one request of serve.max_model_len< {window}><: {need} GiB "
        "needed, {have} there>.",
        "Lower serve.max_model_len, or size the cache with kv.bytes.",
    ),
    Signature(
        "GPU_OUT_OF_MEMORY",
        ("CUDA out of memory", "CUDA error: out of memory"),
        r"(?:OutOfMemoryError: )?CUDA (?:error: )?out of memory(?:\. Tried to allocate "
        r"(?P<want>[\d.]+ [GM]iB))?",
        "an allocation on the GPU failed< ({want})>; on GB10 that is the host's memory too.",
        "Lower kv.bytes or serve.max_num_batched_tokens.",
        confidence=Confidence.LIKELY,
    ),
    Signature(
        "MEM_NVRM_RETRY",
        (_NVRM,),
        r"NVRM: .*\[NV_ERR_NO_MEMORY\]",
        "the NVIDIA driver was refused memory and tried again; by itself this ends nothing.",
        "Watch MemAvailable: many of these lines mean that the host is close to its limit.",
        severity=Severity.OK,
        confidence=Confidence.LIKELY,
    ),
)
