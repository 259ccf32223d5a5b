"""A flow as a bot of each library, in virtual time against the simulator: one table for both."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol

from aiogram.filters import Command
from aiogram.types import Message
from telegram import Update
from telegram.ext import CommandHandler

from simulated import TOKEN
from tidegate import Tidegate
from tidegate.adapters.aiogram.flows import FlowExecutor
from tidegate.adapters.flow_bot import FlowBot
from tidegate.adapters.ptb.flows import PtbFlowExecutor
from tidegate.flows import Flow
from tidegate.sim.telegram import Person, SimulatedTelegram, World
from tidegate.sim.telegram.telegram import TelegramWire
from tidegate.sim.virtual_time import VirtualClock
from unit.adapters.aiogram.stage import Stage
from unit.adapters.ptb.equipped import Context, builder_for, running


class FlowStage(Protocol):
    """A Telegram, and a bot with flows and a command of its own: `/stats`."""

    telegram: SimulatedTelegram
    clock: VirtualClock
    gate: Tidegate

    def running(self, *flows: Flow, **options: Any) -> Any: ...  # noqa: ANN401  (of FlowExecutor)


class AiogramFlows:
    def __init__(self, clock: VirtualClock, store: str, telegram: SimulatedTelegram | None = None) -> None:
        self._stage = Stage(clock, store=store, telegram=telegram)
        self.telegram, self.clock, self.gate = self._stage.telegram, clock, self._stage.gate

    @asynccontextmanager
    async def running(self, *flows: Flow, **options: Any) -> AsyncIterator[list[FlowBot]]:  # noqa: ANN401
        stage = self._stage
        stage.dispatcher.message.register(_answer_stats, Command("stats"))
        executors = [FlowExecutor(one, TOKEN, gate=self.gate, bot=stage.bot, **options) for one in flows]
        executors[0].attach(stage.dispatcher)
        for executor in executors[1:]:
            stage.dispatcher.include_router(executor.router)
        polling = stage.dispatcher.start_polling(stage.bot, handle_signals=False, close_bot_session=False)
        bot = asyncio.create_task(polling)
        await self.clock.sleep(0.1)
        yield list(executors)
        await self.clock.sleep(0.1)
        await stage.dispatcher.stop_polling()
        await bot


class PtbFlows:
    def __init__(self, clock: VirtualClock, store: str, telegram: SimulatedTelegram | None = None) -> None:
        self.clock = clock
        self.telegram = telegram or SimulatedTelegram(clock, world=World(tokens={TOKEN}))
        self.gate = Tidegate(store, clock=clock, wire=TelegramWire(self.telegram, clock))

    @asynccontextmanager
    async def running(self, *flows: Flow, **options: Any) -> AsyncIterator[list[FlowBot]]:  # noqa: ANN401
        application = self.gate.attach(builder_for(self.telegram), updates="durable").build()
        application.add_handler(CommandHandler("stats", _reply_stats))
        executors = [PtbFlowExecutor(one, gate=self.gate, **options) for one in flows]
        for executor in executors:
            executor.attach(application)
        async with running(application):
            await self.clock.sleep(0.1)
            yield list(executors)
            await self.clock.sleep(0.1)


STAGES: Final[dict[str, Callable[..., FlowStage]]] = {"aiogram": AiogramFlows, "ptb": PtbFlows}


def person(stage: FlowStage, user: int, **options: Any) -> Person:  # noqa: ANN401  (of a Person)
    bot = stage.telegram.world.bot(TOKEN)
    assert bot is not None
    return Person(stage.telegram, bot, user, **options)


async def _answer_stats(message: Message) -> None:
    await message.answer("The statistics.")


async def _reply_stats(update: Update, _: Context) -> None:
    assert update.message is not None
    await update.message.reply_text("The statistics.")
