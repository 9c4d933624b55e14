"""What the bed is made of, as data: two hosts, two rails and a LAN.

Names of ports and addresses are those of two DGX Sparks joined by one ConnectX-7 cable a rail.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Spark:
    """One machine; `number` is the last byte of its addresses."""

    name: str
    number: int

    @property
    def short(self) -> str:
        """The name for network devices, which the kernel limits to 15 characters."""
        return self.name.removeprefix("spark-")


@dataclass(frozen=True)
class Port:
    """One network port that every host has, and the network behind it.

    `cable` says that the hosts are joined directly: a machine without power then takes the carrier
    from the other end too. Otherwise there is a switch between, which holds its own ports up.
    """

    name: str
    network: str
    subnet: str
    mtu: int
    cable: bool

    def address(self, spark: Spark) -> str:
        """Return the host's address on this network."""
        return f"{self.subnet}.{spark.number}"

    def mac(self, spark: Spark) -> str:
        """Return a hardware address that is the same after every boot, as a real card's is."""
        return f"02:67:6c:6d:{PORTS.index(self):02x}:{spark.number:02x}"


HEAD = Spark("spark-head", 1)
WORKER = Spark("spark-worker", 2)
SPARKS = (HEAD, WORKER)

RAIL1 = Port("enp1s0f0np0", "rail1", "10.0.0", 9000, cable=True)
RAIL2 = Port("enp1s0f1np1", "rail2", "10.0.1", 9000, cable=True)
LAN = Port("enP7s7", "lan", "192.168.77", 1500, cable=False)
PORTS = (RAIL1, RAIL2, LAN)

CLIENT_ADDRESS = f"{LAN.subnet}.254"
"""Address of the tests themselves, on the LAN."""

PAYLOAD = RAIL1.mtu - 28
"""Largest ping on a rail: the MTU less the headers of IPv4 and ICMP."""
