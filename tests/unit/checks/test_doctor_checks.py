"""Each check: what it finds, and that it is silent where nothing is wrong or nothing is known."""

from ipaddress import IPv4Address

import pytest
from fabric_worlds import gid, interface, spark, table

from glm53ctl.checks import CHECKS
from glm53ctl.checks.doctor import examine
from glm53ctl.checks.registry import Node
from glm53ctl.checks.wanted import Wanted
from glm53ctl.facts.host import Unknown
from glm53ctl.facts.memory import KIB_IN_GIB, MemoryFacts
from glm53ctl.facts.network import Neighbour, Network, RailProbe
from glm53ctl.facts.node import Boot, ClockCap, NodeFacts, PeerState, Software, WeightsFacts
from glm53ctl.facts.nvml import GpuFacts, GpuProcess
from glm53ctl.facts.processes import Listener, Process
from glm53ctl.facts.rdma import RdmaPort
from glm53ctl.facts.system import Clock, Disk, Kernel, Libraries, Owner, Unit
from glm53ctl.findings import Severity

OK = Severity.OK


def bad(report):
    return {(f.code, f.node) for f in report.findings if f.severity is not OK}


def codes(*nodes):
    return sorted({code for code, _ in bad(examine(nodes))})


def one(wanted: Wanted | None = None, *, serving: bool = False, **facts) -> Node:
    return Node(NodeFacts(node="n", **facts), wanted or Wanted(), serving)


def found(node: Node, code: str):
    (finding,) = [f for f in examine([node]).findings if f.code == code]
    return finding


def with_facts(node: Node, **facts) -> Node:
    return Node(node.facts.model_copy(update=facts), node.wanted, node.serving)


def memory(free: float, available: float, *, swap: float = 0, shmem: float = 0) -> MemoryFacts:
    def kib(gib: float) -> int:
        return round(gib * KIB_IN_GIB)

    return MemoryFacts(
        total=kib(120),
        free=kib(free),
        available=kib(available),
        shmem=kib(shmem),
        swap_total=kib(16),
        swap_free=kib(16 - swap),
    )


def unit(name: str, **properties: str) -> Unit:
    return Unit(id=f"{name}.service", properties=properties)


# --- nothing wrong, nothing known ----------------------------------------------------------------


def test_two_healthy_nodes_are_fine_and_the_fabric_is_on_record():
    report = examine([spark(0), spark(1)])
    assert bad(report) == set()
    told = {f.code for f in report.findings}
    assert {"NET_FABRIC", "RDMA_GID", "NET_TWIN_RAILS"} <= told
    assert "nothing stops a start" in report.verdict()


def test_a_node_of_which_nothing_is_known_fails_no_check():
    assert examine([one(), one()]).findings == ()


def test_what_decides_and_could_not_be_read_is_a_warning():
    node = one(rdma=Unknown(unknown="EACCES"), disks=Unknown(unknown="never mind"))
    (finding,) = examine([node]).findings
    assert (finding.code, finding.severity, finding.where) == ("PROBE_UNKNOWN", "warn", "rdma")
    assert "EACCES" in finding.message


def test_every_check_reports_only_what_it_declares():
    worlds = [
        (spark(0), spark(1, second=False)),
        (spark(0, at=(6, 3), gid_index=3), spark(1, mtu=(1500, 9000))),
        (with_facts(spark(0), memory=memory(2, 117)), spark(1)),
    ]
    for nodes in worlds:
        for check in CHECKS:
            if check.of_node is not None:
                said = [f for node in nodes for f in check.of_node(node)]
            else:
                said = list(check.of_pair(nodes))
            assert {f.code for f in said} <= set(check.codes), check.name


def test_the_worst_is_said_first():
    node = with_facts(spark(0, at=(6, 3), gid_index=3), memory=memory(1, 1.5, swap=9))
    node = with_facts(node, clock=Clock(synchronised=False), gpus=(GpuFacts(),))
    severities = [finding.severity for finding in examine([node, spark(1)]).findings]
    assert severities == sorted(severities, key=["fail", "warn", "ok"].index)
    assert set(severities) == {"fail", "warn", "ok"}


# --- the fabric ----------------------------------------------------------------------------------


def test_another_mtu_at_the_other_end_is_refused_with_both():
    report = examine([spark(0), spark(1, mtu=(1500, 9000))])
    (finding,) = [f for f in report.findings if f.code == "NET_MTU_MISMATCH"]
    assert "9000" in finding.message
    assert "1500" in finding.message
    assert (finding.where, finding.severity) == ("enp1s0f0np0", "fail")


