"""Both machines: what Nix renders is what the program and systemd take; the ranks do not drift."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import export
import pytest
import yaml
from nix_cases import appliance
from nix_tool import HERE, ROOT, Nix
from unit_files import entries, systemd

from glm53ctl.config.identity import digest
from glm53ctl.config.sources import Layer, Loaded, load
from glm53ctl.plan.env import PER_NODE
from glm53ctl.plan.ranks import RANK_FLAGS, plan_rank

SERVICES = ROOT / "services"
RANK = {"spark-head": 0, "spark-worker": 1}
ADDED = {
    "Environment",
    "ExecSearchPath",
    "LoadCredential",
    "X-Restart-Triggers",
    "X-RestartIfChanged",
}
"""What a drop-in may say; everything else is in services/."""


@pytest.fixture(scope="module")
def hosts(nix: Nix, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return export.hosts(nix, tmp_path_factory.mktemp("given"))


@pytest.fixture(scope="module")
def roots(hosts: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    out = tmp_path_factory.mktemp("hosts")
    for name, host in hosts.items():
        export.write_host(host, out / name)
    return {name: out / name for name in hosts}


@pytest.fixture(scope="module")
def configs(roots: dict[str, Path]) -> dict[str, Loaded]:
    """Return what the program reads on each machine; the API's key is a credential there."""
    return {
        name: load(root / "etc/glm53/config.yaml", environ={}, rules=False)
        for name, root in roots.items()
    }


@pytest.mark.parametrize("name", RANK)
def test_a_machine_evaluates(name: str, hosts: dict[str, Any]) -> None:
    assert hosts[name]["failed"] == []
    assert hosts[name]["hostName"] == name


def test_an_owner_who_has_said_nothing_is_told_so(nix: Nix, tmp_path: Path) -> None:
    told = export.hosts(nix, tmp_path, owner={})["spark-head"]["failed"]
    assert len(told) == 2
    assert any("CFG_LICENSE: ShapleyMCG-1.0 is not accepted" in message for message in told)
    assert any("nobody could log in" in message for message in told)


def test_the_template_has_the_values_of_the_repository(nix: Nix) -> None:
    owners = nix.evaluate(HERE / "owner.nix")
    assert owners["template"] == owners["repository"]
    assert len(owners["template"]) == 6


