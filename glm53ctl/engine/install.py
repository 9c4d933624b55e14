"""Makes the CPU engine, or finds that there is nothing to do.

The environment is built where it will stay, since a virtual environment cannot be moved. What
keeps a half-made one from being taken for a whole one is the mark of `stamp`: set before the
first change, taken away after the last. Whoever finds the mark begins anew; what pip downloaded
by then is in its cache.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from glm53ctl.engine import build, sources, stamp
from glm53ctl.engine.interpreter import Report
from glm53ctl.errors import UserError


def install(prefix: Path, *, python: str | None, report: Report) -> None:
    """Make the engine at `prefix`, or bring it up to date; at once when nothing changed.

    `python` names the CPython 3.11 to use (None: find one). `report` gets a line per step.
    Raises UserError, with a way out, for all that the user can mend.
    """
    prefix = Path(os.path.abspath(prefix))
    origin = sources.of_checkout()
    wanted = stamp.wanted(prefix, origin)
    if stamp.read(prefix) == wanted:
        return
    with _alone(prefix, report):
        present = stamp.read(prefix)
        if present == wanted:  # made by the installer that we waited for
            return
        if present is not None and present.same_packages(wanted):
            stamp.begin(prefix)
        else:
            base = build.prepare(python, report)
            stamp.begin(prefix)
            build.packages(prefix, base, origin, report)
        build.overlay(prefix, origin, report)
        stamp.finish(prefix, wanted)
    report(f"engine ready in {prefix}")


@contextmanager
def _alone(prefix: Path, report: Report) -> Iterator[None]:
    """Hold the environment against a second installer; wait while another holds it."""
    try:
        prefix.mkdir(parents=True, exist_ok=True)
        guard = (prefix / build.GUARD).open("w")
    except OSError as error:
        raise UserError(
            "ENGINE_PREFIX",
            f"The engine cannot be written to {prefix}: {error.strerror}.",
            "Choose a folder of your own, or mend its permissions.",
        ) from error
    with guard:
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            report(f"waiting for another installation into {prefix}")
            fcntl.flock(guard, fcntl.LOCK_EX)
        yield
