"""The client: turns, retries, lockouts, errors with data, totals, hooks and logs."""

import asyncio
import logging
import pickle
from typing import Any

import pytest

from tidegate.errors import (
    BadInputError,
    ClosedError,
    PartlyDoneError,
    UpstreamAwayError,
    UpstreamError,
    UpstreamGarbledError,
    UpstreamRefusedError,
    UpstreamUnknownError,
)
from tidegate.model import Rate
from tidegate.sim.virtual_time import VirtualClock
from tidegate.upstream.client import Upstream
from tidegate.upstream.limiter import MemoryLimiter
from tidegate.upstream.request_log import Exchange
from tidegate.upstream.retry import UpstreamRetryPolicy
from tidegate.upstream.transport import NoResponse, UpstreamResponse
from unit.upstream.scripted import ScriptedTransport, answer

NOT_LEFT = NoResponse(left=False, reason="connect")
LEFT = NoResponse(left=True, reason="timeout")


@pytest.fixture
async def wire(clock: VirtualClock) -> ScriptedTransport:
    return ScriptedTransport(clock)


@pytest.fixture
async def api(wire: ScriptedTransport, clock: VirtualClock) -> Upstream:
    return Upstream(wire, name="NocoDB", clock=clock)


async def test_five_go_at_once_and_the_others_a_window_after_the_answers(
    api: Upstream, wire: ScriptedTransport
) -> None:
    await asyncio.gather(*(api.read(f"records/{number}") for number in range(12)))
    assert wire.at == [0.0] * 5 + [1.1] * 5 + [2.2] * 2
    assert api.totals.requests == api.totals.ok == 12
    assert api.totals.waited_seconds == pytest.approx(5 * 1.1 + 2 * 2.2)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "Mon, 05 Jan 2026 09:00:12 GMT"}, 11.9),  # the clock stands at 09:00:00.1
        ({}, 30.0),
        ({"retry-after": "soon"}, 30.0),
    ],
)
async def test_a_429_locks_everyone_out_and_all_are_served_afterwards(
    api: Upstream, wire: ScriptedTransport, headers: dict[str, str], seconds: float
) -> None:
    wire.outcomes = [answer(429, headers=headers)]
    await asyncio.gather(*(api.request("POST", "records", body={"n": number}) for number in range(8)))

    assert len(wire.asked) == 9
    assert all(at >= 0.1 + seconds for at in wire.at[5:])
    assert wire.at[5] == pytest.approx(0.1 + seconds, abs=0.01)
    assert (api.totals.refused, api.totals.ok, api.totals.retried) == (1, 8, 1)
    assert api.rate == Rate(4, 1)


async def test_a_429_that_never_ends_is_given_up_with_what_was_seen(
    wire: ScriptedTransport, clock: VirtualClock
) -> None:
    api = Upstream(wire, clock=clock, policy=UpstreamRetryPolicy(refusals=3))
    wire.judge = lambda _: answer(429)
    with pytest.raises(UpstreamAwayError, match=r"4 refusals \(429\), the last: refused") as caught:
        await api.read("records")
    assert caught.value.retry_after == 30.0
    assert wire.at == [0.0, 30.1, 60.2, 90.3]


async def test_a_lockout_longer_than_the_patience_is_not_waited_for(
    api: Upstream, wire: ScriptedTransport, clock: VirtualClock
) -> None:
    wire.outcomes = [answer(429, headers={"retry-after": "900"})]
    for attempt in range(2):
        with pytest.raises(UpstreamAwayError, match=r"another (900|899)") as caught:
            await api.read("records")
        assert caught.value.retry_after == pytest.approx(900 - attempt)
        await clock.sleep(1)
    assert len(wire.asked) == 1


@pytest.mark.parametrize("outcome", [answer(500), answer(502), answer(503), answer(504), LEFT, NOT_LEFT])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_what_may_be_repeated_is_repeated(
    api: Upstream, wire: ScriptedTransport, outcome: UpstreamResponse | NoResponse, method: str
) -> None:
    wire.outcomes = [outcome, outcome, answer(body={"ok": True})]
    assert (await api.request(method, "records")).body == b'{"ok":true}'
    assert len(wire.asked) == 3
    assert (api.totals.failed, api.totals.retried) == (2, 2)


