"""Updates that are none of Telegram's, or cannot be written down: handled, past the inbox."""

from collections.abc import Callable

import pytest
from telegram import Update

from simulated import TOKEN
from tidegate.sim.telegram import Person, SimulatedTelegram
from tidegate.sim.virtual_time import VirtualClock
from unit.adapters.ptb.equipped import App, Build, Context, made_up, running, text_of

HALF_A_CHARACTER = "\ud800"  # json takes it, no store does


@pytest.fixture
def seen() -> list[str]:
    return []


@pytest.fixture
def app(build: Build, seen: list[str]) -> App:
    async def handle(update: Update, _: Context) -> None:
        seen.append(text_of(update))

    return build(handle)


async def test_what_cannot_be_written_down_does_not_end_the_polling(
    app: App,
    seen: list[str],
    person: Callable[[int], Person],
    clock: VirtualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running(app):
        for text in (HALF_A_CHARACTER, HALF_A_CHARACTER, "one"):
            person(1).says(text)
        await clock.sleep(2)
        person(1).says("two")
        await clock.sleep(2)
    assert sorted(seen) == ["one", "two", HALF_A_CHARACTER, HALF_A_CHARACTER]
    said = [one for one in caplog.records if "is handled without being stored" in one.getMessage()]
    assert len(said) == 1


async def test_updates_of_ones_own_are_all_handled(app: App, seen: list[str], clock: VirtualClock) -> None:
    async with running(app):
        for text in ("a", "b"):
            await app.update_queue.put(made_up(0, text))
        app.update_queue.put_nowait(made_up(0, "c"))
        await app.update_queue.put(made_up(-5, "d"))
        await clock.sleep(1)
    assert seen == ["a", "b", "c", "d"]


async def test_one_of_ones_own_whose_number_was_there_is_told_of_once(
    app: App,
    seen: list[str],
    person: Callable[[int], Person],
    telegram: SimulatedTelegram,
    clock: VirtualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    person(1).says("a")
    bot = telegram.world.bot(TOKEN)
    assert bot is not None
    number = bot.updates.first(1)[0]["update_id"]
    async with running(app):
        await clock.sleep(1)
        for text in ("b", "c"):
            await app.update_queue.put(made_up(number, text))
        await clock.sleep(1)
    assert seen == ["a"]
    said = [one for one in caplog.records if "Give it the update_id 0" in one.getMessage()]
    assert len(said) == 1
