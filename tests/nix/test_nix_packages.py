"""The engine's wheels are those of the lock, and the packages ask nixpkgs for what they need."""

import functools
import http.server
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from nix_tool import HERE, ROOT, Nix
from packaging.utils import canonicalize_name, parse_wheel_filename

from glm53ctl.engine import shim
from glm53ctl.engine.build import TORCH_INDEX

sys.path.insert(0, str(ROOT / "nix"))
import published
import wheels as chooser

LOCK = ROOT / "lock/engine-cuda-aarch64.txt"
WHEELS = ROOT / "lock/engine-cuda-aarch64.wheels"
CPU_LOCK = ROOT / "lock/engine-cpu.txt"
CPU_WHEELS = ROOT / "lock/engine-cpu-x86_64.wheels"
ENGINE = Path(os.environ.get("GLM53_ENGINE") or ROOT / ".engine")


def listed(file: Path = WHEELS) -> list[chooser.Wheel]:
    return published.listed(file.read_text().splitlines())


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve a folder on loopback; yield its address."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def packages(nix: Nix) -> dict[str, Any]:
    found: dict[str, Any] = nix.evaluate(HERE / "packages.nix")
    return found


# --- the lock -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lock", "wheels"), [(LOCK, WHEELS), (CPU_LOCK, CPU_WHEELS)])
def test_there_is_one_wheel_for_every_package_of_the_lock(lock: Path, wheels: Path) -> None:
    allowed = chooser.digests(lock.read_text())
    pins = []
    for wheel in listed(wheels):
        name, version, _, _ = parse_wheel_filename(wheel.name)
        pin = f"{name}=={version}"
        assert wheel.sha256 in allowed[pin], wheel.name
        pins.append(pin)
    assert pins == list(allowed)


@pytest.mark.parametrize(
    ("file", "machine", "python"),
    [(WHEELS, "aarch64", (3, 12)), (CPU_WHEELS, "x86_64", (3, 11))],
)
def test_every_wheel_is_for_the_machine(file: Path, machine: str, python: tuple[int, int]) -> None:
    order = chooser.ranks(machine, python)
    for wheel in listed(file):
        tags = parse_wheel_filename(wheel.name)[3]
        assert any(tag in order for tag in tags), wheel.name
        assert all(tag.platform == "any" or tag.platform.endswith(machine) for tag in tags)


@pytest.mark.engine
@pytest.mark.skipif(not (ENGINE / "bin/python").exists(), reason=f"no engine at {ENGINE}")
def test_the_wheels_are_those_that_the_cpu_engine_here_is_made_of() -> None:
    """What `make setup` installed and serves with is what Nix would install."""
    site = ENGINE / "lib/python3.11/site-packages"
    there = {
        (canonicalize_name(found.name), found.version)
        for found in importlib.metadata.distributions(path=[str(site)])
    }
    wanted = {
        (name, str(version))
        for name, version, _, _ in (parse_wheel_filename(w.name) for w in listed(CPU_WHEELS))
    }
    own = {name for name, _ in there - wanted}
    assert wanted <= there
    assert own <= {"vllm", "glm53-overlay", "pip", "setuptools"}


def test_the_engine_is_the_one_that_was_designed_for() -> None:
    names = {wheel.name.rsplit("-", 3)[0] for wheel in listed()}
    assert {
        "vllm-0.33.0-cp38",
        "torch-2.14.0-cp312",
        "exllamav3-1.6.5-py3",
        "flashinfer_python-0.7.2.post1-py3",
    } <= {
        f"{name}-{wheel.split('-')[2]}"
        for name in names
        for wheel in [w.name for w in listed()]
        if wheel.startswith(f"{name}-")
    }
    assert not any(name.startswith("cuda_python-12") for name in names)


def package(*files: str) -> dict[str, Any]:
    wheels = [
        {"url": f"registry/{name}", "size": 1, "hashes": {"sha256": name.encode().hex()}}
        for name in files
    ]
    return {"name": "a", "version": "1", "wheels": wheels}


@pytest.mark.parametrize(
    ("files", "best"),
    [
        (("a-1-py3-none-any.whl", "a-1-cp312-cp312-manylinux_2_28_aarch64.whl"), 1),
        (
            (
                "a-1-cp312-cp312-manylinux_2_17_aarch64.whl",
                "a-1-cp38-abi3-manylinux_2_28_aarch64.whl",
            ),
            0,
        ),
        (("a-1-py3-none-manylinux2014_aarch64.whl", "a-1-py3-none-any.whl"), 0),
        (("a-1-cp313-cp313-manylinux_2_28_aarch64.whl", "a-1-py3-none-any.whl"), 1),
        (("a-1-py3-none-manylinux_2_28_x86_64.whl", "a-1-py2.py3-none-any.whl"), 1),
    ],
)
def test_the_wheel_that_an_installer_would_take(files: tuple[str, ...], best: int) -> None:
    assert chooser.best(package(*files), chooser.ranks("aarch64")).name == files[best]


