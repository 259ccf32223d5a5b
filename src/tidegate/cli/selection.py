"""Which messages are meant: those of a filter, or those named."""

from collections.abc import Sequence

import msgspec

from tidegate.errors import BadInputError
from tidegate.model import BotId, ChatId, Record, State, TicketId
from tidegate.outbox.admission import check_chat
from tidegate.outbox.base import Outbox

LETTERS = frozenset({State.DEAD, State.PARKED})
WAITING = frozenset({State.QUEUED, State.RETRY})
COUNTED = 10_000  # a larger number is "more than" this


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """`before`: put, or ended, before that time; so what happens meanwhile is not swept along."""

    states: frozenset[State]
    bot: BotId | None = None
    chat_id: ChatId | None = None
    reason: str | None = None
    before: float | None = None

    async def records(self, outbox: Outbox, limit: int) -> list[Record]:
        return await outbox.records(**msgspec.structs.asdict(self), limit=limit)

    async def how_many(self, outbox: Outbox) -> int:
        """Exact up to COUNTED; one more than that where there are more."""
        return len(await self.records(outbox, COUNTED + 1))


def bot_of(number: int | None) -> BotId | None:
    return None if number is None else BotId(number)


def chat_of(text: str | None, option: str = "--chat") -> ChatId | None:
    try:
        return None if text is None else check_chat(text)
    except BadInputError as error:
        raise BadInputError(f"{option}: {error}") from error


async def find(outbox: Outbox, ids: Sequence[str]) -> list[Record]:
    """The records of these ids, each once. Raises BadInputError if one is not known."""
    found = [(ticket, await outbox.find(TicketId(ticket))) for ticket in dict.fromkeys(ids)]
    unknown = [ticket for ticket, record in found if record is None]
    if unknown:
        raise BadInputError(
            f"no message {unknown[0]} is known here: it was never put, or ended too long ago; "
            "look with tidegate queue list --state any"
        )
    return [record for _, record in found if record is not None]


def amount(count: int, thing: str, things: str | None = None) -> str:
    """`1 message`, `3 messages`."""
    return f"{count:,} {thing if count == 1 else things or thing + 's'}"


def found(count: int, thing: str) -> str:
    """How many a selection found: what was not counted to the end is said so."""
    return f"more than {COUNTED:,} {thing}s" if count > COUNTED else amount(count, thing)