@pytest.mark.parametrize(("rails", "stops"), [("auto", set()), (2, {"NET_FABRIC_DEGRADED"})])
def test_another_mtu_on_a_rail_that_is_not_used_stops_nothing_by_itself(rails, stops):
    report = examine([spark(0, rails=rails), spark(1, rails=rails, mtu=(9000, 1500))])
    (finding,) = [f for f in report.findings if f.code == "NET_MTU_MISMATCH"]
    assert (finding.where, finding.severity) == ("enP2p1s0f0np0", "warn")
    assert {f.code for f in report.findings if f.severity is Severity.FAIL} == stops


def test_a_small_mtu_on_both_ends_only_slows():
    assert codes(spark(0, mtu=(1500, 1500)), spark(1, mtu=(1500, 1500))) == ["NET_FABRIC_DEGRADED"]


@pytest.mark.parametrize(("rails", "severity"), [("auto", "warn"), (2, "fail")])
def test_a_rail_without_an_address_is_named_with_the_one_expected(rails, severity):
    report = examine([spark(0, rails=rails), spark(1, second=False, rails=rails)])
    (finding,) = [f for f in report.findings if f.code == "NET_RAIL_DOWN"]
    assert (finding.node, finding.severity) == ("worker", severity)
    assert "10.0.1.2" in finding.message


def test_two_whole_rails_are_two_whatever_else_one_node_is_joined_to():
    """A storage network on the other port, which the peer is not in and does not answer in."""
    silent = RailProbe(device="enp1s0f1np1", target="192.168.50.9", mtu=1500, answered=False)
    head = replaced(
        spark(0, rails=2), interface("enp1s0f1np1", "192.168.50.5/24"), probes=(silent,)
    )
    report = examine([head, spark(1, rails=2)])
    assert "NET_TWIN_RAILS" in {finding.code for finding in report.findings}
    assert [f.code for f in report.findings if f.severity is Severity.FAIL] == []
    assert codes(replaced(spark(0), head.facts.network.named("enp1s0f1np1")), spark(1)) == []


@pytest.mark.parametrize(
    ("rails", "rdma", "stops"),
    [
        ("auto", True, []),
        (2, True, ["NET_FABRIC_DEGRADED"]),
        ("auto", False, []),
        (2, False, ["NET_RAIL_UNREACHABLE"]),
    ],
)
def test_a_second_rail_that_does_not_answer_stops_a_start_only_where_two_are_asked_for(
    rails, rdma, stops
):
    silent = RailProbe(device="enP2p1s0f0np0", target="10.0.1.2", mtu=9000, answered=False)
    wanted = {"rails": rails, "rdma": rdma}
    report = examine([spark(0, probes=(silent,), **wanted), spark(1, **wanted)])
    assert [f.code for f in report.findings if f.severity is Severity.FAIL] == stops
    assert "NET_RAIL_UNREACHABLE" in {f.code for f in report.findings}


def replaced(node: Node, device, **network) -> Node:
    kept = [i for i in node.facts.network.interfaces if i.name != device.name]
    return with_facts(node, network=Network(interfaces=(*kept, device), **network))


def test_addresses_of_two_networks_do_not_meet():
    worker = replaced(spark(1), interface("enp1s0f0np0", "10.0.5.2/24"))
    worker = with_facts(worker, rdma=(RdmaPort(device="rocep1s0f0", gids=table("10.0.5.2")),))
    wanted = Wanted(rank=1, address=worker.facts.network.named("enp1s0f0np0").ipv4()[0].ip)
    assert "NET_NEIGH_FAILED" in codes(spark(0), Node(worker.facts, wanted))


def test_a_second_rail_of_another_network_is_not_used():
    worker = replaced(spark(1), interface("enP2p1s0f0np0", "10.0.7.2/24"))
    assert "NET_RAIL_UNREACHABLE" in codes(spark(0), worker)


def probe(device: str, *, answered: bool | None) -> RailProbe:
    return RailProbe(device=device, target="10.0.0.2", mtu=9000, answered=answered)


@pytest.mark.parametrize(
    ("state", "code"), [("REACHABLE", "NET_MTU_MISMATCH"), ("FAILED", "NET_NEIGH_FAILED")]
)
def test_a_silent_first_rail_is_the_mtu_if_the_neighbour_is_there(state, code):
    node = spark(0, probes=(probe("enp1s0f0np0", answered=False),))
    there = Neighbour(address="10.0.0.2", device="enp1s0f0np0", state=state)
    network = node.facts.network.model_copy(update={"neighbours": (there,)})
    assert codes(with_facts(node, network=network)) == [code]


