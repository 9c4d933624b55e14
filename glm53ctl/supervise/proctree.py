"""A process and everything below it: found, killed to the last, its shared memory removed."""

import contextlib
import ctypes
import os
import re
import signal
import time
from collections.abc import Collection, Iterable
from pathlib import Path

import psutil

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_IN_CREATE = 0x100
SHM = Path("/dev/shm")  # noqa: S108 - where the kernel's shared memory is, nothing is made there
_SHM_MAPPING = re.compile(r"^\S+ \S+ \S+ \S+ (\d+) +/dev/shm/", re.MULTILINE)

_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value}) failed")


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose own parent died.

    Without it, a worker whose parent was killed moves to PID 1, out of reach, and serves on.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(signum: int = signal.SIGKILL) -> None:
    """Ask the kernel to send this process `signum` when the thread that started it ends."""
    _prctl(_PR_SET_PDEATHSIG, signum)


def descendants(pid: int | None = None) -> list[psutil.Process]:
    """Return all processes below `pid` (default: this one), zombies left out."""
    try:
        found = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [p for p in found if _is_alive(p)]


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def shared_memory(processes: list[psutil.Process]) -> set[int]:
    """Return the inodes in /dev/shm that the processes have mapped.

    A killed process cannot unlink its segments, and on a Spark they are main memory. Inodes and
    not names: the C library makes a semaphore under one name and links it to another, so that a
    mapping shows a name which no longer exists.
    """
    inodes: set[int] = set()
    for process in processes:
        with contextlib.suppress(OSError):
            maps = Path(f"/proc/{process.pid}/maps").read_text()
            inodes.update(int(found[1]) for found in _SHM_MAPPING.finditer(maps))
    return inodes


def watch_shared_memory() -> int:
    """Return a descriptor that is readable after something was made in /dev/shm. Raises OSError.

    Its bytes say nothing that is needed: read them and look at `shared_memory`.
    """
    watch = int(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    if watch < 0 or _libc.inotify_add_watch(watch, bytes(SHM), _IN_CREATE) < 0:
        raise OSError(ctypes.get_errno(), f"{SHM} cannot be watched")
    return watch


def remove_segments(inodes: Collection[int]) -> None:
    """Unlink this user's files in /dev/shm with these inodes."""
    for segment in SHM.iterdir():
        with contextlib.suppress(OSError):  # gone already, or another user's
            status = segment.lstat()
            if status.st_ino in inodes and status.st_uid == os.getuid():
                segment.unlink()


def kill_descendants(deadline_seconds: float, segments: Iterable[int] = ()) -> list[int]:
    """Kill everything below this process, reap it and remove its shared memory.

    `segments` are inodes of shared memory seen earlier, of processes that may be gone already.

    Needs `adopt_orphans` first: then there is nothing below once there are no children. Waiting for
    that matters: a process whose first thread has ended is a zombie in /proc while its other
    threads still hold its memory. Returns the pids still there at the deadline, since a process in
    an uninterruptible driver call outlives its SIGKILL.
    """
    limit = time.monotonic() + deadline_seconds
    mapped = set(segments)
    while _has_children():
        left = descendants()
        mapped |= shared_memory(left)
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if time.monotonic() > limit:
            return [process.pid for process in psutil.Process().children(recursive=True)]
        time.sleep(0.01)
    remove_segments(mapped)
    return []


def stale_processes(pids: Iterable[int]) -> list[psutil.Process]:
    """Return the processes with these pids that are there; their pids may be given away later."""
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(pid))
    return found


def still_there(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return those that have not ended with all their threads; children that have are reaped."""
    return [p for p in processes if p.is_running() and not _reaped(p.pid)]


def _reaped(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return False  # below another one that is left


def wait_for_children(deadline_seconds: float) -> None:
    """Reap what ends by itself, until nothing is below this process or the deadline has passed."""
    limit = time.monotonic() + deadline_seconds
    while _has_children() and time.monotonic() < limit:
        time.sleep(0.01)


def _has_children() -> bool:
    """Reap what has ended; say whether any child is left, running or ending."""
    reap()
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def reap_orphans(keep: Collection[int]) -> None:
    """Collect ended children that this process adopted; those in `keep` have an owner who waits."""
    for child in psutil.Process().children():
        if child.pid not in keep and not _is_alive(child):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child.pid, os.WNOHANG)


def reap() -> dict[int, int]:
    """Collect all ended children; return their exit codes by pid (negative: a signal)."""
    ended: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while (waited := os.waitpid(-1, os.WNOHANG))[0] != 0:
            ended[waited[0]] = os.waitstatus_to_exitcode(waited[1])
    return ended
