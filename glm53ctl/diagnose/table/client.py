"""What clients did, as the server's log tells it: on record, and no fault of the pair."""

from glm53ctl.diagnose.signature import Signature
from glm53ctl.findings import Severity

TABLE = (
    Signature(
        "REQ_CONTEXT",
        ("maximum context length is",),
        r"maximum context length is (?P<window>\d+) tokens",
        "a client asked for more than the window of {window} tokens and was answered 400.",
        "The client must shorten its prompt.",
        severity=Severity.OK,
    ),
    Signature(
        "REQ_MM_LIMIT",
        ("may be provided in one prompt",),
        r"At most (?P<count>\d+) (?P<what>\w+)\(s\) may be provided in one prompt",
        "a client sent more than {count} {what}s in one prompt and was answered 400.",
        "The client must send fewer: every turn repeats the earlier ones.",
        severity=Severity.OK,
    ),
)