@pytest.mark.parametrize(
    ("small", "code"), [(True, "NET_MTU_MISMATCH"), (False, "NET_NEIGH_FAILED")]
)
def test_where_small_packets_were_tried_they_tell_the_mtu_from_a_wrong_port(small, code):
    """A neighbour that is there proves nothing: a host answers for its addresses on all ports."""
    tried = probe("enp1s0f0np0", answered=False).model_copy(update={"small": small})
    there = Neighbour(address="10.0.0.2", device="enp1s0f0np0", state="REACHABLE")
    node = spark(0, probes=(tried,))
    network = node.facts.network.model_copy(update={"neighbours": (there,)})
    assert codes(with_facts(node, network=network)) == [code]


def test_a_probe_that_could_not_be_made_says_nothing_of_the_cable():
    refused = probe("enp1s0f0np0", answered=None).model_copy(update={"why": "ping: not permitted"})
    node = spark(0, probes=(refused,))
    assert codes(node) == ["PROBE_UNKNOWN"]
    assert found(node, "PROBE_UNKNOWN").where == "network.probes"


def test_a_peer_outside_the_own_network_is_named_without_hearing_of_it():
    node = spark(1, peers=(IPv4Address("10.0.5.1"),))
    assert codes(node) == ["NET_NEIGH_FAILED"]
    assert "10.0.5.1" in found(node, "NET_NEIGH_FAILED").message
    assert codes(spark(1, peers=(IPv4Address("10.0.0.1"),))) == []


MACS = {"enp1s0f0np0": "02::{}0", "enp1s0f1np1": "02::{}1", "enP2p1s0f0np0": "02::{}2"}
"""Made-up hardware addresses of a node's ports."""


def wired(rank: int, *, answers: str, answered: bool = False) -> Node:
    """A node whose first rail's peer is answered for by a port of the other node."""
    node, target = spark(rank), f"10.0.0.{2 - rank}"
    interfaces = tuple(
        i.model_copy(update={"mac": MACS[i.name].format(rank)}) if i.name in MACS else i
        for i in node.facts.network.interfaces
    )
    there = Neighbour(
        address=target, device="enp1s0f0np0", state="STALE", mac=MACS[answers].format(1 - rank)
    )
    tried = RailProbe(
        device="enp1s0f0np0", target=target, mtu=9000, answered=answered, small=answered
    )
    network = Network(interfaces=interfaces, neighbours=(there,), probes=(tried,))
    return with_facts(node, network=network)


def test_a_cable_in_the_wrong_port_is_known_by_who_answers():
    pair = [wired(rank, answers="enp1s0f1np1") for rank in (0, 1)]
    swapped = [f for f in examine(pair).findings if f.code == "NET_CABLES_SWAPPED"]
    assert [f.severity for f in swapped] == ["fail", "fail"]  # one for each of the two cables
    assert "ends in enp1s0f1np1 of worker instead of enp1s0f0np0" in swapped[0].message


@pytest.mark.parametrize(
    ("answers", "answered"),
    [("enp1s0f0np0", False), ("enP2p1s0f0np0", False), ("enp1s0f1np1", True)],
    ids=["the right port", "the other function of the same port", "a port that works"],
)
def test_a_silent_rail_or_another_answerer_alone_is_no_swapped_cable(answers, answered):
    pair = [wired(rank, answers=answers, answered=answered) for rank in (0, 1)]
    assert "NET_CABLES_SWAPPED" not in codes(*pair)


def test_two_silent_rails_look_like_swapped_cables():
    silent = (probe("enp1s0f0np0", answered=False), probe("enP2p1s0f0np0", answered=False))
    node = spark(0, probes=silent)
    assert codes(node) == ["NET_NEIGH_FAILED", "NET_RAIL_UNREACHABLE"]
    assert "swapped" in found(node, "NET_NEIGH_FAILED").fix


def test_a_rail_that_answers_is_on_record():
    node = spark(0, probes=(probe("enp1s0f0np0", answered=True),))
    assert codes(node) == []
    assert found(node, "NET_NEIGH").severity == "ok"


def test_a_second_link_local_address_is_a_warning():
    extra = (*table("10.0.0.1"), gid(6, "fe80::d4d1:aa:bb:cc"))
    ports = (spark(0).facts.rdma[0].model_copy(update={"gids": extra}), *spark(0).facts.rdma[1:])
    assert codes(with_facts(spark(0), rdma=ports)) == ["RDMA_GID_EXTRA_LINKLOCAL"]


# --- memory --------------------------------------------------------------------------------------

