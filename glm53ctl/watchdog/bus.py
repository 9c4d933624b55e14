"""The service manager of this host, as the watchdog sees it: list, restart, kill, and news.

The D-Bus side is `_bus_agent`, a small process with root's rights behind a socket of systemd's
(`glm53-bus.socket`): this end needs neither gi nor a privilege.
"""

import asyncio
import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any, NoReturn

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from glm53ctl.errors import UserError
from glm53ctl.watchdog import _bus_agent

SOCKET = Path("/run/glm53-bus.socket")
"""Where `glm53-bus.socket` listens."""
HELLO_SECONDS = 20.0
"""Two interpreters start one after the other, on a host that may be booting."""
ANSWER_SECONDS = 30.0
"""Longer than D-Bus itself waits for an answer (25 s)."""
KNOWN_SECONDS = 20.0
"""How long what systemd said holds while it tells of no change."""
_LONGEST_LINE = 1 << 20
_EXITED = 1
"""CLD_EXITED of waitid(2): the process ended by itself."""


class UnitState(BaseModel):
    """A unit as systemd knows it; the names are those of its properties.

    `job` is the type of the job that waits or runs ("" without one), `result` of the last end.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    active: str
    sub: str
    job: str = ""
    pid: int = 0
    result: str = "success"
    exit_code: int = 0
    exit_status: int = 0

    @property
    def exited_with(self) -> int | None:
        """The exit status of the last main process; None if a signal ended it."""
        return self.exit_status if self.exit_code == _EXITED else None


_UNITS = TypeAdapter(tuple[UnitState, ...])


def become_agent(python: str) -> NoReturn:
    """Turn this process into the agent, run by an interpreter that has gi and pydbus."""
    try:
        # Isolated: neither the environment nor the agent's own folder adds modules.
        os.execv(python, [python, "-I", _bus_agent.__file__])  # noqa: S606 - no shell
    except OSError as error:
        _bus_agent.say(fatal=f"{python} (watchdog.bus_python) does not run: {error.strerror}")
        raise SystemExit(0) from error  # it has been said to whom it concerns


class Bus:
    """A connection to the agent. Any failure of it is a UserError with the code BUS_MISSING."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, changed: asyncio.Event
    ) -> None:
        self._reader, self._writer, self._changed = reader, writer, changed
        self._number = 0
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._units: dict[str, UnitState] = {}
        self._known_until = 0.0
        self._news = False

    @classmethod
    async def connect(cls, changed: asyncio.Event, path: Path = SOCKET) -> "Bus":
        """Connect; `changed` is set whenever a unit of the pair does something."""
        try:
            reader, writer = await asyncio.open_unix_connection(path, limit=_LONGEST_LINE)
        except OSError as error:
            raise UserError(
                "BUS_MISSING",
                f"{path} cannot be used: {error.strerror}.",
                "`systemctl start glm53-bus.socket`; it serves the user of the units alone.",
            ) from error
        bus = cls(reader, writer, changed)
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                hello = json.loads(await reader.readline() or b"{}")
        except (OSError, ValueError, TimeoutError):
            hello = {}
        if not hello.get("ready"):
            await bus.close()
            raise _missing(hello.get("fatal") or "the agent behind it says nothing")
        bus._task = asyncio.create_task(bus._listen())
        return bus

    async def _listen(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while line := await self._reader.readline():
                said = json.loads(line)
                if "changed" in said:
                    self._news = True
                    self._changed.set()
                elif waiting := self._waiting.pop(said.get("id"), None):
                    waiting.set_result(said)
        for waiting in self._waiting.values():
            waiting.cancel()
        self._news = True
        self._changed.set()  # the next request says that the connection is gone

    async def units(self) -> dict[str, UnitState]:
        """Return the rank units and the target that systemd has loaded, by name.

        They are asked for when one has changed, and now and then: systemd says what changes, and
        each question costs it and us a dozen messages.
        """
        now = time.monotonic()
        if now < self._known_until and not self._news:
            return self._units
        self._known_until, self._news = 0.0, False  # before: what changes meanwhile is asked for
        said = await self._ask(do="list")
        try:
            units = _UNITS.validate_python(said.get("units"))
        except ValidationError as error:
            raise _missing(f"the agent makes no sense ({error.error_count()} errors)") from error
        self._units = {unit.name: unit for unit in units}
        self._known_until = now + KNOWN_SECONDS
        return self._units

    async def restart(self, unit: str) -> None:
        """Forget the unit's failures and restart it; returns when the job is queued."""
        self._news = True
        await self._ask(do="restart", unit=unit)

    async def kill(self, unit: str) -> None:
        """Kill every process of the unit at once."""
        self._news = True
        await self._ask(do="kill", unit=unit)

    async def _ask(self, **request: str) -> dict[str, Any]:
        """Return the answer; BUS_REFUSED when systemd does not want to."""
        if self._task is None or self._task.done():
            raise _missing("its agent has ended")
        self._number += 1
        waiting = asyncio.get_running_loop().create_future()
        self._waiting[self._number] = waiting
        self._writer.write(json.dumps({"id": self._number, **request}).encode() + b"\n")
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                said = await waiting
        except (TimeoutError, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and not waiting.cancelled():
                raise
            raise _missing(f"no answer to `{request['do']}`") from error
        if "error" in said:
            what = " ".join(request.values())
            raise UserError("BUS_REFUSED", f"systemd does not {what}: {said['error']}.")
        return dict(said)

    async def close(self) -> None:
        """Hang up; the agent ends by that."""
        if self._task is not None:
            self._task.cancel()
        self._writer.close()


def _missing(why: str) -> UserError:
    return UserError(
        "BUS_MISSING",
        f"the service manager cannot be reached over D-Bus: {why}.",
        "Install pydbus for the interpreter in watchdog.bus_python (Debian, Ubuntu: "
        "apt install python3-pydbus), and see that dbus.service runs.",
    )
