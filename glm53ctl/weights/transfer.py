"""One file over HTTP: appended to NAME.incomplete, judged by its digest, then renamed.

The bytes travel by urllib and not by huggingface_hub's downloader or httpx. The former names its
partial files anew each time, so that a killed download starts over, and accepts what it got without
a digest; its faster path (hf-xet) can stand still for good. The latter parse in Python: 1.3 s of
CPU a gigabyte against 0.2 s, and under one GIL that is less than a fast line or the fabric brings.
urllib follows redirects, knows proxies and TLS, and leaves the rest to the kernel.
"""

import errno
import http.client
import os
import re
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from glm53ctl.diagnose import explain_lines
from glm53ctl.findings import Finding, Severity
from glm53ctl.weights.hashing import Digests, absorb, broken_extents
from glm53ctl.weights.layout import INCOMPLETE
from glm53ctl.weights.manifest import Entry
from glm53ctl.weights.record import FileState, seen

PIECE_BYTES = 256 << 10
"""Read at most at once, and written at once: what a killed process loses of each stream. With a
mebibyte the allocator held 10 to 40 MB more for eight streams, and nothing was faster."""
BEHIND_BYTES = 8 << 20
"""After so many bytes the kernel is told to write them, and to drop what it has written."""
COMMIT_BYTES = 256 << 20
"""After so many bytes of a stream it is waited for the disk, so that a fast line and a slow disk do
not fill the memory: the kernel's own limit is a fifth of it."""
MAX_SOCKET_SECONDS = 30.0

_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


@dataclass(frozen=True)
class Request:
    """Where a file is. `secret` headers go to that host only; see `SameHostKeepsToken`."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    secret: Mapping[str, str] = field(default_factory=dict)


class SameHostKeepsToken(urllib.request.HTTPRedirectHandler):
    """Follows redirects; the token goes along on its own host, and to no other.

    The Hub answers for small files with another path of its own, which is as closed as the first;
    large ones lie on a storage of another name, where the address is signed.
    """

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """Return the request that follows."""
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        token = req.unredirected_hdrs.get("Authorization")
        if following is not None and token and _origin(newurl) == _origin(req.full_url):
            following.add_unredirected_header("Authorization", token)
        return following


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


@dataclass
class HttpRefusedError(Exception):
    """An answer that is no file."""

    status: int
    headers: Mapping[str, str]
    redirected: bool = False


@dataclass
class TransferError(Exception):
    """A transfer that ended early, or brought something else."""

    finding: Finding


class Throttle:
    """Holds all streams together to a rate in bytes a second; None lets everything pass."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._lock = threading.Lock()
        self._free_at = 0.0

    def wait(self, count: int, stop: threading.Event) -> None:
        """Wait until `count` more bytes may be read."""
        if self._rate is None:
            return
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + count / self._rate
            pause = self._free_at - now
        stop.wait(pause)


@dataclass(frozen=True)
class Receiver:
    """What all transfers of a set share.

    `note` gets a file's name and how many of its bytes are here; `stop` ends every transfer at
    its next piece.
    """

    directory: Path
    opener: urllib.request.OpenerDirector
    note: Callable[[str, int], None]
    stop: threading.Event
    throttle: Throttle
    socket_seconds: float = MAX_SOCKET_SECONDS

    def receive(self, entry: Entry, request: Request) -> FileState:
        """Bring one file, going on where an earlier try ended, and return its verified state.

        Raises HttpRefusedError, TransferError, or OSError of the network or the disk. Whatever it
        raises, the good bytes stay.
        """
        part = self.directory / f"{entry.path}{INCOMPLETE}"
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            digests = self._continue(fd, part, entry)
            have = os.fstat(fd).st_size
            if have < entry.size:
                digests = self._append(fd, entry, request, have, digests)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
        wrong = mismatch(entry, digests) or broken_extents(part, entry.path)
        if wrong is not None:
            part.unlink()
            self.note(entry.path, 0)
            raise TransferError(_wrong(entry, wrong))
        final = self.directory / entry.path
        os.replace(part, final)
        _sync_directory(self.directory)
        return seen(final, digests.sha256)

    def _continue(self, fd: int, part: Path, entry: Entry) -> Digests:
        """Hash what an earlier try left; too much of it is none of it."""
        digests = Digests(entry.size, git=entry.git_sha1 is not None)
        have = os.fstat(fd).st_size
        if have > entry.size:
            os.ftruncate(fd, 0)
        elif have:
            absorb(digests, part, have)
            self.note(entry.path, have)
        return digests

    def _append(
        self, fd: int, entry: Entry, request: Request, offset: int, digests: Digests
    ) -> Digests:
        """Write the rest of the file; return the digests of the whole."""
        with self._open(entry, request, offset) as answer:
            if offset and answer.status != http.HTTPStatus.PARTIAL_CONTENT:
                # It ignores ranges, so the file comes whole, and again.
                os.ftruncate(fd, 0)
                offset, digests = 0, Digests(entry.size, git=entry.git_sha1 is not None)
            told = committed = offset
            os.lseek(fd, offset, os.SEEK_SET)
            while offset < entry.size and not self.stop.is_set():
                try:
                    piece = answer.read1(min(PIECE_BYTES, entry.size - offset))
                except http.client.HTTPException:  # a chunk that ended early
                    piece = b""
                if not piece:
                    raise TransferError(_cut(entry, offset))
                _write(fd, piece)
                digests.update(piece)
                offset += len(piece)
                self.note(entry.path, offset)
                self.throttle.wait(len(piece), self.stop)
                if offset - committed >= COMMIT_BYTES:
                    os.fdatasync(fd)
                    committed = offset
                if offset - told >= BEHIND_BYTES:
                    # Begins to write what is dirty, and drops what is not (mm/fadvise.c).
                    os.posix_fadvise(fd, 0, offset, os.POSIX_FADV_DONTNEED)
                    told = offset
        if offset < entry.size:
            raise TransferError(_cut(entry, offset))
        return digests

    def _open(self, entry: Entry, request: Request, offset: int) -> http.client.HTTPResponse:
        """Ask for the file from `offset` on; the answer is the rest of this file, or an error."""
        asked = urllib.request.Request(request.url, headers=dict(request.headers))  # noqa: S310
        asked.add_header("Accept-Encoding", "identity")
        if offset:
            asked.add_header("Range", f"bytes={offset}-")
        for name, value in request.secret.items():
            asked.add_unredirected_header(name, value)
        try:
            answer: http.client.HTTPResponse = self.opener.open(asked, timeout=self.socket_seconds)
        except urllib.error.HTTPError as error:
            with error:
                redirected = error.url != request.url
                raise HttpRefusedError(
                    error.code, dict(error.headers.items()), redirected
                ) from None
        except urllib.error.URLError as error:
            reason = error.reason
            if isinstance(reason, PermissionError):  # as an error with a number it is the disk's
                why = f"this host forbids the connection ({reason.strerror})"
                raise OSError(f"{why}: look at its firewall") from None
            raise (reason if isinstance(reason, OSError) else OSError(str(reason))) from None
        except http.client.HTTPException as error:
            raise OSError(f"no HTTP answer ({error!r})") from None
        problem = _misfit(entry, offset, answer)
        if problem is not None:
            answer.close()
            raise TransferError(_wrong(entry, problem))
        return answer


