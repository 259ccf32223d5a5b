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
    """How an API is asked. Seconds."""

    rate: Rate
    timeout: float
    lockout: float

    def __str__(self) -> str:
        return f"rate {self.rate}, timeout {self.timeout:g} s and lockout {self.lockout:g} s"


class UpstreamRegistry:
    """Clients for several paths of one host have their own connections, and one limiter."""

    def __init__(self, clock: Clock, make_limiter: Callable[[str, Rate], Limiter]) -> None:
        self._clock, self._make_limiter = clock, make_limiter
        self._limiters: dict[str, tuple[Limiter, UpstreamTerms]] = {}  # by API and token
        self._clients: dict[tuple[object, ...], Upstream] = {}

    def client(
        self, url: str, headers: Mapping[str, str], terms: UpstreamTerms, name: str | None
    ) -> Upstream:
        """Raises BadInputError if this API and token have other terms already."""
        as_rate(terms.rate)
        limit = limit_identity(url, headers)
        parts = urlsplit(url)
        name = name or parts.hostname or "api"
        wire = HttpTransport(
            url, headers=headers, clock=self._clock, timeout=terms.timeout
        )  # opens nothing yet
        limiter = self._limiter(limit, terms, name, wire.longest)
        key = (limit, parts.path.rstrip("/"), tuple(sorted(headers.items())), name)
        if key not in self._clients:
            self._clients[key] = Upstream(
                wire, name=name, limiter=limiter, clock=self._clock, lockout=terms.lockout
            )
        return self._clients[key]

    async def close(self) -> None:
        """Hang up. Limiters that know something stay, so that a lockout outlives it."""
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            await client.close()
        # What the others know is in the store, which will be another one.
        self._limiters = {api: known for api, known in self._limiters.items() if not known[0].shared}

    def _limiter(self, limit: tuple[object, ...], terms: UpstreamTerms, name: str, longest: float) -> Limiter:
        # Names an API and token among those that share a limit, and says nothing of the token.
        api = hashlib.sha256(msgspec.json.encode(limit)).hexdigest()[:16]
        if api not in self._limiters:
            limiter = self._make_limiter(api, terms.rate)
            limiter.introduce(name, longest)
            self._limiters[api] = limiter, terms
        limiter, agreed = self._limiters[api]
        if agreed != terms:
            raise BadInputError(
                f"{name}: {terms} cannot be had: this API is asked with the same token at {agreed} already,"
                " so give the same everywhere"
            )
        return limiter
