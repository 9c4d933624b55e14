"""The flake itself: what it offers, and that its lock is one that Nix takes as it is."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
from nix_cases import BAD, GOOD
from nix_tool import HERE, ROOT, Nix, find_nix

from glm53ctl import cli

FILES = (
    *("flake.nix", "flake.lock", "nix", "lock", "services", "pyproject.toml", "overlay"),
    *("README.md", "LICENSE", "glm53ctl", "monitoring"),
)


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


@pytest.fixture(scope="module")
def inputs(nix: Nix, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the words that put stand-ins in the place of all inputs."""
    nixpkgs = tmp_path_factory.mktemp("inputs") / "nixpkgs"
    shutil.copytree(HERE / "nixpkgs", nixpkgs)
    shutil.copytree(nix.lib / "lib", nixpkgs / "lib")
    (nixpkgs / "stand-in").mkdir()
    for name in ("options.nix", "pkgs.nix"):
        shutil.copy(HERE / name, nixpkgs / "stand-in")
    places = {"nixpkgs": nixpkgs} | {
        name: HERE / "inputs" / name for name in ("disko", "dgx-spark")
    }
    return [
        word
        for name, place in places.items()
        for word in ("--override-input", name, f"path:{place}")
    ]


def evaluated(flake: Path, inputs: list[str], *words: str) -> subprocess.CompletedProcess[str]:
    return run(*words, "--offline", "--json", "--no-write-lock-file", *inputs, f"path:{flake}")


def ask(flake: Path, inputs: list[str], attribute: str, function: str) -> Any:
    """Return what a function makes of an output."""
    words = ["eval", "--offline", "--json", "--no-write-lock-file", *inputs]
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


def test_every_option_has_its_line() -> None:
    """Those that are for the files of the folder alone are none of an owner's."""
    made = re.compile(
        r"^ +(?:options\.)?([\w.-]+) = (?:(?:lib\.)?mk\w*Option\b|secret )", re.MULTILINE
    )
    public = set()
    for file in sorted((ROOT / "nix/modules").glob("*.nix")):
        # What is before the first one, then a name and what follows it, by turns.
        _, *words = made.split(file.read_text())
        pairs = zip(words[::2], words[1::2], strict=True)
        public |= {path.split(".")[-1] for path, rest in pairs if "internal = true" not in rest}
    assert {"rank", "mac", "hfToken", "scrub", "apiKeyFile"} <= public
    rows = re.findall(r"^\| (`[^|]*) \|", (ROOT / "docs/nix.md").read_text(), re.MULTILINE)
    told = {word.split(".")[-1] for row in rows for word in re.findall(r"[\w.-]+", row)}
    assert public - told == set()


def test_what_is_documented_of_the_tests_is_so() -> None:
    text = (ROOT / "docs/nix.md").read_text()
    assert f"{len(GOOD)} good and {len(BAD)} bad configurations" in text
    for lock, words in (
        ("engine-cuda-aarch64", "{} wheels, {:,} bytes"),
        ("tool-aarch64", "{} wheels"),
        ("engine-cpu-x86_64", "{} wheels, {:,} bytes"),
    ):
        rows = (ROOT / f"lock/{lock}.wheels").read_text().splitlines()
        size = sum(int(row.split()[2]) for row in rows)
        assert words.format(len(rows), size) in text


# --- the outputs, evaluated with stand-ins for every input ----------------------------------------

MODULES = ["default", "fabric", "monitoring", "page", "rank", "watchdog", "weights"]
PACKAGES = {
    "aarch64-linux": [
        *("default", "engine", "exllamav3-ext", "glm53ctl", "image-head", "image-worker"),
        *("overlay", "units"),
    ],
    "x86_64-linux": ["default", "engine-cpu", "glm53ctl", "units"],
}
CHECKS = {
    "aarch64-linux": ["format", "hosts", "imports", "schema"],
    "x86_64-linux": ["format", "hosts", "pair", "schema"],
}
HOSTS = ["spark-head", "spark-worker"]


