"""Sample traffic for a first look: two bots, their users and the services around them, all simulated.

The bots are real: aiogram over HTTP, behind a gate. Telegram and NocoDB are the simulators, which count every
call at their own end.
"""

import itertools
import logging
import random
import re
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from aiogram import Bot, Dispatcher
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.types import Message

from tidegate.adapters.aiogram.flows import FlowExecutor
from tidegate.clock import Clock
from tidegate.flows import Flow, FlowBuilder
from tidegate.flows.executor.work import WorkContext
from tidegate.gate import Tidegate
from tidegate.polling import DeltaPoller, changes
from tidegate.settings import Settings
from tidegate.sim.faults import Faults, Latency
from tidegate.sim.nocodb.http import NocoDbServer
from tidegate.sim.telegram import Crowd, Habits, Limits, Person
from tidegate.sim.telegram.http import TelegramServer
from tidegate.tasks import BackgroundTasks
from tidegate.upstream.nocodb.table import Table

NEWS_TOKEN: Final = "42:sample-news"  # noqa: S105  (of a bot that exists in the simulator only)
SHOP_TOKEN: Final = "43:sample-shop"  # noqa: S105
COLUMNS: Final = {"OrderId": "SingleLineText", "UserId": "SingleLineText", "Paid": "Checkbox"}
EACH_WAY: Final = Latency(5, 40)  # milliseconds
WRITERS: Final = 15  # users who write and wait for a reply
SUBSCRIBERS: Final = 600  # users who get the broadcasts
BLOCKED: Final = 12  # of these: they have blocked the bot
REMINDED: Final = 40  # users with a reminder each minute
CUSTOMERS: Final = 4  # that order and pay, one after another
FIRST_WRITER, FIRST_SUBSCRIBER, FIRST_CUSTOMER = 1_000_001, 2_000_001, 3_000_001
BROADCAST_EVERY: Final = 90.0  # seconds
SHOPPING_EVERY: Final = (10.0, 40.0)  # seconds between two orders of a customer
ORDER_PATIENCE: Final = 60.0  # seconds that a customer waits for an answer
_ORDER: Final = re.compile(r"order (\d+)")

log = logging.getLogger("tidegate")


