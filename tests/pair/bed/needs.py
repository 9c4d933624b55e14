"""Whether this machine can hold the bed, in one sentence."""

import os
import shutil
import tempfile
from pathlib import Path

from .cgroup import unified
from .run import run

PROGRAMS = {
    "mmdebstrap": "mmdebstrap",
    "systemd-nspawn": "systemd-container",
    "ip": "iproute2",
    "bridge": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
}
"""Programs the bed starts, and the Debian packages that hold them."""


def why_not(state: Path) -> str | None:
    """Return why no bed can be made in `state`, or None when one can."""
    if os.geteuid() != 0:
        return "the test bed needs root: it makes namespaces and mounts"
    missing = sorted({package for name, package in PROGRAMS.items() if not shutil.which(name)})
    if missing:
        return f"the test bed needs programs: apt install {' '.join(missing)}"
    top = unified()
    if top is None or not os.access(top, os.W_OK):
        return "the test bed needs a writable cgroup2 mount to hold its hosts"
    return _overlay(state)


def _overlay(state: Path) -> str | None:
    """Try an overlay for real: the module may be absent, and not every file system can be upper."""
    state.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="probe-", dir=state) as name:
        folders = [Path(name, part) for part in ("lower", "upper", "work", "merged")]
        for folder in folders:
            folder.mkdir()
        lower, upper, work, merged = folders
        options = f"lowerdir={lower},upperdir={upper},workdir={work}"
        # In namespaces of its own, so that nothing is left to undo.
        done = run(
            *("unshare", "--mount", "--net", "--"),
            *("mount", "-t", "overlay", "probe", "-o", options, merged),
            check=False,
        )
    if done.returncode:
        return f"the test bed needs namespaces and overlayfs on {state}: {done.stderr.strip()}"
    return None
