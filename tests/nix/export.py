"""Renders both machines of nix/hosts into folders, as NixOS would have them below /etc.

    NIX=... NIXPKGS_LIB=... python tests/nix/export.py OUT [--place NAME=PATH]... [--settings FILE]

OUT/spark-head and OUT/spark-worker each hold etc/glm53, etc/systemd/system (the units, their
drop-ins and what wants them), etc/systemd/network, etc/sysusers.d and etc/tmpfiles.d. `--place`
says where a package is on the machine that will read them (glm53ctl=/opt/glm53/tool), `--settings`
gives a configuration instead of the hosts' own.
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from nix_tool import HERE, NO_LIB, NO_NIX, ROOT, Nix, find_lib, find_nix

SERVICES = ROOT / "services"
ACCEPTED = {
    "sshKeys": ["ssh-ed25519 AAAA a key of a test"],
    "licenses": ["ShapleyMCG-1.0", "CC-BY-NC-ND-4.0"],
}
"""What an owner has to say before a machine evaluates."""


def hosts(
    nix: Nix,
    work: Path,
    *,
    owner: Mapping[str, Any] = ACCEPTED,
    places: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return what Nix makes of both machines."""
    values = nix.evaluate(HERE / "owner.nix")["repository"]
    if settings and "nodes" in settings:  # the ranks meet at the addresses of the first rail
        addresses = [node["address"] for node in settings["nodes"]]
        values["rails"] = [{**values["rails"][0], "addresses": addresses}]
    given = work / "given.json"
    text = {"owner": {**values, **owner}, "places": places or {}, "settings": settings}
    given.write_text(json.dumps(text))
    found: dict[str, Any] = nix.evaluate(HERE / "hosts.nix", given=str(given))
    return found


def network_file(kind: str, file: Mapping[str, Any]) -> str:
    """Return the text of a .link or .network file."""
    own = "Link" if kind == "link" else "Network"
    sections = {"Match": file["matchConfig"], "Link": file["linkConfig"]}
    if kind == "network":
        sections[own] = {**file["networkConfig"], "Address": file["address"]}
    text = ""
    for name, values in sections.items():
        text += f"[{name}]\n"
        for key, value in values.items():
            for one in value if isinstance(value, list) else [value]:
                word = str(one).lower() if isinstance(one, bool) else one
                text += f"{key}={word}\n"
        text += "\n"
    return text


def write_host(host: Mapping[str, Any], root: Path) -> None:
    """Write one machine's files below a root."""

    def put(path: str, text: str) -> None:
        file = root / "etc" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    put("glm53/config.yaml", yaml.safe_dump(host["settings"], sort_keys=False))
    system = root / "etc/systemd/system"
    system.mkdir(parents=True)
    for file in SERVICES.iterdir():
        if file.suffix == ".conf":
            _, kind, _ = file.name.split(".")
            put(f"{kind}.d/glm53.conf", file.read_text())
        else:
            shutil.copyfile(file, system / file.name)
    for name, unit in host["units"].items():
        put(f"systemd/system/{name}.d/overrides.conf", unit["text"])
        for target in unit["wantedBy"]:
            wants = system / f"{target}.wants"
            wants.mkdir(exist_ok=True)
            (wants / name).symlink_to(f"../{name}")
    for kind in ("link", "network"):
        for name, file in host["network"][f"{kind}s"].items():
            put(f"systemd/network/{name}.{kind}", network_file(kind, file))


def main() -> None:
    """Render both machines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--place", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--settings", type=Path, metavar="FILE", help="YAML")
    words = parser.parse_args()
    program = find_nix()
    lib = find_lib(program)
    if program is None or lib is None:
        parser.error(NO_NIX if program is None else NO_LIB)
    settings = yaml.safe_load(words.settings.read_text()) if words.settings else None
    places = dict(place.split("=", 1) for place in words.place)
    with tempfile.TemporaryDirectory() as work:
        nix = Nix(program, lib, Path(work))
        found = hosts(nix, Path(work), places=places, settings=settings)
    for name, host in found.items():
        for message in host["failed"]:
            parser.error(message)
        write_host(host, words.out / name)


if __name__ == "__main__":
    main()
