"""The bed of one run: booted before the first test of this folder, removed after the last.

Tests run inside the fabric's network namespace, as clients on the LAN. Without root, cgroup2 or
overlayfs they are skipped, with the reason; GLM53_BED_REQUIRED makes that a failure.
"""

import os
import shutil
from collections.abc import Iterator

import pytest

from glm53ctl.demo.model import make_model
from glm53ctl.demo.run import DemoFiles

from .bed import CHECKOUT, Bed, Product

REQUIRED_VARIABLE = "GLM53_BED_REQUIRED"


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
    with bed.lock():
        bed.down()  # what a killed run left, and what somebody tried by hand
        try:
            make_model(product.model)
            bed.up(product if product.why_not() is None else None)
            with bed.network.inside():
                yield bed
        finally:
            bed.down()
            shutil.rmtree(DemoFiles(bed.state / "demo").run_dir, ignore_errors=True)


@pytest.fixture
def bed(whole_bed: Bed) -> Bed:
    """The bed with no fault in it and both hosts up."""
    whole_bed.heal()
    return whole_bed
