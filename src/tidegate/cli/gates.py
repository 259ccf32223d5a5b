"""From a store that was named, or not, to the gate that opens it."""

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from tidegate.app import Tidegate
from tidegate.cli.places import is_redis, place_of, shown
from tidegate.errors import BadInputError, StoreAwayError
from tidegate.model import BotId
from tidegate.settings import Settings


def gate_at(store: str | None, *, create: bool = False) -> Tidegate:
    """The gate of a store, not open yet. A store that does not exist is an error, unless it may be made."""
    settings = Settings.read()
    place = store or settings.tidegate_store
    if not create:
        check_there(place)
    return Tidegate(place, settings=settings)


def check_there(place: str) -> None:
    """Raises BadInputError for a file that is not there, or is empty."""
    name = place.removeprefix("sqlite:///")
    if "://" in name:
        return
    file = Path(name)
    if not file.exists():
        raise BadInputError(
            f"there is no store at {shown(place)}: name it with --store, or begin with bot add"
        )
    if file.is_file() and file.stat().st_size == 0:  # it may have been one: a look must not make it new
        raise BadInputError(f"{place} is empty: restore a backup, or remove it and begin with bot add")


@asynccontextmanager
async def reached(gate: Tidegate, store: str | None) -> AsyncIterator[Tidegate]:
    """The gate, open. Raises StoreAwayError that names the store if that is away, now or meanwhile."""
    place = place_of(store)
    async with gate:
        if not gate.outbox.health().ready:
            advice = "start Redis there, or correct --store or TIDEGATE_STORE"
            raise StoreAwayError(f"{shown(place)} cannot be reached: {advice}")
        try:
            yield gate
        except StoreAwayError as error:
            if not is_redis(place):
                raise
            raise StoreAwayError(f"{shown(place)}: {error}") from error


@contextmanager
def quietly() -> Iterator[None]:
    """For commands that look or act once: warnings about the store are for those that stay."""
    log = logging.getLogger("tidegate")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def choose_bot(gate: Tidegate, number: int | None) -> BotId:
    """The bot that is meant, of an open gate: the one named, or the only one."""
    known = sorted(bot.id for bot in gate.bots())
    named = ", ".join(map(str, known))
    if not known:
        raise BadInputError("no bot is registered in this store: begin with tidegate bot add")
    if number is None and len(known) > 1:
        raise BadInputError(f"several bots are registered: say which one with --bot ({named})")
    if number is not None and number not in known:
        raise BadInputError(f"--bot: {number} is not registered in this store, but {named}")
    return BotId(known[0] if number is None else number)
