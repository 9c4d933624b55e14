"""The profile that the pair was switched to, as a layer of the configuration."""

from pathlib import Path

import pytest

from glm53ctl.config.sources import ConfigError, Layer, Switched, configured, load
from glm53ctl.config.switched import NAME, write_switched
from glm53ctl.errors import UserError

LONG = Switched(instead_of="vllm-recipe", settings=('profile="long"', "dense=fp8"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(
        "nodes:\n- {name: a, address: 127.0.0.1}\n- {name: b, address: 127.0.0.1}\n"
        "dense: bf16\nserve: {max_num_seqs: 3}\n"
        f"paths: {{state_dir: {tmp_path / 'state'}, run_dir: {tmp_path / 'run'}}}\n"
    )
    return path


def read(file: Path, *overrides: str, **environ: str):
    return load(file, overrides=overrides, environ=environ, rules=False)


def test_it_outranks_file_and_environment_and_says_where_it_is(file, tmp_path):
    write_switched(tmp_path / "state", LONG)
    loaded = read(file, GLM53_DENSE="q4")
    assert (loaded.config.profile, loaded.config.dense) == ("long", "fp8")
    assert loaded.config.serve.max_num_seqs == 3  # what the file sets wins over any profile's
    assert loaded.config.serve.max_model_len == 1_048_576
    for path in ("profile", "dense"):
        assert loaded.origins[path].layer is Layer.SWITCH
        assert str(loaded.origins[path]) == str(tmp_path / "state" / NAME)
    assert [f.code for f in loaded.findings] == ["CFG_SWITCHED"]
    assert "glm53ctl switch vllm-recipe" in loaded.findings[0].fix


def test_the_command_line_and_the_settings_of_one_run_outrank_it(file, tmp_path):
    write_switched(tmp_path / "state", LONG)
    assert read(file, "dense=q4").config.dense == "q4"
    (tmp_path / "run").mkdir()
    (tmp_path / "run/override.yaml").write_text("dense: bf16\n")
    assert read(file).config.dense == "bf16"


@pytest.mark.parametrize("way", ["file", "environment"])
def test_a_profile_that_is_configured_later_is_the_newer_word(file, tmp_path, way):
    write_switched(tmp_path / "state", LONG)
    environ = {}
    if way == "file":
        file.write_text(f"profile: demo\n{file.read_text()}")
    else:
        environ = {"GLM53_PROFILE": "demo"}
    loaded = read(file, **environ)
    assert (loaded.config.profile, loaded.config.dense) == ("demo", "bf16")
    assert [f.code for f in loaded.findings] == ["CFG_SWITCH_OVER"]
    assert configured(file, environ) == "demo"


def test_nothing_switched_leaves_no_file_and_no_word(file, tmp_path):
    write_switched(tmp_path / "state", LONG)
    write_switched(tmp_path / "state", Switched())
    assert not (tmp_path / "state" / NAME).exists()
    assert read(file).findings == []


@pytest.mark.parametrize("name", [NAME, "override.yaml"])
def test_who_may_not_read_what_the_service_keeps_is_sent_to_root(file, tmp_path, monkeypatch, name):
    """And is not told to remove or to mend it, as with a file that is wrong."""

    def read_text(path: Path, **options: str) -> str:
        if path.name == name:
            raise PermissionError(13, "Permission denied")
        return whole(path, **options)

    whole = Path.read_text
    monkeypatch.setattr(Path, "read_text", read_text)
    with pytest.raises(UserError) as refused:
        read(file)
    assert refused.value.code == "CONTROL_DENIED"
    assert f"{name} belongs to the service." in str(refused.value)
    assert refused.value.fix == "Run the command as root (sudo)."


def test_a_torn_file_is_said_and_how_to_go_on(file, tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / NAME).write_text('{"instead_of": "vllm')
    with pytest.raises(ConfigError) as caught:
        read(file)
    assert caught.value.code == "CFG_FILE"
    assert str(tmp_path / "state" / NAME) in caught.value.message


def test_a_switch_is_judged_as_a_whole_before_it_is_made(file, tmp_path):
    bad = Switched(settings=('profile="longer"', "serve.max_num_seqs=no", "nonsense=1"))
    with pytest.raises(ConfigError) as caught:
        load(file, environ={}, switched=bad)
    codes = {finding.code for finding in caught.value.findings}
    assert {"CFG_PROFILE", "CFG_TYPE", "CFG_UNKNOWN_KEY"} <= codes
