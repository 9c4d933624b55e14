"""The engine of one rank, as its supervisor sees it: start, lines, processes, end."""

import asyncio
import contextlib
import logging
import os
import re
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from logging.handlers import RotatingFileHandler
from pathlib import Path

import psutil

from glm53ctl.supervise.proctree import descendants, kill_descendants

log = logging.getLogger("glm53ctl")

LAST_LINES = 400
"""Kept of the output: enough for a traceback and what led to it."""
LAST_COLUMNS = 400
LOG_BYTES = 64 << 20
"""Size at which the log of an epoch begins anew; one older part is kept."""
KILL_WAIT_SECONDS = 15.0
FOLLOW_SECONDS = 2.0
"""How long the last words may take: a process that will not go keeps its end of the pipe open."""
_ENGINE_TITLE = re.compile(r"VLLM::\S+")
_LINE_END = re.compile(rb"[\r\n]+")  # progress bars end their lines with a carriage return


@dataclass(frozen=True)
class Member:
    """One process of the engine: its pid, the title vLLM gave it, and whether it is stopped."""

    pid: int
    title: str
    stopped: bool


class _LogFile(RotatingFileHandler):
    """The log of an epoch. A disk that takes no more costs lines of it, and nothing else."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's own name
        """Lose the line. The last ones are kept in memory too."""

    def close(self) -> None:
        """Close, with or without what is not written yet."""
        with contextlib.suppress(OSError):
            super().close()


def _opened(path: Path) -> _LogFile | None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return _LogFile(path, maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8")
    except OSError as error:
        log.error("the engine's log %s cannot be written: %s", path, error.strerror)
        return None


@dataclass
class EngineProcess:
    """One run of `vllm serve` under its guard. Made by `start`; ends exactly once.

    `ended` is set when the main process has ended or the guard is gone; `exit_code` is then the
    main process's (negative: a signal, None: unknown). After `end()` no process of it is left,
    but for those in `left`, which the kernel would not let go.
    """

    guard: asyncio.subprocess.Process
    pid: int | None = None
    exit_code: int | None = None
    failure: str | None = None
    left: list[int] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    last_lines: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_LINES))
    _followers: list[asyncio.Task[None]] = field(default_factory=list)
    _found: list[tuple[psutil.Process, str]] = field(default_factory=list)

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        env: Mapping[str, str],
        log: Path,
        on_line: Callable[[str], None],
        on_end: Callable[[], None] = lambda: None,
    ) -> "EngineProcess":
        """Start the engine; its output goes to `log`, and line by line to `on_line`.

        `on_end` is called when it has ended. Raises OSError when there can be no further process.
        """
        report_read, report_write = os.pipe()
        output_read, output_write = os.pipe()
        try:
            guard = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "glm53ctl.supervise.guard",
                str(report_write),
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=output_write,
                stderr=output_write,
                env=dict(env),
                pass_fds=(report_write,),
                start_new_session=True,  # a Ctrl-C in the terminal is the supervisor's to handle
            )
        except OSError:
            os.close(report_read)
            os.close(output_read)
            raise
        finally:
            os.close(report_write)
            os.close(output_write)
        self = cls(guard)
        self._followers = [
            asyncio.create_task(self._follow_reports(report_read, on_end)),
            asyncio.create_task(self._follow_output(output_read, log, on_line)),
        ]
        return self

    async def _follow_reports(self, fd: int, on_end: Callable[[], None]) -> None:
        async for line in _lines(fd):
            word, _, rest = line.partition(" ")
            if word == "started":
                self.pid = int(rest)
            elif word == "exit":
                code, _, self.failure = rest.partition(" ")
                self.exit_code = int(code)
                self._end_once(on_end)
            elif word == "left":
                self.left = [int(pid) for pid in rest.split()]
        await self.guard.wait()
        self._end_once(on_end)

    def _end_once(self, on_end: Callable[[], None]) -> None:
        """Note the end: the guard tells of it, and where it was killed its own end does."""
        if not self.ended.is_set():
            self.ended.set()
            on_end()

    async def _follow_output(self, fd: int, log: Path, on_line: Callable[[str], None]) -> None:
        file = _opened(log)
        try:
            async for line in _lines(fd):
                if file is not None:
                    file.emit(logging.makeLogRecord({"msg": line}))
                self.last_lines.append(line[:LAST_COLUMNS])
                on_line(line)
        finally:
            if file is not None:
                file.close()

    def members(self, *, anew: bool = True) -> list[Member]:
        """Return the main process and those that vLLM named (EngineCore, Worker...).

        To find them, all processes of the host are read. With `anew` false, which costs next to
        nothing, those that were found last are looked at again.
        """
        if anew:
            self._found = []
            for process in descendants(self.guard.pid):
                with contextlib.suppress(psutil.NoSuchProcess):
                    named = _ENGINE_TITLE.search(" ".join(process.cmdline()))
                    if named or process.pid == self.pid:
                        self._found.append((process, named[0] if named else "vllm"))
        members = []
        for process, title in self._found:
            with contextlib.suppress(psutil.NoSuchProcess):
                status = process.status()
                if process.is_running() and status != psutil.STATUS_ZOMBIE:
                    members.append(Member(process.pid, title, status == psutil.STATUS_STOPPED))
        return members

    async def end(self, grace_seconds: float = 0.0) -> None:
        """End the engine: SIGTERM and `grace_seconds` of patience first if given, then SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            self.guard.send_signal(signal.SIGCONT)  # one that is stopped would hear no order
        if grace_seconds > 0 and not self.ended.is_set():
            await self._order("term")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_seconds):
                    await self.ended.wait()
        await self._order("kill")
        if self.guard.stdin is not None:
            self.guard.stdin.close()  # the guard takes a closed pipe as the same order
        try:
            async with asyncio.timeout(KILL_WAIT_SECONDS):
                await self.guard.wait()
        except TimeoutError:
            self.guard.kill()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FOLLOW_SECONDS):
                    await self.guard.wait()
        # Nothing is left here unless the guard itself was killed; then its orphans are ours.
        orphans = await asyncio.to_thread(kill_descendants, 2.0)
        _, late = await asyncio.wait(self._followers, timeout=FOLLOW_SECONDS)
        for follower in late:
            follower.cancel()
        for result in await asyncio.gather(*self._followers, return_exceptions=True):
            if isinstance(result, Exception):
                log.error("an engine could not be followed to its end", exc_info=result)
        self.left = sorted({*self.left, *orphans})

    async def _order(self, word: str) -> None:
        stdin = self.guard.stdin
        if stdin is None or stdin.is_closing():
            return
        with contextlib.suppress(ConnectionError):
            stdin.write(f"{word}\n".encode())
            await stdin.drain()


async def _lines(fd: int) -> AsyncIterator[str]:
    """Yield the lines that arrive on a pipe until it closes; own the descriptor."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", buffering=0)
    )
    try:
        rest = b""
        while chunk := await reader.read(65536):
            *whole, rest = _LINE_END.split(rest + chunk)
            for line in whole:
                if line:
                    yield line.decode("utf-8", errors="replace")
        if rest:
            yield rest.decode("utf-8", errors="replace")
    finally:
        transport.close()
