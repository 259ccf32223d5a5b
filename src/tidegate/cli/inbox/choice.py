"""Which parked arrivals are meant: those named by their keys, or all of a source."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tidegate.errors import BadInputError
from tidegate.inbound.arrivals import Parked, Source, bot_source, hook_source
from tidegate.inbound.inbox.base import Inbox

EVERY: Final = 1_000_000  # more than can be parked


class Which(NamedTuple):
    """What was written on the command line."""

    keys: Sequence[str] = ()
    everything: bool = False
    bot: int | None = None
    hook: str | None = None


def source_of(bot: int | None, hook: str | None) -> Source | None:
    """None: of any source."""
    if bot is not None and hook is not None:
        raise BadInputError("give either --bot or --hook, not both")
    if bot is not None:
        return bot_source(bot)
    return None if hook is None else hook_source(hook)


async def choose(inbox: Inbox, which: Which) -> list[Parked]:
    """Those meant, the oldest first: so they are replayed in the order in which they were parked.

    Raises BadInputError for a key that is not parked, or that several sources have.
    """
    source = source_of(which.bot, which.hook)
    if which.keys and which.everything:
        raise BadInputError("give either keys or --all, not both")
    if not which.keys and not which.everything:
        raise BadInputError("say which ones: their keys as tidegate inbox shows them, or --all")
    parked = (await inbox.parked(source, limit=EVERY))[::-1]
    if which.everything:
        return parked
    for key in which.keys:
        _check(key, [one.arrival.source for one in parked if one.arrival.key == key])
    return [one for one in parked if one.arrival.key in set(which.keys)]


def _check(key: str, sources: Sequence[Source]) -> None:
    if not sources:
        raise BadInputError(f"{key} is not parked: look with tidegate inbox")
    if len(sources) > 1:
        named = ", ".join(source.replace(":", " ", 1) for source in sources)
        raise BadInputError(f"{key} is parked for {named}: say which one with --bot or --hook")
