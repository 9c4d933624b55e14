"""A test bed of two real systemd hosts on one Linux machine.

`Bed` boots them with systemd-nspawn on a network of namespaces that can be cut; `python -m
tests.pair.bed --help` is the same for people.
"""

from .bed import CHECKOUT, Bed, default_state
from .host import Host
from .layout import CLIENT_ADDRESS, HEAD, LAN, PAYLOAD, PORTS, RAIL1, RAIL2, SPARKS, WORKER
from .layout import Port as Port
from .layout import Spark as Spark
from .product import ENGINE, MODEL, PLACE, SOURCE, TOOL, Product
from .run import BedError

__all__ = [
    "CHECKOUT",
    "CLIENT_ADDRESS",
    "ENGINE",
    "HEAD",
    "LAN",
    "MODEL",
    "PAYLOAD",
    "PLACE",
    "PORTS",
    "RAIL1",
    "RAIL2",
    "SOURCE",
    "SPARKS",
    "TOOL",
    "WORKER",
    "Bed",
    "BedError",
    "Host",
    "Port",
    "Product",
    "Spark",
    "default_state",
]
