"""A crowd before a bot of aiogram that repeats what it hears: in virtual time, or over HTTP right here."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiogram import Bot, Dispatcher
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.methods import TelegramMethod
from aiogram.types import Message

from system.inbound_crowd import TOKEN, Gathering, Scene, judge
from system.inbound_vitals import Vitals
from tidegate import Tidegate
from tidegate.clock import Clock
from tidegate.settings import Settings
from tidegate.sim import virtual_time
from tidegate.sim.telegram import Faults, Latency, SimulatedTelegram
from tidegate.sim.telegram.http import TelegramServer
from tidegate.sim.telegram.telegram import TelegramWire
from tidegate.sim.virtual_time import VirtualClock
from unit.adapters.aiogram.stage import SimSession

EACH_WAY = Latency(5, 40)
WEATHER = Faults(latency_in=EACH_WAY, latency_out=EACH_WAY)


class Forgetful(list[TelegramMethod[Any]]):
    """The calls of a long run are not kept."""

    def append(self, _: TelegramMethod[Any]) -> None:
        pass


def gate_for(scene: Scene, store: str | Path, **parts: Any) -> Tidegate:  # noqa: ANN401  (a clock, a wire)
    """Not with the limits of the environment: those are meant for the real Telegram."""
    return Tidegate(store, rules=scene.rules(), settings=Settings.model_construct(), **parts)


def bot_at(url: str) -> Bot:
    return Bot(TOKEN, session=AiohttpSession(api=TelegramAPIServer.from_base(url)))


@asynccontextmanager
async def echoing(gate: Tidegate, bot: Bot) -> AsyncIterator[None]:
    """While it polls."""
    dispatcher, started = Dispatcher(), asyncio.Event()

    @dispatcher.message()
    async def echo(message: Message) -> None:
        await message.answer((message.text or "").replace("say", "echo"))

    gate.attach(dispatcher, bot, updates="durable", throttle=True)
    dispatcher.startup.register(started.set)
    polling = asyncio.create_task(dispatcher.start_polling(bot, handle_signals=False))
    await started.wait()
    try:
        yield
    finally:
        await dispatcher.stop_polling()
        await polling


def run_virtually(scene: Scene) -> dict[str, Any]:
    """Return the report, with `passed`. In virtual time no loop is ever late."""

    async def main(clock: VirtualClock) -> dict[str, Any]:
        telegram = SimulatedTelegram(clock, limits=scene.limits(), faults=WEATHER, seed=scene.seed)
        gate = gate_for(scene, "memory://", clock=clock, wire=TelegramWire(telegram, clock))
        session = SimSession(telegram)
        session.made = Forgetful()
        async with echoing(gate, Bot(TOKEN, session=session)):
            return await _perform(telegram, scene, Vitals(clock, naps=False), gate)

    found = judge(virtual_time.run(main, scene.seed))
    return found | {"virtual_seconds": found.pop("seconds")}


async def run_really(scene: Scene, folder: Path) -> dict[str, Any]:
    """The same in real time and over HTTP, its store in a file; the loop is also that of the simulator."""
    async with TelegramServer(limits=scene.limits(), faults=WEATHER, seed=scene.seed) as server:
        gate = gate_for(scene, folder / "tidegate.db")
        async with echoing(gate, bot_at(server.url)):
            return judge(await _perform(server.telegram, scene, Vitals(Clock()), gate))


async def _perform(
    telegram: SimulatedTelegram, scene: Scene, vitals: Vitals, gate: Tidegate
) -> dict[str, Any]:
    crowd = Gathering(telegram, scene)
    async with asyncio.TaskGroup() as group:
        group.create_task(vitals.watch(scene.seconds))
        await crowd.live()
    waiting = (await gate.core.handler_registry.stats()).waiting
    return crowd.report() | vitals.report() | {"waiting": waiting}