SHARE = Wanted(utilisation=0.85)  # of 120 GiB: 102 and 1.5 to spare


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (memory(110, 115), []),
        (memory(2, 117), ["MEM_PAGECACHE"]),
        (memory(80, 86), ["MEM_FOREIGN"]),
        (memory(112, 114, swap=9), ["MEM_SWAP_RESIDUE"]),
        (memory(112, 114, swap=0.5), []),
        (memory(1, 1.5), ["MEM_FLOOR", "MEM_FOREIGN"]),
        (memory(80, 105, shmem=30), ["MEM_NOT_RETURNED", "MEM_PAGECACHE"]),
    ],
)
def test_memory(facts, expected):
    assert codes(one(SHARE, memory=facts)) == expected


def test_who_has_the_memory_is_named():
    largest = (Process(pid=7712, name="python3", rss_kib=22 * KIB_IN_GIB),)
    message = found(one(SHARE, memory=memory(80, 86), processes=largest), "MEM_FOREIGN").message
    assert "python3 (pid 7712) has 22.0 GiB" in message


def test_the_memory_of_a_pair_that_serves_is_its_own():
    assert codes(one(SHARE, serving=True, memory=memory(5, 8, shmem=60))) == []


# --- the GPU -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("load", "mhz", "watts", "celsius", "code"),
    [
        (96, 641, 16.8, 47, "GPU_CLOCK_STUCK"),
        (96, 1480, 61.2, 88, "GPU_THERMAL"),
        (96, 2200, 60.0, 70, None),
        (0, 208, 4.6, 41, None),
    ],
)
def test_the_clock_of_the_gpu(load, mhz, watts, celsius, code):
    gpu = GpuFacts(
        utilisation_percent=load, sm_clock_mhz=mhz, power_watts=watts, temperature_celsius=celsius
    )
    assert codes(one(gpus=(gpu,))) == ([code] if code else [])


KERNEL = Kernel(release="6.17", page_size=4096, boot_id="b2")


@pytest.mark.parametrize(
    ("cap", "expected"),
    [
        (ClockCap(cap_mhz=2200, boot_id="b2", seen_mhz=2190), []),
        (ClockCap(cap_mhz=2200, boot_id="a1", seen_mhz=2190), ["GPU_CLOCK_CAP_MISSING"]),
        (ClockCap(cap_mhz=2200, boot_id="b2", seen_mhz=3003), ["GPU_CLOCK_CAP_MISSING"]),
    ],
)
def test_a_cap_of_another_boot_is_none(cap, expected):
    assert codes(one(kernel=KERNEL, clock_cap=cap)) == expected


# --- ports, ranks, boots -------------------------------------------------------------------------

HEAD = Wanted(ports={"api.port": 8888, "fabric.master_port": 29521})


def test_a_port_in_use_is_named_with_who_uses_the_gpu():
    node = one(
        HEAD,
        listeners=(Listener(address="0.0.0.0", port=29521, pid=4811, name="VLLM::EngineCor"),),
        gpus=(GpuFacts(processes=(GpuProcess(pid=4811, name="VLLM::EngineCore"),)),),
    )
    message = found(node, "PORT_IN_USE").message
    assert "port 29521 (fabric.master_port) is held by VLLM::EngineCore (pid 4811)" in message
    assert codes(Node(node.facts, node.wanted, serving=True)) == []


def test_a_rank_that_outlived_the_other_is_stale():
    head = one(units=(unit("glm53-rank0", ActiveState="failed"),))
    worker = one(units=(unit("glm53-rank1", ActiveState="active"),))
    assert codes(head, worker) == ["RANK_STALE"]
    alive = one(units=(unit("glm53-rank0", ActiveState="activating"),))
    assert codes(alive, worker) == []


def test_two_boots_that_ended_in_a_load_hold_the_node():
    twice = (Boot(boot_id="a1", stage="load"), Boot(boot_id="b2", stage="load"))
    assert codes(one(boots=twice)) == ["HOST_RESET_LOOP"]
    assert codes(one(boots=twice[:1])) == []
    assert codes(one(boots=(twice[0], Boot(boot_id="b2", stage="serving")))) == []


def test_a_held_peer_stops_a_start():
    assert codes(one(peer=PeerState(name="worker", state="HELD"))) == ["PEER_HELD"]
    assert codes(one(peer=PeerState(name="worker", state="READY"))) == []


def test_shared_memory_of_a_login_user_is_at_risk():
    risky = {"User": "1000", "RemoveIPC": "yes"}
    assert codes(one(units=(unit("glm53-rank0", **risky),))) == ["RANK_IPC_RISK"]
    assert codes(one(units=(unit("glm53-rank0", **risky, PrivateIPC="yes"),))) == []


