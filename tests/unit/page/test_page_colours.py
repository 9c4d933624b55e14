"""The colours of the style sheet have the contrast of WCAG 2.2 AA, in both themes."""

import re
from importlib.resources import files

import pytest

CSS = files("glm53ctl.page").joinpath("assets", "page.css").read_text()
COLOURS = {
    name: (light, dark)
    for name, light, dark in re.findall(r"--(\w+): light-dark\((#\w+), (#\w+)\);", CSS)
}
TEXT = ("ink", "soft", "ok", "busy", "warn", "bad", "idle")
GRAPHIC = ("soft", "busy", "warn", "bad", "focus")


def luminance(colour: str) -> float:
    """Return the relative luminance of #rrggbb, as WCAG defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_measure_is_the_standards():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ground", ["paper", "sheet"])
@pytest.mark.parametrize("name", TEXT)
def test_text_can_be_read(name, ground, theme):
    assert contrast(COLOURS[name][theme], COLOURS[ground][theme]) >= 4.5


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("name", GRAPHIC)
def test_what_is_drawn_can_be_told_from_its_track(name, theme):
    assert contrast(COLOURS[name][theme], COLOURS["track"][theme]) >= 3


def test_every_colour_is_one_of_the_palette():
    rules = re.sub(r"--\w+: light-dark\(.*?\);", "", CSS)
    assert re.findall(r"#[0-9a-f]{3,8}\b(?! *[,{.:])|rgba?\(|hsla?\(", rules) == []
    assert set(re.findall(r"var\(--(\w+)", rules)) <= {*COLOURS, "tone", "gap"}
