"""The units that prepare a host: what they run, when, and with how little."""

import re

import pytest
import typer.main
from unit_files import RANKS, SERVICES, Unit, systemd

from glm53ctl import prepare
from glm53ctl.cli import app
from glm53ctl.config.schema import Config, Paths
from glm53ctl.config.sources import DEFAULT_FILE
from glm53ctl.facts.node import preparation_dir

PREPARE, RECLAIM, PATH = "glm53-prepare.service", "glm53-reclaim.service", "glm53-reclaim.path"
PRIVILEGED = (PREPARE, RECLAIM)
EXPOSURE = 2.3
"""What `systemd-analyze security` of 252 gives the wider of the two: root, with SYS_ADMIN."""


@pytest.mark.parametrize(
    ("unit", "key", "undo"),
    [(PREPARE, "ExecStart", False), (PREPARE, "ExecStopPost", True), (RECLAIM, "ExecStart", None)],
)
def test_the_commands_are_ones_that_the_program_has(unit, key, undo):
    program, command, *options = Unit(unit).one(key).split()
    context = typer.main.get_command(app).commands[command].make_context(command, options)
    assert program == "glm53ctl"
    assert context.params["config"] == DEFAULT_FILE
    assert context.params.get("undo") is undo


def test_the_preparation_is_over_before_a_rank_starts_and_stays_until_the_target_stops():
    unit = Unit(PREPARE)
    assert set(unit.one("Before", "Unit").split()) == set(RANKS)
    assert unit.one("PartOf", "Unit") == "glm53.target"
    assert (unit.one("Type"), unit.one("RemainAfterExit")) == ("oneshot", "yes")


def test_what_was_set_is_taken_back_after_a_failed_start_too():
    """The records go with the unit's directory, and a next start would find our own values."""
    assert Unit(PREPARE).all("Service", "ExecStop") == []  # not run after a failed ExecStart=


def test_no_rank_waits_for_what_may_fail():
    for name in RANKS:
        for key in ("Requires", "BindsTo", "Requisite"):
            assert "prepare" not in " ".join(Unit(name).all("Unit", key))


def test_the_record_is_where_the_doctor_looks():
    pair = Config.model_validate({"nodes": [{"name": "a", "address": "127.0.0.1"}]})
    assert str(preparation_dir(pair.paths)) == f"/run/{Unit(PREPARE).one('RuntimeDirectory')}"


def test_the_request_is_the_file_that_the_path_unit_waits_for():
    assert Unit(PATH).one("PathExists", "Path") == f"{Paths().run_dir}/{prepare.REQUEST}"


def test_swap_and_cache_have_time_within_that_of_the_unit():
    assert Unit(RECLAIM).seconds("TimeoutStartSec") > prepare.RECLAIM_SECONDS + prepare.SWAP_SECONDS


@pytest.mark.parametrize("name", PRIVILEGED)
def test_root_keeps_next_to_nothing(name):
    unit = Unit(name)
    assert set(unit.one("CapabilityBoundingSet").split()) <= {"CAP_SYS_ADMIN", "CAP_DAC_OVERRIDE"}
    assert unit.one("NoNewPrivileges") == "yes"
    assert unit.one("ProtectSystem") == ("full" if name == RECLAIM else "strict")
    assert unit.one("PrivateNetwork") == "yes"
    said = systemd(
        "systemd-analyze", "security", "--offline=yes", "--no-pager", str(SERVICES / name)
    )
    overall = re.search(r"Overall exposure level for \S+: ([\d.]+)", said.stdout)
    assert float(overall[1]) <= EXPOSURE


def test_a_swap_file_can_be_opened_for_writing():
    """As swapoff(2) and swapon(2) do, wherever it is; on a read-only mount that is refused."""
    unit = Unit(RECLAIM)
    assert unit.one("ProtectSystem") != "strict"
    closing = ("ReadOnlyPaths", "InaccessiblePaths", "TemporaryFileSystem")
    assert [key for key, _ in unit.keys["Service"] if key in closing] == []
