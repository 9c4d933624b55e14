"""Machines with good configurations evaluate, and machines with bad ones say why they do not."""

from typing import Any

import pytest
from nix_cases import BAD, GOOD, Machine
from nix_tool import Nix


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


def test_there_are_enough_of_both() -> None:
    assert len(GOOD) >= 30
    assert len(BAD) >= 60


def test_every_reason_names_its_option(machines: dict[str, Any]) -> None:
    for machine in BAD:
        for message in machines[machine.name].get("failed", ()):
            assert message.startswith("services.glm53."), message
