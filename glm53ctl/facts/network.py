"""Which network device holds an address."""

from ipaddress import IPv4Address

import psutil


def device_of(address: IPv4Address) -> str | None:
    """Return the device that has the address; None when no device of this host has it."""
    for device, addresses in psutil.net_if_addrs().items():
        if any(entry.address == str(address) for entry in addresses):
            return device
    return None
