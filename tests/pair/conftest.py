"""The bed of one run: booted before the first test of this folder, removed after the last.

Tests run inside the fabric's network namespace, as clients on the LAN. Without root, cgroup2 or
overlayfs they are skipped, with the reason; GLM53_BED_REQUIRED makes that a failure.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from glm53ctl.demo.run import DemoFiles

from .bed import CHECKOUT, Bed, Product
from .measure import MEND_SECONDS
from .serving import ServingPair, demo_settings, running

REQUIRED_VARIABLE = "GLM53_BED_REQUIRED"
SILENCE_SECONDS = MEND_SECONDS / 2
"""A supervisor may be held up for so long without a loss, and a silent one is found in time."""
TEST_SECONDS = 2400
"""One test may wait for several starts; one that hangs never ends."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test of this folder its limit."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(TEST_SECONDS))


@pytest.fixture(scope="package")
def product() -> Product:
    """The product of this checkout. Not all of it need be there: see `Product.why_not`."""
    files = DemoFiles(Bed().state / "demo")
    engine = os.environ.get("GLM53_ENGINE")
    return Product.of(CHECKOUT, files.model, CHECKOUT / engine if engine else None)


@pytest.fixture(scope="package")
def whole_bed(product: Product) -> Iterator[Bed]:
    """The bed, as the last test left it."""
    bed = Bed()
    if reason := bed.why_not():
        if os.environ.get(REQUIRED_VARIABLE):
            pytest.fail(reason)
        pytest.skip(reason)
    with running(bed, product):
        yield bed


@pytest.fixture(scope="module")
def pair(whole_bed: Bed, product: Product, tmp_path_factory: pytest.TempPathFactory) -> ServingPair:
    """The product installed on both hosts of a bed with no fault in it; nothing is started."""
    if reason := product.why_not():
        pytest.skip(reason)
    whole_bed.heal()
    settings = demo_settings(DemoFiles(whole_bed.state / "demo"), product)
    settings["link"] = {"silence_grace_seconds": SILENCE_SECONDS}
    made = ServingPair(whole_bed, tmp_path_factory.mktemp("pair"), settings)
    made.install()
    return made


@pytest.fixture
def bed(whole_bed: Bed) -> Bed:
    """The bed with no fault in it and both hosts up."""
    whole_bed.heal()
    return whole_bed
