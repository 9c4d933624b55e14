"""What speaks D-Bus for the watchdog: JSON lines on standard input and output, nothing else.

A program of its own for two reasons. pydbus needs gi, which has no wheel and comes with the
distribution's interpreter, seldom the one that runs glm53ctl; so nothing of glm53ctl is imported
here. And to restart a unit takes root, which nothing that talks to the network should be: this
knows three verbs and four unit names.

In:  {"id": 1, "do": "list"}, {"id": 2, "do": "restart" | "kill", "unit": "glm53-rank0.service"}
Out: {"ready": true} or {"fatal": "why not"}; {"id": 1, "units": [...]}, {"id": 2} or
     {"id": 2, "error": "..."}; {"changed": true} when a unit of the pair did something
"""

import contextlib
import json
import re
import sys
import threading
from typing import Any

SYSTEMD = "org.freedesktop.systemd1"
PATTERNS = ("glm53-rank*.service", "glm53.target")
MAY_ACT_ON = re.compile(r"glm53-rank[0-3]\.service")
ITS_PATH = re.compile(r"/glm53_2drank\d_2eservice$")
TELLING = {"ActiveState", "SubState", "Job", "MainPID"}
"""Properties whose change is news; the status text of a rank changes every second."""
SIGKILL = 9


def say(**words: object) -> None:
    """Write one line; whoever reads may be gone, and then so are we."""
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(words) + "\n")
        sys.stdout.flush()


class Agent:
    """The manager of this host's units, by pydbus."""

    def __init__(self, bus: Any, glib_error: type[Exception]) -> None:
        self._bus = bus
        self._error = glib_error
        self._manager = bus.get(SYSTEMD)[f"{SYSTEMD}.Manager"]
        self._manager.Subscribe()  # without it systemd sends no signals
        self._subscriptions = [
            bus.subscribe(
                iface="org.freedesktop.DBus.Properties",
                signal="PropertiesChanged",
                signal_fired=self._changed,
            ),
            bus.subscribe(
                iface=f"{SYSTEMD}.Manager",
                signal="JobRemoved",
                signal_fired=self._finished,
            ),
        ]
        self._services: dict[str, Any] = {}

    def _changed(self, _sender: str, path: str, _iface: str, _signal: str, words: Any) -> None:
        if ITS_PATH.search(path) and TELLING & words[1].keys():
            say(changed=True)

    def _finished(self, _sender: str, _path: str, _iface: str, _signal: str, words: Any) -> None:
        if MAY_ACT_ON.fullmatch(words[2]):
            say(changed=True)

    def answer(self, line: str) -> None:
        """Carry out one request."""
        request = json.loads(line)
        try:
            say(id=request["id"], **self._do(request["do"], request.get("unit", "")))
        except (self._error, KeyError) as error:
            say(id=request["id"], error=str(error))

    def _do(self, verb: str, unit: str) -> dict[str, object]:
        if verb == "list":
            return {"units": [self._unit(row) for row in self._rows()]}
        if verb not in ("restart", "kill") or not MAY_ACT_ON.fullmatch(unit):
            return {"error": f"{verb} {unit} is not for this program"}
        if verb == "kill":
            self._manager.KillUnit(unit, "all", SIGKILL)
            return {}
        with contextlib.suppress(self._error):  # nothing is known of it, so nothing to reset
            self._manager.ResetFailedUnit(unit)
        self._manager.RestartUnit(unit, "replace")
        return {}

    def _rows(self) -> list[Any]:
        return list(self._manager.ListUnitsByPatterns([], list(PATTERNS)))

    def _unit(self, row: Any) -> dict[str, object]:
        name, _, _, active, sub, _, path, _, job, _ = row
        unit = {"name": name, "active": active, "sub": sub, "job": job}
        if name.endswith(".service"):
            service = self._service(path)
            unit |= {
                "pid": service.MainPID,
                "result": service.Result,
                "exit_code": service.ExecMainCode,
                "exit_status": service.ExecMainStatus,
            }
        return unit

    def _service(self, path: str) -> Any:
        """Return the object at a path; to make one costs a long description of it."""
        if path not in self._services:
            self._services[path] = self._bus.get(SYSTEMD, path)[f"{SYSTEMD}.Service"]
        return self._services[path]


def main() -> None:
    """Answer until standard input ends, or the bus does (then GIO ends the process)."""
    try:
        import pydbus
        from gi.repository import GLib
    except ImportError as error:
        say(fatal=f"{sys.executable} has no module {error.name}")
        return
    try:
        agent = Agent(pydbus.SystemBus(), GLib.Error)
    except GLib.Error as error:
        say(fatal=f"the system bus gives no answer: {error}")
        return
    loop = GLib.MainLoop()

    def listen() -> None:
        for line in sys.stdin:
            GLib.idle_add(agent.answer, line)  # called once: it returns nothing
        GLib.idle_add(loop.quit)

    threading.Thread(target=listen, daemon=True).start()
    say(ready=True)
    loop.run()


if __name__ == "__main__":
    main()
