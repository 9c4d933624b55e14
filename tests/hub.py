"""A fake Hub for tests: it serves made-up repositories over real HTTP, and breaks as it is told.

It answers what huggingface_hub 2.4 and the fetcher call: the model's metadata (`/api/models/...`),
HEAD and GET of `/REPO/resolve/COMMIT/NAME`, and the storage behind the redirect that large files
get. It counts the bytes that it sent for each file.
"""

import hashlib
import http.server
import json
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

RANGE = re.compile(r"bytes=(\d+)-(\d*)")
SLICE = 1 << 16


def blob_id(content: bytes) -> str:
    """Return git's name of a content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()  # noqa: S324


@dataclass
class Blob:
    """A file: bytes in memory, or a path on the disk for the bench."""

    content: bytes | Path
    lfs: bool = True

    @property
    def size(self) -> int:
        if isinstance(self.content, Path):
            return self.content.stat().st_size
        return len(self.content)

    @property
    def sha256(self) -> str:
        if isinstance(self.content, Path):
            with self.content.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        return hashlib.sha256(self.content).hexdigest()

    def read(self, start: int, count: int) -> bytes:
        if isinstance(self.content, Path):
            with self.content.open("rb", buffering=0) as file:
                file.seek(start)
                return file.read(count)
        return self.content[start : start + count]


@dataclass
class Asked:
    """One request, as a fault sees it."""

    method: str
    path: str
    name: str
    headers: dict[str, str]
    count: int
    """How often this method asked for this path, this time included."""


@dataclass
class Fault:
    """What to do instead of a right answer. Several fields may be set."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut_after: int | None = None
    """Close the connection after so many bytes of the body."""
    hang_after: int | None = None
    """Send nothing more after so many bytes, and keep the connection."""
    flip: bool = False
    """Send a wrong byte in the middle."""
    slow: float = 0.0
    """Seconds between slices."""
    ignore_range: bool = False
    chunked: bool = False
    """Send no length, but chunks; the last one is never said."""
    lie_about_size: int = 0


