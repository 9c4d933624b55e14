"""What this node has verified: size, time of change, digest and sample of each file."""

import os
import threading
from pathlib import Path

from pydantic import BaseModel, ValidationError

from glm53ctl.files import replace_durably
from glm53ctl.weights.hashing import sample
from glm53ctl.weights.manifest import Manifest


class FileState(BaseModel):
    """A file as it was when its digest was right."""

    size: int
    mtime_ns: int
    sha256: str
    sample: str


class Record(BaseModel):
    """Everything verified of one manifest."""

    manifest: str
    files: dict[str, FileState] = {}


def seen(path: Path, sha256: str) -> FileState:
    """Return the state of a file whose digest was just found right."""
    stat = path.stat()
    return FileState(
        size=stat.st_size, mtime_ns=stat.st_mtime_ns, sha256=sha256, sample=sample(path)
    )


def change(path: Path, state: FileState) -> tuple[str, str] | None:
    """Return code and words for how a file differs from its verified state.

    Looks at size and time of change only; None when both are the same.
    """
    try:
        stat = os.stat(path)
    except FileNotFoundError:
        if path.is_symlink():
            return "CACHE_DANGLING", "it is a link to nothing"
        return "WEIGHTS_MISSING", "it is missing"
    except OSError as error:
        return "WEIGHTS_UNREADABLE", f"it cannot be read ({error.strerror})"
    if stat.st_size != state.size:
        return "CACHE_TRUNCATED", f"it has {stat.st_size} bytes instead of {state.size}"
    if stat.st_mtime_ns != state.mtime_ns:
        return "WEIGHTS_UNVERIFIED", "it was changed since it was verified"
    return None


def read_record(file: Path) -> Record | None:
    """Return the record; None when there is none, or none that can be read."""
    try:
        return Record.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):
        return None  # costs a verification, never trust


class RecordBook:
    """The record of one manifest while files are being verified."""

    def __init__(self, file: Path, manifest: Manifest) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._unsaved = False
        known = read_record(file)
        fits = known is not None and known.manifest == manifest.digest
        self._record = known if known and fits else Record(manifest=manifest.digest)

    @property
    def files(self) -> dict[str, FileState]:
        """What is verified."""
        with self._lock:
            return dict(self._record.files)

    def add(self, path: str, state: FileState, *, save: bool = True) -> None:
        """Note a verified file; without `save` it is on the disk after `save()`."""
        with self._lock:
            self._record.files[path] = state
            self._unsaved = True
        if save:
            self.save()

    def save(self) -> None:
        """Write what is new."""
        with self._lock:
            if self._unsaved:
                self._write()

    def drop(self, path: str) -> None:
        """Forget a file: it is not what it was."""
        with self._lock:
            if self._record.files.pop(path, None) is not None:
                self._write()

    def _write(self) -> None:
        self._unsaved = False
        replace_durably(self._file, self._record.model_dump_json())
