"""The throttle of logins: an address that gives wrong tokens or codes has to wait."""

import ipaddress
from typing import Final

from tidegate.clock import Clock
from tidegate.pacing.bucket import Bucket, KeyedBuckets

LOGIN_FAILURES: Final = 10  # of one address at once
FAILURE_SECONDS: Final = 30.0  # after which an address may fail once more
MOST_ADDRESSES: Final = 10_000


class LoginThrottle:
    """Holds addresses back that give wrong tokens or codes: ten at once, then two a minute.

    Only failures count. Those of an IPv6 network (/64) are one address. It is bounded: beyond 10,000
    addresses that fail, all others count as one.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets = KeyedBuckets(Bucket(LOGIN_FAILURES, 1 / FAILURE_SECONDS), most=MOST_ADDRESSES)

    def __len__(self) -> int:
        return len(self._buckets)

    def allows(self, address: str | None) -> float:
        """Return the seconds until this address may try again; 0: now."""
        return self._buckets.wait(_network(address), self._clock.monotonic())

    def failed(self, address: str | None) -> None:
        """Count a wrong token or code."""
        self._buckets.take(_network(address), self._clock.monotonic())


def _network(address: str | None) -> str:
    """Return what is held back together: an IPv4 address, or the /64 network of an IPv6 one."""
    text = (address or "").partition("%")[0][:64]
    try:
        found = ipaddress.ip_address(text)
    except ValueError:  # such as that of a Unix socket
        return text
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))
