import pytest

from simulated import TOKEN, Call
from tidegate.model import Rate
from tidegate.sim.telegram import Limits, Person, SimulatedTelegram
from tidegate.sim.telegram.entities import SimulatedBot
from tidegate.sim.virtual_time import VirtualClock


@pytest.fixture
async def telegram(clock: VirtualClock) -> SimulatedTelegram:
    """A Telegram with limits that are out of the way."""
    return SimulatedTelegram(
        clock, limits=Limits(bot=Rate(10_000, 1), private=Rate(10_000, 1), group=Rate(10_000, 1))
    )


@pytest.fixture
async def ok(telegram: SimulatedTelegram) -> Call:
    """A call that must succeed; gives its result."""

    async def call(method: str, **params: object) -> object:
        answer = await telegram.call(TOKEN, method, params)
        assert answer.body["ok"], answer.body
        return answer.body["result"]

    return call


@pytest.fixture
async def fails(telegram: SimulatedTelegram) -> Call:
    """A call that must fail; gives status and description."""

    async def call(method: str, **params: object) -> tuple[int, str]:
        answer = await telegram.call(TOKEN, method, params)
        assert not answer.body["ok"], answer.body
        assert answer.body["error_code"] == answer.status
        return answer.status, answer.body["description"]

    return call


@pytest.fixture
async def bot(telegram: SimulatedTelegram) -> SimulatedBot:
    found = telegram.world.bot(TOKEN)
    assert found is not None
    return found


@pytest.fixture
async def ann(telegram: SimulatedTelegram, bot: SimulatedBot) -> Person:
    """Somebody in a private chat with the bot."""
    return Person(telegram, bot, 7)
