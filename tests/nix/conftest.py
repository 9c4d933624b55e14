"""What the tests of the flake share: Nix, if there is one, and a last line that counts."""

import sys

import pytest
from nix_tool import NO_LIB, NO_NIX, ROOT, Nix, find_lib, find_nix

# The cases of the rules are there, and so is what reads unit files.
sys.path += [str(ROOT / "tests/unit/config"), str(ROOT / "tests/unit/services")]


@pytest.fixture(scope="session")
def nix_instantiate() -> str:
    """Return the program; skip without it."""
    program = find_nix()
    if program is None:
        pytest.skip(NO_NIX)
    return program


@pytest.fixture(scope="session")
def nix(nix_instantiate: str, tmp_path_factory: pytest.TempPathFactory) -> Nix:
    """Return Nix with the library; skip without one of them."""
    lib = find_lib(nix_instantiate)
    if lib is None:
        pytest.skip(NO_LIB)
    return Nix(nix_instantiate, lib, tmp_path_factory.mktemp("nix"))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Say the counts last, after pytest's own summary, always all three."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return
    count = {kind: len(reporter.stats.get(kind, ())) for kind in ("passed", "failed", "skipped")}
    failed = count["failed"] + len(reporter.stats.get("error", ()))
    if find_nix() is None:
        print(f"NOTHING WAS PARSED OR EVALUATED: {NO_NIX}")
    elif find_lib(find_nix()) is None:
        print(f"PARSED, BUT NOTHING WAS EVALUATED: {NO_LIB}")
    print(f"{count['passed']} passed, {failed} failed, {count['skipped']} skipped")
