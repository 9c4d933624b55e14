"""docs/codes.md and the registry behind it."""

from pathlib import Path

from glm53ctl import codes
from glm53ctl.checks import CHECKS

PAGE = Path(__file__).parents[3] / "docs" / "codes.md"


def test_the_page_is_the_one_that_the_code_writes():
    assert PAGE.read_text() == codes.render(), "run python -m glm53ctl.codes"


def test_everything_that_can_be_found_has_a_meaning():
    assert codes.finders().keys() - codes.MEANINGS.keys() == set()


def test_meanings_are_sentences_and_told_once():
    meanings = list(codes.MEANINGS.values())
    assert all(text.endswith(".") for text in meanings)
    assert len(set(meanings)) == len(meanings)


def test_checks_have_names_of_their_own_and_say_what_they_are_about():
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    assert all(check.says.endswith(".") and check.codes for check in CHECKS)
