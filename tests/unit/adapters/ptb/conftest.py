"""A bot of python-telegram-bot whose limiter is Tidegate's, against the simulator in virtual time."""

import mimetypes
from collections.abc import Callable
from typing import Any

import pytest
from blockbuster import BlockBuster
from telegram.ext import ExtBot

from simulated import TOKEN
from tidegate import Tidegate
from tidegate.adapters.ptb import TidegateLimiter
from tidegate.settings import Settings
from tidegate.sim.telegram import Person, SimulatedTelegram, World
from tidegate.sim.telegram.telegram import TelegramWire
from tidegate.sim.virtual_time import VirtualClock
from unit.adapters.ptb.equipped import App, Build, Handle, built
from unit.adapters.ptb.simulated_request import SimulatedRequest

Make = Callable[..., Any]


@pytest.fixture(autouse=True)
def timedelta_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other form of a wait is deprecated, and warnings are errors here."""
    monkeypatch.setenv("PTB_TIMEDELTA", "1")


@pytest.fixture(autouse=True)
def blocking_calls_of_the_library(no_blocking_calls: BlockBuster) -> None:
    """python-telegram-bot resolves its own path, and reads the types of files: once each."""
    if not mimetypes.inited:
        mimetypes.init()
    for function in no_blocking_calls.functions.values():
        function.can_block_in("telegram/ext/_application.py", "__init__")


@pytest.fixture
def tokens() -> set[str]:
    return {TOKEN, "43:other"}


@pytest.fixture
async def telegram(clock: VirtualClock, tokens: set[str]) -> SimulatedTelegram:
    return SimulatedTelegram(clock, world=World(tokens=tokens))


@pytest.fixture
async def gate(clock: VirtualClock, telegram: SimulatedTelegram) -> Tidegate:
    """Opened and closed by its limiters."""
    settings = Settings(telegram_max_retries=3)
    return Tidegate("memory://", clock=clock, wire=TelegramWire(telegram, clock), settings=settings)


@pytest.fixture
async def limiter(gate: Tidegate) -> TidegateLimiter:
    return gate.ptb()


@pytest.fixture
def bot_of(telegram: SimulatedTelegram) -> Callable[..., ExtBot[Any]]:
    def make(limiter: TidegateLimiter, token: str = TOKEN) -> ExtBot[Any]:
        requests = SimulatedRequest(telegram), SimulatedRequest(telegram)
        return ExtBot(token, request=requests[0], get_updates_request=requests[1], rate_limiter=limiter)

    return make


@pytest.fixture
async def bot(bot_of: Callable[..., ExtBot[Any]], limiter: TidegateLimiter) -> ExtBot[Any]:
    """`async with` it."""
    return bot_of(limiter)


@pytest.fixture
def build(telegram: SimulatedTelegram, limiter: TidegateLimiter, gate: Tidegate) -> Build:
    """Of TOKEN with `limiter`, of another token with its own."""

    def make(handle: Handle, token: str = TOKEN, **options: Any) -> App:  # noqa: ANN401
        own = limiter if token == TOKEN else gate.ptb()
        return built(telegram, own, handle, token, **options)

    return make


@pytest.fixture
def person(telegram: SimulatedTelegram) -> Callable[..., Person]:
    def come(number: int, token: str = TOKEN) -> Person:
        bot = telegram.world.bot(token)
        assert bot is not None
        return Person(telegram, bot, number)

    return come