class SampleTraffic:
    """Open it before its gate is started, and `async with` it while that delivers. Files are in `folder`."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._clock = clock
        self._telegram = TelegramServer(
            limits=Limits(), faults=Faults(latency_in=EACH_WAY, latency_out=EACH_WAY)
        )
        self._books = NocoDbServer()
        self._table_id = self._books.noco.create_table("orders", columns=COLUMNS)
        # The environment's limits, store and database are for a real bot.
        self.gate = Tidegate(folder / "sample.db", settings=Settings.model_construct(), clock=clock)
        self._draw = random.Random()  # noqa: S311  (not secret)
        self._numbers = itertools.count(1)
        self._running, self._living = AsyncExitStack(), AsyncExitStack()
        self._table: Table

    async def open(self) -> None:
        """Start the simulators, and attach the bots to the gate. Call it before the gate is started."""
        await self._running.enter_async_context(self._telegram)
        await self._running.enter_async_context(self._books)
        self._table = self.gate.nocodb(self._books.url, "sample").table(self._table_id)
        self._news = Bot(NEWS_TOKEN, session=self._session())
        self._news_dispatcher = Dispatcher()
        self._news_dispatcher.message.register(_reply)
        self.gate.attach(self._news_dispatcher, self._news)
        self._shop = FlowExecutor(
            _payment_flow(),
            SHOP_TOKEN,
            gate=self.gate,
            api_url=self._telegram.url,
            work={"create_order": self._create_order},
            pollers={"payment": partial(DeltaPoller, changes(self._table, key="OrderId"))},
        )
        self._shop_dispatcher = Dispatcher()
        self._shop.attach(self._shop_dispatcher)

    async def __aenter__(self) -> None:
        """Let the bots poll and their users live."""
        polls, lives = BackgroundTasks(), BackgroundTasks()
        self._living.push_async_callback(polls.stop)
        for dispatcher, bot in ((self._news_dispatcher, self._news), (self._shop_dispatcher, self._shop.bot)):
            polling = dispatcher.start_polling(bot, handle_signals=False)
            polls.start(polling, "a sample bot polls")
            self._living.push_async_callback(_stop_polling, dispatcher)
        self._living.push_async_callback(lives.stop)
        for name, live in self._lives().items():
            lives.supervise(live, f"the sample's {name}", self._clock)

    async def __aexit__(self, *exc: object) -> None:
        await self._living.aclose()

    async def close(self) -> None:
        """Stop the simulators. Call it once the gate is closed."""
        await self._running.aclose()

    def _session(self) -> AiohttpSession:
        return AiohttpSession(api=TelegramAPIServer.from_base(self._telegram.url))

    def _lives(self) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        customers = {
            f"customer {number}": partial(
                self._shop_for_ever, self._person(SHOP_TOKEN, FIRST_CUSTOMER + number)
            )
            for number in range(CUSTOMERS)
        }
        return {
            "writers": self._write,
            "broadcasts": self._broadcast,
            "reminders": self._remind,
            **customers,
        }

    def _person(self, token: str, number: int) -> Person:
        bot = self._telegram.telegram.world.bot(token)
        assert bot is not None  # noqa: S101  (an open world takes any well-formed token)
        return Person(self._telegram.telegram, bot, number)

    async def _write(self) -> None:
        telegram = self._telegram.telegram
        bot = telegram.world.bot(NEWS_TOKEN)
        assert bot is not None  # noqa: S101
        habits = Habits(think=Latency(2_000, 8_000))
        await Crowd(telegram, bot, users=WRITERS, habits=habits, first_id=FIRST_WRITER).run(86_400.0)

    async def _broadcast(self) -> None:
        for number in range(BLOCKED):
            self._person(NEWS_TOKEN, FIRST_SUBSCRIBER + number * (SUBSCRIBERS // BLOCKED)).blocks()
        people = range(FIRST_SUBSCRIBER, FIRST_SUBSCRIBER + SUBSCRIBERS)
        for issue in itertools.count(1):
            campaign = await self.gate.broadcast(
                f"news-{issue}", people, f"News number {issue}: the tide is in.", bot=self._news.id
            )
            await campaign.finished()
            await self._clock.sleep(BROADCAST_EVERY)

    async def _remind(self) -> None:
        chats = range(FIRST_WRITER, FIRST_WRITER + REMINDED)
        items = (
            {
                "chat_id": chat,
                "cron": "* * * * *",
                "zone": "UTC",
                "text": "Time for a glass of water.",
                "spread": 30,
            }
            for chat in chats
        )
        await self.gate.reminders.add_many(items, bot=self._news.id)

    async def _shop_for_ever(self, customer: Person) -> None:
        while True:
            await self._clock.sleep(self._draw.uniform(*SHOPPING_EVERY))
            with suppress(TimeoutError, LookupError):  # a customer who loses patience comes back later
                await self._order_and_pay(customer)

    async def _order_and_pay(self, customer: Person) -> None:
        customer.says("/start")
        await customer.hears(ORDER_PATIENCE)
        customer.presses(customer.buttons()[0])
        while (found := _ORDER.search(str((await customer.hears(ORDER_PATIENCE)).get("text")))) is None:
            pass
        await self._clock.sleep(self._draw.uniform(2.0, 15.0))
        noco = self._books.noco
        row = next(row for row in noco.rows(self._table_id) if row["OrderId"] == found[1])
        noco.pay(self._table_id, int(str(row["Id"])))
        await customer.hears(ORDER_PATIENCE)

    async def _create_order(self, work: WorkContext) -> dict[str, Any]:
        """Create the row that the poller waits for. A sample may create one twice after a crash."""
        order = str(next(self._numbers))
        await self._table.create([{"OrderId": order, "UserId": str(work.user), "Paid": False}])
        return {"order_id": order}


def _payment_flow() -> Flow:
    flow = FlowBuilder("payment", otherwise="Press a button, or send /start.")
    flow.command("/start", to="welcome")
    flow.state("welcome", say="Welcome! A cup of tea is 2 €.").button("Order tea", to="ordering")
    ordering = flow.state("ordering", otherwise="One moment …")
    ordering.run("create_order", done="awaiting_payment", failed="sorry", save=("order_id",))
    waiting = flow.state(
        "awaiting_payment", say="Please pay for order {order_id}.", otherwise="We wait for you."
    )
    waiting.button("Cancel", to="cancelled").poll("payment", key="order_id", met="paid", gone="cancelled")
    flow.state("sorry", say="Sorry, try again later.").button("Again", to="ordering")
    flow.final("paid", say="Thank you! Order {order_id} is paid.")
    flow.final("cancelled", say="Order {order_id} is cancelled.")
    return flow.build()


async def _reply(message: Message) -> None:
    await message.answer(f"You said: {message.text}")


async def _stop_polling(dispatcher: Dispatcher) -> None:
    with suppress(RuntimeError):  # it had not begun
        await dispatcher.stop_polling()
