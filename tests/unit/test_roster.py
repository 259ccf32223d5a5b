"""Which bots a gate can send for, while other processes register and remove them."""

import logging

import pytest

from tidegate.bots.port import BotRecord, BotStore
from tidegate.bots.registry import LOOK_EVERY, TELEGRAM, BotRegistry
from tidegate.delivery.sender import BotAccess
from tidegate.errors import StoreAwayError, WrongKeyError
from tidegate.model import BotId
from tidegate.sim.virtual_time import VirtualClock

BOT, OTHER = BotId(42), BotId(43)


class PlainShelf(BotStore):
    """What all processes see. Its tokens are sealed by a word before them."""

    def __init__(self) -> None:
        self.kept: dict[BotId, BotRecord] = {}
        self.opened: list[BotId] = []
        self.trouble: Exception | None = None

    async def all(self) -> list[BotRecord]:
        if self.trouble is not None:
            raise self.trouble
        return list(self.kept.values())

    async def open(self, bot: BotRecord) -> str:
        self.opened.append(bot.id)
        return bot.sealed.decode().removeprefix("sealed ")

    async def put(self, bot: BotId, token: str, api_url: str) -> None:
        self.kept[bot] = BotRecord(bot, f"sealed {token}".encode(), api_url)

    async def remove(self, bot: BotId) -> bool:
        return self.kept.pop(bot, None) is not None

    async def rotate(self) -> int:
        return len(self.kept)


@pytest.fixture
def shelf() -> PlainShelf:
    return PlainShelf()


@pytest.fixture
def opened() -> dict[BotId, BotAccess]:
    return {}


@pytest.fixture
async def roster(shelf: PlainShelf, opened: dict[BotId, BotAccess]) -> BotRegistry:
    """Of a process that sends."""
    roster = BotRegistry(opened, shelf, {})
    await roster.load()
    await roster.unseal()
    return roster


async def test_what_others_register_and_remove_is_known_within_seconds(
    roster: BotRegistry, shelf: PlainShelf, opened: dict[BotId, BotAccess], clock: VirtualClock
) -> None:
    left = iter([True] * 4 + [False])
    started = clock.monotonic()
    await shelf.put(BOT, "42:one", TELEGRAM)

    await roster.look()
    assert opened[BOT].token == "42:one"
    await shelf.remove(BOT)
    await roster.follow(clock, lambda: next(left))

    assert opened == {}
    assert clock.monotonic() - started <= 2 * LOOK_EVERY


async def test_a_token_is_opened_again_only_if_it_was_changed(
    roster: BotRegistry, shelf: PlainShelf, opened: dict[BotId, BotAccess]
) -> None:
    await shelf.put(BOT, "42:one", TELEGRAM)
    await shelf.put(OTHER, "43:one", TELEGRAM)
    await roster.load()
    await roster.load()
    assert shelf.opened == [BOT, OTHER]

    await shelf.put(OTHER, "43:two", TELEGRAM)
    await roster.load()

    assert shelf.opened == [BOT, OTHER, OTHER]
    assert opened[OTHER].token == "43:two"


async def test_a_bot_removed_and_registered_anew_is_opened_anew(
    roster: BotRegistry, shelf: PlainShelf, opened: dict[BotId, BotAccess]
) -> None:
    await shelf.put(BOT, "42:one", TELEGRAM)
    await roster.load()
    await shelf.remove(BOT)
    await roster.load()
    await shelf.put(BOT, "42:one", TELEGRAM)
    await roster.load()

    assert opened[BOT].token == "42:one"


async def test_a_bot_added_here_is_not_what_the_store_says(
    roster: BotRegistry, shelf: PlainShelf, opened: dict[BotId, BotAccess]
) -> None:
    roster.add("42:mine", TELEGRAM)
    await shelf.put(BOT, "42:theirs", TELEGRAM)
    await roster.load()
    await shelf.remove(BOT)
    await roster.load()

    assert opened[BOT].token == "42:mine"


async def test_a_store_that_is_away_takes_no_bot_away(
    roster: BotRegistry, shelf: PlainShelf, opened: dict[BotId, BotAccess], caplog: pytest.LogCaptureFixture
) -> None:
    await shelf.put(BOT, "42:one", TELEGRAM)
    await roster.load()
    shelf.trouble = StoreAwayError("away")

    await roster.look()

    assert BOT in opened
    assert not caplog.records


async def test_a_wrong_key_is_told_once(
    roster: BotRegistry, shelf: PlainShelf, caplog: pytest.LogCaptureFixture
) -> None:
    shelf.trouble = WrongKeyError("no key fits")
    with caplog.at_level(logging.WARNING):
        await roster.look()
        await roster.look()

    assert [record.getMessage() for record in caplog.records] == [
        "what is registered cannot be read: no key fits"
    ]


class DamagedShelf(PlainShelf):
    """No key opens what is not sealed by the word."""

    async def open(self, bot: BotRecord) -> str:
        if not bot.sealed.startswith(b"sealed "):
            raise WrongKeyError("no key fits")
        return await super().open(bot)

    def damage(self, bot: BotId) -> None:
        self.kept[bot] = BotRecord(bot, b"\x00\xff", TELEGRAM)


async def test_a_bot_whose_token_is_unreadable_stops_no_other_bot(
    opened: dict[BotId, BotAccess], caplog: pytest.LogCaptureFixture
) -> None:
    shelf = DamagedShelf()
    for bot in (BOT, OTHER):
        await shelf.put(bot, f"{bot}:token", TELEGRAM)
    shelf.damage(BOT)
    roster = BotRegistry(opened, shelf, {})
    await roster.load()

    for _ in range(3):
        await roster.unseal()
        await roster.look()

    assert list(opened) == [OTHER]
    [record] = caplog.records
    assert record.getMessage() == "bot 42 is left out, its stored token is unreadable: no key fits"
    await shelf.put(BOT, "42:new", TELEGRAM)
    await roster.look()
    assert opened[BOT].token == "42:new"


async def test_a_key_that_opens_no_bot_at_all_is_an_error(opened: dict[BotId, BotAccess]) -> None:
    shelf = DamagedShelf()
    for bot in (BOT, OTHER):
        shelf.damage(bot)
    roster = BotRegistry(opened, shelf, {})
    await roster.load()

    with pytest.raises(WrongKeyError, match="no key fits"):
        await roster.unseal()


async def test_a_token_of_this_process_is_used_at_the_address_of_the_registered_bot(
    shelf: PlainShelf, opened: dict[BotId, BotAccess]
) -> None:
    """TELEGRAM_BOT_TOKEN beside a bot of a local Bot API server sent everything to Telegram's own."""
    await shelf.put(BOT, "42:one", "http://127.0.0.1:8081")
    await shelf.put(OTHER, "43:one", "http://127.0.0.1:8081")
    roster = BotRegistry(opened, shelf, {})
    roster.add("42:two", None)
    roster.add("43:two", TELEGRAM)

    await roster.load()

    assert (opened[BOT].token, opened[BOT].api_url) == ("42:two", "http://127.0.0.1:8081")
    assert opened[OTHER].api_url == TELEGRAM


async def test_a_new_token_leaves_a_bot_at_its_own_server(roster: BotRegistry, shelf: PlainShelf) -> None:
    await roster.register("42:one", "http://127.0.0.1:8081")
    await roster.register("42:two", None)
    assert shelf.kept[BOT].api_url == "http://127.0.0.1:8081"

    await roster.register("42:two", TELEGRAM)
    assert shelf.kept[BOT].api_url == TELEGRAM
