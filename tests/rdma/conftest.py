"""The guests of one run: booted before the first test of this folder, switched off after the last.

They are slow, so only `make rdma` (which sets GLM53_RDMA_REQUIRED) runs these tests.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from glm53ctl.facts.node import NodeFacts

from .guests import Guests
from .product import Product

REQUIRED_VARIABLE = "GLM53_RDMA_REQUIRED"
VERSIONS = ("dpkg-query", "-W", "-f", "${Package} ${Version}, ", "rdma-core", "iproute2")

TEST_SECONDS = 3600
"""The first test makes the guests' root and boots them, twenty minutes and ten at most."""

_ran_on: list[str] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test of this folder its limit."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(TEST_SECONDS))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what the tests ran on."""
    for line in _ran_on:
        terminalreporter.write_line(line)


@pytest.fixture(scope="package")
def whole_guests() -> Iterator[Guests]:
    """Both guests, as the last test left them."""
    if not os.environ.get(REQUIRED_VARIABLE):
        pytest.skip("minutes long: run it with `make rdma`")
    guests = Guests()
    with guests.lock():
        try:
            guests.up()
            for machine in guests.machines.values():
                versions = f"{machine.output(*VERSIONS)} Linux {machine.output('uname', '-r')}"
                _ran_on.append(f"{machine.name}: {versions}, up {machine.boot_seconds:.0f} s")
            Product(guests).install()
            yield guests
        finally:
            guests.down()


@pytest.fixture(scope="package")
def healthy(whole_guests: Guests) -> list[NodeFacts]:
    """The facts of both with whole rails."""
    whole_guests.reset()
    return Product(whole_guests).record()


@pytest.fixture
def guests(whole_guests: Guests) -> Guests:
    """Both guests with their rails as after a boot."""
    whole_guests.reset()
    return whole_guests


@pytest.fixture
def product(guests: Guests) -> Product:
    """The product in both."""
    return Product(guests)
