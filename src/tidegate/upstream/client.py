"""Clients of rate-limited APIs: every request goes through a limiter, with retries, and is logged."""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, NoReturn, Self
from urllib.parse import urlsplit

import msgspec

from tidegate.clock import Clock
from tidegate.errors import BadInputError, UpstreamGarbledError
from tidegate.incidents import SlowCalls
from tidegate.model import Rate
from tidegate.upstream.cache import ResponseCache
from tidegate.upstream.http_transport import HttpTransport, limit_identity
from tidegate.upstream.limiter import Limiter, MemoryLimiter, as_rate
from tidegate.upstream.request_log import ExchangeHook, RequestLog, RequestTotals
from tidegate.upstream.requester import Requester, UpstreamCall
from tidegate.upstream.retry import IDEMPOTENT, LONGEST_RETRY_AFTER, READS, UpstreamRetryPolicy
from tidegate.upstream.transport import UpstreamRequest, UpstreamResponse, UpstreamTransport

DEFAULT_RATE: Final = Rate(5, 1)
LOCKOUT: Final = 30.0  # seconds, when a 429 does not say for how long
METHODS: Final = IDEMPOTENT | {"POST", "PATCH"}
_UNSENDABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")  # half a character

Query = Mapping[str, object] | Iterable[tuple[str, str | int | float]]
"""A dict of texts and numbers, or pairs of a name and one of these."""


class Upstream:
    """The client of one API and token; it owns its transport. Belongs to one event loop.

    Waiting for a turn has no timeout of its own: put one around a call, and no slot is lost when it ends.
    Calls that wait when the client is closed fail at once.
    """

    def __init__(
        self,
        transport: UpstreamTransport,
        *,
        name: str = "api",
        limiter: Limiter | None = None,
        clock: Clock | None = None,
        policy: UpstreamRetryPolicy = UpstreamRetryPolicy(),  # noqa: B008  (frozen)
        lockout: float = LOCKOUT,
        slow_calls: SlowCalls | None = None,
    ) -> None:
        if not 0 <= lockout <= LONGEST_RETRY_AFTER:
            raise BadInputError(
                f"a lockout of {lockout} s: give 0 to {LONGEST_RETRY_AFTER:g} seconds, such as 30"
            )
        clock = clock or Clock()
        self.name = name
        self.totals = RequestTotals()
        self._limiter = limiter or MemoryLimiter(DEFAULT_RATE, clock)
        self._log = RequestLog(self.totals, slow_calls)
        self._requester = Requester(
            name, transport, self._limiter, clock, policy=policy, lockout=lockout, log=self._log
        )
        self._cache = ResponseCache(clock)

    @property
    def rate(self) -> Rate:
        """The rate that the limiter allows now: lower than at the start if 429s have taught so."""
        return self._limiter.rate

    @property
    def closed_for(self) -> float:
        """Seconds until the API's lockout ends; 0.0 if there is none."""
        return self._limiter.closed_for

    def on_exchange(self, hook: ExchangeHook) -> None:
        """Call `hook` for each request on the wire, retries included, as soon as it has ended."""
        self._log.add_hook(hook)

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        body: Any = None,  # noqa: ANN401  (any JSON)
        background: bool = False,
        idempotent: bool | None = None,
        record: str | None = None,
    ) -> UpstreamResponse:
        """Wait for a turn, send, retry where that is safe, and return a good response (2xx).

        `background` lets all others go first. `idempotent` says that repeating does no harm, for methods
        that do not promise it. `record`, an id or a count, is for the log.
        Raises UpstreamRefusedError, UpstreamAwayError, UpstreamUnknownError, UpstreamGarbledError.
        """
        request = build_request(method, path, query, body)
        call = UpstreamCall(request=request, idempotent=idempotent, background=background, record=record)
        try:
            return await self._requester.send(call)
        finally:
            if request.method not in READS:  # even if it failed, it may have changed something
                self._cache.drop(request.path)

    async def read(
        self,
        path: str,
        *,
        query: Query = (),
        fresh_for: float = 0.0,
        background: bool = False,
        record: str | None = None,
    ) -> Any:  # noqa: ANN401  (any JSON)
        """GET and decode. Each caller gets objects of its own.

        With `fresh_for` a cached answer of at most so many seconds is used, and callers that ask the same at
        the same time share one request. A write through this client to the same path, or to one above or
        below it, drops the cached answer.
        """
        request = build_request("GET", path, query)

        async def load() -> bytes:
            call = UpstreamCall(request=request, background=background, record=record)
            return self._uncompressed(request, await self._requester.send(call))

        self._requester.check_open(request)
        if fresh_for <= 0:
            return self._decoded(request, await load())
        key = (request.path, request.query)
        body = self._cache.find(key, fresh_for)
        if body is None:
            body = await self._cache.load(key, load, background=background)
        else:
            self.totals.cached += 1
        return self._decoded(request, body)

    async def close(self) -> None:
        """Close all connections. Calls under way end with an error."""
        await self._cache.close()
        await self._requester.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a client cannot be pickled, as it holds connections and a token: make one in each process"
        )

    def _uncompressed(self, request: UpstreamRequest, answer: UpstreamResponse) -> bytes:
        encoding = answer.headers.get("content-encoding", "identity").lower()
        if encoding in {"", "identity"}:
            return answer.body
        raise self._garbled(f"its answer is compressed ({encoding:.20}), which was not asked for", request)

    def _decoded(self, request: UpstreamRequest, body: bytes) -> Any:  # noqa: ANN401
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            text = f"its answer is not JSON ({len(body)} bytes): is this the address of the API?"
            raise self._garbled(text, request) from error

    def _garbled(self, text: str, request: UpstreamRequest) -> UpstreamGarbledError:
        return UpstreamGarbledError(text, api=self.name, method=request.method, endpoint=request.path)


