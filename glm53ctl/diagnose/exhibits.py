"""What a file is, and which reader it is for."""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from glm53ctl.diagnose.corroborate import read_mtus, with_memory, with_mtus
from glm53ctl.diagnose.diagnosis import Diagnosis
from glm53ctl.diagnose.events import judge_events, judge_progress, parse_records
from glm53ctl.diagnose.lines import Readable
from glm53ctl.diagnose.log import LogReader
from glm53ctl.diagnose.readings import SERVING_COLUMNS, judge_serving, parse_readings
from glm53ctl.diagnose.request import Answer, judge_answer, lint_request
from glm53ctl.diagnose.stall import judge_start
from glm53ctl.diagnose.story import clock
from glm53ctl.findings import Severity
from glm53ctl.jsontext import json_or_none

_HUB = frozenset({"x-error-code", "x-error-message", "ratelimit"})
"""Headers of the Hub, whose answers are the fetcher's."""
_REQUEST_FIELDS = frozenset({"messages", "prompt", "input"})

LARGEST_TEXT = 16 << 20
"""What is read whole of anything but a log, in bytes."""


class Kind(Enum):
    """Kinds of files that are told apart by their beginning."""

    LOG = auto()
    REQUEST = auto()
    ANSWER = auto()
    HTTP = auto()
    READINGS = auto()
    RECORDS = auto()
    DEVINFO = auto()
    MEMINFO = auto()


@dataclass(frozen=True)
class Exhibit:
    """A file to explain: its name, its content, and what it is when that is known."""

    name: str
    stream: Readable
    kind: Kind | None = None

    @classmethod
    def of(cls, name: str, text: str) -> "Exhibit":
        """Return a text as an exhibit."""
        return cls(name, io.BytesIO(text.encode()))


@dataclass(frozen=True)
class _Sorted:
    kind: Kind
    name: str
    text: str


def kind_of(text: str) -> Kind:
    """Return what a file is, from its beginning (a whole file, when it is JSON)."""
    start = text.lstrip()
    if start.startswith("{"):
        value = json_or_none(start)
        if isinstance(value, dict):
            if "choices" in value or "error" in value:
                return Kind.ANSWER
            if "t" in value:
                return Kind.RECORDS
            return Kind.REQUEST if _REQUEST_FIELDS & value.keys() else Kind.LOG
        first = json_or_none(start.splitlines()[0])
        return Kind.RECORDS if isinstance(first, dict) and "t" in first else Kind.LOG
    if start.startswith("HTTP/"):
        return Kind.HTTP
    if start.startswith("hca_id:"):
        return Kind.DEVINFO
    if start.startswith("MemTotal:"):
        return Kind.MEMINFO
    header = start.split("\n", 1)[0].strip().split(",")
    return Kind.READINGS if set(SERVING_COLUMNS) <= set(header) else Kind.LOG


def parse_http(text: str) -> tuple[Answer, dict[str, str]]:
    """Read a recorded HTTP response: the answer, and its headers by lower-case name."""
    head, _, body = text.replace("\r\n", "\n").partition("\n\n")
    first, *lines = head.splitlines()
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines)
    }
    status = first.split(" ", 2)[1:2]
    code = int(status[0]) if status and re.fullmatch(r"[0-9]{3}", status[0]) else 0
    parsed = json_or_none(body)
    return Answer(code, parsed if parsed is not None else body.strip()), headers


def explain(exhibits: Sequence[Exhibit], now: str | None = None) -> list[Diagnosis]:
    """Return what the files of one node or one incident say together, causes first.

    `now` is the time, as logs write it (`09-20 10:05:30`), at which a start that is still on its
    way is judged; without it, silence is not judged.
    """
    reader = LogReader()
    texts: list[_Sorted] = []
    for exhibit in exhibits:
        beginning = exhibit.stream.read(4096)
        if _is_json(exhibit) or beginning.lstrip().startswith(b"{"):  # is known by its end
            beginning += exhibit.stream.read(LARGEST_TEXT)
        text = beginning.decode("utf-8", errors="replace")
        kind = exhibit.kind or kind_of(text)
        if kind is Kind.LOG:
            reader.read(exhibit.name, _Again(beginning, exhibit.stream))
        else:
            rest = exhibit.stream.read(LARGEST_TEXT).decode("utf-8", errors="replace")
            texts.append(_Sorted(kind, exhibit.name, text + rest))
    mtus = read_mtus(one.text for one in texts if one.kind is Kind.DEVINFO)
    memory = next((one.text for one in texts if one.kind is Kind.MEMINFO), "")
    found = [with_memory(with_mtus(one, mtus), memory) for one in reader.diagnoses()]
    at = clock(now) if now else None
    failed = any(one.finding.severity is Severity.FAIL for one in found)
    if at is not None and not failed and (start := judge_start([*reader.stories.values()], at)):
        found.append(start)
    found += _of_records(texts)
    found += _of_requests(texts)
    return found


def _is_json(exhibit: Exhibit) -> bool:
    return exhibit.name.endswith((".json", ".jsonl"))


class _Again:
    """A stream whose beginning was read already."""

    def __init__(self, beginning: bytes, rest: Readable) -> None:
        self._beginning, self._rest = beginning, rest

    def read(self, size: int = -1, /) -> bytes:
        """Read the beginning first, then what follows."""
        if self._beginning:
            beginning, self._beginning = self._beginning, b""
            return beginning
        return self._rest.read(size)


def _of_records(texts: Sequence[_Sorted]) -> list[Diagnosis]:
    found: list[Diagnosis | None] = []
    for one in texts:
        if one.kind is Kind.READINGS:
            found.append(judge_serving(parse_readings(one.text)))
        elif one.kind is Kind.RECORDS:
            records = parse_records(one.text)
            found += (judge_events(records), judge_progress(records))
    return [one for one in found if one is not None]


def _of_requests(texts: Sequence[_Sorted]) -> list[Diagnosis]:
    """Judge requests and answers; an answer is judged with the request beside it."""
    requests = [json_or_none(one.text) for one in texts if one.kind is Kind.REQUEST]
    answers = [_answer(json_or_none(one.text)) for one in texts if one.kind is Kind.ANSWER]
    https = [parse_http(one.text) for one in texts if one.kind is Kind.HTTP]
    answers += [answer for answer, headers in https if not _HUB & headers.keys()]
    findings = [finding for body in requests for finding in lint_request(body)]
    told = [one for a in answers for one in judge_answer(a, requests[0] if requests else None)]
    if told:  # what came back says more than that the request was well formed
        findings = [one for one in findings if one.code != "REQ_OK"] + told
    return [Diagnosis(finding) for finding in findings]


def _answer(body: object) -> Answer:
    """Return a body that came without its head; an error's own code stands for the status."""
    error = body.get("error") if isinstance(body, dict) else None
    if not error:
        return Answer(200, body)
    code = error.get("code") if isinstance(error, dict) else None
    return Answer(code if isinstance(code, int) and 400 <= code < 600 else 400, body)
