"""`glm53ctl record-exit`: what a unit runs at its end must never fail."""

import pytest

from glm53ctl import cli
from glm53ctl.config.schema import Paths
from glm53ctl.supervise.ledger import read_incidents


@pytest.fixture
def killed(monkeypatch, tmp_path):
    for name, value in (("RESULT", "signal"), ("CODE", "killed"), ("STATUS", "KILL")):
        prefix = "SERVICE" if name == "RESULT" else "EXIT"
        monkeypatch.setenv(f"{prefix}_{name}", value)
    monkeypatch.setattr(cli, "Paths", lambda: Paths(state_dir=str(tmp_path / "default")))
    return tmp_path


def configured(folder, text):
    path = folder / "config.yaml"
    path.write_text(text)
    return path


def test_it_writes_where_the_configuration_says(killed):
    state = killed / "state"
    cli.record_exit(1, configured(killed, f"{{profile: demo, paths: {{state_dir: {state}}}}}"))
    (found,) = read_incidents(state)
    assert (found.rank, found.seen_by) == (1, "systemd")
    assert not (killed / "default").exists()


@pytest.mark.parametrize("text", ["", "nodes: [", "profile: no-such\n", "\x00"])
def test_with_a_useless_configuration_it_writes_to_the_usual_place(killed, text):
    cli.record_exit(0, configured(killed, text))
    assert [found.code for found in read_incidents(killed / "default")] == ["SUPERVISOR_LOST"]


def test_without_a_configuration_too(killed):
    cli.record_exit(0, killed / "nothing.yaml")
    assert len(read_incidents(killed / "default")) == 1


def test_a_place_that_cannot_be_made_is_no_failure(killed):
    (killed / "default").write_text("a file")
    cli.record_exit(0, killed / "nothing.yaml")
