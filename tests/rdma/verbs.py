"""What rdma-core and iproute2 say of a guest's devices, read without the product."""

import json
import re
from dataclasses import dataclass
from ipaddress import IPv6Address

from pair.bed.layout import Port
from pair.bed.run import BedError, until

from .guests import HCAS, Machine

PING_PONG_PORT = 18515
LISTEN_SECONDS = 100.0
_GID = re.compile(r"GID\[\s*(\d+)\]:\s+([0-9a-f:.]+)(?:, (.+))?$", re.M)
_FIELD = re.compile(r"^\s+(state|active_mtu):\s+(\S+) \(\d+\)$", re.M)


@dataclass(frozen=True)
class Device:
    """One RDMA device by `ibv_devinfo -v` and `rdma link`. `gids` are (index, address, type)."""

    name: str
    state: str
    active_mtu: int
    gids: tuple[tuple[int, IPv6Address, str], ...]
    link_state: str
    netdev: str | None

    def index_of(self, address: str) -> int | None:
        """Return the first index that holds an IPv4 address as RoCE v2."""
        wanted = (IPv6Address(f"::ffff:{address}"), "RoCE v2")
        return next((index for index, *gid in self.gids if tuple(gid) == wanted), None)


def devices(machine: Machine) -> dict[str, Device]:
    """Return every RDMA device of a guest by its name."""
    text = machine.output("ibv_devinfo", "-v")
    links = {one["ifname"]: one for one in json.loads(machine.output("rdma", "-j", "link"))}
    found = {}
    for block in text.split("hca_id:")[1:]:
        name = block.split(None, 1)[0]
        fields = dict(_FIELD.findall(block))
        found[name] = Device(
            name=name,
            state=fields["state"],
            active_mtu=int(fields["active_mtu"]),
            gids=tuple(
                (int(index), IPv6Address(value), kind) for index, value, kind in _GID.findall(block)
            ),
            link_state=links[name]["state"],
            netdev=links[name].get("netdev"),
        )
    return found


def packets_sent(machine: Machine, hca: str) -> int:
    """Return how many packets a device has sent."""
    return int(machine.output("cat", f"/sys/class/infiniband/{hca}/ports/1/hw_counters/sent_pkts"))


def ping_pong(
    server: Machine, client: Machine, port: Port, indexes: dict[Machine, int], size: int = 65536
) -> str:
    """Send messages both ways between two devices by these GIDs; return what the client says.

    Raises BedError where either end fails: a GID that is not there, or nobody who answers.
    """
    common = ("-d", HCAS[port], "-s", str(size), "-n", "50")
    program = ("timeout", "120", "ibv_rc_pingpong")
    listener = server.start(*program, *common, "-g", str(indexes[server]))
    try:
        if not until(lambda: _listens(server), LISTEN_SECONDS, pause=0.2):
            raise BedError(f"{server.name} does not listen: {listener.wait(1).stderr}")
        address = port.address(server.spark)
        words = (*program, *common, "-g", str(indexes[client]), address)
        said = client.exec(*words).stdout
        done = listener.wait()
    finally:
        server.exec("pkill", "-x", "ibv_rc_pingpong", check=False)
    if done.status:
        raise BedError(f"{server.name}: ibv_rc_pingpong ended with {done.status}: {done.stderr}")
    return said


def _listens(machine: Machine) -> bool:
    return machine.output("ss", "-Hltn", f"sport = :{PING_PONG_PORT}") != ""
