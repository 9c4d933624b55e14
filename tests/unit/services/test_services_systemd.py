"""What systemd itself says of the units; runs wherever systemd's programs are installed."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from unit_files import RANKS, ROOT, SERVICES, UNITS, systemd

EXPOSURE = 1.7
"""What `systemd-analyze security` of 252 and 257 gives the rank units."""

HELPERS_EXPOSURE = {
    "glm53-watchdog.service": 1.3,
    "glm53-bus@.service": 0.7,
    "glm53-weights.service": 1.1,
    "glm53-weights-scrub.service": 0.2,
}
"""The same for the watchdog, what restarts units for it, and the weights."""

EXCEPTIONS = {
    "SystemCallFilter=~@privileged",
    "SystemCallFilter=~@resources",
    "RootDirectory=/RootImage=",
    "PrivateDevices=",
    "MemoryDenyWriteExecute=",
    "RestrictAddressFamilies=~AF_NETLINK",
    "RestrictAddressFamilies=~AF_UNIX",
    "RestrictAddressFamilies=~AF_(INET|INET6)",
    "RemoveIPC=",
    "ProtectProc=",
    "ProcSubset=",
    "PrivateNetwork=",
    "DeviceAllow=",
    "IPAddressDeny=",
}
"""What the analysis misses in the rank units. docs/services.md says why, a row for each."""


@pytest.fixture
def installed(tmp_path) -> Path:
    """The units in a directory of their own, with a program in place of `glm53ctl`.

    `verify` of 252 looks for programs without ExecSearchPath=, hence the path in a drop-in.
    """
    for name in UNITS:
        shutil.copy(SERVICES / name, tmp_path)
    for name in UNITS:
        if name.endswith(".service"):
            (tmp_path / f"{name}.d").mkdir()
            (tmp_path / f"{name}.d/path.conf").write_text(
                "[Service]\nExecStart=\nExecStart=/bin/sh\nExecStop=\nExecStopPost=\n"
            )
    return tmp_path


def verify(directory: Path) -> str:
    """Return all that `systemd-analyze verify` has to say of the units."""
    done = systemd(
        "systemd-analyze",
        "verify",
        "--recursive-errors=no",
        *(name.replace("@.", "@1.") for name in UNITS),
        SYSTEMD_UNIT_PATH=f"{directory}:",  # the colon adds systemd's own
    )
    said = [line for line in (done.stdout + done.stderr).splitlines() if "glm53" in line]
    assert done.returncode == 0 or said, done.stderr
    return "\n".join(said)


def test_verify_finds_nothing(installed):
    assert verify(installed) == ""


@pytest.mark.parametrize(
    ("line", "broken"),
    [
        ("KillMode=mixed", "KillModes=mixed"),
        ("Type=notify", "Type=notfy"),
        ("DevicePolicy=closed", "DevicePolicy=shut"),
    ],
)
def test_verify_would_find_a_mistake(installed, line, broken):
    unit = installed / RANKS[0]
    text = unit.read_text()
    assert line in text
    unit.write_text(text.replace(line, broken))
    number = text.splitlines().index(line) + 1
    assert f"{unit}:{number}: " in verify(installed)


def exposure(name: str) -> float:
    words = ("systemd-analyze", "security", "--offline=yes", "--no-pager")
    said = systemd(*words, str(SERVICES / name)).stdout
    overall = re.search(r"Overall exposure level for \S+: ([\d.]+)", said)
    assert overall, said
    return float(overall[1])


@pytest.mark.parametrize("name", RANKS)
def test_the_exposure_is_what_the_gpu_leaves(name):
    assert exposure(name) <= EXPOSURE


@pytest.mark.parametrize(("name", "most"), HELPERS_EXPOSURE.items())
def test_the_helpers_are_locked_in(name, most):
    assert exposure(name) <= most


@pytest.mark.parametrize("name", RANKS)
def test_every_exception_is_known(name):
    words = ("systemd-analyze", "security", "--offline=yes", "--no-pager", "--json=short")
    checks = json.loads(systemd(*words, str(SERVICES / name)).stdout)
    assert {c["name"] for c in checks if c["set"] is False and c["exposure"]} == EXCEPTIONS


def test_every_exception_has_a_row_in_the_docs():
    rows = re.findall(r"^\| `([^`]+)` \|", (ROOT / "docs/services.md").read_text(), re.M)
    assert {row.replace("\\", "") for row in rows} >= EXCEPTIONS
    assert f"**{EXPOSURE}**" in (ROOT / "docs/services.md").read_text()


def test_sysusers_makes_the_user(tmp_path):
    done = systemd(
        "systemd-sysusers",
        "--dry-run",
        f"--root={tmp_path}",
        str(SERVICES / "glm53.sysusers.conf"),
    )
    assert done.returncode == 0, done.stderr
    assert "Creating user 'glm53'" in done.stdout + done.stderr


def test_tmpfiles_makes_the_directories(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("giving directories to other users needs root")
    (tmp_path / "etc").mkdir()
    users = systemd("systemd-sysusers", f"--root={tmp_path}", str(SERVICES / "glm53.sysusers.conf"))
    assert users.returncode == 0, users.stderr
    done = systemd(
        "systemd-tmpfiles", "--create", f"--root={tmp_path}", str(SERVICES / "glm53.tmpfiles.conf")
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "etc/credstore").stat().st_mode & 0o7777 == 0o700
    state = (tmp_path / "var/lib/glm53").stat()
    assert state.st_mode & 0o7777 == 0o750
    assert state.st_uid != 0
