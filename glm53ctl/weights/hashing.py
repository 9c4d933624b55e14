"""Reading files to judge them, without filling the page cache that the GPU needs as memory."""

import contextlib
import errno
import hashlib
import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path

BLOCK_BYTES = 2 << 20
"""Size of a read. Two of them for every hashing thread are the whole memory of a verification."""
SAMPLES = 8
SAMPLE_BYTES = 64 << 10


def blocks(path: Path, end: int) -> Iterator[memoryview]:
    """Yield a file in blocks, up to `end`; a view is valid until the next is asked for.

    Past the page cache where the file system can (O_DIRECT): that is faster than through it, reads
    what is truly on the disk, and on unified memory every cached page is one that CUDA does not
    count as free.
    """
    fd, direct = _open_direct(path)
    try:
        view, offset = memoryview(_buffer()), 0
        while offset < end:
            try:
                count = os.preadv(fd, [view], offset)
            except OSError as error:
                if not direct or error.errno != errno.EINVAL:
                    raise
                os.close(fd)
                fd, direct = os.open(path, os.O_RDONLY | os.O_CLOEXEC), False
                continue
            if count == 0:
                return
            if not direct:
                os.posix_fadvise(fd, offset, count, os.POSIX_FADV_DONTNEED)
            yield view[: min(count, end - offset)]
            offset += count
    finally:
        os.close(fd)


def _buffer() -> mmap.mmap:
    """Return memory for one block, aligned to pages as O_DIRECT wants it.

    Private and in one huge page where possible: the kernel pins every page of it for every read,
    which costs a tenth of the hashing with small shared ones.
    """
    buffer = mmap.mmap(-1, BLOCK_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without huge pages
        buffer.madvise(mmap.MADV_HUGEPAGE)
    return buffer


def _open_direct(path: Path) -> tuple[int, bool]:
    flags = os.O_RDONLY | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_DIRECT), True
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.open(path, flags), False


class Digests:
    """The digests that a manifest may give for a file of `size` bytes, made in one pass."""

    def __init__(self, size: int, *, git: bool) -> None:
        self._sha256 = hashlib.sha256()
        # What git calls a blob: a header, then the content. Names content, guards no secret.
        self._git = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False) if git else None

    def update(self, data: memoryview | bytes) -> None:
        """Add bytes."""
        self._sha256.update(data)
        if self._git is not None:
            self._git.update(data)

    @property
    def sha256(self) -> str:
        """The sha256 so far."""
        return self._sha256.hexdigest()

    @property
    def git_sha1(self) -> str | None:
        """Git's digest, when it was asked for."""
        return self._git.hexdigest() if self._git is not None else None


def absorb(
    digests: Digests, path: Path, end: int, note: Callable[[int], None] = lambda _: None
) -> int:
    """Add the first `end` bytes of a file to digests; return how many there were.

    `note` gets the number of bytes so far, block by block.
    """
    done = 0
    for block in blocks(path, end):
        digests.update(block)
        done += len(block)
        note(done)
    return done


def sample(path: Path) -> str:
    """Return the sha256 of evenly spaced blocks: half a mebibyte that a wrong shard will not fit.

    Offsets depend on the size alone. A flipped bit elsewhere is found by a full verification only.
    """
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        last = max(size - SAMPLE_BYTES, 0)
        for number in range(SAMPLES):
            file.seek(last * number // (SAMPLES - 1))
            digest.update(file.read(SAMPLE_BYTES))
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return digest.hexdigest()


def broken_extents(path: Path, name: str = "") -> str | None:
    """Say what is wrong with the header of a safetensors file, or with where its tensors end.

    `name` is what a file will be called that has another name still.
    """
    if not (name or path.name).endswith(".safetensors"):
        return None
    from safetensors import SafetensorError, safe_open  # not for those who only compare records

    try:
        with safe_open(path, framework="numpy"):
            return None
    except SafetensorError as error:
        return str(error)
