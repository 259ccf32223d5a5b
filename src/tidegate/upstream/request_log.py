"""The log of requests: each exchange is counted, logged, and given to hooks."""

import logging
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, tzinfo
from typing import Any, Final

import msgspec

from tidegate.upstream.transport import NoResponse, UpstreamResponse

OK_STATUSES: Final = range(200, 300)
TOO_MANY_REQUESTS: Final = 429


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One request on the wire and its answer. Seconds; `at` since the Unix epoch, when it was sent."""

    api: str
    method: str
    endpoint: str  # the path, without query
    status: int | None  # None: nothing answered
    seconds: float  # from sending to the last byte of the answer
    size: int = 0  # bytes of the answer
    record: str | None = None  # its id, or how many: as the caller said
    records: int | None = None  # how many came, if that can be seen
    waited: float = 0.0  # in the limiter, before it was sent
    attempt: int = 1
    reason: str | None = None  # a word, if it did not work: refused, timeout, connect …
    at: float

    @property
    def ok(self) -> bool:
        return self.status in OK_STATUSES if self.status is not None else False

    @property
    def refused(self) -> bool:
        return self.status == TOO_MANY_REQUESTS


ExchangeHook = Callable[[Exchange], object]


class RequestTotals(msgspec.Struct):
    """Of what went over the wire since the start: `requests` is the sum of ok, failed and refused."""

    requests: int = 0
    ok: int = 0
    failed: int = 0  # an error, or no answer
    refused: int = 0  # 429
    retried: int = 0  # of the requests, those that repeated one before
    cached: int = 0  # reads answered without a request
    waited_seconds: float = 0.0  # in the limiter
    seconds: float = 0.0  # for answers
    bytes: int = 0

    def count(self, exchange: Exchange) -> None:
        self.requests += 1
        self.ok += exchange.ok
        self.refused += exchange.refused
        self.failed += not exchange.ok and not exchange.refused
        self.retried += exchange.attempt > 1
        self.waited_seconds += exchange.waited
        self.seconds += exchange.seconds
        self.bytes += exchange.size


log = logging.getLogger("tidegate.upstream")


class _ListAnswer(msgspec.Struct):
    list: list[msgspec.Raw]


_count_in: Final = msgspec.json.Decoder(list[msgspec.Raw] | _ListAnswer).decode


def records_in(outcome: UpstreamResponse | NoResponse) -> int | None:
    """How many records an answer lists; None if it is not a list."""
    if isinstance(outcome, NoResponse) or not outcome.body.startswith((b"[", b"{")):
        return None
    try:
        found = _count_in(outcome.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return len(found.list if isinstance(found, _ListAnswer) else found)


class RequestLog:
    """A hook that raises is logged and harms nobody else."""

    def __init__(self, totals: RequestTotals) -> None:
        self._totals = totals
        self._hooks: list[ExchangeHook] = []

    @property
    def in_detail(self) -> bool:
        """Whether somebody listens, so that counting records is worth its time."""
        return bool(self._hooks) or log.isEnabledFor(logging.DEBUG)

    def add(self, hook: ExchangeHook) -> None:
        self._hooks.append(hook)

    def tell(self, exchange: Exchange) -> None:
        self._totals.count(exchange)
        _log_exchange(exchange)
        for hook in self._hooks:
            try:
                hook(exchange)
            except Exception:
                log.exception("a hook of %s raised; the request is not touched by that", exchange.api)


def _log_exchange(exchange: Exchange) -> None:
    level = logging.DEBUG if exchange.ok else logging.INFO
    if not log.isEnabledFor(level):
        return
    said: dict[str, Any] = {name: getattr(exchange, name) for name in exchange.__struct_fields__}
    log.log(
        level,
        "%s: %s %s: %s in %.3f s",
        exchange.api,
        exchange.method,
        exchange.endpoint,
        exchange.status if exchange.status is not None else exchange.reason,
        exchange.seconds,
        extra={"exchange": said},
    )


SHORTEST_WAIT_SHOWN: Final = 0.05  # seconds of waiting; less would read "0.0s"
_VERSION = re.compile(r"^api/v\d+/")


class RequestPrinter:
    """A hook for `Upstream.on_exchange`: `Storyteller(print)`. Times of day are local, or of `zone`."""

    def __init__(self, tell: Callable[[str], object], *, zone: tzinfo | None = None) -> None:
        self._tell = tell
        self._zone = zone
        self._totals = RequestTotals()

    def __call__(self, exchange: Exchange) -> None:
        self._totals.count(exchange)
        for part in exchange_text(exchange, self._totals, self._zone):
            self._tell(part + "\n")


def exchange_text(exchange: Exchange, totals: RequestTotals, zone: tzinfo | None = None) -> Iterator[str]:
    """The wait, the request and its end: a few lines each."""
    api, waited = exchange.api, exchange.waited
    if waited >= SHORTEST_WAIT_SHOWN:
        yield f"⏱️  Rate limiter: waited {waited:.1f}s before {api} request"
    again = f" (attempt {exchange.attempt})" if exchange.attempt > 1 else ""
    yield "\n".join(
        [
            f"📤 [{_time(exchange.at, zone)}] {api} Request:{again}",
            f"   Method: {exchange.method}",
            f"   Endpoint: {_VERSION.sub('', exchange.endpoint)}",
        ]
    )
    yield "\n".join(
        [
            f"{_sign(exchange)} [{_time(exchange.at + exchange.seconds, zone)}] {api} {_end(exchange)}",
            *_details(exchange),
            f"   📊 Total requests: {totals.requests} {_sums(totals)}",
        ]
    )


def _sign(exchange: Exchange) -> str:
    if exchange.refused:
        return "🚫"
    return "✅" if exchange.ok else "❌"


def _end(exchange: Exchange) -> str:
    if exchange.status is None:
        return f"Response: none ({exchange.reason}) in {exchange.seconds:.3f}s"
    return f"Response: {exchange.status} in {exchange.seconds:.3f}s"


def _details(exchange: Exchange) -> Iterator[str]:
    if exchange.status is not None:
        yield f"   Size: {exchange.size} bytes"
    if exchange.record is not None:
        yield f"   Record ID: {exchange.record}"
    if exchange.records is not None:
        yield f"   Records: {exchange.records}"


def _sums(totals: RequestTotals) -> str:
    return f"(✅ {totals.ok}, ❌ {totals.failed}, 🚫 {totals.refused})"


def _time(epoch: float, zone: tzinfo | None) -> str:
    thousandths = round(epoch * 1000)  # strftime would cut .0999999 to .099
    there = datetime.fromtimestamp(thousandths // 1000, UTC).astimezone(zone)
    return f"{there:%H:%M:%S}.{thousandths % 1000:03d}"
