"""Addresses that lead to this machine only."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Return whether only this machine can be reached at the address, or reach it there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