def test_every_output_is_shown(flake: Path, inputs: list[str]) -> None:
    done = evaluated(flake, inputs, "flake", "show", "--all-systems")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert sorted(shown["nixosModules"]) == MODULES
    assert sorted(shown["nixosConfigurations"]) == HOSTS
    assert shown["templates"]["default"]["description"]
    for system, names in PACKAGES.items():
        assert sorted(shown["packages"][system]) == names
        assert sorted(shown["checks"][system]) == CHECKS[system]
        assert {app["type"] for app in shown["apps"][system].values()} == {"app"}
        assert shown["devShells"][system]["default"]["type"] == "derivation"
        assert shown["formatter"][system]["type"] == "derivation"


@pytest.mark.parametrize("output", ["packages", "checks"])
def test_packages_and_checks_evaluate(output: str, flake: Path, inputs: list[str]) -> None:
    """Down to the script of each build, which `pkgs` records; an image needs an owner's values."""
    function = """builtins.mapAttrs (_: all: builtins.mapAttrs (_: p: p.recorded or p.name)
      (removeAttrs all [ "image-head" "image-worker" ]))"""
    found = ask(flake, inputs, output, f"({function})")
    assert sorted(found) == ["aarch64-linux", "x86_64-linux"]
    if output == "checks":
        hosts = json.loads(found["x86_64-linux"]["hosts"]["text"])
        assert sorted(hosts) == HOSTS
        assert hosts["spark-head"] != hosts["spark-worker"]


def test_a_machine_of_nobody_is_refused(flake: Path, inputs: list[str]) -> None:
    attribute = "nixosConfigurations.spark-head.config.system.build.toplevel.name"
    words = ["eval", "--offline", "--no-write-lock-file", *inputs]
    done = run(*words, f"path:{flake}#{attribute}")
    assert done.returncode != 0
    assert "CFG_LICENSE: ShapleyMCG-1.0 is not accepted" in done.stderr
    assert "nobody could log in" in done.stderr


# --- an owner's own flake -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def owned(flake: Path, inputs: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder as `nix flake init -t` makes it, with a key and a licence filled in."""
    words = ["eval", "--offline", "--raw", "--no-write-lock-file", *inputs]
    done = run(*words, f"path:{flake}#templates.default.path", "--apply", "toString")
    assert done.returncode == 0, done.stderr
    folder = tmp_path_factory.mktemp("owner") / "sparks"
    folder.mkdir()
    for file in Path(done.stdout).iterdir():
        (folder / file.name).write_text(file.read_text())
    owner = folder / "owner.nix"
    text = owner.read_text()
    for empty, filled in (
        ("sshKeys = [ ];", 'sshKeys = [ "ssh-ed25519 AAAA me" ];'),
        ("licenses = [ ];", 'licenses = [ "ShapleyMCG-1.0" ];'),
    ):
        assert empty in text
        text = text.replace(empty, filled)
    owner.write_text(text)
    return folder


@pytest.fixture(scope="module")
def theirs(flake: Path, inputs: list[str]) -> list[str]:
    """Return the stand-ins as an owner's flake has the inputs: one level below."""
    below = [
        f"glm53/{word}" if before == "--override-input" else word
        for before, word in zip(["", *inputs], inputs, strict=False)
    ]
    return ["--override-input", "glm53", f"path:{flake}", *below]


@pytest.mark.parametrize("host", HOSTS)
def test_an_owner_gets_a_machine(host: str, owned: Path, theirs: list[str]) -> None:
    function = """machine: {
      inherit (machine.config.system.build.toplevel) name;
      inherit (machine.config.users.users.root.openssh.authorizedKeys) keys;
    }"""
    found = ask(owned, theirs, f"nixosConfigurations.{host}", function)
    assert found == {"name": f"nixos-system-{host}", "keys": ["ssh-ed25519 AAAA me"]}


