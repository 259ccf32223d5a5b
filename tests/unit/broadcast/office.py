"""A gate with a bot before a simulated Telegram, from which broadcasts are sent. In virtual time."""

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from simulated import TOKEN
from tidegate import Tidegate
from tidegate.broadcast.audience import Audience
from tidegate.broadcast.campaign import Campaign, RunningCampaigns, limit_for
from tidegate.broadcast.message import MessageWriter
from tidegate.broadcast.progress import Progress
from tidegate.model import BotId
from tidegate.pacing.rules import Rules
from tidegate.row_template import Row
from tidegate.sim.telegram import Faults, Latency, SimulatedTelegram
from tidegate.sim.telegram.telegram import TelegramWire
from tidegate.sim.virtual_time import VirtualClock

BOT = BotId(42)
EACH_WAY = Latency.parse("5-40")
WEATHER = Faults(latency_in=EACH_WAY, latency_out=EACH_WAY)
ROUND_TRIP = 0.045


class Marks:
    """Who was marked as gone, and why."""

    def __init__(self) -> None:
        self.gone: Counter[tuple[object, str]] = Counter()

    async def mark(self, row: Row, reason: str) -> None:
        self.gone[row["chat_id"], reason] += 1


class Office:
    """`gate` is open, and sends only while `gate.worker()` runs."""

    def __init__(self, gate: Tidegate, clock: VirtualClock, telegram: SimulatedTelegram) -> None:
        self.gate, self.clock, self.telegram = gate, clock, telegram
        self._campaigns = RunningCampaigns()

    async def broadcast(
        self,
        name: str,
        audience: Audience,
        letter: object,
        *,
        options: dict[str, Any] | None = None,
        **fields: Any,  # noqa: ANN401  (Telegram's)
    ) -> Campaign:
        fields = {"priority": "low", **fields}
        given = dict(options or {})
        campaign = Campaign(
            name,
            audience,
            MessageWriter(letter, fields, given.pop("convert", None)),
            put=lambda items: self.gate.send_many(items, bot=BOT, **fields),
            outbox=self.gate.outbox,
            clock=self.clock,
            rate=await limit_for(BOT, fields, Rules(), self.gate.outbox),
            **given,
        )
        return await self._campaigns.start(BOT, campaign)

    def blocks(self, chats: Iterable[int]) -> None:
        bot = self.telegram.world.bot(TOKEN)
        assert bot is not None
        for chat in chats:
            self.telegram.world.user_blocks(bot, chat, self.clock.now())

    def arrived(self) -> Counter[object]:
        return arrived(self.telegram)

    def texts(self) -> list[str]:
        return [entry.text for entry in self.telegram.request_log.log if entry.status == 200]

    async def close(self) -> None:
        await self._campaigns.close()


@asynccontextmanager
async def office(
    clock: VirtualClock, store: str | Path = "memory://", telegram: SimulatedTelegram | None = None
) -> AsyncIterator[Office]:
    telegram = telegram or SimulatedTelegram(clock, faults=WEATHER)
    gate = Tidegate(store, clock=clock, wire=TelegramWire(telegram, clock))
    gate.add_bot(TOKEN)
    async with gate:
        here = Office(gate, clock, telegram)
        yield here
        await here.close()


def arrived(telegram: SimulatedTelegram) -> Counter[object]:
    """How often each chat got something."""
    return Counter(entry.chat_id for entry in telegram.request_log.log if entry.status == 200)


def people(count: int) -> list[dict[str, Any]]:
    return [{"chat_id": 1001 + i, "name": f"Person {i}"} for i in range(count)]


def is_accounted_for(progress: Progress) -> bool:
    """The sums that its docstring states."""
    ends = progress.delivered + progress.dead + progress.parked + progress.expired + progress.cancelled
    rows = progress.accepted + progress.skipped + progress.bad + progress.repeated
    return (progress.read, progress.accepted) == (rows, ends + progress.forgotten + progress.waiting)