def test_no_wheel_is_a_failure() -> None:
    with pytest.raises(SystemExit, match="a: no wheel"):
        chooser.best(package("a-1-cp312-cp312-macosx_11_0_arm64.whl"), chooser.ranks("aarch64"))


def test_a_wheel_that_the_lock_does_not_allow_is_a_failure() -> None:
    pylock = (
        '[[packages]]\nname = "a"\nversion = "1"\n'
        'wheels = [{ url = "x/a-1-py3-none-any.whl", size = 1, hashes = { sha256 = "%s" } }]\n'
    )
    lock = "a==1 \\\n    --hash=sha256:%s\n"
    zeros, ones = "0" * 64, "1" * 64
    assert list(chooser.choose("aarch64", pylock % zeros, lock % zeros))
    for other in (lock % ones, (lock % zeros).replace("a==1", "a==2")):
        with pytest.raises(SystemExit, match="digest is not in the lock"):
            list(chooser.choose("aarch64", pylock % zeros, other))


def test_a_wheel_of_no_index_has_the_size_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "a-1+cpu-py3-none-any.whl"
    file.write_bytes(b"12345")
    wheels = [{"url": f"file://{tmp_path}/a-1%2Bcpu-py3-none-any.whl", "hashes": {"sha256": "0"}}]
    found = chooser.best({"name": "a", "wheels": wheels}, chooser.ranks("x86_64"))
    assert found == (file.name, "0", 5)


# --- the registry ---------------------------------------------------------------------------------

ASKED = chooser.Wheel("a-1-py3-none-any.whl", "0" * 64, 5)
FILE = {"filename": ASKED.name, "hashes": {"sha256": ASKED.sha256}, "size": 5, "yanked": False}


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([FILE], None),
        ([{**FILE, "filename": "a-2-py3-none-any.whl"}, FILE], None),
        ([], "no such file"),
        ([{**FILE, "hashes": {"sha256": "1" * 64}}], "another sha256"),
        ([{**FILE, "size": 6}], "6 bytes"),
        ([{**FILE, "yanked": "broken"}], "yanked: broken"),
    ],
)
def test_what_an_index_says_against_a_wheel(files: list[dict[str, Any]], said: str | None) -> None:
    assert published.complaint(ASKED, files) == said


