"""The upstream clients of one gate: one limiter for each API and token."""

import hashlib
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.model import Rate
from tidegate.upstream.client import Upstream
from tidegate.upstream.http_transport import HttpTransport, limit_identity
from tidegate.upstream.limiter import Limiter, as_rate


class UpstreamTerms(NamedTuple):
    """Limits of an API. Times are in seconds."""

    rate: Rate
    timeout: float
    lockout: float

    def __str__(self) -> str:
        return f"rate {self.rate}, timeout {self.timeout:g} s and lockout {self.lockout:g} s"


class UpstreamRegistry:
    """Clients for several paths of one host have their own connections and share one limiter."""

    def __init__(self, clock: Clock, make_limiter: Callable[[str, Rate], Limiter]) -> None:
        self._clock, self._make_limiter = clock, make_limiter
        self._limiters: dict[str, tuple[Limiter, UpstreamTerms]] = {}  # by API and token
        self._clients: dict[tuple[object, ...], Upstream] = {}

    def client(
        self, url: str, headers: Mapping[str, str], terms: UpstreamTerms, name: str | None
    ) -> Upstream:
        """Return the client, the same for the same arguments.

        Raises BadInputError if this API and token have other terms already.
        """
        as_rate(terms.rate)
        limit = limit_identity(url, headers)
        parts = urlsplit(url)
        name = name or parts.hostname or "api"
        transport = HttpTransport(url, headers=headers, clock=self._clock, timeout=terms.timeout)
        limiter = self._limiter(limit, terms, name, transport.longest)
        key = (limit, parts.path.rstrip("/"), tuple(sorted(headers.items())), name)
        if key not in self._clients:
            self._clients[key] = Upstream(
                transport, name=name, limiter=limiter, clock=self._clock, lockout=terms.lockout
            )
        return self._clients[key]

    async def close(self) -> None:
        """Close all clients. Limiters of this process stay, so that a lockout outlasts a reopening."""
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            await client.close()
        # The state of shared limiters is in the store, and a reopened gate has another store object.
        self._limiters = {api: known for api, known in self._limiters.items() if not known[0].shared}

    def _limiter(self, limit: tuple[object, ...], terms: UpstreamTerms, name: str, longest: float) -> Limiter:
        # Identifies API and token in a shared store without revealing the token.
        api = hashlib.sha256(msgspec.json.encode(limit)).hexdigest()[:16]
        if api not in self._limiters:
            limiter = self._make_limiter(api, terms.rate)
            limiter.introduce(name, longest)
            self._limiters[api] = limiter, terms
        limiter, agreed = self._limiters[api]
        if agreed != terms:
            raise BadInputError(
                f"{name}: cannot use {terms}: this API and token are used with {agreed} already;"
                " give the same everywhere"
            )
        return limiter