@pytest.mark.parametrize("outcome", [answer(500), answer(503), LEFT])
@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_what_may_have_happened_is_not_repeated(
    api: Upstream, wire: ScriptedTransport, outcome: UpstreamResponse | NoResponse, method: str
) -> None:
    wire.outcomes = [outcome]
    with pytest.raises(UpstreamUnknownError, match="may have happened"):
        await api.request(method, "records", body={})
    assert len(wire.asked) == 1


async def test_a_write_that_never_left_is_repeated_and_so_is_one_declared_harmless(
    api: Upstream, wire: ScriptedTransport
) -> None:
    wire.outcomes = [NOT_LEFT, answer(200)]
    await api.request("POST", "records", body={})
    wire.outcomes = [LEFT, answer(200)]
    await api.request("PATCH", "records", body={}, idempotent=True)
    assert len(wire.asked) == 4


async def test_after_five_attempts_it_is_away_and_pauses_grew(
    api: Upstream, wire: ScriptedTransport, clock: VirtualClock
) -> None:
    wire.judge = lambda _: NOT_LEFT
    with pytest.raises(UpstreamAwayError, match="5 attempts, the last: connect") as caught:
        await api.read("records")
    assert caught.value.retry_after is None
    assert len(wire.asked) == 5
    assert clock.monotonic() < 0.5 * (1 + 2 + 4 + 8) + 1


async def test_a_deletion_without_any_answer_is_unknown_in_the_end(
    api: Upstream, wire: ScriptedTransport
) -> None:
    wire.judge = lambda _: LEFT
    with pytest.raises(UpstreamUnknownError):
        await api.request("DELETE", "records")
    assert len(wire.asked) == 5


async def test_a_503_that_names_its_return_closes_for_everyone_and_teaches_nothing(
    api: Upstream, wire: ScriptedTransport
) -> None:
    wire.outcomes = [answer(503, headers={"retry-after": "20"})]
    await api.read("records")
    assert wire.at[1] >= 20.1
    assert api.rate == Rate(5, 1)


async def test_a_refusal_carries_what_the_api_said(api: Upstream, wire: ScriptedTransport) -> None:
    wire.outcomes = [answer(404, {"error": "RECORD_NOT_FOUND", "message": "Record '7' not found"})]
    with pytest.raises(UpstreamRefusedError) as caught:
        await api.read("api/v2/tables/m1/records/7", query=[("fields", "secret")])
    error = caught.value
    assert str(error) == (
        "NocoDB: GET api/v2/tables/m1/records/7: 404, RECORD_NOT_FOUND: Record '7' not found"
    )
    assert (error.status, error.endpoint) == (404, "api/v2/tables/m1/records/7")
    assert len(wire.asked) == 1


async def test_an_answer_that_is_not_json_is_garbled(api: Upstream, wire: ScriptedTransport) -> None:
    wire.outcomes = [UpstreamResponse(200, {}, b"<html>"), NoResponse(left=True, reason="too_large")]
    for text in ("not JSON", "too large"):
        with pytest.raises(UpstreamGarbledError, match=text):
            await api.read("records")
    assert len(wire.asked) == 2


@pytest.mark.parametrize("after", [0.05, 0.5])  # in flight, and in line
async def test_a_caller_that_gives_up_loses_no_slot(
    api: Upstream, wire: ScriptedTransport, clock: VirtualClock, after: float
) -> None:
    tasks = [asyncio.create_task(api.read("records")) for _ in range(7)]
    await clock.sleep(after)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await clock.sleep(1.1)
    began = clock.monotonic()
    await asyncio.gather(*(api.read("records") for _ in range(5)))
    assert wire.at[-5:] == [round(began, 3)] * 5


class SlowToClose(MemoryLimiter):
    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(Rate(1, 1), clock)
        self.clock = clock

    async def close_for(self, seconds: float, *, refused: bool) -> None:
        await self.clock.sleep(1)
        await super().close_for(seconds, refused=refused)


async def test_a_caller_that_gives_up_while_a_429_is_noted_loses_no_slot(
    wire: ScriptedTransport, clock: VirtualClock
) -> None:
    wire.outcomes = [answer(429)]
    api = Upstream(wire, clock=clock, limiter=SlowToClose(clock))
    given_up = asyncio.create_task(api.read("records"))
    await clock.sleep(0.5)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    await api.read("records")
    assert wire.at == [0.0, 1.5]


