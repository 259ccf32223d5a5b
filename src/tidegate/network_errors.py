"""One word for each kind of network failure of aiohttp; its own text may hold a token."""

from collections.abc import Sequence
from typing import Final

import aiohttp

# The first that fits.
_WORDS: Final[Sequence[tuple[type[BaseException], str]]] = (
    (aiohttp.ClientConnectorDNSError, "dns"),
    (aiohttp.ClientSSLError, "tls"),
    (aiohttp.ServerFingerprintMismatch, "tls"),
    (aiohttp.ClientConnectorError, "connect"),
    (aiohttp.ConnectionTimeoutError, "connect"),
    (aiohttp.ServerDisconnectedError, "disconnected"),
    (aiohttp.ClientPayloadError, "disconnected"),
    (aiohttp.ClientResponseError, "not_http"),
    (aiohttp.InvalidURL, "address"),
    (aiohttp.NonHttpUrlClientError, "address"),
    (OSError, "disconnected"),
    (ValueError, "address"),
)


def network_failure(error: BaseException) -> str:
    return next((word for kind, word in _WORDS if isinstance(error, kind)), "connection")
