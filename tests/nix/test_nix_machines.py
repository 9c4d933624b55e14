"""Machines with good configurations evaluate, and machines with bad ones say why they do not."""

import json
from pathlib import Path
from typing import Any

import pytest
from nix_cases import BAD, GOOD, HOSTS, Machine
from nix_tool import Nix

from glm53ctl.config.sources import ConfigError, load


@pytest.fixture(scope="module")
def machines(nix: Nix) -> dict[str, Any]:
    cases = {machine.name: [machine.module] for machine in (*GOOD, *BAD)}
    assert len(cases) == len(GOOD) + len(BAD)
    return nix.machines(cases)


@pytest.mark.parametrize("machine", GOOD, ids=lambda machine: machine.name)
def test_a_good_machine_evaluates(machine: Machine, machines: dict[str, Any]) -> None:
    found = machines[machine.name]
    assert found.get("error") is None
    assert found["failed"] == []


@pytest.mark.parametrize("machine", BAD, ids=lambda machine: machine.name)
def test_a_bad_machine_is_refused_for_its_reason(
    machine: Machine, machines: dict[str, Any]
) -> None:
    found = machines[machine.name]
    said = found.get("error") or "\n".join(found["failed"])
    assert machine.reason in said, said


SETTINGS = [machine for machine in BAD if machine not in HOSTS]
"""Those that are wrong in `settings`, which the program reads as well."""


@pytest.mark.parametrize("machine", SETTINGS, ids=lambda machine: machine.name)
def test_the_program_refuses_it_for_the_same_reason(
    machine: Machine, machines: dict[str, Any], tmp_path: Path
) -> None:
    """With the codes that Nix names; where a type of Nix speaks, with the words of that type."""
    found = machines[machine.name]
    file = tmp_path / "config.yaml"
    # What Nix writes, or would have, had it come so far.
    written = found.get("settings", machine.module["services"]["glm53"]["settings"])
    file.write_text(json.dumps(written))
    with pytest.raises(ConfigError) as refused:
        load(file, environ={})
    if "error" in found:
        words = machine.reason.partition("is not of type `")[2].removeprefix("null or ")
        said = "\n".join(finding.sentence() for finding in refused.value.findings)
        assert words.rstrip("'") in said, said
        return
    codes = sorted(f["code"] for f in found["findings"] if f["severity"] == "fail")
    assert sorted(f.code for f in refused.value.findings if f.severity.value == "fail") == codes
    assert all(any(f" {code}: " in message for message in found["failed"]) for code in codes)


def test_there_are_enough_of_both() -> None:
    assert len(GOOD) >= 30
    assert len(BAD) >= 60


def test_every_reason_names_its_option(machines: dict[str, Any]) -> None:
    for machine in BAD:
        for message in machines[machine.name].get("failed", ()):
            assert message.startswith("services.glm53."), message