async def test_foreground_goes_before_background(api: Upstream, wire: ScriptedTransport) -> None:
    calls = [api.read(f"b{number}", background=True) for number in range(8)]
    await asyncio.gather(*calls, *(api.read(f"f{number}") for number in range(3)))
    paths = [request.path for request in wire.asked]
    assert paths[:7] == ["b0", "b1", "b2", "b3", "f0", "f1", "f2"]


async def test_a_closed_client_asks_nothing(
    api: Upstream, wire: ScriptedTransport, clock: VirtualClock
) -> None:
    waiting = [asyncio.create_task(api.read("records")) for _ in range(6)]
    await clock.sleep(0.05)
    async with api:
        pass
    assert wire.closed
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(one) for one in ended] == [dict] * 5 + [ClosedError]
    with pytest.raises(ClosedError, match="closed"):
        await api.read("records")
    assert len(wire.asked) == 5


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("FETCH", "a", None),
        (None, "a", None),
        ("GET", "a?b=1", None),
        ("GET", "http://x/a", None),
        ("GET", "a/../../admin", None),
        ("GET", "./a", None),
        ("GET", "a\r\nX: y", None),
        ("GET", "a\ud800", None),
        ("GET", 5, None),
        ("POST", "a", object()),
        ("POST", "a", {"a": "\ud800"}),
    ],
)
async def test_bad_input_is_said_before_anything_is_asked(
    api: Upstream,
    wire: ScriptedTransport,
    method: Any,  # noqa: ANN401  (as somebody may give it)
    path: Any,  # noqa: ANN401
    body: object,
) -> None:
    with pytest.raises(BadInputError):
        await api.request(method, path, body=body)
    assert wire.asked == []


async def test_bad_options_are_refused(wire: ScriptedTransport) -> None:
    with pytest.raises(BadInputError, match="lockout"):
        Upstream(wire, lockout=-1)
    with pytest.raises(BadInputError, match="lockout"):
        Upstream(wire, lockout=3601)
    with pytest.raises(BadInputError, match="attempt"):
        UpstreamRetryPolicy(attempts=0)


@pytest.mark.parametrize("rate", ["5/1", None, Rate(0, 1), Rate(5, 0), Rate(-1, 1), Rate(5, float("inf"))])
async def test_a_rate_that_would_let_nobody_or_everybody_pass_is_refused(
    clock: VirtualClock,
    rate: Any,  # noqa: ANN401
) -> None:
    with pytest.raises(BadInputError, match="rate"):
        MemoryLimiter(rate, clock)


@pytest.mark.parametrize(
    "query", ["where", 5, ["ab"], [("a",)], [("a", None)], [("a", True)], [(1, "a")], [("a", "\ud800")]]
)
async def test_what_cannot_stand_in_a_query_is_refused(
    api: Upstream,
    wire: ScriptedTransport,
    query: Any,  # noqa: ANN401
) -> None:
    with pytest.raises(BadInputError, match="query"):
        await api.read("records", query=query)
    assert wire.asked == []


async def test_a_query_may_be_a_dict_and_hold_numbers(api: Upstream, wire: ScriptedTransport) -> None:
    await api.read("//api//records/", query={"id": "7", "limit": 5})
    assert wire.asked[0].target == "/api/records?id=7&limit=5"


async def test_what_the_caller_changes_while_he_waits_is_not_sent(
    api: Upstream, wire: ScriptedTransport
) -> None:
    wire.outcomes = [answer(503)]
    body = {"Paid": True}
    asked = asyncio.create_task(api.request("PUT", "records", body=body))
    await asyncio.sleep(0)  # noqa: TID251  (no time passes)
    body["Paid"] = False
    await asked
    assert [bytes(request.body) for request in wire.asked] == [b'{"Paid":true}'] * 2


async def test_a_redirect_is_told_as_a_refusal_and_counted_as_a_failure(
    api: Upstream, wire: ScriptedTransport
) -> None:
    wire.outcomes = [answer(301)]
    with pytest.raises(UpstreamRefusedError, match=r"301, .* perhaps with https://"):
        await api.request("PATCH", "records", body={})
    assert (api.totals.ok, api.totals.failed) == (0, 1)


async def test_a_packed_answer_that_nobody_asked_for_is_named(api: Upstream, wire: ScriptedTransport) -> None:
    wire.outcomes = [UpstreamResponse(200, {"content-encoding": "gzip"}, b"\x1f\x8b")]
    with pytest.raises(UpstreamGarbledError, match=r"compressed \(gzip\)"):
        await api.read("records")


