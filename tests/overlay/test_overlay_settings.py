"""GLM53_OVERLAY: read whole, or not at all."""

import json

import pytest

from glm53_overlay.errors import OverlayError
from glm53_overlay.settings import ApiSettings, MediaSettings, Settings, load


def of(value):
    return load({"GLM53_OVERLAY": value if isinstance(value, str) else json.dumps(value)})


def test_nothing_said_is_the_defaults():
    assert load({}) == of({}) == Settings()
    assert Settings().ablit is None


def test_parts_that_are_left_out_have_their_defaults():
    api = {"window": 5, "media": {"domains": ["a"]}}
    made = of({"dense": {"kda": "fp8"}, "ablit": None, "api": api})
    wanted = ApiSettings(window=5, media=MediaSettings(domains=("a",)))
    assert made == Settings(dense={"kda": "fp8"}, api=wanted)
    assert of({"ablit": {"direction": "/d"}}).ablit.alpha == 3.0


@pytest.mark.parametrize(
    "value",
    [
        "{",
        "[]",
        {"other": 1},
        {"api": 1},
        {"api": {"media": {"x": 1}}},
        {"api": {"media": None}},
        {"api": {"window": "5"}},
        {"api": {"template": "appliances"}},
        {"api": {"reasoning_field": "x"}},
        {"ablit": {"alpha": 1}},
        {"dense": None},
        {"dense": {"kda": 8}},
        {"nope": "pad567"},
        {"suppress_stops": "false"},
    ],
)
def test_what_it_cannot_mean_ends_the_start(value):
    with pytest.raises(OverlayError, match="OVERLAY_SETTINGS"):
        of(value)


def test_the_refusal_says_where():
    with pytest.raises(OverlayError, match=r"GLM53_OVERLAY: api\.media\.x: Unexpected keyword"):
        of({"api": {"media": {"x": 1}}})
