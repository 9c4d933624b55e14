"""What the unit files say, and that it is what the code says."""

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest
import typer.main
from unit_files import RANKS, ROOT, SERVICES, UNITS, Unit, entries

from glm53ctl.cli import app
from glm53ctl.config.schema import Config, Memory, Paths
from glm53ctl.config.sources import DEFAULT_FILE
from glm53ctl.errors import EXIT_BAD_INPUT
from glm53ctl.plan import plan_rank
from glm53ctl.supervise import secrets

PAIR = Config.model_validate(
    {"nodes": [{"name": "a", "address": "192.0.2.1"}, {"name": "b", "address": "192.0.2.2"}]}
)


@pytest.fixture(params=RANKS)
def rank(request) -> Unit:
    return Unit(request.param)


def test_the_rank_units_differ_in_the_number_only():
    head, worker = (Unit(name).text for name in RANKS)
    assert re.sub(r"\b(rank|record-exit) 0\b", r"\1 1", head) == worker
    lines = zip(head.splitlines(), worker.splitlines(), strict=True)
    differing = [a.partition("=")[0] for a, b in lines if a != b]
    assert differing == ["Description", "ExecStart", "ExecStopPost"]


@pytest.mark.parametrize(("number", "name"), list(enumerate(RANKS)))
def test_the_command_is_one_that_the_program_has(number, name):
    program, *words = Unit(name).one("ExecStart").split()
    assert program == "glm53ctl"
    command, *options = words
    context = typer.main.get_command(app).commands[command].make_context(command, options)
    assert context.params["number"] == number
    assert context.params["config"] == DEFAULT_FILE


def test_the_start_limit_is_where_systemd_reads_it(rank):
    misplaced = [key for key, _ in rank.keys["Service"] if key.startswith("StartLimit")]
    assert misplaced == []
    assert {key for key, _ in rank.keys["Unit"]} >= {"StartLimitIntervalSec", "StartLimitBurst"}


def test_no_secret_stands_in_a_unit(rank):
    assert rank.all("Service", "Environment") == ["PYTHONFAULTHANDLER=1"]
    assert not re.search(r"^(SetCredential|EnvironmentFile|PassEnvironment)", rank.text, re.M)


def test_the_credentials_are_those_that_the_code_reads(rank, monkeypatch):
    asked = {source.credential for source in plan_rank(PAIR, 0).secret_env.values()}
    monkeypatch.setattr(
        secrets, "read_secret", lambda source, _: asked.add(source.credential) or "x" * 16
    )
    secrets.pair_token(PAIR, {})
    loaded = dict(value.split(":") for value in rank.all("Service", "LoadCredential"))
    assert set(loaded) == asked
    # A path would make a missing file a failed start; a name is looked up, and may be missing.
    assert loaded == {name: f"glm53.{name}" for name in asked}


@pytest.mark.parametrize("page", ["owners.md", "services.md"])
def test_every_unit_that_reads_a_secret_is_restarted_where_a_page_tells_of_one(page):
    """systemd reads credentials when a unit starts: one that was left out never sees them."""
    reading = {name for name in UNITS if "\nLoadCredential=" in (SERVICES / name).read_text()}
    others = {
        name for name in reading if "PartOf=glm53.target" not in (SERVICES / name).read_text()
    }
    text = (ROOT / "docs" / page).read_text()
    told = text[text.index("Secrets, each" if page == "services.md" else "Then the secrets") :]
    rows = re.findall(r"^\| change a secret .*$", text, re.MULTILINE)
    for passage in (told, *rows):
        found = re.search(r"systemctl restart --no-block ([\w. -]*[\w])", passage)
        assert found
        assert {"glm53.target", *others} <= set(found[1].split())


def test_the_directories_are_those_of_the_configuration(rank):
    assert f"/var/lib/{rank.one('StateDirectory')}" == Paths().state_dir
    assert f"/run/{rank.one('RuntimeDirectory')}" == Paths().run_dir
    assert Path("/etc", rank.one("ConfigurationDirectory")) == DEFAULT_FILE.parent


def test_the_run_directory_outlives_a_rank(rank):
    """Two ranks of one host share it, and the one-run override in it belongs to both."""
    assert rank.one("RuntimeDirectoryPreserve") == "yes"


def test_the_engine_s_sockets_are_not_swept_up():
    """tmp.conf of systemd cleans the private /tmp of a service too."""
    spared = [words[1] for words in entries("glm53.tmpfiles.conf") if words[0] == "x"]
    for top in ("/tmp", "/var/tmp"):
        for name in RANKS:
            path = f"{top}/systemd-private-%b-{name}-aBc123/tmp/9f3c.sock"
            assert any(fnmatch(path, pattern) for pattern in spared), path


def test_the_user_is_the_one_that_sysusers_makes(rank):
    ((kind, name, _, *_, home),) = entries("glm53.sysusers.conf")
    assert (kind, name, home) == ("u", rank.one("User"), Paths().state_dir)
    owners = {tuple(w[3:5]) for w in entries("glm53.tmpfiles.conf") if w[1] == Paths().state_dir}
    assert owners == {(name, name)}


def test_no_unit_names_one_that_is_not_here():
    present = {path.name for path in SERVICES.iterdir()}
    for name in UNITS:
        values = " ".join(value for keys in Unit(name).keys.values() for _, value in keys)
        named = set(re.findall(r"\bglm53[\w-]*\.(?:service|target)\b", values))
        assert named <= present, name


def test_the_target_is_reached_without_waiting_for_the_rank(rank):
    """Else `multi-user.target` would wait for the other machine."""
    assert "glm53.target" in rank.one("After", "Unit").split()
    assert rank.one("PartOf", "Unit") == "glm53.target"
    assert rank.one("WantedBy", "Install") == "glm53.target"
    assert Unit("glm53.target").one("WantedBy", "Install") == "multi-user.target"


@pytest.mark.parametrize(
    "name", [name for name in UNITS if name.endswith((".path", ".socket", ".timer"))]
)
def test_what_comes_before_basic_target_does_not_wait_for_the_target(name):
    """The target is after what it wants, and that, as any service, after basic.target.

    systemd breaks the cycle at every boot by leaving out one of them, of its own choice.
    """
    unit = Unit(name)
    early = unit.all("Unit", "DefaultDependencies") != ["no"]
    after = " ".join(unit.all("Unit", "After")).split()
    assert not (early and "glm53.target" in after)


def test_nothing_waits_for_a_device_or_for_the_network_to_be_online(rank):
    assert not re.search(r"\.device\b", re.sub(r"^#.*", "", rank.text, flags=re.M))
    for key in ("Requires", "Wants", "BindsTo", "Requisite"):
        assert rank.all("Unit", key) == []


def test_only_a_stop_on_command_and_a_useless_configuration_stay_down(rank):
    assert rank.one("Restart") == "always"
    assert rank.one("RestartPreventExitStatus").split() == ["0", str(EXIT_BAD_INPUT)]


def test_the_kernel_chooses_the_engine_and_the_supervisor_sees_it(rank):
    assert int(rank.one("OOMScoreAdjust")) >= 500
    assert rank.one("OOMPolicy") == "continue"
    assert Memory().floor_gib > 0  # what the missing MemoryMax= is left to
