"""The bots of a file are registered in Redis too. They stay in the file: dead letters there may need them."""

from pathlib import Path
from typing import Any

from tidegate.errors import BadInputError, WrongKeyError
from tidegate.keys import MISSING, Keys
from tidegate.outbox.bots import StoredBot
from tidegate.outbox.sqlite.bots import BotShelf
from tidegate.outbox.sqlite.file import StoreFile
from tidegate.roster import Shelf
from tidegate.settings import Settings


async def register(
    file: StoreFile, there: Shelf, path: Path, settings: Settings, *, really: bool = True
) -> dict[str, Any]:
    """Those that are not there yet, if their tokens can be opened here and encrypted there."""
    shelves = [BotShelf(file, Keys.of(key, path)) for key in dict.fromkeys((settings.tidegate_key, None))]
    known = {bot.id for bot in await there.all()}
    moved, left, why = [], [], ""
    for bot in await shelves[0].all():
        if bot.id not in known:
            try:
                if settings.tidegate_key is None:
                    raise BadInputError(MISSING)  # noqa: TRY301  (as it would be)
                token = await _token(shelves, bot)
                if really:
                    await there.put(bot.id, token, bot.api_url)
                moved.append(bot.id)
            except (WrongKeyError, BadInputError) as error:
                left.append(bot.id)
                why = str(error)
    return {"bots": moved, "bots_left": left, "why_left": why}


async def _token(shelves: list[BotShelf], bot: StoredBot) -> str:
    """By TIDEGATE_KEY, or else by the key file: the variable may be meant for Redis only."""
    for shelf in shelves[:-1]:
        try:
            return await shelf.open(bot)
        except WrongKeyError:
            continue
    return await shelves[-1].open(bot)
