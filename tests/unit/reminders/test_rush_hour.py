"""Everybody is reminded at 09:00, on virtual time: once, without a 429, and as fast as the limit allows."""

import asyncio
import random
from collections import Counter, deque
from typing import Any, Final, NamedTuple

import pytest

from tidegate import Tidegate
from tidegate.model import Rate
from tidegate.pacing.rules import Rules
from tidegate.sim import virtual_time
from tidegate.sim.telegram import Faults, Latency, Limits, SimulatedTelegram
from tidegate.sim.telegram.telegram import TelegramWire
from tidegate.sim.virtual_time import VirtualClock

EACH_WAY: Final = Latency.parse("5-40")
MINUTE: Final = 60.0
STRANGERS: Final = 1_000_000  # chats from here on write to the bot, and are answered


class RushHour(NamedTuple):
    """What Telegram saw of it. Minutes are counted from 09:00."""

    report: dict[str, Any]
    reminded: Counter[int | str | None]  # messages by chat
    first: float
    last: float
    replies: list[float]  # seconds from the call to its answer, sorted

    def __str__(self) -> str:
        words = (
            f"{self.reminded.total():,} reminders within {self.last:.2f} min, {self.report['refused']} 429s"
        )
        if not self.replies:
            return words
        median, p99 = (self.replies[int(len(self.replies) * share)] for share in (0.5, 0.99))
        return (
            f"{words}; {len(self.replies):,} replies: median {median * 1000:.0f} ms,"
            f" p99 {p99 * 1000:.0f} ms, worst {self.replies[-1] * 1000:.0f} ms"
        )


def rush_hour(people: int, rate: Rate, *, replies: float = 0.0) -> RushHour:
    """Remind so many people at 09:00, with so many direct calls each second beside it."""

    async def main(clock: VirtualClock) -> RushHour:
        faults = Faults(latency_in=EACH_WAY, latency_out=EACH_WAY)
        telegram = SimulatedTelegram(clock, limits=Limits(bot=rate), faults=faults)
        telegram.request_log.log = deque()  # every call, not the latest alone
        gate = Tidegate("memory://", rules=Rules(bot=rate), clock=clock, wire=TelegramWire(telegram, clock))
        gate.add_bot("42:token")
        async with gate:
            when = {"at": "09:00", "every": "day", "zone": "Europe/Berlin"}
            added = await gate.reminders.add_many(
                {"chat_id": chat, "text": "Good morning #1", **when} for chat in range(1, people + 1)
            )
            nine = added[0].next_at
            assert nine is not None
            await clock.sleep(nine - 3 * MINUTE - clock.now())
            async with gate.worker():
                await clock.sleep(nine - clock.now())
                answering = asyncio.create_task(reply_on(gate, clock, replies))
                await gate.drained()
                answering.cancel()
                waits = (await asyncio.gather(answering))[0]
        sent = [one for one in telegram.request_log.log if isinstance(one.chat_id, int)]
        reminders = [one for one in sent if one.chat_id < STRANGERS]  # type: ignore[operator]
        minutes = [(one.at - nine) / MINUTE for one in reminders]
        reminded = Counter(one.chat_id for one in reminders)
        return RushHour(telegram.report(), reminded, min(minutes), max(minutes), sorted(waits))

    return virtual_time.run(main)


async def reply_on(gate: Tidegate, clock: VirtualClock, rate: float) -> list[float]:
    """Answer people, so many each second on average, until cancelled; return how long each answer took."""
    waits: list[float] = []
    draw, chat = random.Random(1), STRANGERS

    async def reply(chat: int) -> None:
        began = clock.monotonic()
        await gate.call("sendMessage", {"chat_id": chat, "text": "Well done!"})
        waits.append(clock.monotonic() - began)

    tasks: list[asyncio.Task[None]] = []
    try:
        while rate:
            await clock.sleep(draw.expovariate(rate))
            chat += 1
            tasks.append(asyncio.create_task(reply(chat)))
    except asyncio.CancelledError:
        await asyncio.gather(*tasks)
    return waits


def check_everybody_reminded_once(done: RushHour, people: int) -> None:
    print(done)  # noqa: T201
    assert done.reminded == Counter(range(1, people + 1))  # none lost, none twice
    assert done.report["refused"] == 0
    assert done.first > 0  # none before its time


def test_ten_thousand_at_nine_have_left_within_seven_and_a_half_minutes() -> None:
    done = rush_hour(10_000, Rate(25, 1))
    check_everybody_reminded_once(done, 10_000)
    assert done.last < 7.5


def test_a_reply_among_thousands_of_reminders_takes_less_than_a_second() -> None:
    done = rush_hour(3_000, Rate(30, 1), replies=2.0)
    check_everybody_reminded_once(done, 3_000)
    assert len(done.replies) > 150
    assert done.replies[-1] < 1.0


@pytest.mark.proof
@pytest.mark.timeout(300)
def test_a_hundred_thousand_at_nine_have_left_by_ten() -> None:
    done = rush_hour(100_000, Rate(30, 1))
    check_everybody_reminded_once(done, 100_000)
    assert done.last < 58.5


@pytest.mark.proof
@pytest.mark.timeout(300)
def test_replies_among_a_hundred_thousand_reminders_take_less_than_a_second() -> None:
    done = rush_hour(100_000, Rate(30, 1), replies=2.0)
    check_everybody_reminded_once(done, 100_000)
    assert len(done.replies) > 7_000
    assert done.replies[-1] < 1.0
    assert done.last < 58.5 * (100_000 + len(done.replies)) / 100_000  # they take their share of the limit
