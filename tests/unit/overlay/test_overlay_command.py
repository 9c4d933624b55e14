"""`glm53ctl overlay verify`: what it makes of an overlay's answer, or of none.

The engine is a script here; that the real one answers so is seen by `make overlay-test`.
"""

import json
from pathlib import Path

import pytest

from glm53ctl import cli
from glm53ctl.engine.overlay import verify
from glm53ctl.errors import UserError

GOOD = {"name": "contract", "ok": True, "detail": "kept"}
BAD = {"name": "8 tokens", "ok": False, "detail": "relative error 1.4e+00 <= 0.005"}


def engine(folder: Path, script: str) -> Path:
    python = folder / "bin/python"
    python.parent.mkdir()
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    return folder


def answering(folder: Path, *checks: dict) -> Path:
    report = json.dumps({"checks": checks})
    failed = any(not check["ok"] for check in checks)
    return engine(folder, f"echo a warning\necho '{report}'\nexit {int(failed)}")


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["glm53ctl", "overlay", "verify", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_all_well_is_exit_status_0(tmp_path, monkeypatch, capfd) -> None:
    prefix = answering(tmp_path, GOOD)
    assert run(monkeypatch, "--prefix", str(prefix)) == 0
    assert capfd.readouterr().out.split() == ["ok", "contract", "kept"]


def test_a_failed_check_is_shown_and_is_exit_status_1(tmp_path, monkeypatch, capfd) -> None:
    prefix = answering(tmp_path, GOOD, BAD)
    assert run(monkeypatch, "--prefix", str(prefix)) == 1
    last = capfd.readouterr().out.strip().splitlines()[-1]
    assert last.split() == ["FAIL", *BAD["name"].split(), *BAD["detail"].split()]


def test_json_is_the_report(tmp_path, monkeypatch, capfd) -> None:
    prefix = answering(tmp_path, GOOD, BAD)
    assert run(monkeypatch, "--prefix", str(prefix), "--json") == 1
    assert json.loads(capfd.readouterr().out) == {"checks": [GOOD, BAD]}


@pytest.mark.parametrize(("words", "asked"), [((), ""), (("--dense",), "--dense")])
def test_the_cost_of_dense_types_is_asked_for_only_when_wanted(
    tmp_path, monkeypatch, capfd, words, asked
) -> None:
    """An engine that says what it was asked."""
    check = json.dumps({"checks": [GOOD | {"detail": "DETAIL"}]}).replace("DETAIL", "($4)")
    prefix = engine(tmp_path, "echo '" + check.replace("$4", "'\"$4\"'") + "'")
    assert run(monkeypatch, "--prefix", str(prefix), *words) == 0
    assert f"({asked})" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo No module named glm53_overlay >&2; exit 1", "No module named glm53_overlay"),
        ("exit 4", "it ended with status 4"),
        ("echo '{}'", "it ended with status 0"),
    ],
)
def test_no_report_is_one_sentence(tmp_path, script, says) -> None:
    with pytest.raises(UserError, match=f"OVERLAY_UNKNOWN: .*could not check itself: {says}"):
        verify(engine(tmp_path, script))


def test_no_engine_is_one_sentence(tmp_path) -> None:
    with pytest.raises(UserError, match=r"OVERLAY_UNKNOWN: .*No such file"):
        verify(tmp_path)


def test_an_engine_that_hangs_is_given_up(tmp_path) -> None:
    with pytest.raises(UserError, match=r"OVERLAY_UNKNOWN: .*no answer within"):
        verify(engine(tmp_path, "exec sleep 60"), deadline=0.2)
