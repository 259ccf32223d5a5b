"""Words for network failures of aiohttp, whose own texts may hold a token, and phrases of HTTP statuses."""

from collections.abc import Sequence
from http import HTTPStatus
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


def status_phrase(status: int) -> str:
    """Return the phrase of an HTTP status as Telegram writes it, whichever one this Python has."""
    too_large = status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE  # "Content Too Large" from Python 3.13 on
    return "Request Entity Too Large" if too_large else HTTPStatus(status).phrase


def network_failure(error: BaseException) -> str:
    return next((word for kind, word in _WORDS if isinstance(error, kind)), "connection")
