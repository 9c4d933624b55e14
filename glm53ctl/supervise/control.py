"""The control socket of a rank: how `status`, `down`, `restart` and `resume` reach it.

One request and one answer a connection, each a JSON line, on a Unix socket that only the user of
the service and root may open.
"""

import contextlib
import json
import os
import socket
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, Field, ValidationError

from glm53ctl.errors import UserError
from glm53ctl.files import locked
from glm53ctl.supervise.report import RankReport, Trial

if TYPE_CHECKING:
    import asyncio

ANSWER_SECONDS = 5.0
_MAX_ANSWER_BYTES = 1 << 22


class Request(BaseModel):
    """What a rank is asked: its report, or to act for the pair.

    By its `id` the pair knows a request again that reached it through two ranks.
    """

    id: str = Field(default_factory=lambda: uuid.uuid4().hex)
    action: Literal["report", "stop", "restart", "resume", "keep", "undo"]
    overrides: tuple[str, ...] = ()
    trial: Trial | None = None
    reason: str = ""


class Answer(BaseModel):
    """The report of the rank, after it took note of the request."""

    report: RankReport | None = None
    error: str | None = None


def socket_path(run_dir: Path, rank: int) -> Path:
    """Return where the rank listens."""
    return run_dir / f"rank{rank}.sock"


@contextlib.contextmanager
def only_one(run_dir: Path, rank: int) -> Iterator[None]:
    """Let one supervisor of a rank live on this host: a second would take its socket and its link.

    Raises UserError where there is one, or where the lock cannot be made.
    """
    file = run_dir / f"rank{rank}.lock"
    try:
        lock = locked(file)
    except BlockingIOError:
        raise UserError(
            "RANK_RUNS",
            f"another supervisor of rank {rank} runs on this host: it holds {file}.",
            f"`systemctl status glm53-rank{rank}` and `pgrep -af 'glm53ctl rank'` show it; "
            "end it first.",
        ) from None
    except OSError as error:
        raise UserError(
            "RUN_DIR_UNUSABLE",
            f"{file} cannot be opened and locked ({error.strerror}).",
            "Run it as the user of the service, or set paths.run_dir to a directory of your own.",
            exit_code=1,
        ) from error
    try:
        yield
    finally:
        os.close(lock)


async def serve(path: Path, handle: Callable[[Request], Awaitable[Answer]]) -> "asyncio.Server":
    """Listen on `path`; a socket left by a dead supervisor is replaced."""
    import asyncio  # who only asks does not need it

    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)

    async def converse(reader: "asyncio.StreamReader", writer: "asyncio.StreamWriter") -> None:
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                line = await reader.readline()
            try:
                answer = await handle(Request.model_validate_json(line))
            except ValidationError as error:
                answer = Answer(error=f"not a request: {error.errors()[0]['msg']}")
            writer.write(answer.model_dump_json().encode() + b"\n")
            await writer.drain()
        writer.close()

    old_mask = os.umask(0o077)
    try:
        return await asyncio.start_unix_server(converse, path)
    finally:
        os.umask(old_mask)


def ask(path: Path, request: Request) -> Answer | None:
    """Ask the rank behind `path`; None when nobody answers there. UserError when it may not."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(ANSWER_SECONDS)
        try:
            client.connect(str(path))
            client.sendall(request.model_dump_json().encode() + b"\n")
            line = client.makefile("rb").readline(_MAX_ANSWER_BYTES)
            return Answer.model_validate(json.loads(line))
        except PermissionError as error:
            raise UserError(
                "CONTROL_DENIED",
                f"{path} belongs to another user.",
                "Ask as that user, or as root.",
            ) from error
        except (OSError, ValueError):
            return None
