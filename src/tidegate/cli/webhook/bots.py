"""Whose webhook is meant: the bots of a store, and that of TELEGRAM_BOT_TOKEN. Tokens stay in here."""

from pathlib import Path

import msgspec

from tidegate.app import Tidegate
from tidegate.cli import loop
from tidegate.cli.gates import gate_at, quietly, reached
from tidegate.cli.places import file_of, is_redis, place_of
from tidegate.cli.stores import link_of
from tidegate.delivery.sender import BotAccess
from tidegate.errors import BadInputError
from tidegate.keys import Keys
from tidegate.model import BotId
from tidegate.outbox.sqlite.bots import BotShelf
from tidegate.outbox.sqlite.store import SqliteOutbox
from tidegate.roster import TELEGRAM, Roster, Shelf
from tidegate.settings import Settings

Bots = dict[BotId, BotAccess]


class Whose(msgspec.Struct, frozen=True, kw_only=True):
    """What was said of the bots: a store, a number, the address of a Bot API server."""

    store: str | None
    bot: int | None
    api_url: str | None


def find(whose: Whose) -> Bots:
    """Never call it inside an event loop. Raises BadInputError if there is none, or not the one named."""
    if whose.api_url is not None and "@" in whose.api_url:
        raise BadInputError(
            "--api-url: an address with a user or a password in it is not taken: leave it out"
        )
    found = _registered(whose)
    found |= _of_the_environment(whose.api_url, found)
    return _chosen(found, whose.bot)


def _chosen(found: Bots, number: int | None) -> Bots:
    if not found:
        raise BadInputError("no bot is known here: begin with tidegate bot add, or set TELEGRAM_BOT_TOKEN")
    if number is None:
        return found
    if number not in found:
        raise BadInputError(f"--bot: {number} is not known here, but {', '.join(map(str, sorted(found)))}")
    return {BotId(number): found[BotId(number)]}


def _of_the_environment(api_url: str | None, registered: Bots) -> Bots:
    """Its token counts more than a registered one: whoever serves the bot may have it from there, too."""
    known = Settings.read().telegram_bot_token
    if known is None:
        return {}
    alone: Bots = {}
    bot = Roster(alone, None, {}).add(known.get_secret_value().strip(), api_url or TELEGRAM)
    if api_url is None and bot.id in registered:
        return {bot.id: BotAccess(alone[bot.id].token, registered[bot.id].api_url)}
    return alone


def _registered(whose: Whose) -> Bots:
    if not _is_needed(whose.store):
        return {}
    gate = gate_at(whose.store)
    shelf = _shelf(gate, whose.store)  # here: the key may be in a file
    with quietly():
        return {} if shelf is None else loop.run(_open(gate, whose.store, shelf))


def _is_needed(store: str | None) -> bool:
    """Who has given a token need not have a store; one that was named must be there."""
    place = place_of(store)
    if place == "memory://":
        return False
    given = Settings.read().telegram_bot_token is not None
    return (
        not given or store is not None or is_redis(place) or Path(place.removeprefix("sqlite:///")).exists()
    )


async def _open(gate: Tidegate, store: str | None, shelf: Shelf) -> Bots:
    """Not through the gate: a worker may be its sender, and these calls need no turn."""
    async with reached(gate, store):
        return {bot.id: BotAccess(await shelf.open(bot), bot.api_url) for bot in await shelf.all()}


def _shelf(gate: Tidegate, store: str | None) -> Shelf | None:
    key, link = gate.settings.tidegate_key, link_of(gate)
    if link is not None:
        from tidegate.outbox.redis.bots import RedisBotShelf  # noqa: PLC0415  (its driver is an extra)

        return RedisBotShelf(link, Keys.of(key, None))
    if isinstance(gate.outbox, SqliteOutbox):
        return BotShelf(gate.outbox.file, Keys.of(key, file_of(store)))
    return None
