"""What modes cost in the logits of a small model: the groups, the order, and no trace left."""

import math

import pytest
import torch

from glm53_overlay.dense import error
from glm53_overlay.dense.groups import PROJECTIONS, STORED

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def errors():
    found = {mode: error.logit_error(dict.fromkeys(PROJECTIONS, mode), CPU) for mode in MODES}
    return found | {"mla alone": error.logit_error({"mla": "fp8"}, CPU)}


MODES = ("bf16", "fp8", "q4")


def test_each_mode_costs_more_than_the_last_and_none_nothing(errors):
    assert errors["bf16"] == 0
    assert 0.01 < errors["fp8"] < 0.1 < errors["q4"] < 0.3
    assert math.isfinite(errors["q4"])


def test_a_group_alone_costs_less_than_all(errors):
    assert 0 < errors["mla alone"] < errors["fp8"]


def test_every_projection_of_a_group_is_found():
    """Three layers of linear attention, one of sparse; three with shared experts, one without."""
    count = {group: len(list(error._projections(error._model(), group))) for group in PROJECTIONS}
    layers = {"kda": 3, "mla": 1, "shared": 3, "mlp": 1}
    assert count == {group: layers[group] * len(STORED[group]) for group in PROJECTIONS}


def test_the_model_computes_as_before_afterwards(errors):
    assert error.logit_error({}, CPU) == 0
