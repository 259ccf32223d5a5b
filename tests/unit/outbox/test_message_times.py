"""Times of a message: datetime, timedelta, seconds; what could never be meant is refused."""

import datetime as dt
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulated import TOKEN
from tidegate import BadInputError, Tidegate
from tidegate.model import BotId, Message, TicketId
from tidegate.outbox.admission import compose
from tidegate.sim.telegram import SimulatedTelegram
from tidegate.sim.telegram.telegram import TelegramWire
from tidegate.sim.virtual_time import VirtualClock

NOW = 1_767_261_600.0  # 2026-01-01T10:00:00Z
DAY = 86_400.0
CET = dt.timezone(dt.timedelta(hours=1))


def composed(**options: Any) -> Message:  # noqa: ANN401
    return compose(TicketId("m1"), BotId(42), {"chat_id": 7, "text": "x", **options}, NOW)


@pytest.mark.parametrize(
    ("options", "not_before", "expires_at"),
    [
        ({"not_before": NOW + 60}, 60, None),
        ({"not_before": int(NOW) + 60}, 60, None),
        ({"not_before": dt.datetime(2026, 1, 1, 10, 1, tzinfo=dt.UTC)}, 60, None),
        ({"not_before": dt.datetime(2026, 1, 1, 11, 1, tzinfo=CET)}, 60, None),
        ({"not_before": dt.timedelta(minutes=1)}, 60, None),
        ({"delay": 60}, 60, None),
        ({"delay": dt.timedelta(minutes=1)}, 60, None),
        ({"delay": 0}, 0, None),
        ({"delay": None, "not_before": None}, None, None),
        ({"expires_at": dt.timedelta(hours=1)}, None, 3600),
        ({"expires_in": 3600, "delay": 60}, 60, 3600),
        ({"expires_in": dt.timedelta(hours=1)}, None, 3600),
        ({"not_before": NOW - 60}, -60, None),  # it has just passed: it goes now
    ],
)
def test_a_time_may_be_written_in_each_of_these_ways(
    options: dict[str, Any], not_before: float | None, expires_at: float | None
) -> None:
    message = composed(**options)

    assert message.not_before == (None if not_before is None else NOW + not_before)
    assert message.expires_at == (None if expires_at is None else NOW + expires_at)


def test_the_lifetime_of_a_dedup_key_may_be_a_timedelta() -> None:
    assert composed(dedup_key="k", dedup_for=dt.timedelta(days=2)).dedup_for == 2 * DAY


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"not_before": dt.datetime(2026, 1, 2, 10, 0)}, "not_before is a datetime without a time zone"),  # noqa: DTZ001
        ({"expires_at": dt.datetime(2026, 1, 2, 10, 0)}, "expires_at is a datetime without a time zone"),  # noqa: DTZ001
        (
            {"not_before": "tomorrow"},
            "not_before is no time: give seconds since the Unix epoch; in Python also a datetime",
        ),
        ({"not_before": True}, "not_before is no time"),
        ({"not_before": 10**400}, "not_before is no time"),
        ({"delay": "60"}, "delay is no duration: give seconds; in Python also a timedelta"),
        ({"delay": float("nan")}, "delay is no duration"),
        ({"delay": -1}, "delay is -1 seconds: give 0 or more"),
        ({"expires_in": dt.timedelta(0)}, "expires_at is in the past"),
        ({"expires_at": 3600}, "in the past: .* expires_in is in seconds from now"),
        ({"expires_at": dt.timedelta(seconds=-1)}, "expires_at is in the past"),
        ({"not_before": 60}, "not_before is long past: .* delay, in seconds from now"),
        ({"not_before": NOW - DAY - 1}, "not_before is long past"),
        ({"not_before": (NOW + 60) * 1000}, "more than 366 days ahead.* not in milliseconds"),
        ({"delay": 367 * DAY}, "not_before is more than 366 days ahead"),
        ({"expires_at": (NOW + 60) * 1000}, "expires_at is more than 3,660 days ahead"),
        ({"delay": 60, "expires_in": 60}, "not_before is after expires_at"),
        ({"delay": 60, "not_before": NOW + 60}, "not_before and delay say the same thing"),
        ({"expires_in": 60, "expires_at": NOW + 60}, "expires_at and expires_in say the same thing"),
        ({"dedup_for": "day", "dedup_key": "k"}, "dedup_for is no duration"),
    ],
)
def test_a_past_or_absurd_time_is_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadInputError, match=reason):
        composed(**options)


@given(st.floats(0, 366 * DAY - 1))
def test_each_way_to_write_a_time_means_the_same(ahead: float) -> None:
    since = dt.timedelta(seconds=ahead)
    at = dt.datetime.fromtimestamp(NOW, dt.UTC) + since
    ways: list[dict[str, Any]] = [
        {"delay": ahead},
        {"delay": since},
        {"not_before": since},
        {"not_before": at},
    ]

    assert [composed(**way).not_before for way in ways] == pytest.approx([NOW + ahead] * 4, abs=1e-5)


@pytest.fixture
async def gate(clock: VirtualClock) -> AsyncIterator[Tidegate]:
    gate = Tidegate("memory://", clock=clock, wire=TelegramWire(SimulatedTelegram(clock), clock))
    gate.add_bot(TOKEN)
    async with gate:
        yield gate


async def test_a_delayed_message_leaves_when_it_is_due(gate: Tidegate, clock: VirtualClock) -> None:
    before = clock.now()
    ticket = await gate.send(chat_id=7, text="x", delay=90)
    async with gate.worker():
        await ticket.delivered()

    assert 90 <= clock.now() - before < 91


async def test_the_delay_of_a_broadcast_counts_from_its_start(gate: Tidegate, clock: VirtualClock) -> None:
    """Its last messages are put long after its first ones."""
    before = clock.now()
    async with gate.worker():
        campaign = await gate.broadcast("news", range(1, 301), "x", expires_in=5, ahead=30)
        progress = await campaign.finished()

    assert progress.delivered < 300
    assert clock.now() - before < 7
