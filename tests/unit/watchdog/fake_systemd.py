"""A fake of systemd on a private bus: it restarts nothing, and says so in its units' results.

Run by an interpreter that has gi. Commands on standard input: each makes it send a signal
that systemd sends; what it was asked is written to standard output, a line each.
"""

import sys
import threading

from gi.repository import Gio, GLib

NAME = "org.freedesktop.systemd1"
ROOT = "/org/freedesktop/systemd1"
RANK = f"{ROOT}/unit/glm53_2drank0_2eservice"
MANAGER = """<node><interface name="org.freedesktop.systemd1.Manager">
<method name="Subscribe"/>
<method name="ListUnitsByPatterns"><arg type="as" direction="in"/><arg type="as" direction="in"/>
  <arg type="a(ssssssouso)" direction="out"/></method>
<method name="ResetFailedUnit"><arg type="s" direction="in"/></method>
<method name="RestartUnit"><arg type="s" direction="in"/><arg type="s" direction="in"/>
  <arg type="o" direction="out"/></method>
<method name="KillUnit"><arg type="s" direction="in"/><arg type="s" direction="in"/>
  <arg type="i" direction="in"/></method>
<signal name="JobRemoved"><arg type="u"/><arg type="o"/><arg type="s"/><arg type="s"/></signal>
</interface></node>"""
SERVICE = """<node><interface name="org.freedesktop.systemd1.Service">
<property name="MainPID" type="u" access="read"/>
<property name="Result" type="s" access="read"/>
<property name="ExecMainCode" type="i" access="read"/>
<property name="ExecMainStatus" type="i" access="read"/>
</interface></node>"""
ROWS = [
    ("glm53-rank0.service", "fake", "loaded", "active", "running", "", RANK, 7, "restart", "/j/7"),
    ("glm53.target", "fake", "loaded", "active", "active", "", f"{ROOT}/unit/t", 0, "", "/"),
]
PROPERTIES = {
    "MainPID": GLib.Variant("u", 4711),
    "Result": GLib.Variant("s", "fake"),
    "ExecMainCode": GLib.Variant("i", 1),
    "ExecMainStatus": GLib.Variant("i", 75),
}


def called(_con, _sender, _path, _interface, method, arguments, invocation):
    words = arguments.unpack()
    print(method, *map(str, words), flush=True)
    if method == "RestartUnit" and words[0] == "glm53-rank3.service":
        invocation.return_dbus_error(f"{NAME}.NoSuchUnit", "Unit glm53-rank3.service not found.")
        return
    answers = {
        "ListUnitsByPatterns": GLib.Variant("(a(ssssssouso))", (ROWS,)),
        "RestartUnit": GLib.Variant("(o)", ("/j/8",)),
    }
    invocation.return_value(answers.get(method))


def read(_con, _sender, _path, _interface, name):
    return PROPERTIES[name]


def finished(con):
    job = GLib.Variant("(uoss)", (7, "/j/7", "glm53-rank0.service", "done"))
    con.emit_signal(None, ROOT, f"{NAME}.Manager", "JobRemoved", job)


def properties(con, path, values):
    words = GLib.Variant("(sa{sv}as)", (f"{NAME}.Service", values, []))
    con.emit_signal(None, path, "org.freedesktop.DBus.Properties", "PropertiesChanged", words)


def died(con):
    properties(con, RANK, {"MainPID": GLib.Variant("u", 0)})


def said(con):
    properties(con, RANK, {"StatusText": GLib.Variant("s", "waiting for 7 s")})


def other(con):
    properties(con, f"{ROOT}/unit/cron_2eservice", {"MainPID": GLib.Variant("u", 0)})
    job = GLib.Variant("(uoss)", (9, "/j/9", "cron.service", "done"))
    con.emit_signal(None, ROOT, f"{NAME}.Manager", "JobRemoved", job)


COMMANDS = {"finished": finished, "died": died, "said": said, "other": other}


def main():
    con = Gio.bus_get_sync(Gio.BusType.SYSTEM)
    for path, text in ((ROOT, MANAGER), (RANK, SERVICE)):
        interface = Gio.DBusNodeInfo.new_for_xml(text).interfaces[0]
        con.register_object(path, interface, called, read, None)
    loop = GLib.MainLoop()

    def listen():
        for line in sys.stdin:
            GLib.idle_add(COMMANDS[line.strip()], con)
        GLib.idle_add(loop.quit)

    Gio.bus_own_name_on_connection(
        con, NAME, Gio.BusNameOwnerFlags.NONE, lambda *_: print("owned", flush=True), None
    )
    threading.Thread(target=listen, daemon=True).start()
    loop.run()


main()
