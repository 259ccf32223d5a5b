"""From a store that was named, or not, to the gate that opens it."""

from pathlib import Path

from tidegate.app import Tidegate
from tidegate.errors import BadInputError
from tidegate.model import BotId
from tidegate.settings import Settings


def gate_at(store: str | None, *, create: bool = False) -> Tidegate:
    """The gate of a store, not open yet. A store that does not exist is an error, unless it may be made."""
    settings = Settings.read()
    place = store or settings.tidegate_store
    if not create:
        _check_there(place)
    return Tidegate(place, settings=settings)


def _check_there(place: str) -> None:
    name = place.removeprefix("sqlite:///")
    if "://" in name:
        return
    file = Path(name)
    if not file.exists():
        raise BadInputError(f"there is no store at {place}: name it with --store, or begin with bot add")
    if file.is_file() and file.stat().st_size == 0:  # it may have been one: a look must not make it new
        raise BadInputError(f"{place} is empty: restore a backup, or remove it and begin with bot add")


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
