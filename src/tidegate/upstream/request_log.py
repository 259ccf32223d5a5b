"""The log of requests: each exchange is counted, logged, and given to hooks."""

import logging
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, tzinfo
from http import HTTPStatus
from typing import Any, Final

import msgspec

from tidegate.incidents import SlowCalls
from tidegate.upstream.transport import OK_STATUSES, NoResponse, UpstreamOutcome

log = logging.getLogger("tidegate.upstream")

SHORTEST_WAIT_SHOWN: Final = 0.05  # seconds of waiting; less would read "0.0s"
_VERSION = re.compile(r"^api/v\d+/")


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One request on the wire and its answer. Times are in seconds."""

    api: str
    method: str
    endpoint: str  # the path, without query
    status: int | None  # None: no answer
    seconds: float  # from sending to the last byte of the answer
    size: int = 0  # bytes of the answer
    record: str | None = None  # the id of the record or the number of records, as the caller gave it
    records: int | None = None  # how many the answer lists, if it is a list
    waited: float = 0.0  # in the limiter, before it was sent
    attempt: int = 1
    reason: str | None = None  # a word for the failure, if any: refused, timeout, connect …
    at: float  # when it was sent, since the Unix epoch

    @property
    def ok(self) -> bool:
        return self.status in OK_STATUSES if self.status is not None else False

    @property
    def refused(self) -> bool:
        return self.status == HTTPStatus.TOO_MANY_REQUESTS


ExchangeHook = Callable[[Exchange], object]


class RequestTotals(msgspec.Struct):
    """Totals of one API since the start. `requests` is the sum of ok, failed and refused."""

    requests: int = 0
    ok: int = 0
    failed: int = 0  # an error, or no answer
    refused: int = 0  # 429
    retried: int = 0  # requests that repeated an earlier one
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


class RequestLog:
    """Counts and logs exchanges and calls hooks. A hook that raises is logged and affects nothing else."""

    def __init__(self, totals: RequestTotals, slow_calls: SlowCalls | None = None) -> None:
        self._totals = totals
        self._slow_calls = slow_calls
        self._hooks: list[ExchangeHook] = []

    @property
    def in_detail(self) -> bool:
        """True if a hook or the debug log wants details: counting the records of an answer takes time."""
        return bool(self._hooks) or log.isEnabledFor(logging.DEBUG)

    def add_hook(self, hook: ExchangeHook) -> None:
        self._hooks.append(hook)

    def add(self, exchange: Exchange) -> None:
        self._totals.count(exchange)
        _log_exchange(exchange)
        if self._slow_calls is not None:
            self._slow_calls.note_http(
                exchange.api, exchange.method, exchange.seconds, path=exchange.endpoint
            )
        for hook in self._hooks:
            try:
                hook(exchange)
            except Exception:
                log.exception("a hook of %s raised; the request is not affected", exchange.api)


def _log_exchange(exchange: Exchange) -> None:
    level = logging.DEBUG if exchange.ok else logging.INFO
    if not log.isEnabledFor(level):
        return
    fields: dict[str, Any] = {name: getattr(exchange, name) for name in exchange.__struct_fields__}
    log.log(
        level,
        "%s: %s %s: %s in %.3f s",
        exchange.api,
        exchange.method,
        exchange.endpoint,
        exchange.status if exchange.status is not None else exchange.reason,
        exchange.seconds,
        extra={"exchange": fields},
    )


class _ListAnswer(msgspec.Struct):
    list: list[msgspec.Raw]


_decode_list: Final = msgspec.json.Decoder(list[msgspec.Raw] | _ListAnswer).decode


def records_in(outcome: UpstreamOutcome) -> int | None:
    """Return how many records an answer lists; None if it is not a list."""
    if isinstance(outcome, NoResponse) or not outcome.body.startswith((b"[", b"{")):
        return None
    try:
        found = _decode_list(outcome.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return len(found.list if isinstance(found, _ListAnswer) else found)


class RequestPrinter:
    """A hook for `Upstream.on_exchange`: `RequestPrinter(print)`. Times of day are local, or in `zone`."""

    def __init__(self, write: Callable[[str], object], *, zone: tzinfo | None = None) -> None:
        self._write = write
        self._zone = zone
        self._totals = RequestTotals()

    def __call__(self, exchange: Exchange) -> None:
        self._totals.count(exchange)
        for part in exchange_text(exchange, self._totals, self._zone):
            self._write(part + "\n")


def exchange_text(exchange: Exchange, totals: RequestTotals, zone: tzinfo | None = None) -> Iterator[str]:
    """Yield the wait (if any), the request and its end: a few lines each."""
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
    sign = "🚫" if exchange.refused else "✅" if exchange.ok else "❌"
    status = f"none ({exchange.reason})" if exchange.status is None else exchange.status
    ended = _time(exchange.at + exchange.seconds, zone)
    sums = f"(✅ {totals.ok}, ❌ {totals.failed}, 🚫 {totals.refused})"
    yield "\n".join(
        [
            f"{sign} [{ended}] {api} Response: {status} in {exchange.seconds:.3f}s",
            *_details(exchange),
            f"   📊 Total requests: {totals.requests} {sums}",
        ]
    )


def _details(exchange: Exchange) -> Iterator[str]:
    if exchange.status is not None:
        yield f"   Size: {exchange.size} bytes"
    if exchange.record is not None:
        yield f"   Record ID: {exchange.record}"
    if exchange.records is not None:
        yield f"   Records: {exchange.records}"


def _time(epoch: float, zone: tzinfo | None) -> str:
    milliseconds = round(epoch * 1000)  # strftime would cut .0999999 to .099
    moment = datetime.fromtimestamp(milliseconds // 1000, UTC).astimezone(zone)
    return f"{moment:%H:%M:%S}.{milliseconds % 1000:03d}"
