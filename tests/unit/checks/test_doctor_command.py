"""`glm53ctl doctor` as it is typed, on this machine and on what was recorded."""

import json
import sys
from ipaddress import IPv4Address

import pytest
import yaml
from fabric_worlds import spark

from glm53ctl import cli
from glm53ctl.checks.doctor import as_text, examine
from glm53ctl.checks.record import bundle, redact
from glm53ctl.config.schema import Config
from glm53ctl.config.sources import load
from glm53ctl.errors import UserError
from glm53ctl.facts import here as facts_here
from glm53ctl.facts.here import require_rank
from glm53ctl.facts.node import NodeFacts, WeightsFacts, probe_node
from glm53ctl.facts.ports import free_ports

SETTINGS = {
    "nodes": [{"name": "head", "address": "10.0.0.1"}, {"name": "worker", "address": "10.0.0.2"}],
    "licenses": {"accept": ["ShapleyMCG-1.0"]},
}
PAIR = Config.model_validate(SETTINGS)


@pytest.fixture
def doctor(monkeypatch, capfd):
    """Run `glm53ctl doctor` with these words; return exit status, output and errors."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["glm53ctl", "doctor", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, *capfd.readouterr()

    return run


@pytest.fixture
def local(tmp_path):
    """A configuration of a demo on this host, which wants nothing that it lacks."""
    file = tmp_path / "config.yaml"
    paths = {"state_dir": str(tmp_path / "state"), "run_dir": str(tmp_path / "run")}
    memory = {"start_gib": 0.02, "floor_gib": 0.01}
    api, master, link = free_ports(3)  # the usual ones may be in use here
    ports = {"api": {"port": api}, "fabric": {"master_port": master, "link_port": link}}
    file.write_text(yaml.safe_dump({"profile": "demo", "paths": paths, "memory": memory, **ports}))
    return file


def recorded(tmp_path, node, config=PAIR):
    file = tmp_path / f"{node.name}.json"
    facts = node.facts.model_copy(update={"rank": node.wanted.rank})
    file.write_text(bundle(facts, config))
    return file


# --- on recorded facts ---------------------------------------------------------------------------


def test_a_healthy_pair_is_fine_and_exits_with_0(doctor, tmp_path):
    files = [recorded(tmp_path, spark(rank)) for rank in (0, 1)]
    code, out, err = doctor("--facts", *files)
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "head and worker: nothing stops a start, 0 warnings"


def test_a_failure_exits_with_3_and_the_worst_comes_first(doctor, tmp_path):
    files = [recorded(tmp_path, spark(0)), recorded(tmp_path, spark(1, mtu=(1500, 9000)))]
    code, out, _ = doctor("--json", "--facts", files[0], "--facts", files[1])
    report = json.loads(out)
    assert code == 3
    assert report["failures"] == 1
    assert report["verdict"].startswith("head and worker: 1 failure")
    severities = [finding["severity"] for finding in report["findings"]]
    assert severities == sorted(severities, key=["fail", "warn", "ok"].index)
    assert report["findings"][0]["code"] == "NET_MTU_MISMATCH"


def test_the_order_of_the_files_does_not_matter(doctor, tmp_path):
    files = [recorded(tmp_path, spark(0)), recorded(tmp_path, spark(1, second=False))]
    forwards = json.loads(doctor("--json", "--facts", *files)[1])
    backwards = json.loads(doctor("--json", "--facts", *reversed(files))[1])
    assert forwards == backwards


CAPTURE = """\
### head/glm53.env
HEAD_CX7_IF=enp1s0f1np1
HEAD_IP=10.0.0.1
### head/ip-addr.json
[{"ifname":"enp1s0f0np0","operstate":"UP","mtu":9000,
  "addr_info":[{"family":"inet","local":"10.0.0.1","prefixlen":24}]},
 {"ifname":"enp1s0f1np1","operstate":"DOWN","addr_info":[]}]
