"""The limit against the plain definition of a sliding window, and the block."""

import math
from email.utils import parsedate_to_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BadInputError
from tidegate.model import Rate
from tidegate.sim.nocodb import NocoDbAnswer, NocoLimits, SimulatedNocoDb
from tidegate.sim.nocodb.limits import RetryAfter, TokenLimiter
from tidegate.sim.nocodb.nocodb import NocoDbRequestLog
from tidegate.sim.virtual_time import EPOCH, VirtualClock

TABLE = "m00000000000001"


def server(clock: VirtualClock, **limits: object) -> SimulatedNocoDb:
    noco = SimulatedNocoDb(clock, limits=NocoLimits(**limits))  # type: ignore[arg-type]  # as the test writes them
    noco.create_table("orders")
    return noco


async def get(noco: SimulatedNocoDb, token: str = "any") -> NocoDbAnswer:  # noqa: S107  (no secret)
    return await noco.handle("GET", f"/api/v2/tables/{TABLE}/records", {"XC-Token": token})


@given(st.lists(st.integers(0, 1_500), max_size=80), st.integers(1, 6), st.integers(1, 3))
def test_no_window_ever_holds_more_than_its_count(gaps: list[int], count: int, seconds: int) -> None:
    throttle = TokenLimiter(NocoLimits(rate=Rate(count, seconds), block=0))
    admitted: list[int] = []  # in whole milliseconds, so that the check is exact
    now = 0
    for gap in gaps:
        now += gap
        fits = sum(now - at < 1000 * seconds for at in admitted) < count
        assert (throttle.admit(now / 1000, "a") <= 1e-9) == fits
        if fits:
            admitted.append(now)
    assert throttle.blocked_seconds(now / 1000) == 0


async def test_the_sixth_request_of_a_second_blocks_the_token_for_30_s(clock: VirtualClock) -> None:
    noco = server(clock)
    assert [(await get(noco)).status for _ in range(6)] == [200] * 5 + [429]
    assert (await get(noco, "other")).status == 200
    await clock.sleep(29.9)
    assert (await get(noco)).status == 429
    await clock.sleep(0.1)
    assert (await get(noco)).status == 200


async def test_requests_while_blocked_are_counted_and_do_not_prolong_it(clock: VirtualClock) -> None:
    noco = server(clock)
    for _ in range(40):
        await get(noco)
        await clock.sleep(1)
    assert noco.report()["refused"] == 0
    for _ in range(6):
        await get(noco)
    for _ in range(29):
        await clock.sleep(1)
        assert (await get(noco)).status == 429
    report = noco.report()
    assert (report["requests"], report["refused"], report["blocked_seconds"]) == (75, 30, 29)
    await clock.sleep(1)
    assert (await get(noco)).status == 200
    assert noco.report()["blocked_seconds"] == 30


@pytest.mark.parametrize(
    ("kind", "told"),
    [("seconds", "30"), ("date", "Mon, 05 Jan 2026 09:00:51 GMT"), ("missing", None)],
)
async def test_a_429_says_when_to_come_again_if_it_does(
    clock: VirtualClock, kind: RetryAfter, told: str | None
) -> None:
    noco = server(clock, retry_after=kind)
    noco.skew = 20.5
    for _ in range(5):
        await get(noco)
    refused = await get(noco)
    assert (refused.status, refused.body) == (429, b'{"msg":"Too many requests"}')
    assert refused.headers.get("retry-after") == told


async def test_a_date_to_come_again_is_never_early_by_the_date_of_the_answer(clock: VirtualClock) -> None:
    noco = server(clock, retry_after="date", block=10.0)
    await clock.sleep(0.7)
    refused = [await get(noco) for _ in range(6)][-1]
    until = parsedate_to_datetime(refused.headers["retry-after"]).timestamp()
    assert parsedate_to_datetime(refused.headers["date"]).timestamp() == EPOCH
    assert until == math.ceil(EPOCH + 0.7 + 10)


async def test_without_a_block_a_429_lasts_until_the_window_has_room(clock: VirtualClock) -> None:
    noco = server(clock, rate=Rate(2, 10), block=0.0)
    for _ in range(2):
        await get(noco)
        await clock.sleep(1)
    refused = await get(noco)
    assert (refused.status, refused.headers["retry-after"]) == (429, "8")
    await clock.sleep(8)
    assert (await get(noco)).status == 200


async def test_the_report_knows_the_peak_of_any_second_and_each_second(clock: VirtualClock) -> None:
    noco = server(clock, rate=Rate(100, 1))
    for gap in (0.0, 0.9, 0.05, 0.3, 2.0):  # at 0, 0.9, 0.95, 1.25, 3.25
        await clock.sleep(gap)
        await get(noco)
    report = noco.report()
    assert (report["requests"], report["peak_rps"], report["per_second"]) == (5, 3, [3, 1, 0, 1])
    assert (report["seconds"], report["avg_rps"], report["fullest"]) == (3.25, 1.54, 3)
    assert report["statuses"] == {"200": 5}


async def test_a_reset_counts_from_zero_and_lifts_no_block(clock: VirtualClock) -> None:
    noco = server(clock)
    for _ in range(6):
        await get(noco)
    await clock.sleep(10)
    noco.reset()
    assert (noco.report()["requests"], noco.report()["blocked_seconds"]) == (0, 0)
    assert (await get(noco)).status == 429
    await clock.sleep(30)
    assert noco.report()["blocked_seconds"] == 20


async def test_other_limits_begin_at_once_and_lift_the_block(clock: VirtualClock) -> None:
    noco = server(clock)
    for _ in range(6):
        await get(noco)
    await clock.sleep(5)
    noco.set_limits(NocoLimits(rate=Rate(1, 1), block=2))
    assert [(await get(noco)).status for _ in range(2)] == [200, 429]
    await clock.sleep(60)
    assert noco.report()["blocked_seconds"] == 7


def test_tokens_that_are_idle_are_forgotten() -> None:
    throttle = TokenLimiter(NocoLimits())
    for number in range(10_000):
        throttle.admit(number / 100, f"token {number}")
    assert len(throttle._tokens) < 2 * TokenLimiter.SWEEPS_FROM  # noqa: SLF001  (nothing else shows it)
    for _ in range(6):
        throttle.admit(100.0, "blocked")
    for number in range(10_000):
        throttle.admit(101 + number / 1000, f"token {number}")
    assert throttle.blocked_seconds(1000) == 30
    assert throttle.blocked_for(120) == 10


def test_each_second_is_kept_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.sim.nocodb.nocodb.SECONDS_KEPT", 100)
    ledger = NocoDbRequestLog()
    for second in range(0, 1_000, 2):
        ledger.arrive(float(second))
    assert ledger.report()["per_second"] == [0, 1] * 50


@pytest.mark.parametrize("block", [-1.0, math.inf, math.nan])
def test_a_block_that_cannot_be_is_refused(block: float) -> None:
    with pytest.raises(BadInputError, match="0 seconds or more"):
        NocoLimits(block=block)
