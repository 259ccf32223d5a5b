"""How an operator's command uses a store: opens it, asks, closes it."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from tidegate.app import Tidegate
from tidegate.cli import loop
from tidegate.cli.gates import gate_at
from tidegate.errors import BadInputError
from tidegate.model import BotId, ChatId
from tidegate.outbox.base import Outbox
from tidegate.outbox.sqlite.lock import Holder
from tidegate.outbox.sqlite.store import SqliteOutbox
from tidegate.settings import Settings

Result = TypeVar("Result")


class Facts(NamedTuple):
    """Who sends now, which bots are registered or have messages, and which bots and chats are paused."""

    sender: Holder | None
    bots: list[BotId]
    paused: list[tuple[BotId, ChatId | None]]


def using(store: str | None, work: Callable[[Outbox], Awaitable[Result]]) -> Result:
    """What `work` makes of the open store. Never call it inside an event loop."""
    return using_gate(store, lambda gate: work(gate.outbox))


def using_gate(store: str | None, work: Callable[[Tidegate], Awaitable[Result]]) -> Result:
    """Likewise, with the bots that the store knows."""
    gate = gate_at(store)

    async def opened() -> Result:
        async with gate:
            return await work(gate)

    return loop.run(opened())


async def facts_of(gate: Tidegate) -> Facts:
    """Beyond what every store tells: nothing of senders and pauses, if it is not one in a file."""
    registered = {bot.id for bot in gate.bots()}
    outbox = gate.outbox
    if not isinstance(outbox, SqliteOutbox):
        return Facts(None, sorted(registered), [])
    paused = await outbox.pauses()
    heard_of = {bot for bot, _ in outbox.file.counts} | {bot for bot, _ in paused}
    return Facts(await outbox.sender(), sorted(registered | heard_of), paused)


def file_of(store: str | None) -> Path:
    """The file of the store that is meant. Raises BadInputError where a store is no file."""
    place = (store or Settings.read().tidegate_store).removeprefix("sqlite:///")
    if "://" in place:
        raise BadInputError("this works on a store in a file: name one with --store")
    path = Path(place)
    if path.is_dir():
        raise BadInputError(
            f"{place} is a folder: give the path of a file in it, such as {path / 'tidegate.db'}"
        )
    return path
