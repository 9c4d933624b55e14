"""The root file system that both hosts share: Debian packages and a few settings."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from .layout import PORTS, SPARKS
from .run import BedError, run

SUITE = "trixie"
MIRROR_VARIABLE = "GLM53_BED_MIRROR"
BUILD_SECONDS = 600.0

PACKAGES = (
    "curl",
    "dbus",
    "iproute2",
    "iputils-ping",
    "libnuma1",  # of the CPU engine: its kernels do not load without
    "libpam-systemd",
    "linux-sysctl-defaults",  # ping without privileges, as everywhere
    "procps",
    "python3",
    "python3-gi",  # D-Bus for the watchdog: has no wheel, so it comes from the distribution
    "python3-pydbus",
    "systemd",
    "systemd-sysv",
)

UNWANTED_DOCS = ("doc", "man", "locale", "info")

MASKED = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "console-getty.service",
    # It would wait for rails that a test may have cut.
    "systemd-networkd-wait-online.service",
)

ENABLED = ("systemd-networkd.service",)

FILES = {
    "etc/hosts": "127.0.0.1 localhost\n"
    + "".join(
        f"{port.address(spark)} {spark.name}{'' if port.network == 'lan' else f'-{port.network}'}\n"
        for spark in SPARKS
        for port in PORTS
    ),
    # A host that is killed must leave its last words on disk.
    "etc/systemd/journald.conf.d/bed.conf": "[Journal]\nStorage=persistent\nSyncIntervalSec=1s\n"
    "RateLimitBurst=0\n",
    "etc/machine-id": "",
}


def stamp() -> str:
    """Return a digest of everything that the root is made from."""
    made_from = [SUITE, PACKAGES, UNWANTED_DOCS, MASKED, ENABLED, FILES]
    return hashlib.sha256(json.dumps(made_from).encode()).hexdigest()


def build(root: Path, say: Callable[[str], object] = print) -> bool:
    """Make the root at `root` unless it is there and current; return whether it was made.

    It is made beside and renamed, and stamped last: a build that was killed leaves no half root.
    """
    mark = root.with_suffix(".stamp")
    if root.is_dir() and mark.exists() and mark.read_text() == stamp():
        return False
    say(f"building a Debian {SUITE} root in {root}: about half a minute")
    mark.unlink(missing_ok=True)
    fresh = root.with_suffix(".new")
    for folder in (root, fresh):
        if folder.exists():
            shutil.rmtree(folder)
    fresh.parent.mkdir(parents=True, exist_ok=True)
    _install(fresh)
    _settle(fresh)
    fresh.rename(root)
    mark.write_text(stamp())
    return True


def _install(root: Path) -> None:
    docs = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in UNWANTED_DOCS]
    run(
        *("mmdebstrap", "--quiet", "--variant=minbase", "--mode=root", *docs),
        *(f"--include={','.join(PACKAGES)}", SUITE, root, f"deb {mirror()} {SUITE} main"),
        timeout=BUILD_SECONDS,
    )
    # The tool takes these over from the machine it runs on.
    for name in ("hostname", "resolv.conf"):
        (root / "etc" / name).unlink(missing_ok=True)


def _settle(root: Path) -> None:
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "var/log/journal").mkdir(exist_ok=True)
    run("systemctl", f"--root={root}", "--quiet", "mask", *MASKED)
    run("systemctl", f"--root={root}", "--quiet", "enable", *ENABLED)


def mirror(etc: Path = Path("/etc/apt")) -> str:
    """Return the Debian mirror that this machine's apt already uses, or the one it is told."""
    if told := os.environ.get(MIRROR_VARIABLE):
        return told
    lists = sorted(path for path in (etc / "sources.list.d").glob("*") if path.is_file())
    for path in [etc / "sources.list", *lists]:
        for line in path.read_text().splitlines() if path.is_file() else ():
            first, *rest = line.split() or [""]
            # Both formats: `deb [options] URI suite` and `URIs: URI...`; security is another one.
            if first in ("deb", "URIs:"):
                for word in rest:
                    if "://" in word and word.rstrip("/").endswith("/debian"):
                        return word.rstrip("/")
    raise BedError(
        "the apt sources name no Debian mirror.",
        f"Name one in {MIRROR_VARIABLE} (and install debian-archive-keyring).",
    )
