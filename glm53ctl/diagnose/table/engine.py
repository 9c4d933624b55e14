"""What vLLM itself refuses or loses."""

from glm53ctl.diagnose.signature import Confidence, Signature
from glm53ctl.supervise.stages import Stage

TABLE = (
    Signature(
        "CFG_FORBIDDEN",
        ("No valid attention backend found",),
        r"No valid attention backend found.*?kv_cache_dtype=(?P<kv>\w+)",
        "no attention kernel takes kv_cache_dtype {kv}: sparse MLA on GB10 works with fp8 only.",
        "Set kv.dtype to fp8.",
        when=lambda found: not found["kv"].startswith("fp8"),
    ),
    Signature(
        "CFG_TOOL_PARSER",
        ("which has not been registered", "invalid tool call parser", "invalid reasoning parser"),
        r"requires tool_parser:'(?P<parser>[^']+)' which has not been registered|"
        r"invalid (?:tool call|reasoning) parser: (?P<parser_>\S+)",
        "the parser {parser} is not registered in vLLM.",
        "Use glm47 for tool calls and glm45 for reasoning.",
    ),
    Signature(
        "CFG_CHAT_TEMPLATE",
        ("TemplateError", "TemplateSyntaxError", "default chat template is no longer allowed"),
        r"TemplateSyntaxError|default chat template is no longer allowed|"
        r"(?:ERROR|Traceback).*jinja2\.exceptions\.TemplateError",
        "the chat template cannot be used.",
        "Name a template that fits this model in thinking.chat_template, or leave it out.",
    ),
    Signature(
        "CFG_ENGINE_ARGUMENT",
        ("error: unrecognized arguments", "error: argument "),
        r"error: (?:unrecognized arguments|argument \S+): (?P<what>.*)",
        "the engine does not know an argument: {what}.",
        "`glm53ctl plan argv --check` asks the installed engine before anything is stopped.",
    ),
    Signature(
        "OVERLAY_REFUSED",
        ("OverlayError: ",),
        r"OverlayError: (?P<what>[A-Z][A-Z0-9_]+): (?P<why>.*\S)",
        "the overlay ends the start: {what}: {why}",
        "Mend what the sentence names, then start again; docs/engine.md has the reasons.",
    ),
    Signature(
        "WEIGHTS_KEYS",
        ("is missing: dict_keys", "There is no module or parameter named"),
        r"There is no module or parameter named '(?P<name>[^']+)'",
        "the checkpoint holds a tensor that this model has not ({name}): they are of two models.",
        "Point weights.model_dir at the checkpoint that the manifest describes.",
        stages=frozenset({Stage.BOOT, Stage.LOAD, Stage.KV}),
    ),
    Signature(
        "RANK_IPC_REMOVED",
        ("/psm_", "/sem."),
        r"FileNotFoundError: \[Errno 2\] No such file or directory: '(?P<path>/(?:dev/shm/)?"
        r"(?:psm_|sem\.)[^']*)'",
        "shared memory of the engine ({path}) was removed while it ran.",
        "systemd removes it when the service's user logs out: use a system user (below uid 1000), "
        "or set RemoveIPC=no in logind.conf.",
    ),
    Signature(
        "GPU_XID",
        ("NVRM: Xid",),
        r"NVRM: Xid \(PCI:(?P<pci>[^)]+)\): (?P<xid>\d+)",
        "the GPU reports an error (Xid {xid}).",
        "Xid 79 and 119 need a power cycle of the node; others are the engine's or the driver's.",
        confidence=Confidence.LIKELY,
    ),
    Signature(
        "HOST_FILES_LIMIT",
        ("Too many open files",),
        r"(?<!`)OSError: \[Errno 24\] Too many open files",
        "the engine ran out of file descriptors.",
        "Set LimitNOFILE=1048576 in the unit (the units of this package do).",
    ),
    Signature(
        "MODEL_ILLEGAL_ACCESS",
        ("an illegal memory access", "illegal instruction was encountered"),
        r"CUDA error: an illegal (?:memory access|instruction) was encountered",
        "a kernel of the engine failed on the GPU.",
        "Start the pair again; if it comes back with the same request, report it with the log.",
        confidence=Confidence.LIKELY,
    ),
    Signature(
        "EXECUTE_TIMEOUT",
        ("RPC call to",),
        r"RPC call to (?P<call>\w+) timed out",
        "a rank gave no answer to {call} in time.",
        "The other rank stands still or is gone: look at its log of the same minute.",
        confidence=Confidence.LIKELY,
    ),
)
