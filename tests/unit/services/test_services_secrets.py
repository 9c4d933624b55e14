"""How a secret is made: one line that every machine of a pair understands."""

import subprocess
from pathlib import Path

import pytest
from unit_files import ROOT

from glm53ctl.config.schema import Config
from glm53ctl.supervise.secrets import MAKE, MIN_LENGTH, pair_token

FOLDERS = ("docs", "glm53ctl", "nix", "services")


def test_what_the_line_makes_is_taken(tmp_path):
    file = tmp_path / "token"
    subprocess.run(["sh", "-c", f"{MAKE} > {file}"], check=True)
    nodes = [{"name": "a", "address": "192.0.2.1"}, {"name": "b", "address": "192.0.2.2"}]
    config = Config.model_validate({"nodes": nodes, "link": {"token_file": str(file)}})
    assert len(pair_token(config, {})) == 64 > MIN_LENGTH


@pytest.mark.parametrize("page", ["owners.md", "services.md"])
def test_the_pages_make_it_so(page):
    text = (ROOT / "docs" / page).read_text()
    for name in ("pair-token", "api-key"):
        assert f"{MAKE} > /etc/credstore/glm53.{name}" in text


def test_nothing_asks_for_a_program_that_a_machine_may_lack():
    """NixOS has no openssl in its path; the shell would leave an empty file."""
    files = [file for folder in FOLDERS for file in Path(ROOT, folder).rglob("*") if file.is_file()]
    texts = {file: file.read_bytes() for file in files if file.suffix in (".md", ".py", ".nix")}
    assert [file for file, text in texts.items() if b"openssl rand" in text] == []
