"""Whoever talks to a public example."""

from collections.abc import Awaitable, Callable
from types import ModuleType

from tidegate.sim.telegram import Person, SimulatedTelegram
from tidegate.sim.telegram.entities import Json, SimulatedBot

ANN = 7
GROUP = -1_000_000_000_005


class Audience:
    """Ann, alone with the bot, and others. `module` is the example, for the names that it gives to things."""

    def __init__(self, telegram: SimulatedTelegram, bot: SimulatedBot, module: ModuleType) -> None:
        self.telegram = telegram
        self.bot = bot
        self.module = module
        self.ann = Person(telegram, bot, ANN)

    def person(self, user_id: int, chat: int | None = None) -> Person:
        return Person(self.telegram, self.bot, user_id, chat=chat)

    async def ask(self, text: str) -> str:
        """What Ann is answered to a text."""
        return await answer(self.ann, lambda: self.ann.says(text))

    async def press(self, data: str) -> str:
        """What Ann is answered to a button, or what becomes of its message."""
        return await answer(self.ann, lambda: self.ann.presses(data))

    async def hear(self) -> Json:
        return await self.ann.hears()


async def answer(person: Person, act: Callable[[], object]) -> str:
    act()
    return str((await person.hears()).get("text"))


Scene = Callable[[Audience], Awaitable[None]]
