"""Files that are replaced as a whole, logs of lines, and files that are locked.

Of the first a reader finds the old text or the new one, never half; a line that was cut short costs
itself only.
"""

import fcntl
import os
from pathlib import Path


def replace_text(file: Path, text: str) -> None:
    """Replace a file that only one process writes. Raises OSError."""
    fresh = file.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, file)


def replace_durably(file: Path, text: str) -> None:
    """Replace a file, for several writers and through a power cut as well. Raises OSError.

    Its directory is made when it is missing.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f".{file.name}.{os.getpid()}.new")
    with fresh.open("w", encoding="utf-8") as handle:
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(fresh, file)


def append_line(file: Path, line: str, mode: int = 0o640) -> bool:
    """Append one line, and say whether all of it is there. Raises OSError.

    Several programs may append. One write with O_APPEND is whole or, on a full disk, cut short; the
    next writer then begins a line of its own.
    """
    data = line.encode() + b"\n"
    handle = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT, mode)
    try:
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            data = b"\n" + data
        return os.write(handle, data) == len(data)
    finally:
        os.close(handle)


def locked(file: Path) -> int:
    """Return a file locked for this process alone, until it is closed or the process ends.

    It is made when it is missing, and opened to read only, which is enough for a lock. Raises
    BlockingIOError when another process has it, another OSError when it cannot be opened.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(file, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd
