"""A payment bot that is killed again and again, and the people who use it."""

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

import fork_server
from payment_bot.flow import PAYMENT
from payment_bot.orders import COLUMNS
from system.killing import asked
from tidegate import Tidegate
from tidegate.cli.demo.customers import BOOKS_TOKEN, TOKEN, ExpectedTexts, PaymentWorld
from tidegate.clock import Clock
from tidegate.model import Rate, Record
from tidegate.sim.nocodb.http import NocoDbServer
from tidegate.sim.nocodb.limits import NocoLimits
from tidegate.sim.telegram import Faults, Latency, Limits
from tidegate.sim.telegram.http import TelegramServer

MANY: Final = Rate(10_000, 1)
GENEROUS: Final = Limits(bot=MANY, private=MANY, group=MANY)
SLOW: Final = Faults(latency_in=Latency(5, 40), latency_out=Latency(5, 40))
# A life after a crash begins when these windows have passed.
FAST: Final = dict.fromkeys(("TIDEGATE_BOT_RATE", "TIDEGATE_CHAT_RATE", "TIDEGATE_GROUP_RATE"), "1000/0.1")
ROOT: Final = Path(__file__).parents[2]
MEMBER: Final = Path(__file__).with_name("payment_member.py")
OURS: Final = ("TIDEGATE_", "TELEGRAM_", "NOCODB_", "PAYMENT_")
POLL: Final = "flow:payment:payment"
clock: Final = Clock()


class Street:
    """A town with a bot that dies. `told`: what the latest life has said."""

    def __init__(self, town: PaymentWorld, store: Path, nursery: asyncio.subprocess.Process) -> None:
        self.town, self.store = town, store
        self._nursery = nursery
        self._child = 0
        self.told: list[str] = []
        self.kills = 0
        self.words = ExpectedTexts(PAYMENT)

    async def live(self, *, park: bool = False) -> None:
        """The next life, ready to be used."""
        assert self._nursery.stdin is not None
        self._nursery.stdin.write(b"live park\n" if park else b"live\n")
        self.told = []
        async with clock.timeout(15):
            while "ready" not in self.told:
                await self._hear()

    def kill(self) -> None:
        os.kill(self._child, signal.SIGKILL)
        self.kills += 1

    async def _hear(self) -> None:
        assert self._nursery.stdout is not None
        said = await self._nursery.stdout.readline()
        assert said, "the bot's process has ended"
        line = said.decode().strip()
        if line.startswith("child "):
            self._child = int(line.removeprefix("child "))
        else:
            self.told.append(line)

    async def records(self) -> list[Record]:
        """What was ever put into the store."""
        async with Tidegate(self.store) as gate:
            return list(await gate.outbox.records(limit=100_000))

    async def waiting(self) -> int:
        """Who is still subscribed to a payment, or has something to be sent. May be asked while it lives."""
        [[subscribed]] = await asked(self.store, "SELECT count(*) FROM subscriptions WHERE poller = ?", POLL)
        async with Tidegate(self.store) as gate:
            stats = await gate.stats()
        return int(subscribed) + stats.waiting + stats.sending

    def arrivals(self) -> Counter[tuple[int, str]]:
        """By chat and text, what Telegram took."""
        found: Counter[tuple[int, str]] = Counter()
        for one in self.town.customers:
            found.update({(one.id, text): times for text, times in one.heard.items()})
        return found


@asynccontextmanager
async def street(folder: Path, users: int, *, seed: int = 0) -> AsyncIterator[Street]:
    telegram = TelegramServer(limits=GENEROUS, faults=SLOW, seed=seed)
    # The bot keeps to NocoDB's 5/s; what a life has asked in its last second, the next one cannot know.
    books = NocoDbServer(limits=NocoLimits(rate=MANY), seed=seed)
    town = PaymentWorld(users, COLUMNS, seed=seed, clock=clock, telegram=telegram, books=books)
    for customer in town.customers:
        customer.thinks = (0.1, 1.0)
    async with telegram, books:
        config = {
            "token": TOKEN,
            "api_url": telegram.url,
            "books": [books.url, BOOKS_TOKEN, town.table],
        }
        store = folder / "payment.db"
        async with _nursery(msgspec.json.encode(config).decode(), str(store)) as nursery:
            yield Street(town, store, nursery)


@asynccontextmanager
async def _nursery(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """With its children it is a group of its own: all of them are killed at the end."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    paths = os.pathsep.join(str(ROOT / folder) for folder in ("examples", "tests"))
    process = await fork_server.create_process(
        sys.executable,
        str(MEMBER),
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=kept | FAST | {"PYTHONPATH": paths},
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert (await process.stdout.readline()).strip() == b"imported"
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
