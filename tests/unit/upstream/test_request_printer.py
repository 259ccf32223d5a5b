"""Requests as a person reads them."""

from datetime import UTC

from msgspec.structs import replace

from tidegate.sim.virtual_time import EPOCH
from tidegate.upstream.request_log import Exchange, RequestPrinter

NOON = EPOCH + 3 * 3600


def told(*exchanges: Exchange) -> str:
    parts: list[str] = []
    tell = RequestPrinter(parts.append, zone=UTC)
    for exchange in exchanges:
        tell(exchange)
    return "\n".join(parts)


def record(number: int, at: float, waited: float = 0.0) -> Exchange:
    return Exchange(
        api="NocoDB",
        method="GET",
        endpoint=f"api/v2/tables/mfaob33z2nnrxve/records/rec_{number}",
        status=200,
        seconds=0.25,
        size=512,
        record=f"rec_{number}",
        waited=waited,
        at=at,
    )


def test_two_requests_read_as_in_the_documents() -> None:
    text = told(record(1, NOON + 0.1), record(2, NOON + 0.55, waited=0.2))
    assert (
        text
        == """\
📤 [12:00:00.100] NocoDB Request:
   Method: GET
   Endpoint: tables/mfaob33z2nnrxve/records/rec_1

✅ [12:00:00.350] NocoDB Response: 200 in 0.250s
   Size: 512 bytes
   Record ID: rec_1
   📊 Total requests: 1 (✅ 1, ❌ 0, 🚫 0)

⏱️  Rate limiter: waited 0.2s before NocoDB request

📤 [12:00:00.550] NocoDB Request:
   Method: GET
   Endpoint: tables/mfaob33z2nnrxve/records/rec_2

✅ [12:00:00.800] NocoDB Response: 200 in 0.250s
   Size: 512 bytes
   Record ID: rec_2
   📊 Total requests: 2 (✅ 2, ❌ 0, 🚫 0)
"""
    )


def test_failures_are_told_apart_and_lists_are_counted() -> None:
    listed = Exchange(
        api="NocoDB", method="GET", endpoint="tables/m1/records", status=200, seconds=0.1, records=25, at=NOON
    )
    text = told(
        replace(listed, status=429, records=None),
        replace(listed, status=500, records=None, attempt=2),
        replace(listed, status=None, records=None, seconds=10.0, reason="timeout", attempt=3),
        replace(listed, attempt=4),
    )
    assert "🚫 [12:00:00.100] NocoDB Response: 429 in 0.100s" in text
    assert "❌ [12:00:00.100] NocoDB Response: 500 in 0.100s" in text
    assert "❌ [12:00:10.000] NocoDB Response: none (timeout) in 10.000s" in text
    assert "NocoDB Request: (attempt 4)" in text
    assert "   Records: 25" in text
    assert "📊 Total requests: 4 (✅ 1, ❌ 2, 🚫 1)" in text
