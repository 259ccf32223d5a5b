"""Requests told to a person: who asked for what, what came, how long it waited, and the running totals."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, tzinfo
from typing import Final

from tidegate.upstream.exchange import Exchange
from tidegate.upstream.totals import Totals

WORTH_TELLING: Final = 0.05  # seconds of waiting; less would read "0.0s"
_VERSION = re.compile(r"^api/v\d+/")


class Storyteller:
    """A hook for `Upstream.on_exchange`: `Storyteller(print)`. Times of day are local, or of `zone`."""

    def __init__(self, tell: Callable[[str], object], *, zone: tzinfo | None = None) -> None:
        self._tell = tell
        self._zone = zone
        self._totals = Totals()

    def __call__(self, exchange: Exchange) -> None:
        self._totals.count(exchange)
        for part in story(exchange, self._totals, self._zone):
            self._tell(part + "\n")


def story(exchange: Exchange, totals: Totals, zone: tzinfo | None = None) -> Iterator[str]:
    """The wait, the request and its end: a few lines each."""
    api, waited = exchange.api, exchange.waited
    if waited >= WORTH_TELLING:
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


def _sums(totals: Totals) -> str:
    return f"(✅ {totals.ok}, ❌ {totals.failed}, 🚫 {totals.refused})"


def _time(epoch: float, zone: tzinfo | None) -> str:
    thousandths = round(epoch * 1000)  # strftime would cut .0999999 to .099
    there = datetime.fromtimestamp(thousandths // 1000, UTC).astimezone(zone)
    return f"{there:%H:%M:%S}.{thousandths % 1000:03d}"
