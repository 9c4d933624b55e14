"""Every Nix file parses, and looks as RFC 166 asks for as far as that can be said in a few lines.

The real formatter (`nix fmt`) needs nixpkgs; this keeps the tree fit for it.
"""

import re
import subprocess
from pathlib import Path

import pytest
from nix_tool import ROOT

FILES = sorted(
    [ROOT / "flake.nix", *(ROOT / "nix").rglob("*.nix"), *(ROOT / "tests/nix").rglob("*.nix")]
)
LONGEST = 120
FORBIDDEN = {
    r"\bwith (lib|pkgs)\b": "names from nowhere: use `inherit (lib) ...`",
    r"https?://": "an address: nixpkgs' fetchers know where things are",
    r"/nix/store/": "a path of one machine",
}


def name(file: Path) -> str:
    return str(file.relative_to(ROOT))


@pytest.mark.parametrize("file", FILES, ids=name)
def test_a_file_parses(file: Path, nix_instantiate: str) -> None:
    words = [nix_instantiate, "--parse", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("file", FILES, ids=name)
def test_a_file_is_formatted(file: Path) -> None:
    text = file.read_text()
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    shell = False
    for number, line in enumerate(text.splitlines(), 1):
        place = f"{name(file)}:{number}"
        assert line == line.rstrip(), f"{place}: blanks at the end"
        assert "\t" not in line, f"{place}: a tab"
        assert shell or (len(line) - len(line.lstrip())) % 2 == 0, f"{place}: an odd indentation"
        assert shell or len(line) <= LONGEST or '"' in line, f"{place}: {len(line)} characters"
        if line.count("''") % 2:
            shell = not shell
    assert "\n\n\n" not in text


@pytest.mark.parametrize("file", FILES, ids=name)
def test_a_file_has_nothing_that_we_do_without(file: Path) -> None:
    text = file.read_text()
    for pattern, why in FORBIDDEN.items():
        found = re.search(pattern, text)
        assert found is None, f"{name(file)}: {found[0] if found else ''}: {why}"


def test_every_file_is_reached_from_the_flake_or_a_test() -> None:
    tests = sorted((ROOT / "tests/nix").glob("*.py"))
    everything = "".join(file.read_text() for file in (*FILES, *tests))
    for file in FILES:
        named = rf'[/"]{re.escape(file.name)}\b'
        known = file.name in ("flake.nix", "default.nix") or re.search(named, everything)
        assert known, f"nothing names {name(file)}"