async def test_a_retry_after_of_0_does_not_use_up_all_refusals_at_once(
    api: Upstream, wire: ScriptedTransport, clock: VirtualClock
) -> None:
    wire.judge = lambda _: answer(429, headers={"retry-after": "0"}) if clock.monotonic() < 8 else None
    await api.read("records")
    assert api.totals.ok == 1


class Raises(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        raise RuntimeError(record.name)


async def test_a_filter_of_logs_that_raises_costs_no_slot(
    api: Upstream, wire: ScriptedTransport, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    log, bad = logging.getLogger("tidegate.upstream"), Raises()
    caplog.set_level(logging.DEBUG, log.name)
    log.addFilter(bad)
    for _ in range(5):
        with pytest.raises(RuntimeError):
            await api.read("records")
    log.removeFilter(bad)
    await clock.sleep(1)
    await asyncio.gather(*(api.read("records") for _ in range(5)))
    assert len(wire.asked) == 10


async def test_who_waits_when_the_client_is_closed_is_told_at_once(
    api: Upstream, wire: ScriptedTransport, clock: VirtualClock
) -> None:
    wire.outcomes = [answer(429)]
    with pytest.raises(TimeoutError):
        async with clock.timeout(1):
            await api.read("records")
    in_line = asyncio.create_task(api.read("records"))
    await clock.sleep(1)
    await api.close()
    await api.close()
    with pytest.raises(ClosedError, match="make a new one"):
        await in_line
    assert clock.monotonic() == pytest.approx(2)


async def test_who_is_closed_out_between_two_attempts_hears_whether_the_first_may_have_happened(
    api: Upstream, wire: ScriptedTransport, clock: VirtualClock
) -> None:
    wire.outcomes = [answer(503, headers={"retry-after": "60"})] * 2
    asked = [asyncio.create_task(api.request(method, "records")) for method in ("GET", "PUT")]
    await clock.sleep(1)
    await api.close()
    ended = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(one) for one in ended] == [ClosedError, UpstreamUnknownError]
    assert clock.monotonic() == pytest.approx(1)


@pytest.mark.parametrize(
    "error",
    [
        UpstreamRefusedError("no", api="a", method="GET", endpoint="x", status=404),
        UpstreamAwayError("gone", api="a", method="GET", endpoint="x", retry_after=3.0),
        UpstreamUnknownError("maybe", api="a", method="PUT", endpoint="x"),
        UpstreamGarbledError("what", api="a", method="GET", endpoint="x"),
        PartlyDoneError(UpstreamAwayError("c", api="a", method="POST", endpoint="x"), ids=[1, 2], of=5),
    ],
)
def test_an_error_crosses_processes_with_what_it_carries(error: UpstreamError) -> None:
    same = pickle.loads(pickle.dumps(error))  # noqa: S301  (our own)
    assert (type(same), str(same), vars(same)) == (type(error), str(error), vars(error))


async def test_every_request_is_told_and_a_hook_that_raises_harms_nobody(
    api: Upstream, wire: ScriptedTransport, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Exchange] = []
    api.on_exchange(lambda _: 1 / 0)
    api.on_exchange(told.append)
    wire.outcomes = [answer(500), answer(200, {"list": [{"Id": 1}, {"Id": 2}], "pageInfo": {}})]
    with caplog.at_level(logging.INFO, "tidegate.upstream"):
        await api.read("api/v2/tables/m1/records", record="rec_1")

    assert [(one.status, one.attempt, one.reason, one.records) for one in told] == [
        (500, 1, "status_500", None),
        (200, 2, None, 2),
    ]
    assert told[1].seconds == pytest.approx(0.1)
    assert (told[1].size, told[1].record) == (42, "rec_1")
    logged = [record for record in caplog.records if hasattr(record, "exchange")]
    assert [record.getMessage() for record in logged] == [
        "NocoDB: GET api/v2/tables/m1/records: 500 in 0.100 s"
    ]
    assert logged[0].__dict__["exchange"]["reason"] == "status_500"


async def test_what_goes_well_is_logged_for_who_debugs(
    api: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "tidegate.upstream"):
        await api.read("records")
    assert [record.levelname for record in caplog.records] == ["DEBUG"]


async def test_there_is_no_public_way_around_the_limiter(api: Upstream) -> None:
    names = {name for name in vars(api) | vars(type(api)) if not name.startswith("_")}
    assert names == {"name", "totals", "rate", "closed_for", "on_exchange", "request", "read", "close"}
