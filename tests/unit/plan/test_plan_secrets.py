"""Secrets are read at launch and stand in no plan, printout or message."""

import json
from pathlib import Path

import pytest
from plan_configs import config

from glm53ctl.errors import UserError
from glm53ctl.plan import as_json, as_text, launch_env, plan_pair, plan_rank, read_secrets

SECRET = "sk-very-secret"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text(SECRET + "\n")
    return path


@pytest.fixture
def credentials(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "credentials"
    folder.mkdir()
    (folder / "api-key").write_text("sk-from-systemd")
    return {"CREDENTIALS_DIRECTORY": str(folder)}


def test_an_explicit_file_wins(key_file: Path, credentials: dict[str, str]) -> None:
    plan = plan_rank(config(api={"key_file": str(key_file)}), 0)
    assert read_secrets(plan, credentials) == {"VLLM_API_KEY": SECRET}
    assert launch_env(plan, credentials)["VLLM_API_KEY"] == SECRET


def test_else_the_systemd_credential(credentials: dict[str, str]) -> None:
    assert read_secrets(plan_rank(config(), 0), credentials) == {"VLLM_API_KEY": "sk-from-systemd"}


def test_else_none(tmp_path: Path) -> None:
    plan = plan_rank(config(), 0)
    assert read_secrets(plan, {}) == {}
    assert read_secrets(plan, {"CREDENTIALS_DIRECTORY": str(tmp_path)}) == {}


def test_only_the_head_has_the_key(credentials: dict[str, str]) -> None:
    worker = plan_rank(config(), 1)
    assert "VLLM_API_KEY" not in launch_env(worker, {**credentials, "VLLM_API_KEY": SECRET})


@pytest.mark.parametrize("content", [b"", b"\n", b"a\nb\n", b"\xff\xfe"])
def test_a_file_without_one_secret_is_refused(key_file: Path, content: bytes) -> None:
    key_file.write_bytes(content)
    with pytest.raises(UserError, match=r"PLAN_SECRET: api\.key_file: .*/key"):
        read_secrets(plan_rank(config(api={"key_file": str(key_file)}), 0), {})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    plan = plan_rank(config(api={"key_file": str(tmp_path / "absent")}), 0)
    with pytest.raises(UserError, match=r"PLAN_SECRET: .*absent cannot be read \(No such file"):
        read_secrets(plan, {})


def test_no_printout_holds_a_secret(key_file: Path) -> None:
    extra = {"extra_args": ["--api-key", SECRET], "extra_env": {"HF_TOKEN": SECRET}}
    plan = plan_rank(config(api={"key_file": str(key_file)}, engine=extra), 0)
    for text in (as_text(plan), as_json(plan)):
        assert SECRET not in text
        assert f"<from {key_file}>" in text
    assert "<hidden>" in as_text(plan)


def test_a_secret_joined_to_its_flag_is_hidden_too() -> None:
    plan = plan_rank(config(engine={"extra_args": [f"--api_key={SECRET}"]}), 0)
    assert SECRET not in as_text(plan) + as_json(plan)


def test_a_secret_within_a_value_is_hidden_too() -> None:
    extra = {
        "extra_args": ["--otlp-traces-endpoint", f"http://bob:{SECRET}@10.0.0.1:4317"],
        "extra_env": {
            "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Basic {SECRET}",
            "AWS_SECRET_ACCESS_KEY": SECRET,
        },
    }
    plan = plan_rank(config(engine=extra), 0)
    assert SECRET not in as_text(plan) + as_json(plan)
    assert "http://bob:" in as_text(plan)


def test_no_plan_holds_a_secret(key_file: Path) -> None:
    for plan in plan_pair(config(api={"key_file": str(key_file)})):
        assert SECRET not in repr(plan)


def test_json_names_the_source() -> None:
    data = json.loads(as_json(plan_rank(config(), 0)))
    assert data["env"]["VLLM_API_KEY"] == "<from credential api-key>"
    assert data["health_url"] == "http://127.0.0.1:8888/health"
    assert json.loads(as_json(plan_rank(config(), 1)))["base_url"] is None
