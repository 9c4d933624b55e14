"""The flake itself: what it offers, and that its lock is one that Nix takes as it is."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from nix_cases import BAD, GOOD
from nix_tool import ROOT, Nix, find_nix

FILES = ("flake.nix", "flake.lock", "nix", "lock", "services", "pyproject.toml", "overlay")


@pytest.fixture(scope="module")
def flake(nix: Nix, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of what the flake reads: a `path:` flake copies its whole folder."""
    copy = tmp_path_factory.mktemp("flake")
    for name in FILES:
        subprocess.run(["cp", "-r", str(ROOT / name), str(copy)], check=True)
    return copy


def run(*words: str) -> subprocess.CompletedProcess[str]:
    program = str(Path(find_nix() or "").with_name("nix"))
    features = ["--extra-experimental-features", "nix-command flakes"]
    return subprocess.run(
        [program, *features, *words], capture_output=True, text=True, timeout=120, check=False
    )


def ask(flake: Path, nix: Nix, attribute: str, function: str) -> object:
    """Return what an output is, with the library for nixpkgs and nothing for the rest."""
    empty = flake / "nix/templates/default"
    words = ["eval", "--offline", "--json", "--no-write-lock-file"]
    for name, place in (("nixpkgs", nix.lib), ("dgx-spark", empty)):
        words += ["--override-input", name, f"path:{place}"]
    done = run(*words, f"path:{flake}#{attribute}", "--apply", function)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_lock_is_taken_as_it_is(flake: Path) -> None:
    before = (flake / "flake.lock").read_bytes()
    done = run("flake", "metadata", "--json", "--offline", "--no-update-lock-file", f"path:{flake}")
    assert done.returncode == 0, done.stderr
    assert (flake / "flake.lock").read_bytes() == before
    locks = json.loads(done.stdout)["locks"]
    assert locks == json.loads(before)


def test_every_input_is_locked_to_a_revision_and_a_hash() -> None:
    nodes = json.loads((ROOT / "flake.lock").read_text())["nodes"]
    assert set(nodes["root"]["inputs"]) == {"nixpkgs", "disko", "dgx-spark"}
    for name, node in nodes.items():
        if name != "root":
            assert re.fullmatch("[0-9a-f]{40}", node["locked"]["rev"]), name
            assert re.fullmatch("sha256-[A-Za-z0-9+/]{43}=", node["locked"]["narHash"]), name


def test_what_is_documented_of_the_lock_is_in_it() -> None:
    text = (ROOT / "docs/nix.md").read_text()
    nodes = json.loads((ROOT / "flake.lock").read_text())["nodes"]
    for name, node in nodes.items():
        if name != "root":
            assert node["locked"]["rev"] in text, name


def test_what_is_documented_of_the_tests_is_so() -> None:
    text = (ROOT / "docs/nix.md").read_text()
    assert f"{len(GOOD)} good and {len(BAD)} bad configurations" in text
    for lock, words in (
        ("engine-cuda-aarch64", "{} wheels, {:,} bytes"),
        ("tool-aarch64", "{} wheels"),
    ):
        rows = (ROOT / f"lock/{lock}.wheels").read_text().splitlines()
        size = sum(int(row.split()[2]) for row in rows)
        assert words.format(len(rows), size) in text


def test_the_modules_are_there(flake: Path, nix: Nix) -> None:
    names = ask(flake, nix, "nixosModules", "builtins.attrNames")
    assert names == ["default", "fabric", "rank", "watchdog", "weights"]


def test_both_machines_are_there(flake: Path, nix: Nix) -> None:
    # nixosSystem is not in nixpkgs.lib: the names are all that can be asked for here.
    names = ask(flake, nix, "nixosConfigurations", "builtins.attrNames")
    assert names == ["spark-head", "spark-worker"]


@pytest.mark.parametrize("output", ["packages", "checks", "apps", "devShells", "formatter"])
def test_both_systems_are_there(output: str, flake: Path, nix: Nix) -> None:
    names = ask(flake, nix, output, "builtins.attrNames")
    assert names == ["aarch64-linux", "x86_64-linux"]


def test_the_template_is_there(flake: Path, nix: Nix) -> None:
    path = ask(flake, nix, "templates.default", "t: builtins.attrNames (builtins.readDir t.path)")
    assert path == ["flake.nix", "owner.nix"]
    assert os.listdir(ROOT / "nix/templates/default")
