"""`tidegate demo payment`: the example's bot, the services around it, and what they measured."""

import asyncio
import logging
import tempfile
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from tidegate.cli import loop, terminal
from tidegate.cli.demo.customers import BOOKS_TOKEN, TOKEN, ExpectedTexts, PaymentWorld
from tidegate.cli.demo.example_bot import find_bot
from tidegate.cli.demo.payment_report import PaymentView, measured, passed, report_table
from tidegate.clock import Clock
from tidegate.errors import TidegateError
from tidegate.gate import Tidegate
from tidegate.outbox.port import OutboxStats
from tidegate.settings import Settings
from tidegate.tasks import BackgroundTasks

INTERVAL: Final = 30.0  # seconds between two cycles of batch mode
REMNANT: Final = 0.5  # seconds after the end in which doubled messages would arrive


class PaymentDemo:
    """The example bot with its store in `folder`, the customers and the services around it."""

    def __init__(
        self, example: ModuleType, *, users: int, seconds: int, mode: str, seed: int, folder: str
    ) -> None:
        self.seconds, self.mode, self.seed = seconds, mode, seed
        self.clock = Clock()
        self.world = PaymentWorld(users, example.COLUMNS, seed=seed, clock=self.clock)
        # The limits of the environment are for the real services.
        self.gate = Tidegate(Path(folder, "payment.db"), settings=Settings.model_construct())
        self._example = example
        self.bot: Any = None
        self._stats = OutboxStats()  # at the last look
        self._polling: dict[str, Any] = {"cycles": 0, "requests": 0, "requests_avoided": 0}
        self._started = self._ended = 0.0
        self.pace: dict[str, float] = {}  # of the customers, if not the default
        # None: by the number of people who wait.
        self.interval: float | None = INTERVAL if mode == "batch" else None

    async def run(self, stop: asyncio.Event) -> None:
        """Run until all customers are done, the time is over, or `stop`."""
        async with self.world.telegram, self.world.books:
            self.bot = self._build()
            self._started = self.clock.monotonic()
            async with self.bot.serving():
                tasks = BackgroundTasks()
                customers = self.world.live(ExpectedTexts(self.bot.flow), **self.pace)
                living = tasks.start(customers, "customers", awaited=True)
                stopping = tasks.start(stop.wait(), "Ctrl-C")
                await asyncio.wait(
                    [living, stopping], timeout=self.seconds, return_when=asyncio.FIRST_COMPLETED
                )
                if living.done():
                    living.result()  # raises if a customer failed
                    await self.clock.sleep(REMNANT)
                self._ended = self.clock.monotonic()
                await self.look()
                await tasks.stop()

    async def look(self) -> None:
        if self.gate.is_open:
            self._stats = await self.gate.stats()
            self._polling = self.bot.polling_stats().as_dict()

    def report(self) -> dict[str, Any]:
        """Return the counts. `seconds` is how long it took, or has taken by now."""
        until = self._ended or self.clock.monotonic()
        report = {
            "mode": self.mode,
            "seed": self.seed,
            "seconds": round(until - self._started, 1) if self._started else 0.0,
            **measured(self.world, self._stats),
            "polling": self._polling,
        }
        return report | {"passed": passed(report)}

    def _build(self) -> Any:  # noqa: ANN401  (the example's)
        example, books = self._example, self.world.books
        config = example.Config(
            token=TOKEN,
            api_url=self.world.telegram.url,
            books=example.Books(books.url, BOOKS_TOKEN, self.world.table),
            mode=self.mode,
            interval=self.interval,
        )
        return example.PaymentBot(config, gate=self.gate, say=_ignore)


def show(*, users: int, seconds: int, mode: str, seed: int, as_json: bool) -> int:
    """Run the demo, then print the report. Return the exit code: 1 if the target was missed."""
    example = find_bot("payment_bot.bot")
    for name in ("tidegate", "aiogram"):  # the report says what matters
        logging.getLogger(name).setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="tidegate-demo-") as folder:
        demo = PaymentDemo(example, users=users, seconds=seconds, mode=mode, seed=seed, folder=folder)
        loop.run(_live(demo, as_json=as_json))
    report = demo.report()
    terminal.report(report, report_table(report), as_json=as_json)
    return 0 if report["passed"] else 1


async def _live(demo: PaymentDemo, *, as_json: bool) -> None:
    stop = loop.stop_signal()
    if terminal.is_watched() and not as_json:
        async with loop.beside(_watch(demo, stop)):
            await demo.run(stop)
        return
    line = f"{demo.world.users} people order, pay and cancel; ends within {demo.seconds} s (Ctrl-C stops it)"
    terminal.announce(line, as_json=as_json)
    await demo.run(stop)


async def _watch(demo: PaymentDemo, stop: asyncio.Event) -> None:
    view = PaymentView(demo.report, demo.world.stages, seconds=demo.seconds)
    with terminal.drawing(view.picture) as draw:
        async for _ in loop.frames(stop, demo.clock):
            with suppress(TidegateError):  # the gate may close meanwhile
                await demo.look()
            draw()


def _ignore(_: str) -> None:
    """Ignore what the bot prints at its start."""
