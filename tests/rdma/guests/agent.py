"""Commands in a guest, through QEMU's guest agent: JSON lines over a serial port.

The agent is Debian's. Its protocol is in the QEMU documentation, interop/qemu-ga-ref.
"""

import base64
import contextlib
import json
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pair.bed.run import BedError

ANSWER_SECONDS = 60.0
_PAUSE_SECONDS = 0.05
_DELIMITER = b"\xff"


class Agent:
    """The agent behind one socket. It answers one question at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self._heard = b""

    def wait(self, seconds: float, alive: Callable[[], bool]) -> bool:
        """Wait until the agent answers, while the machine is alive; say whether it does."""
        limit = time.monotonic() + seconds
        while alive() and time.monotonic() < limit:
            with contextlib.suppress(OSError):
                self._connect(1.0)
                self._synchronise()
                return True
            self.close()
            time.sleep(_PAUSE_SECONDS)
        return False

    def ask(self, command: str, **arguments: object) -> Any:
        """Return the agent's answer to one command; BedError where it refuses or is silent."""
        try:
            self._send({"execute": command, "arguments": arguments})
            answer = self._receive()
        except OSError as error:
            raise BedError(
                f"{self._path.parent.name} does not answer {command}: {error}."
            ) from error
        if "error" in answer:
            raise BedError(f"{command} in {self._path.parent.name}: {answer['error']['desc']}.")
        return answer["return"]

    def start(self, words: list[str], stdin: bytes) -> int:
        """Start a program, keep its output, and return its process id."""
        program, *arguments = words
        more = {"input-data": base64.b64encode(stdin).decode()} if stdin else {}
        reply = self.ask(
            "guest-exec", path=program, arg=arguments, **{"capture-output": True}, **more
        )
        return int(reply["pid"])

    def ended(self, pid: int) -> tuple[int, str, str] | None:
        """Return exit status and output of a program that has ended, once; None before."""
        said = self.ask("guest-exec-status", pid=pid)
        if not said["exited"]:
            return None
        out, err = (
            base64.b64decode(said.get(name, "")).decode(errors="replace")
            for name in ("out-data", "err-data")
        )
        return said.get("exitcode", 128 + said.get("signal", 0)), out, err

    def close(self) -> None:
        """Let go of the socket."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._heard = None, b""

    def _connect(self, seconds: float) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(seconds)
        self._socket.connect(str(self._path))

    def _synchronise(self) -> None:
        """Skip what an earlier question may have left: the answer to this one is known."""
        number = secrets.randbits(31)  # never that of an earlier process
        self._send({"execute": "guest-sync", "arguments": {"id": number}})
        while self._receive().get("return") != number:
            pass
        assert self._socket is not None
        self._socket.settimeout(ANSWER_SECONDS)

    def _send(self, question: dict[str, Any]) -> None:
        if self._socket is None:
            raise OSError("not connected")
        self._socket.sendall(json.dumps(question).encode() + b"\n")

    def _receive(self) -> dict[str, Any]:
        assert self._socket is not None
        while b"\n" not in self._heard:
            more = self._socket.recv(1 << 16)
            if not more:
                raise ConnectionResetError("the machine is off")
            self._heard += more
        line, _, self._heard = self._heard.partition(b"\n")
        answer: dict[str, Any] = json.loads(line.strip(_DELIMITER))
        return answer
