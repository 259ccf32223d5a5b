"""A NocoDB server with one token."""

import re
from typing import Self
from urllib.parse import urlsplit

from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.model import Rate
from tidegate.upstream.client import Upstream
from tidegate.upstream.http_transport import TIMEOUT, HttpTransport, checked_base_url
from tidegate.upstream.limiter import MemoryLimiter
from tidegate.upstream.nocodb.table import URL_BYTES, Table
from tidegate.upstream.request_log import ExchangeHook

NOCODB_RATE = Rate(5, 1)  # per user or token; above it NocoDB answers 429 for 30 s


def token_headers(token: object) -> dict[str, str]:
    """Raises BadInputError if it cannot be a token."""
    if not isinstance(token, str) or not re.fullmatch(r"[!-~]+", token):
        raise BadInputError("this is not a NocoDB token: copy one from Account settings, Tokens")
    return {"xc-token": token}


def url_bytes_left(url: str, url_bytes: int = URL_BYTES) -> int:
    """Return the bytes that a URL of `url_bytes` leaves for paths after this address."""
    return url_bytes - len(urlsplit(checked_base_url(url)).path)


class NocoDb:
    """Its tables, all behind one limiter: `NocoDb.at(url, token).table("mfaob33z2nnrxve")`.

    `url_bytes` bounds the path and query of a request. The default passes nginx; NocoDB itself takes about
    twice as much.
    """

    def __init__(self, upstream: Upstream, *, url_bytes: int = URL_BYTES) -> None:
        if url_bytes < 1:
            raise BadInputError(
                f"url_bytes={url_bytes}: give the largest length of a URL in bytes, such as 8000"
            )
        self.upstream = upstream
        self._url_bytes = url_bytes

    @classmethod
    def at(
        cls,
        url: str,
        token: str,
        *,
        rate: Rate = NOCODB_RATE,
        clock: Clock | None = None,
        timeout: float = TIMEOUT,
        url_bytes: int = URL_BYTES,
    ) -> Self:
        """Make a client with a limiter of its own: one for each token, which is used nowhere else.

        Two clients would each use the whole limit, and NocoDB would lock both out. If several parts of a bot
        or several processes use a token, `gate.nocodb(url, token)` shares the limit. `timeout` in seconds.
        """
        clock = clock or Clock()
        transport = HttpTransport(url, headers=token_headers(token), clock=clock, timeout=timeout)
        upstream = Upstream(transport, name="NocoDB", limiter=MemoryLimiter(rate, clock), clock=clock)
        return cls(upstream, url_bytes=url_bytes_left(url, url_bytes))

    def table(self, table: str, *, key: str = "Id") -> Table:
        """Return the table with this id (not name). `key`: title of its primary key, by which it is paged."""
        return Table(self.upstream, table, key=key, url_bytes=self._url_bytes)

    def on_exchange(self, hook: ExchangeHook) -> None:
        """Call `hook` for each request on the wire, retries included, as soon as it has ended."""
        self.upstream.on_exchange(hook)

    async def close(self) -> None:
        await self.upstream.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