def test_an_index_is_asked_for_every_wheel(tmp_path: Path) -> None:
    """A folder as the index, in the form that the registry answers in."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a/index.html").write_text(json.dumps({"files": [FILE]}))
    with serving(tmp_path) as base:
        other = chooser.Wheel("B_b-1-py3-none-any.whl", "0" * 64, 5)
        assert list(published.missing(base, [ASKED, other])) == [(other, "no such file")]


def test_the_index_is_the_one_that_pip_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "file:///a/folder/")
    assert published.index() == "file:///a/folder"


# --- what Nix makes of it -------------------------------------------------------------------------


def test_nix_reads_the_wheels_as_they_are(packages: dict[str, Any]) -> None:
    found = [chooser.Wheel(w["file"], w["sha256"], w["size"]) for w in packages["wheels"]]
    assert found == listed()
    assert packages["size"] == sum(wheel.size for wheel in listed())
    for wheel in packages["wheels"]:
        parts = (wheel[key] for key in ("pname", "version", "python", "abi", "platform"))
        assert "-".join(parts) + ".whl" == wheel["file"]


def test_versions_come_from_the_locks(packages: dict[str, Any]) -> None:
    names = packages["names"]
    assert names["engine"] == "glm53-engine-0.33.0"
    assert names["exllamav3-ext"] == "exllamav3-ext-1.6.5"
    assert names["glm53ctl"] == packages["portable"]["glm53ctl"]
    text = "".join(file.read_text() for file in (ROOT / "nix/packages").glob("*.nix"))
    assert not re.search(r"[0-9a-f]{64}|sha256-", text), "a hash outside lock/"
    assert "0.33.0" not in text


def test_the_cpu_engine_is_fetched_by_name_and_digest(packages: dict[str, Any]) -> None:
    cpu = packages["cpu"]
    found = [chooser.Wheel(w["file"], w["sha256"], w["size"]) for w in cpu["wheels"]]
    assert found == listed(CPU_WHEELS)
    assert cpu["site"] == "lib/python3.11/site-packages"
    kinds = [one["kind"] for one in cpu["fetched"]]
    assert kinds.count("fetchPypi") == len(kinds) - 1
    (torch,) = (one for one in cpu["fetched"] if one["kind"] == "fetchurl")
    assert torch["name"].startswith("torch-2.13.0+cpu-cp311-")
    assert torch["url"] == f"{TORCH_INDEX}/{quote(torch['name'])}"
    assert {torch["sha256"]} == chooser.digests(CPU_LOCK.read_text())["torch==2.13.0+cpu"]


def test_the_cpu_engine_has_the_name_tag_of_the_installer(
    packages: dict[str, Any], tmp_path: Path
) -> None:
    """The script for real, with the Python of the tools."""
    script = re.sub(r"\S+/bin/python", sys.executable, packages["scripts"]["tag"])
    environment = {**os.environ, "out": str(tmp_path / "out"), "PYTHONPATH": str(ROOT)}
    subprocess.run(["bash", "-euc", script], env=environment, check=True)
    (wheel,) = (tmp_path / "out").iterdir()
    assert wheel.name == "vllm-0.32.0+cpu-py3-none-any.whl"
    assert wheel.read_bytes() == shim.build(tmp_path, "0.32.0").read_bytes()


def test_only_what_is_named_is_unfree(packages: dict[str, Any]) -> None:
    for name, meta in packages["meta"].items():
        assert meta["unfree"] == (not all(meta["license"])), name
        cuda = name in ("engine", "environment", "exllamav3-ext")
        assert (meta["platforms"] == ["aarch64-linux"]) == cuda, name
        assert (meta["platforms"] == ["x86_64-linux"]) == (name == "engine-cpu"), name


def test_the_program_has_what_it_imports(packages: dict[str, Any]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {canonicalize_name(re.split("[<>=]", one)[0]) for one in project["dependencies"]}
    for files in packages["tools"].values():
        assert wanted - {parse_wheel_filename(file)[0] for file in files} == chooser.FROM_NIXPKGS
    assert "sdnotify" in packages["scripts"]["program"]


def test_the_program_is_built_with_its_data() -> None:
    """A wheel has what `package-data` names; a checkout has it anyway, so nobody would miss it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    named = {
        file
        for package, patterns in project["tool"]["setuptools"]["package-data"].items()
        for pattern in patterns
        for file in (ROOT / package.replace(".", "/")).glob(pattern)
    }
    tracked = (file for file in (ROOT / "glm53ctl").rglob("*") if file.is_file())
    data = {file for file in tracked if file.suffix not in {".py", ".pyc"}}
    assert data - named == set()


@pytest.mark.parametrize("machine", ["aarch64", "x86_64"])
def test_the_program_is_that_of_its_lock(machine: str) -> None:
    allowed = chooser.digests((ROOT / "lock/tool.txt").read_text())
    order = chooser.ranks(machine)
    for wheel in listed(ROOT / f"lock/tool-{machine}.wheels"):
        name, version, _, tags = parse_wheel_filename(wheel.name)
        assert wheel.sha256 in allowed[f"{name}=={version}"], wheel.name
        assert tags & order.keys(), wheel.name


def test_the_driver_and_the_verbs_are_found_by_name(packages: dict[str, Any]) -> None:
    paths = packages["environment"]["appendRunpaths"]
    assert "/run/opengl-driver/lib" in paths
    assert any(path.endswith("rdma-core/lib") for path in paths), "NCCL opens libibverbs by name"
    ignored = packages["environment"]["autoPatchelfIgnoreMissingDeps"]
    assert {"libcuda.so.1", "libnvidia-ml.so.1"} <= set(ignored)
    assert not any(name.startswith(("libtorch", "libcudart.so.13", "libc.so")) for name in ignored)


def test_the_kernels_are_compiled_for_gb10_alone(packages: dict[str, Any]) -> None:
    assert packages["cudaArch"] == "12.1a"
    assert packages["ext"]["TORCH_CUDA_ARCH_LIST"] == "12.1a"
    assert packages["ext"]["CUDA_HOME"] == packages["cudaHome"]
    assert '[ "$(cat archs)" = sm_121a ]' in packages["scripts"]["ext"]


STAND_INS = {
    "cuda_flags.py": "cuda_cflags = extension_sources = lambda _: []",
    "setuptools.py": "import json\ndef setup(**said): print(json.dumps(said['version']))",
    "torch/__init__.py": "",
    "torch/utils/__init__.py": "",
    "torch/utils/cpp_extension.py": "BuildExtension = None\ndef CUDAExtension(*a, **k): pass",
}
"""What the kernels' setup script imports, as far as it asks for it."""