class UpstreamTerms(NamedTuple):
    """Limits of an API. Times are in seconds."""

    rate: Rate
    timeout: float
    lockout: float

    def __str__(self) -> str:
        return f"rate {self.rate}, timeout {self.timeout:g} s and lockout {self.lockout:g} s"


class UpstreamRegistry:
    """Clients for several paths of one host have their own connections and share one limiter."""

    def __init__(
        self,
        clock: Clock,
        make_limiter: Callable[[str, Rate], Limiter],
        slow_calls: SlowCalls | None = None,
    ) -> None:
        self._clock, self._make_limiter = clock, make_limiter
        self._slow_calls = slow_calls
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
                transport,
                name=name,
                limiter=limiter,
                clock=self._clock,
                lockout=terms.lockout,
                slow_calls=self._slow_calls,
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
            limiter.configure(name, longest)
            self._limiters[api] = limiter, terms
        limiter, agreed = self._limiters[api]
        if agreed != terms:
            raise BadInputError(
                f"{name}: cannot use {terms}: this API and token are used with {agreed} already;"
                " give the same everywhere"
            )
        return limiter


def build_request(method: str, path: str, query: Query = (), body: Any = None) -> UpstreamRequest:  # noqa: ANN401  (JSON)
    """Raises BadInputError for a request that cannot be sent, or that would be read as another one."""
    return UpstreamRequest(method=_method(method), path=_path(path), query=_query(query), body=_body(body))


def _method(given: object) -> str:
    method = given.upper() if isinstance(given, str) else ""
    if method not in METHODS:
        raise BadInputError(f"{given!r:.60} is not a method: give one of {', '.join(sorted(METHODS))}")
    return method


def _path(given: object) -> str:
    if not isinstance(given, str) or _UNSENDABLE.search(given):
        raise BadInputError(f"{given!r:.60} is not a path: give a text such as api/v2/orders")
    if "?" in given or "#" in given or "://" in given:
        raise BadInputError("a path goes without address and query: give the query as `query`")
    parts = [part for part in given.split("/") if part]
    if "." in parts or ".." in parts:
        raise BadInputError(f"{given!r:.60}: a path goes without . and .., which lead elsewhere")
    return "/".join(parts)


def _query(given: object) -> tuple[tuple[str, str], ...]:
    pairs = given.items() if isinstance(given, Mapping) else given
    if isinstance(pairs, str | bytes) or not isinstance(pairs, Iterable):
        raise BadInputError(f"{given!r:.60} is not a query: give a dict, or pairs of a name and a value")
    return tuple(map(_pair, pairs))


def _pair(given: object) -> tuple[str, str]:
    match given:
        case (str(name), bool()):
            raise BadInputError(f"{name!r:.60} in a query: write true and false as the API spells them")
        case (str(name), str() | int() | float() as value) if not _LONE_SURROGATE.search(f"{name}{value}"):
            return name, str(value)
        case _:
            raise BadInputError(
                f"{given!r:.60} cannot be part of a query: give pairs of a name and a text or number"
            )


def _body(given: Any) -> msgspec.Raw | None:  # noqa: ANN401
    """Encode it now, once: what the caller changes later is not sent."""
    try:
        return None if given is None else msgspec.Raw(msgspec.json.encode(given))
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInputError(f"the body cannot be sent as JSON: {error}") from error