"""


def test_one_text_and_a_folder_say_the_same(doctor, tmp_path):
    text = tmp_path / "capture.txt"
    text.write_text(CAPTURE)
    folder = tmp_path / "folder" / "head"
    folder.mkdir(parents=True)
    for part in CAPTURE.split("### head/")[1:]:
        name, _, body = part.partition("\n")
        (folder / name).write_text(body)
    said = {doctor("--json", "--facts", path)[1] for path in (text, folder, folder.parent)}
    assert len(said) == 1
    (findings,) = (json.loads(one)["findings"] for one in said)
    assert [finding["code"] for finding in findings] == ["NET_IF_DOWN"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nothing that a check knows",
        '{"format": "glm53-facts/1", "memory": 3}',
        '{"format": "glm53-facts/1"',
        "### head/list-boots.json\nno JSON\n### head/state.jsonl\n{}\n",
        "### head/df.txt\nFilesystem\n/dev/x a b c /\n",
    ],
)
def test_what_is_no_recording_is_one_sentence_and_2(doctor, tmp_path, text):
    file = tmp_path / "facts"
    file.write_text(text)
    code, out, err = doctor("--facts", file)
    assert (code, out) == (2, "")
    assert err.startswith(f"FACTS_FILE: {file}")
    assert "Traceback" not in err


def test_a_file_that_is_not_there_is_2(doctor, tmp_path):
    assert doctor("--facts", tmp_path / "none")[0] == 2


# --- live ----------------------------------------------------------------------------------------


def test_this_host_is_judged(doctor, local):
    code, out, err = doctor("--config", local, "--json")
    report = json.loads(out)
    assert (code, err) == (0, ""), out
    assert report["nodes"] == [load(local).config.head.name]


def test_a_host_that_no_node_is_says_so(doctor, tmp_path):
    nodes = [{"name": n, "address": f"203.0.113.{i}"} for i, n in enumerate(("a", "b"), 1)]
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(SETTINGS | {"nodes": nodes}))
    code, _, err = doctor("--config", file)
    assert code == 2
    assert err.startswith("RANK_UNKNOWN")


def test_the_rank_is_the_one_whose_address_is_here(monkeypatch):
    here = IPv4Address("10.0.0.2")
    monkeypatch.setattr(facts_here, "device_of", lambda address: "x" if address == here else None)
    assert require_rank(PAIR) == 1
    monkeypatch.setattr(facts_here, "device_of", lambda address: None)
    with pytest.raises(UserError):
        require_rank(PAIR)


def test_without_a_cable_the_host_is_known_by_its_name(monkeypatch):
    monkeypatch.setattr(facts_here, "device_of", lambda address: None)
    monkeypatch.setattr("socket.gethostname", lambda: f"{PAIR.nodes[1].name}.example")
    assert require_rank(PAIR) == 1
    assert require_rank(PAIR, 0) == 0


def test_what_this_host_records_it_can_read_again(doctor, local, tmp_path):
    file = tmp_path / "bundle.json"
    assert doctor("record", file, "--config", local)[0] == 0
    facts = NodeFacts.model_validate_json(file.read_text())
    assert facts.config["profile"] == "demo"
    assert doctor("--facts", file)[0] == 0
    code, out, _ = doctor("record", "--config", local)
    assert code == 0
    assert NodeFacts.model_validate_json(out).node == facts.node


def test_a_place_that_cannot_be_written_is_2(doctor, local, tmp_path):
    code, _, err = doctor("record", tmp_path / "none" / "bundle.json", "--config", local)
    assert (code, err.partition(":")[0]) == (2, "FILE_REFUSED")


def test_facts_survive_the_wire():
    facts = probe_node(Config.model_validate({"nodes": [{"name": "a", "address": "127.0.0.1"}]}), 0)
    assert NodeFacts.model_validate_json(facts.model_dump_json()) == facts


# --- redaction and rendering ---------------------------------------------------------------------


def test_no_secret_and_no_public_address_leaves_the_host():
    extra = {"engine": {"extra_env": {"MY_TOKEN": "s3cret"}, "extra_args": ["--x", "s3cret"]}}
    config = Config.model_validate(SETTINGS | extra)
    texts = {"glm53-rank0.service": "Environment=HF_TOKEN=hf_EXAMPLE VLLM_API_KEY=abc\n"}
    weights = WeightsFacts(model="sk-EXAMPLEEXAMPLE")
    text = bundle(NodeFacts(node="a", rank=0, texts=texts, weights=weights), config)
    for secret in ("s3cret", "hf_EXAMPLE", "sk-EXAMPLE", "abc"):
        assert secret not in text
    assert NodeFacts.model_validate_json(text).texts.keys() == texts.keys()


def test_the_same_public_address_becomes_the_same_other_one():
    text = redact('"8.8.8.8" "10.0.0.1" "8.8.8.8/24" "2606:4700::1111" "fe80::1" "1.2.3"')
    assert text == '"192.0.2.1" "10.0.0.1" "192.0.2.1/24" "2001:db8::2" "fe80::1" "1.2.3"'
    assert redact("8.8.8.8", addresses=True) == "8.8.8.8"
    text = redact("no way to 8.8.8.8. It was asked by 2606:4700::1111:51234.")
    assert text == "no way to 192.0.2.1. It was asked by 2001:db8::2:51234."


def test_the_text_says_what_where_why_and_what_to_do():
    lines = as_text(examine([spark(0, at=(6, 3), gid_index=3)])).splitlines()
    assert lines[0] == "head: 1 failure, 0 warnings"
    assert lines[2].startswith("FAIL RDMA_GID_EMPTY  head: ")
    assert any("index 6: ::ffff:10.0.0.1 RoCE v2" in line for line in lines)
    assert lines[-1].startswith("     > ")