def test_the_kernels_are_set_up_with_what_the_build_is_told(
    packages: dict[str, Any], tmp_path: Path
) -> None:
    for name, text in STAND_INS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    script = ROOT / "nix/packages/exllamav3_ext.py"
    done = subprocess.run(
        [sys.executable, str(script), "build_ext"],
        env={**packages["ext"], "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == "1.6.5"


@pytest.mark.parametrize(
    "name",
    ["environment", "program", "engine", "cpu", "tag", "ext", "units", "imports", "deploy"],
)
def test_the_build_scripts_are_shell(name: str, packages: dict[str, Any]) -> None:
    words = ["bash", "-n", "-c", packages["scripts"][name]]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


SSH = """#!/bin/sh
echo "$@" >> "$LOG"
case "$*" in
  *"root@$CHANGED readlink"*current-system*) echo new ;;
  *readlink*) echo old ;;
  *"root@$MOVED cat /run/current-system/etc/systemd/network/10-glm53-rail"*) echo new ;;
  *cat*) echo old ;;
esac
"""


@pytest.mark.parametrize(
    ("changed", "moved"), [("", ""), ("head", ""), ("worker", ""), ("", "head"), ("", "worker")]
)
def test_a_pair_that_has_to_boot_first_is_not_restarted(
    changed: str, moved: str, packages: dict[str, Any], tmp_path: Path
) -> None:
    """The script for real, with ssh and nixos-rebuild that only note down."""
    (tmp_path / "rebuild").write_text("#!/bin/sh\n")
    (tmp_path / "ssh").write_text(SSH)
    for program in ("rebuild", "ssh"):
        (tmp_path / program).chmod(0o755)
    script = re.sub(r"rebuild=\S+", f"rebuild={tmp_path}/rebuild", packages["scripts"]["deploy"])
    log = tmp_path / "log"
    environment = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "CHANGED": changed,
        "MOVED": moved,
        "LOG": str(log),
    }
    words = ["bash", "-euo", "pipefail", "-c", script, "deploy", "head", "worker"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    asked = log.read_text()
    if changed or moved:
        assert done.returncode == 1
        said = f"{changed} runs another kernel" if changed else f"{moved} has other rails"
        assert done.stderr.startswith(f"DEPLOY_REBOOT: {said}")
        assert "systemctl" not in asked
    else:
        assert done.returncode == 0, done.stderr
        assert asked.count("systemctl restart --no-block glm53.target glm53-weights.service\n") == 2
        assert "root@head glm53ctl status --watch" in asked


def test_the_units_lie_where_nixos_looks(packages: dict[str, Any], tmp_path: Path) -> None:
    script = re.sub(r"/\S+/[^/\s]*services/\*", f"{ROOT}/services/*", packages["scripts"]["units"])
    environment = {**os.environ, "out": str(tmp_path)}
    subprocess.run(["bash", "-euc", script], env=environment, check=True)
    made = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()}
    assert made == {
        f"lib/{file.name.split('.')[1]}.d/glm53.conf"
        if file.suffix == ".conf"
        else f"lib/systemd/system/{file.name}"
        for file in (ROOT / "services").iterdir()
    }


def test_the_engine_is_made_of_links_and_its_scripts_run_in_it(
    packages: dict[str, Any], tmp_path: Path
) -> None:
    """The script for real, with an environment of two files and no pip."""
    base, out = tmp_path / "base", tmp_path / "out"
    (base / "bin").mkdir(parents=True)
    (base / "lib/python3.12/site-packages/vllm").mkdir(parents=True)
    (base / "lib/python3.12/site-packages/vllm/a.py").write_text("")
    (base / "bin/vllm").write_text(f"#!{base}/bin/python\nimport vllm\n")
    (base / "bin/vllm").chmod(0o755)
    (base / "bin/python").symlink_to(sys.executable)
    (base / "pyvenv.cfg").write_text(f"home = /x\ncommand = python -m venv {base}\n")
    (tmp_path / "pip").write_text("#!/bin/sh\n")
    (tmp_path / "pip").chmod(0o755)
    environment = next(w for w in packages["scripts"]["engine"].split() if "environment" in w)
    script = packages["scripts"]["engine"].replace(environment, str(base))
    script = "\n".join(line for line in script.splitlines() if not line.strip().startswith("ln -s"))
    variables = {"out": str(out), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    subprocess.run(["bash", "-euc", script], env=variables, check=True)
    assert (out / "bin/vllm").read_text() == f"#!{out}/bin/python\nimport vllm\n"
    assert os.access(out / "bin/vllm", os.X_OK)
    assert (out / "bin/python").is_symlink()
    assert (out / "lib/python3.12/site-packages/vllm/a.py").is_symlink()
    assert str(base) not in (out / "pyvenv.cfg").read_text()
