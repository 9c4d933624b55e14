"""The cable between the nodes: RDMA, NCCL, gloo, addresses and ports."""

from glm53ctl.diagnose.signature import Confidence, Groups, Signature
from glm53ctl.findings import Severity
from glm53ctl.supervise.stages import Stage

_ON_HCA = r"(?:.*(?:\bhca |\bon dev )(?P<hca>[^\s:,]+))?"


def _no_gid(found: Groups) -> bool:
    """Say whether the entry is empty or one of a link-local address."""
    return found["gid"] == "::" or found["gid"].startswith("fe80")


TABLE = (
    Signature(
        "RDMA_MEMLOCK",
        ("ibv_",),
        r"(?P<call>ibv_(?:reg_mr\w*|create_cq|create_qp)) failed.*Cannot allocate memory",
        "{call} could not pin memory: the service's locked-memory limit is too low.",
        "Set LimitMEMLOCK=infinity in the unit (the units of this package do).",
    ),
    Signature(
        "RDMA_GID_DRIFT",
        ("ibv_",),
        r"ibv_modify_qp failed.*(?:No data available|errno 61)" + _ON_HCA,
        "the GID entry that was chosen is empty< on {hca}> (errno 61): the table has moved since "
        "the index was set.",
        "Leave gid_index out: the entry is then looked up by address at every start.",
    ),
    Signature(
        "RDMA_GID_DRIFT",
        ("ibv_",),
        r"ibv_modify_qp failed.*on dev (?P<hca>[^\s:,]+).*local GID index (?P<index>\d+), "
        r"local GID (?P<gid>[0-9a-f:]*)",
        "GID index {index} on {hca} holds {gid}, not the node's fabric address.",
        "Leave gid_index out: the entry is then looked up by address at every start.",
        when=_no_gid,
    ),
    Signature(
        "NET_NEIGH_FAILED",
        ("ibv_",),
        r"ibv_modify_qp failed.*(?:timed out|No route to host|Network is unreachable)" + _ON_HCA,
        "the other node's address cannot be resolved< through {hca}>.",
        "Check both ends with `glm53ctl doctor`: same subnet, cable in the port that is named.",
    ),
    Signature(
        "NET_MTU_MISMATCH",
        ("IBV_WC_RETRY_EXC_ERR", "Got completion"),
        r"(?:IBV_WC_RETRY_EXC_ERR|Got completion .*(?:status=|error )12\b)"
        r"(?:.*\bhca (?P<hca>\S+))?",
        "packets to the peer< through {hca}> are lost (IBV_WC_RETRY_EXC_ERR) after a good start: "
        "most often the MTU of the two ends differs.",
        "Compare the MTU of both ends with `glm53ctl doctor` and make them equal; a rail whose "
        "twin cannot be reached looks the same.",
        confidence=Confidence.LIKELY,
    ),
    Signature(
        "NCCL_SOCKET_FALLBACK",
        ("Using network Socket", "Failed to open libibverbs"),
        r"NCCL INFO Using network Socket",
        "NCCL uses TCP instead of RoCE and is several times slower: libibverbs (rdma-core) or a "
        "device was not found.",
        "Put rdma-core into the service's closure, and check the devices with `glm53ctl doctor`.",
        also=(r"NCCL INFO Failed to open libibverbs",),
    ),
    Signature(
        "NCCL_IB",
        ("Using network IB", "NET/IB : Using"),
        r"NCCL INFO Using network IB",
        "NCCL uses RoCE<: {devices}>.",
        severity=Severity.OK,
        also=(r"NET/IB : Using (?P<devices>.*?)(?: \[RO\])?(?:;|$)",),
    ),
    Signature(
        "PORT_IN_USE",
        ("EADDRINUSE", "ddress already in use"),
        r"port: (?P<port>\d+),.*EADDRINUSE|"
        r"bind on address \('[^']*', (?P<port_>\d+)|(?:EADDRINUSE|Address already in use)",
        "a port that the engine needs is taken (EADDRINUSE<, port {port}>).",
        "Stop the process that holds it: `glm53ctl doctor` names it; most often it is an engine "
        "left from the last run.",
    ),
    Signature(
        "NET_HOSTNAME_LOOPBACK",
        ("connectFullMesh", "127.0.1.1"),
        r"connectFullMesh failed.*127\.0\.[01]\.1|connect\w* \[?127\.0\.1\.1",
        "a rank offers 127.0.x.1 to its peer: the host's own name resolves to loopback.",
        "Set GLOO_SOCKET_IFNAME and VLLM_HOST_IP (the plan does), or take the name off the "
        "loopback line of /etc/hosts.",
    ),
    Signature(
        "CFG_GLOO_IFNAME",
        ("connectFullMesh", "Unable to find address for"),
        r"connectFullMesh failed|Unable to find address for: (?P<device>\S+)",
        "gloo cannot connect the ranks: it uses another network device than the cable's.",
        "Set GLOO_SOCKET_IFNAME to each node's own fabric device (the plan does).",
        confidence=Confidence.LIKELY,
    ),
    Signature(
        "NET_HOST_IP_INFERRED",
        ("VLLM_HOST_IP",),
        r"Failed to get the IP address, using \S+ by default",
        "vLLM guessed this host's address, which need not be the cable's.",
        "Set VLLM_HOST_IP to the node's fabric address (the plan does).",
    ),
    Signature(
        "PEER_ABSENT",
        ("waiting for clients", "clients joined"),
        r"Timed out after (?P<seconds>\d+) seconds waiting for clients\. (?P<joined>\d+/\d+)",
        "the ranks did not meet within {seconds} s: {joined} came.",
        "Look at the other node: its rank did not start, or cannot reach the master port.",
    ),
    Signature(
        "RANK_IDLE_ABORT",
        ("ms for recv operation", "ms for send operation"),
        r"Timed out waiting (?P<ms>\d+)ms for (?:recv|send) operation",
        "a rank that waited for work was ended by its own communication timeout ({ms} ms): idle "
        "was taken for dead.",
        "Nothing is broken; start the pair again, and raise the distributed timeout.",
        stages=frozenset(
            {Stage.API, Stage.WARMUP, Stage.CANARY, Stage.SERVING, Stage.GRAPHS, Stage.KV}
        ),
    ),
    Signature(
        "NCCL_TIMEOUT",
        ("caught collective operation timeout",),
        r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=\d+, "
        r"OpType=(?P<op>\w+).*ran for (?P<ms>\d+) milliseconds",
        "a collective ({op}) did not end within {ms} ms: the other rank never entered it.",
        "Look at the other rank's log of the same minute; both must be started again together.",
        confidence=Confidence.LIKELY,
    ),
    Signature(
        "NCCL_VERSION",
        ("NCCL version mismatch", "mismatch of NCCL", "Mismatched NCCL version"),
        r"(?i)(?:mismatched NCCL version|NCCL version mismatch)",
        "the two nodes run different builds of NCCL.",
        "Bring both nodes to the same closure.",
    ),
)