@dataclass
class Hub:
    """The server's contents and behaviour; `fault` decides for each request."""

    repos: dict[tuple[str, str], dict[str, Blob]] = field(default_factory=dict)
    fault: Callable[[Asked], Fault | None] = lambda asked: None
    redirect: bool = True
    sent: Counter[str] = field(default_factory=Counter)
    asked: list[Asked] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    url: str = ""
    _counts: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, method: str, path: str, name: str, headers: dict[str, str]) -> Asked:
        with self._lock:
            self._counts[f"{method} {path}"] += 1
            asked = Asked(method, path, name, headers, self._counts[f"{method} {path}"])
            self.asked.append(asked)
            return asked

    def gets(self, name: str) -> int:
        """How often the bytes of a file were asked for."""
        return sum(1 for a in self.asked if a.method == "GET" and a.name == name)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = self.path.partition("?")[0]
        name = path.rsplit("/", 1)[-1]
        headers = {key.title(): value for key, value in self.headers.items()}
        asked = self.hub.note(self.command, path, name, headers)
        fault = self.hub.fault(asked) or Fault()
        if fault.status:
            return self._send(fault.status, fault.headers, fault.body)
        if "/tree/" in path:
            return self._tree(path)
        if path.startswith("/api/models/"):
            return self._metadata(path, fault)
        if path.startswith("/api/"):
            return self._send(404, {})
        if path.startswith("/storage/"):
            return self._bytes(path.removeprefix("/storage/"), fault)
        return self._resolve(path.lstrip("/"), fault)

    def _send(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _find(self, repo: str, revision: str) -> dict[str, Blob] | None:
        files = self.hub.repos.get((repo, revision))
        if files is not None:
            return files
        known = any(known == repo for known, _ in self.hub.repos)
        code = "RevisionNotFound" if known else "RepoNotFound"
        # As the real one does, to tell strangers nothing: 401 for what is not there.
        status = 404 if known else 401
        self._send(status, {"X-Error-Code": code, "X-Error-Message": "Repository not found"})
        return None

    def _metadata(self, path: str, fault: Fault) -> None:
        match = re.fullmatch(r"/api/models/(.+)/revision/([0-9a-f]+)", path)
        assert match, path
        files = self._find(match[1], match[2])
        if files is None:
            return None
        siblings = [
            {
                "rfilename": name,
                "size": blob.size + fault.lie_about_size,
                "blobId": blob_id(b"pointer") if blob.lfs else blob_id(blob.read(0, blob.size)),
                **(
                    {"lfs": {"sha256": blob.sha256, "size": blob.size, "pointerSize": 134}}
                    if blob.lfs
                    else {}
                ),
            }
            for name, blob in files.items()
        ]
        body = {"id": match[1], "sha": match[2], "private": False, "siblings": siblings, "tags": []}
        return self._send(200, {"Content-Type": "application/json"}, json.dumps(body).encode())

    def _tree(self, path: str) -> None:
        """What `hf download` asks for instead of the metadata."""
        match = re.fullmatch(r"/api/models/(.+)/tree/([0-9a-f]+)", path)
        assert match, path
        files = self._find(match[1], match[2])
        rows = [
            {
                "type": "file",
                "path": name,
                "size": blob.size,
                "oid": blob_id(b"pointer"),
                "lfs": {"oid": blob.sha256, "size": blob.size, "pointerSize": 134},
            }
            for name, blob in (files or {}).items()
        ]
        if files is not None:
            self._send(200, {"Content-Type": "application/json"}, json.dumps(rows).encode())

    def _resolve(self, path: str, fault: Fault) -> None:
        match = re.fullmatch(r"(.+)/resolve/([0-9a-f]+)/(.+)", path)
        assert match, path
        files = self._find(match[1], match[2])
        if files is None:
            return None
        blob = files.get(match[3])
        if blob is None:
            return self._send(404, {"X-Error-Code": "EntryNotFound"})
        storage = f"{match[1]}/{match[2]}/{match[3]}"
        if not blob.lfs or not self.hub.redirect:
            return self._bytes(storage, fault)
        headers = {
            "X-Repo-Commit": match[2],
            "X-Linked-Size": str(blob.size),
            "X-Linked-Etag": f'"{blob.sha256}"',
            "ETag": f'"{blob.sha256}"',
            # Another name of this host, so that credentials must not follow.
            "Location": f"{self.hub.url.replace('127.0.0.1', 'localhost')}/storage/{storage}",
        }
        return self._send(302, headers)

    def _bytes(self, storage: str, fault: Fault) -> None:
        repo, revision, name = storage.rsplit("/", 2)
        blob = self.hub.repos[(repo, revision)][name]
        asked = RANGE.fullmatch(self.headers.get("Range", ""))
        start = int(asked[1]) if asked and not fault.ignore_range else 0
        if start and start >= blob.size:
            return self._send(416, {"Content-Range": f"bytes */{blob.size}"})
        end = min(int(asked[2]) + 1, blob.size) if start and asked and asked[2] else blob.size
        self.send_response(206 if start else 200)
        if fault.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(end - start + fault.lie_about_size))
        self.send_header("X-Repo-Commit", revision)
        etag = blob.sha256 if blob.lfs else blob_id(blob.read(0, blob.size))
        self.send_header("ETag", f'"{etag}"')
        if start:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{blob.size}")
        self.end_headers()
        if self.command == "HEAD":
            return None
        return self._pour(blob, name, start, end, fault)

    def _pour(self, blob: Blob, name: str, start: int, end: int, fault: Fault) -> None:
        if isinstance(blob.content, Path):  # the bench: the kernel sends, and only the client costs
            with blob.content.open("rb") as file:
                self.connection.sendfile(file, start, end - start)
            self.hub.sent[name] += end - start
            return
        offset, middle = start, blob.size // 2
        try:
            while offset < end:
                done = offset - start
                if fault.cut_after is not None and done >= fault.cut_after:
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                if fault.hang_after is not None and done >= fault.hang_after:
                    self.wfile.flush()
                    self.hub.released.wait(20)
                    self.close_connection = True
                    return
                limit = min(
                    SLICE,
                    end - offset,
                    *(n - done for n in (fault.cut_after, fault.hang_after) if n is not None),
                )
                piece = bytearray(blob.read(offset, limit))
                if fault.flip and offset <= middle < offset + len(piece):
                    piece[middle - offset] ^= 1
                if fault.chunked:
                    self.wfile.write(b"%x\r\n" % SLICE)  # more than comes before a cut
                self.wfile.write(piece)
                with self.hub._lock:
                    self.hub.sent[name] += len(piece)
                offset += len(piece)
                if fault.slow:
                    time.sleep(fault.slow)
        except ConnectionError:
            self.close_connection = True


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, *_: object) -> None:
        pass


@contextmanager
def serving(hub: Hub, host: str = "127.0.0.1") -> Iterator[Hub]:
    """Run the server on a free port."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = _Server((host, 0), handler)
    hub.url = f"http://{host}:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.released.set()
        server.shutdown()
        server.server_close()
