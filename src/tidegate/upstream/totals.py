"""Running totals of one API."""

import msgspec

from tidegate.upstream.exchange import Exchange


class Totals(msgspec.Struct):
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
