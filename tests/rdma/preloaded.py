"""Runs in a guest: `glm53ctl` with its imports done, which take an emulated processor a minute.

Each command is a fork that calls the program's own entry point, with arguments, output and exit
status as if it had been typed. Arguments come in by one pipe, output and status leave by others.
"""

import os
import shlex
import sys
from pathlib import Path

import glm53ctl.checks.doctor
import glm53ctl.checks.record
import glm53ctl.config.sources
import glm53ctl.facts.node  # noqa: F401 - the commands import these when they are called
from glm53ctl import cli
from glm53ctl.facts import host

# What takes a Spark two seconds can take an emulated processor many.
host.PROGRAM_SECONDS = 30.0


def serve(folder: Path) -> None:
    """Answer commands, one after the other, for ever."""
    asked, told, status = (folder / name for name in ("asked", "told", "status"))
    for pipe in (asked, told, status):
        os.mkfifo(pipe)
    while True:
        words = shlex.split(asked.read_text())
        child = os.fork()
        if child == 0:
            os.dup2(os.open(told, os.O_WRONLY), sys.stdout.fileno())
            os.dup2(os.open(folder / "complaint", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
            sys.argv = ["glm53ctl", *words]
            cli.main()
        _, code = os.waitpid(child, 0)
        status.write_text(str(os.waitstatus_to_exitcode(code)))


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