@pytest.mark.parametrize("name", RANK)
def test_the_program_shows_what_nix_wrote(
    name: str, hosts: dict[str, Any], roots: dict[str, Path], configs: dict[str, Loaded]
) -> None:
    file = roots[name] / "etc/glm53/config.yaml"
    program = [str(ROOT / ".venv/bin/glm53ctl"), "config", "show", "--json", "--config", str(file)]
    places = {"PATH": "/usr/bin", "CREDENTIALS_DIRECTORY": str(file.parent)}
    (file.parent / "api-key").write_text("a key of a test")
    done = subprocess.run(program, env=places, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == hosts[name]["effective"]
    said = configs[name].origins
    written = {path for path, origin in said.items() if origin.layer is Layer.FILE}
    assert "licenses.accept" in written
    assert "serve.max_model_len" not in written, "defaults are not written down a second time"


def test_the_configuration_is_one(hosts: dict[str, Any], configs: dict[str, Loaded]) -> None:
    assert hosts["spark-head"]["settings"] == hosts["spark-worker"]["settings"]
    assert len({digest(loaded.config) for loaded in configs.values()}) == 1


def test_the_ranks_differ_only_where_they_must(configs: dict[str, Loaded]) -> None:
    head, worker = (plan_rank(configs[name].config, rank, "rail1") for name, rank in RANK.items())

    def common(argv: tuple[str, ...]) -> list[str]:
        text = " ".join(argv)
        for flag in RANK_FLAGS:
            text = re.sub(rf" {flag}( [^-][^ ]*)?", "", text)
        return text.split()

    assert common(head.argv) == common(worker.argv)
    assert head.argv != worker.argv
    differing = {
        key
        for key in head.env.keys() | worker.env.keys()
        if head.env.get(key) != worker.env.get(key)
    }
    assert differing <= {variable.name for variable in PER_NODE}
    assert "VLLM_HOST_IP" in differing


def test_both_run_one_closure(hosts: dict[str, Any]) -> None:
    said = [
        re.search(
            r'"GLM53_CLOSURE=([0-9a-f]{64})"',
            hosts[name]["units"][f"glm53-rank{rank}.service"]["text"],
        )
        for name, rank in RANK.items()
    ]
    assert said[0]
    assert said[1]
    assert said[0][1] == said[1][1]


def test_another_engine_is_another_closure(nix: Nix, tmp_path: Path) -> None:
    texts = [
        export.hosts(nix, tmp_path, places={"glm53-engine": place})["spark-head"]["units"]
        for place in ("/a", "/b")
    ]
    first, second = (
        re.search("GLM53_CLOSURE=[0-9a-f]+", t["glm53-rank0.service"]["text"]) for t in texts
    )
    assert first
    assert second
    assert first[0] != second[0]


# --- units ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RANK)
def test_the_units_are_those_of_services(name: str, roots: dict[str, Path]) -> None:
    system = roots[name] / "etc/systemd/system"
    shipped = {
        file.name: file.read_bytes() for file in SERVICES.iterdir() if file.suffix != ".conf"
    }
    rendered = {file.name: file.read_bytes() for file in system.iterdir() if file.is_file()}
    assert rendered == shipped
    for unit in shipped:
        text = (system / f"{unit}.d/overrides.conf").read_text()
        keys = set(re.findall(r"^([A-Za-z-]+)=", text, re.MULTILINE))
        assert keys <= ADDED, f"{unit}: {keys - ADDED}"


@pytest.mark.parametrize(("name", "rank"), RANK.items())
def test_what_services_installs_is_wanted(name: str, rank: int, hosts: dict[str, Any]) -> None:
    for file in SERVICES.iterdir():
        if file.suffix == ".conf":
            continue
        said = re.findall(r"^WantedBy=(.*)$", file.read_text(), re.MULTILINE)
        other = file.name.startswith("glm53-rank") and file.name != f"glm53-rank{rank}.service"
        assert hosts[name]["units"][file.name]["wantedBy"] == ([] if other else said)


@pytest.mark.parametrize(("name", "rank"), RANK.items())
def test_systemd_takes_the_units(
    name: str, rank: int, roots: dict[str, Path], tmp_path: Path
) -> None:
    system = tmp_path / "system"
    subprocess.run(["cp", "-r", str(roots[name] / "etc/systemd/system"), str(system)], check=True)
    # The programs are in a store that was made up; this one exists.
    for file in system.glob("*.service"):
        file.write_text(
            file.read_text()
            .replace("=glm53ctl ", "=/bin/true ")
            .replace("=-glm53ctl ", "=-/bin/true ")
        )
    units = [str(system / unit) for unit in ("glm53.target", f"glm53-rank{rank}.service")]
    done = systemd("systemd-analyze", "verify", "--man=no", *units, SYSTEMD_UNIT_PATH=f"{system}:")
    ours = [line for line in done.stderr.splitlines() if "glm53" in line]
    assert done.returncode == 0, done.stderr
    assert ours == []


@pytest.mark.parametrize(("name", "rank"), RANK.items())
def test_a_rank_finds_what_it_compiles_with(name: str, rank: int, hosts: dict[str, Any]) -> None:
    text = hosts[name]["units"][f"glm53-rank{rank}.service"]["text"]
    words = dict(re.findall(r'^Environment="([A-Z_0-9]+)=(.*)"$', text, re.MULTILINE))
    assert words["PATH"].split(":")[0].endswith("-glm53-engine-0.33.0/bin"), "vllm, ninja"
    assert f"{words['CUDA_HOME']}/bin" in words["PATH"].split(":"), "nvcc"
    assert words["CUDA_HOME"].endswith("/lib/python3.12/site-packages/nvidia/cu13")
    assert words["FLASHINFER_CUDA_ARCH_LIST"] == words["TORCH_CUDA_ARCH_LIST"] == "12.1a"
    for variable in ("LD_LIBRARY_PATH", "TRITON_LIBCUDA_PATH"):
        assert words[variable] == "/run/opengl-driver/lib"


@pytest.mark.parametrize(("name", "rank"), RANK.items())
def test_a_switch_waits_for_nothing_that_waits_for_the_other_machine(
    name: str, rank: int, hosts: dict[str, Any]
) -> None:
    units = ("glm53-weights.service", "glm53-weights-scrub.service", "glm53-bus@.service")
    for unit in (f"glm53-rank{rank}.service", *units):
        text = hosts[name]["units"][unit]["text"]
        assert "X-RestartIfChanged=false\n" in text
        assert "X-Restart-Triggers" not in text


@pytest.mark.parametrize(("name", "rank"), RANK.items())
def test_who_types_a_command_has_what_the_units_have(
    name: str, rank: int, hosts: dict[str, Any]
) -> None:
    (script,) = hosts[name]["commands"]
    said = re.search(
        r"GLM53_CLOSURE=(\w+)", hosts[name]["units"][f"glm53-rank{rank}.service"]["text"]
    )
    assert said
    assert f"--set-default GLM53_CLOSURE {said[1]}\n" in script
    assert "--suffix LD_LIBRARY_PATH : /run/opengl-driver/lib " in script
    assert re.search(r"makeWrapper \S+/bin/glm53ctl \$out/bin/glm53ctl ", script)


def test_memory_can_be_freed_of_swap(hosts: dict[str, Any]) -> None:
    text = hosts["spark-head"]["units"]["glm53-reclaim.service"]["text"]
    assert re.search(r'^Environment="PATH=[^:]*-util-linux/bin:', text, re.MULTILINE), "swapoff"


def test_the_user_is_that_of_sysusers(hosts: dict[str, Any]) -> None:
    ((_, user, _, description, home),) = [
        re.findall(r'"[^"]*"|\S+', " ".join(words)) for words in entries("glm53.sysusers.conf")
    ]
    ours = hosts["spark-head"]["users"]["glm53"]
    assert user == "glm53"
    assert (ours["description"], ours["home"]) == (description.strip('"'), home)


# --- fabric, firewall, secrets --------------------------------------------------------------------


@pytest.mark.parametrize(("name", "rank"), RANK.items())
def test_the_rails_have_their_addresses(name: str, rank: int, roots: dict[str, Path]) -> None:
    for number, net in ((1, "10.0.9"), (2, "10.0.10")):
        base = roots[name] / f"etc/systemd/network/10-glm53-rail{number}"
        link = base.with_suffix(".link").read_text()
        network = base.with_suffix(".network").read_text()
        assert f"Name=rail{number}\n" in link
        assert re.search(r"Path=pci-000[02]:01:00.0\n", link)
        assert f"Address={net}.{rank + 1}/24\n" in network
        for line in ("MTUBytes=9000", "ConfigureWithoutCarrier=true", "LinkLocalAddressing=no"):
            assert f"{line}\n" in network


def test_only_the_head_is_open_and_to_the_lan_alone(hosts: dict[str, Any]) -> None:
    head, worker = (hosts[name]["network"]["firewall"] for name in RANK)
    assert {n: i["allowedTCPPorts"] for n, i in head["interfaces"].items()} == {"enP7s7": [8888]}
    assert worker["interfaces"] == {}
    for firewall in (head, worker):
        assert firewall["allowedTCPPorts"] == []
        assert sorted(firewall["trustedInterfaces"]) == ["lo", "rail1", "rail2"]


def test_the_page_is_served_where_the_firewall_is_open(nix: Nix) -> None:
    def machine(rank: int, page: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        options = appliance({"page": page or {}}, rank=rank, pageInterfaces=["enP7s7"])
        return [options]

    cases = {
        "head": [appliance(apiInterfaces=["enP7s7"], pageInterfaces=["enP7s7", "wg0"])],
        "worker": machine(1, {"port": 9000}),
        "off": machine(1, {"enabled": False}),
        "elsewhere": machine(1, {"host": ["192.168.1.5"]}),
        "closed": [appliance()],
        "unreachable": [appliance({"page": {"host": ["127.0.0.1", "192.168.1.5"]}})],
    }
    found = nix.machines(cases)
    opened = {
        name: {
            device: ports["allowedTCPPorts"]
            for device, ports in made["network"]["firewall"]["interfaces"].items()
        }
        for name, made in found.items()
    }
    assert opened == {
        "head": {"enP7s7": [8888, 8890], "wg0": [8890]},
        "worker": {"enP7s7": [9000]},
        "off": {},
        "elsewhere": {"enP7s7": [8890]},
        "closed": {},
        "unreachable": {},
    }
    bound = {name: made["effective"]["page"]["host"] for name, made in found.items()}
    assert bound["head"] == ["127.0.0.1", "enP7s7", "wg0"]
    assert bound["worker"] == ["127.0.0.1", "enP7s7"]
    assert bound["elsewhere"] == ["192.168.1.5"], "an owner's own words win"
    assert bound["closed"] == ["127.0.0.1"]
    assert any("the page is off" in warning for warning in found["off"]["warnings"])
    assert any("nobody reach port 8890" in said for said in found["unreachable"]["warnings"])
    assert not any("page" in warning for name in ("head", "worker", "closed")
                   for warning in found[name]["warnings"])  # fmt: skip


def test_an_owners_module_may_say_where_the_key_is(nix: Nix, tmp_path: Path) -> None:
    elsewhere = {"services": {"glm53": {"credentials": {"apiKey": "/run/agenix/key"}}}}
    owner = {**export.ACCEPTED, "modules": [elsewhere]}
    head = export.hosts(nix, tmp_path, owner=owner)["spark-head"]
    assert head["failed"] == []
    assert "LoadCredential=api-key:/run/agenix/key" in head["units"]["glm53-rank0.service"]["text"]


def test_the_stores_own_files_are_no_links(hosts: dict[str, Any]) -> None:
    assert [hosts[name]["tmpfiles"] for name in RANK] == [[], []]


def test_secrets_reach_the_units_that_name_them(nix: Nix) -> None:
    named = {"apiKey": "/run/a", "pairToken": "/run/b", "hfToken": "/run/c"}
    nodes = [{"name": "a", "address": "10.0.9.1"}, {"name": "b", "address": "10.0.9.2"}]
    settings = {"nodes": nodes, "licenses": {"accept": ["ShapleyMCG-1.0"]}}
    cases = {
        str(rank): [
            {
                "services": {
                    "glm53": {
                        "enable": True,
                        "rank": rank,
                        "settings": settings,
                        "credentials": named,
                    }
                }
            }
        ]
        for rank in (0, 1)
    }
    machines = nix.machines(cases)
    links = {
        rank: sorted(rule.split()[1:] for rule in machine["tmpfiles"])
        for rank, machine in machines.items()
    }
    common = [["hf-token", "/run/c"], ["pair-token", "/run/b"]]
    assert links == {
        rank: [[f"/etc/credstore/glm53.{name}", *"----", path] for name, path in wanted]
        for rank, wanted in (("0", [["api-key", "/run/a"], *common]), ("1", common))
    }
    loads = {
        (rank, unit): re.findall("^LoadCredential=(.*)$", found["text"], re.MULTILINE)
        for rank, machine in machines.items()
        for unit, found in machine["units"].items()
    }
    assert {key: value for key, value in loads.items() if value} == {
        ("0", "glm53-rank0.service"): ["api-key:/run/a", "pair-token:/run/b"],
        ("0", "glm53-watchdog.service"): ["api-key:/run/a"],
        ("0", "glm53-weights.service"): ["hf-token:/run/c", "pair-token:/run/b"],
        ("1", "glm53-rank1.service"): ["pair-token:/run/b"],
        ("1", "glm53-weights.service"): ["hf-token:/run/c", "pair-token:/run/b"],
    }
    assert all(rule.startswith("L+ ") for m in machines.values() for rule in m["tmpfiles"])
    for (_, unit), credentials in loads.items():
        shipped = (SERVICES / unit).read_text()
        for credential in credentials:
            assert f"LoadCredential={credential.split(':')[0]}:" in shipped, f"{unit} takes none"


def test_prometheus_asks_both_nodes_and_knows_the_alerts(nix: Nix) -> None:
    made = nix.evaluate(HERE / "monitoring.nix")
    assert made["watched"]["scrapeConfigs"] == [
        {"job_name": "glm53", "static_configs": [{"targets": ["head:8890", "worker:8890"]}]},
        {
            "job_name": "glm53-engine",
            "static_configs": [{"targets": ["head:8888"]}],
            "authorization": {"credentials_file": "/run/key"},
        },
    ]
    (rules,) = made["watched"]["ruleFiles"]
    assert rules.endswith("alerts.yaml")
    assert made["plain"]["scrapeConfigs"] == made["watched"]["scrapeConfigs"][:1]
    assert made["watched"]["checkConfig"] == "syntax-only", "the key is not there in a build"
    assert made["plain"]["checkConfig"] is True
    off = {"enable": False, "checkConfig": True, "ruleFiles": [], "scrapeConfigs": []}
    assert made["off"] == off


# --- the exporter ---------------------------------------------------------------------------------


def test_the_exporter_takes_places_and_settings(nix: Nix, tmp_path: Path) -> None:
    settings = {"profile": "demo", "nodes": [{"name": "a", "address": "10.0.0.1"}]}
    places = {"glm53ctl": "/opt/glm53/tool", "coreutils": "/usr"}
    found = export.hosts(nix, tmp_path, places=places, settings=settings)
    assert found["spark-head"]["failed"] == []
    assert found["spark-head"]["settings"] == settings
    export.write_host(found["spark-head"], tmp_path / "root")
    system = tmp_path / "root/etc/systemd/system"
    text = (system / "glm53-rank0.service.d/overrides.conf").read_text()
    assert "ExecSearchPath=/opt/glm53/tool/bin\n" in text
    assert ":/usr/bin:" in text
    wants = {link.name for link in (system / "glm53.target.wants").iterdir()}
    assert wants == {"glm53-rank0.service"}
    assert (tmp_path / "root/etc/tmpfiles.d/glm53.conf").exists()
    assert yaml.safe_load((tmp_path / "root/etc/glm53/config.yaml").read_text()) == settings