def mismatch(entry: Entry, digests: Digests) -> str | None:
    """Compare digests with the manifest's; None when they agree."""
    if entry.sha256 not in (None, digests.sha256):
        return f"its sha256 is {digests.sha256}, the manifest says {entry.sha256}"
    if entry.git_sha1 not in (None, digests.git_sha1):
        return f"its git digest is {digests.git_sha1}, the manifest says {entry.git_sha1}"
    return None


def _misfit(entry: Entry, offset: int, answer: http.client.HTTPResponse) -> str | None:
    """Say why an answer cannot be this file: the length is known before the first byte."""
    headers, length = answer.headers, answer.headers.get("Content-Length")
    if answer.status == http.HTTPStatus.PARTIAL_CONTENT:
        found = _CONTENT_RANGE.fullmatch(headers.get("Content-Range", ""))
        if found is None or found[1] != str(offset):
            return f"a range from {offset} was asked for, {headers.get('Content-Range')} came"
        if found[2] not in ("*", str(entry.size)):
            return f"it has {found[2]} bytes there, the manifest says {entry.size}"
    elif length is not None and length.strip() != str(entry.size):
        return f"it has {length} bytes there, the manifest says {entry.size}"
    return None


def _write(fd: int, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        view = view[os.write(fd, view) :]


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _wrong(entry: Entry, why: str) -> Finding:
    return Finding(
        code="FETCH_WRONG_BYTES",
        severity=Severity.WARN,
        where=entry.path,
        message=f"what was sent is not the file: {why}.",
        fix="It is fetched anew, then from the fallback.",
    )


def _cut(entry: Entry, offset: int) -> Finding:
    return Finding(
        code="FETCH_FAILED",
        severity=Severity.WARN,
        where=entry.path,
        message=f"the connection ended after {offset} of {entry.size} bytes.",
        fix="The fetch goes on from there.",
    )


_KNOWN = {"FETCH_DISK_FULL", "CACHE_NOT_WRITABLE", "TIME_SKEW"}
"""What the log's table says as well of an error that a fetch meets itself."""
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}


def judge_os_error(error: OSError, place: str) -> Finding | None:
    """Say what an error of the disk, or of the clock in TLS, means; None for the network's own."""
    where = _where(error, place)
    finding = explain_lines([f"{error.strerror}: '{where}'" if error.errno else str(error)])
    if finding is not None and finding.code in _KNOWN:
        return finding.model_copy(update={"where": where})
    # OpenSSL counts its own errors, and some of its numbers are those of the disk's.
    of_disk = error.errno in _DISK and not isinstance(error, ssl.SSLError)
    return disk_refuses(error, place) if of_disk else None


def _where(error: OSError, place: str) -> str:
    """Return the whole path that an error names, else the place."""
    name = error.filename
    return name if isinstance(name, str) and os.path.isabs(name) else place


def disk_refuses(error: OSError, place: str) -> Finding:
    """Return the finding for an error that is the disk's."""
    return Finding(
        code="FETCH_DISK_FAILED",
        severity=Severity.FAIL,
        where=_where(error, place),
        message=f"the disk refuses: {error.strerror or error}.",
        fix="Look at the kernel's log and at the disk.",
    )