# --- kernel, clock, limits, libraries, nodes -----------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"kernel": KERNEL.model_copy(update={"page_size": 65536})}, ["KERNEL_PAGE_SIZE"]),
        ({"units": (unit("glm53-rank0", LimitMEMLOCK="8388608"),)}, ["RDMA_MEMLOCK"]),
        ({"units": (unit("glm53-rank0", LimitMEMLOCK="infinity"),)}, []),
        ({"clock": Clock(synchronised=True, offset_seconds=0.1)}, []),
        ({"clock": Clock(synchronised=False, offset_seconds=0.1)}, []),
        ({"clock": Clock(synchronised=False)}, ["TIME_SKEW"]),
        ({"libraries": Libraries(found=(), driver_dir=False)}, ["LIB_LIBCUDA"]),
        ({"libraries": Libraries(found=("/usr/lib64/libcuda.so.1",), driver_dir=False)}, []),
    ],
)
def test_the_host(facts, expected):
    assert codes(one(**facts)) == expected


@pytest.mark.parametrize(("offset", "severity"), [(-3.0, "warn"), (90.0, "fail")])
def test_how_far_a_clock_may_be_off(offset, severity):
    assert found(one(clock=Clock(offset_seconds=offset)), "TIME_SKEW").severity == severity


def test_nodes_that_differ_are_told_apart():
    one_closure, other = (Software(version="1", closure=c) for c in ("/nix/a", "/nix/b"))
    assert codes(one(software=one_closure), one(software=other)) == ["NODE_MISMATCH"]
    assert codes(one(software=one_closure), one(software=one_closure)) == []


# --- weights and texts ---------------------------------------------------------------------------


def test_room_for_what_is_missing_only():
    disk = (Disk(path="/", total=10**12, free=107 * 2**30),)
    missing = WeightsFacts(total_bytes=164 * 2**30, valid_bytes=16 * 2**30)
    assert codes(one(disks=disk, weights=missing)) == ["FETCH_DISK_FULL"]
    rest = WeightsFacts(total_bytes=164 * 2**30, valid_bytes=100 * 2**30)
    assert codes(one(disks=disk, weights=rest)) == []


def test_foreign_files_are_named_by_their_topmost_directory():
    owners = tuple(Owner(path=p, uid=0, gid=0, mode=0o755) for p in ("/c/hub", "/c/hub/x/y"))
    finding = found(one(owners=owners, service_uid=990), "CACHE_NOT_WRITABLE")
    assert finding.where == "/c/hub"
    assert finding.fix.endswith("chown -R 990:990 /c/hub")
    assert codes(one(owners=owners, service_uid=0)) == []


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.service", "[Service]\nType=notify\nExecStart=x\n", ["UNIT_TIMEOUT_SHORT"]),
        ("a.service", "[Service]\nType=notify\nExecStart=glm53ctl rank 0\n", []),
        ("a.service", "[Service]\nStartLimitBurst=3\n", ["UNIT_START_LIMIT_MISPLACED"]),
        ("a.service", "[Unit]\nStartLimitBurst=3\n[Service]\nType=exec\n", []),
        ("argv.txt", "vllm serve /m --nnodes 2", ["NET_MASTER_LOOPBACK"]),
        ("argv.txt", "vllm serve /m --nnodes 2 --master-addr 10.0.0.1", []),
        ("argv.txt", "vllm serve /m", []),
        ("argv.txt", "vllm serve /m --api-key=sk-x", ["API_KEY_IN_ARGV"]),
        ("glm53.env", "KV_CACHE_DTYPE=nvfp4\n", ["CFG_FORBIDDEN"]),
        ("glm53.env", "KV_CACHE_DTYPE=fp8\n", []),
        ("wheels.lock.json", '[{"name": "a", "file": "a-1-py3-none-any.whl"}]', []),
        ("wheels.lock.json", "no JSON", []),
        ("f.nix", 'cudaSupport = true; allowUnfree = true; cudaCapabilities = [ "12.1" ];', []),
        ("f.nix", "cudaSupport = true; allowUnfree = true;", ["NIX_CUDA_ARCH"]),
    ],
)
def test_settings_as_text(name, text, expected):
    assert codes(one(texts={name: text})) == expected


def test_a_secret_in_a_readable_file_is_named_and_never_shown():
    owners = (Owner(path="/etc/glm53/glm53.env", uid=0, gid=0, mode=0o644),)
    node = one(owners=owners, texts={"glm53.env": "HF_TOKEN=hf_EXAMPLE\n"})
    finding = found(node, "SECRET_FILE_MODE")
    assert "0644" in finding.message
    assert "hf_EXAMPLE" not in finding.model_dump_json()