@pytest.mark.parametrize("host", HOSTS)
def test_an_owner_gets_an_image_of_it(host: str, owned: Path, theirs: list[str]) -> None:
    """What it carries, its name, and the script that installs."""
    function = """image: {
      inherit (image) name;
      contents = map (p: p.name) image.recorded.env.contents;
      script = (builtins.head (
        builtins.filter (p: p.name == "install-spark") image.recorded.env.packages
      )).recorded.text;
    }"""
    image = host.replace("spark", "image")
    made = ask(owned, theirs, f"packages.aarch64-linux.{image}", function)
    assert made["name"] == f"glm53-{host}.iso"
    assert made["contents"] == [f"nixos-system-{host}", f"disko-script-{host}"]
    assert f'[ "$answer" = {host} ] || exit 1' in made["script"]
    assert "This erases /dev/nvme0n1" in made["script"]
    # The folder that the last line tells of is made by the first boot, which is yet to come.
    assert "install -d -m 700 /mnt/etc/credstore\n" in made["script"]
    done = subprocess.run(["bash", "-n", "-c", made["script"]], check=False)
    assert done.returncode == 0
    # The image logs in as `nixos`, who may not touch a disk; nobody is asked before that is mended.
    assert made["script"].index("exec sudo") < made["script"].index("read -r")


@pytest.mark.parametrize("host", HOSTS)
def test_an_owner_s_modules_are_of_both_machines(
    host: str, owned: Path, theirs: list[str], tmp_path: Path
) -> None:
    """As docs/owners.md says it: the module, and the line that names it."""
    folder = shutil.copytree(owned, tmp_path / "sparks")
    owner = folder / "owner.nix"
    line = "modules = [ ./settings.nix ];"
    assert f"  # {line}\n" in owner.read_text()
    owner.write_text(owner.read_text().replace(f"# {line}", line))
    page = (ROOT / "docs/owners.md").read_text()
    assert f"`{line}`" in page
    module = re.search(r"```nix\n(\{\n  services\.glm53\.settings.*?)```", page, re.DOTALL)
    assert module
    (folder / "settings.nix").write_text(module[1])
    function = "machine: machine.config.services.glm53.effective.power.max_gpu_clock_mhz"
    assert ask(folder, theirs, f"nixosConfigurations.{host}", function) == 2200


def test_an_owner_can_deploy(owned: Path, theirs: list[str]) -> None:
    assert ask(owned, theirs, "apps.x86_64-linux", "builtins.attrNames") == [
        "default",
        "deploy",
        "glm53ctl",
    ]


# --- what the page for owners says ----------------------------------------------------------------


def test_what_owners_are_told_to_run_is_there() -> None:
    text = (ROOT / "docs/owners.md").read_text()
    flake = (ROOT / "flake.nix").read_text()
    apps = (ROOT / "nix/apps.nix").read_text()
    for name in re.findall(r"nix run \.#([a-z0-9-]+)", text):
        assert f"  {name} = {{" in apps, name
    for name in re.findall(r"#(image-[a-z]+)", text):
        assert f"{name} = " in flake, name
    for name in re.findall(r"nixosConfigurations\.([a-z-]+)", text):
        assert name in HOSTS, name
    for path in re.findall(r"`(nix/[a-z/.]+)`", text):
        assert (ROOT / path).exists(), path
    for file in re.findall(r"\]\(([a-z]+\.md)", text):
        assert (ROOT / "docs" / file).exists(), file
    commands = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]
    for name in re.findall(r"glm53ctl ([a-z]+)", text):
        assert name in commands, name
    units = {file.name for file in (ROOT / "services").iterdir()}
    for name in re.findall(r"(?:systemctl [a-z -]+|-u )(glm53[a-z0-9.-]*)", text):
        assert name in units or f"{name}.service" in units, name
    credentials = "".join((ROOT / f"services/{unit}").read_text() for unit in sorted(units))
    for name in re.findall(r"/etc/credstore/(glm53\.[a-z-]+)", text):
        assert f":{name}\n" in credentials, name
