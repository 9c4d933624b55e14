"""Nix as the tests use it: a program that may be missing, and the library of nixpkgs."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent

Module = Mapping[str, Any]
"""A module of NixOS as values: what can be said in JSON."""

NO_NIX = "no nix: put it into PATH, or say NIX=/path/of/nix-instantiate"
NO_LIB = "no nixpkgs.lib: say NIXPKGS_LIB=DIR, a folder that holds lib/ (and flake.nix)"


def find_nix() -> str | None:
    """Return nix-instantiate: `NIX` names it, or the `nix` beside it, or PATH has it."""
    named = os.environ.get("NIX")
    if named and Path(named).name == "nix":
        named = str(Path(named).with_name("nix-instantiate"))
    return shutil.which(named or "nix-instantiate")


def find_lib(nix: str | None) -> Path | None:
    """Return the folder that holds nixpkgs' `lib`: `NIXPKGS_LIB`, or this machine's channel."""
    named = os.environ.get("NIXPKGS_LIB")
    if not named and nix:
        words = [nix, "--find-file", "nixpkgs"]
        named = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    found = Path(named).resolve() if named else None
    return found if found and (found / "lib/default.nix").exists() else None


class Nix:
    """Evaluates our files with a library of nixpkgs. Nothing is built or fetched."""

    def __init__(self, program: str, lib: Path, work: Path) -> None:
        self.program, self.lib, self.work = program, lib, work

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.program, *words], capture_output=True, text=True, timeout=300, check=False
        )

    def evaluate(self, file: Path, **arguments: str) -> Any:
        """Return what a file of functions makes of the library and of these words."""
        words = [word for name, text in arguments.items() for word in ("--argstr", name, text)]
        done = self._run(
            *("--eval", "--strict", "--json", str(file), "--arg", "lib", str(self.lib)), *words
        )
        if done.returncode:
            raise NixError(done.stderr)
        return json.loads(done.stdout)

    def store(self) -> str:
        """Return where this Nix keeps its store."""
        done = self._run("--eval", "--json", "--expr", "builtins.storeDir")
        return str(json.loads(done.stdout))

    def machines(self, cases: Mapping[str, Sequence[Module]]) -> dict[str, Any]:
        """Evaluate machines made of our modules and these; an error is told for its own case."""
        file = self.work / "cases.json"
        file.write_text(json.dumps(cases).replace("@STORE@", self.store()))
        suite = HERE / "suite.nix"
        found: dict[str, Any] = self.evaluate(suite, cases=str(file))
        for name in [name for name, result in found.items() if result.get("thrown")]:
            try:
                self.evaluate(suite, cases=str(file), only=name)
            except NixError as error:
                found[name] = {"error": str(error)}
        return found


class NixError(Exception):
    """What Nix said of an evaluation that failed."""
