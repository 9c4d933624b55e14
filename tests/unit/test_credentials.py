"""A secret is found in a unit and, from an operator's shell, where the unit's come from."""

from pathlib import Path

from glm53ctl.credentials import find, is_given


def test_in_a_unit_it_is_in_the_directory_of_the_unit(tmp_path):
    (tmp_path / "api-key").write_text("k")
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    assert find("api-key", environ) == tmp_path / "api-key"
    assert find("pair-token", environ) is None


def test_in_a_shell_it_is_in_the_store(tmp_path):
    (tmp_path / "glm53.api-key").write_text("k")
    assert find("api-key", {}, store=tmp_path) == tmp_path / "glm53.api-key"


def test_a_unit_does_not_look_past_what_it_was_given(tmp_path):
    (tmp_path / "glm53.api-key").write_text("k")
    given = tmp_path / "given"
    given.mkdir()
    assert find("api-key", {"CREDENTIALS_DIRECTORY": str(given)}, store=tmp_path) is None


def test_a_sealed_one_is_given_and_cannot_be_read(tmp_path):
    store, sealed, unit = (tmp_path / name for name in ("store", "sealed", "unit"))
    for directory in (store, sealed, unit):
        directory.mkdir()
    assert not is_given("api-key", {}, store, sealed)
    (sealed / "glm53.api-key").write_text("sealed")
    assert is_given("api-key", {}, store, sealed)
    assert find("api-key", {}, store) is None
    assert not is_given("api-key", {"CREDENTIALS_DIRECTORY": str(unit)}, store, sealed)


def test_a_store_that_may_not_be_read_is_none(tmp_path, monkeypatch):
    def denied(self, **_):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "exists", denied)  # root, who also runs tests, may look anywhere
    assert find("api-key", {}, store=tmp_path) is None
