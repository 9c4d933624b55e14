"""Logs for strangers: lines of known shapes only, cut where they begin to quote a request.

A prompt may hold anything, line ends as well. So a line that begins no record is shown only where
it is a frame or the last line of a traceback, or what `explain` knows.
"""

import re
from collections.abc import Iterable, Iterator

from glm53ctl.diagnose.table import SIGNATURES
from glm53ctl.redact import without_prompt

_RECORD = re.compile(
    r"^(?:\S+ )?(?:\((?:\w+[ =])*[\w.=-]+\) )*"  # a journal's time, a process of the engine
    r"(?:(?:INFO|WARNING|ERROR|DEBUG|CRITICAL)\b|(?:[\w@.-]+)\[\d+\]: |rank \d: |watchdog: |"
    r"\S+:\d+:\d+ \[\d\] NCCL )"
)
_TRACEBACK = re.compile(
    r"^\s*(?:\(\S+(?: pid=\d+)?\) )?(?:Traceback \(most recent|File \"[^\"]+\", line \d+|"
    r"[\w.]*(?:Error|Exception|Interrupt|Exit)(?::|$)|During handling|The above exception)"
)


def shown(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines that may be shown, and how many were left out between them."""
    left_out, quoting = 0, False
    for line in lines:
        begins = _RECORD.match(line) is not None
        quoting = quoting and not begins
        if quoting or not (begins or _TRACEBACK.match(line) or _is_known(line)):
            left_out += 1
            continue
        if left_out:
            yield f"({left_out} lines not shown)"
            left_out = 0
        text, quoting = without_prompt(line)
        yield text
    if left_out:
        yield f"({left_out} lines not shown)"


def _is_known(line: str) -> bool:
    return any(signature.main.search(line) for signature in SIGNATURES)
