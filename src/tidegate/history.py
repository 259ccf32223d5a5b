"""The history of messages in and out: its records, the port of its store, and `gate.history`.

History is a record for people, not the truth: it is written a moment after the fact, and a process that is
killed takes about a second of it along. What waits and what was accepted is in the outbox.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple, Protocol

import msgspec

from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.model import BotId, ChatId, TicketId
from tidegate.outbox.admission import check_chat
from tidegate.store_opener import StoreOpener

KEEP_DAYS: Final = 30.0  # if nothing else is set
DAY: Final = 86_400.0  # seconds
LARGEST_PAGE: Final = 1_000  # messages
LONGEST_CHAIN: Final = 100  # messages above one, and replies to it
MOST_ATTEMPTS: Final = 1_000  # of one message that are shown
PURGED_AT_ONCE: Final = 1_000  # rows in a transaction
PAUSE_OF_PURGE: Final = 0.05  # seconds between two of them, in which others write

Direction = Literal["in", "out"]


class HistoryState(StrEnum):
    """How a message ended; `received` is every incoming one."""

    RECEIVED = "received"
    DELIVERED = "delivered"
    DEAD = "dead"
    PARKED = "parked"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    REPLACED = "replaced"


class HistoryRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row to be written. `key` is the same whenever the same thing is recorded: it is stored once."""

    key: str
    bot: int
    direction: Direction
    chat_id: str
    telegram_message_id: int | None
    reply_to_message_id: int | None
    user_id: int | None
    kind: str
    is_change: bool
    text: str | None
    state: str
    created_at: float
    ended_at: float | None = None
    ticket: str | None = None
    priority: str | None = None
    attempts: int | None = None
    reason: str | None = None
    description: str | None = None


class AttemptOutcome(StrEnum):
    """The outcome of an attempt that did not deliver."""

    REFUSED = "refused"  # 429
    RETRY = "retry"
    UNKNOWN = "unknown"  # the request left, and no answer came
    MIGRATED = "migrated"
    DEAD = "dead"
    NOT_SENT = "not_sent"
    UNREACHABLE = "unreachable"  # the bot could not send


class AttemptRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row to be written of an attempt that did not deliver. `key` is that of a `HistoryRow`."""

    key: str
    ticket: str
    bot: int
    chat_id: str
    number: int
    at: float
    seconds: float
    outcome: str
    reason: str | None = None
    description: str | None = None
    wait: float | None = None


RecordedRow = HistoryRow | AttemptRow


class MessageAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt to send a queued message that did not deliver it, and the answer.

    `number` is 1 for the first; attempts that are not counted repeat one. `at` is when it ended, after
    `seconds`. `wait`: seconds after which it, or its bot, tries again; of a 429 what Telegram has asked for.
    """

    ticket: TicketId
    bot: BotId
    chat_id: ChatId
    number: int
    at: float
    seconds: float
    outcome: AttemptOutcome
    reason: str | None = None  # a word, or what has failed
    description: str | None = None  # Telegram's
    wait: float | None = None


class ErasedRows(NamedTuple):
    messages: int
    attempts: int


class HistoryMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that came in or went out, or a change of one. Times are seconds since the Unix epoch.

    `kind` is the method of an outgoing one, and Telegram's name of the update of an incoming one.
    `is_change`: an edit or a deletion of the message with this `telegram_message_id`. `ticket` is None for
    calls that were made directly, past the queue.
    """

    id: int
    bot: BotId
    direction: Direction
    chat_id: ChatId
    telegram_message_id: int | None = None
    reply_to_message_id: int | None = None
    user_id: int | None = None
    kind: str
    is_change: bool = False
    text: str | None = None
    state: HistoryState
    reason: str | None = None
    description: str | None = None
    ticket: TicketId | None = None
    priority: str | None = None
    attempts: int | None = None
    created_at: float  # when it came in, or was put
    ended_at: float | None = None


class HistoryFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects the messages to which everything applies that is given.

    `since` and `until` are about `created_at`. `words`: all are in the text; one that ends with * is the
    beginning of a word.
    """

    bot: BotId | None = None
    chat_id: ChatId | None = None
    direction: Direction | None = None
    states: tuple[HistoryState, ...] = ()
    since: float | None = None
    until: float | None = None
    words: tuple[str, ...] = ()


class HistoryPage(msgspec.Struct, frozen=True):
    """Messages, the newest first. `cursor` leads to the next page; None: this is the last one."""

    messages: list[HistoryMessage]
    cursor: str | None = None


class ReplyChain(msgspec.Struct, frozen=True, kw_only=True):
    """A message, the messages that it replies to, the first one first, and the replies to it, likewise."""

    message: HistoryMessage
    above: list[HistoryMessage]
    replies: list[HistoryMessage]


class HistoryStats(msgspec.Struct, frozen=True, kw_only=True):
    """`size` in bytes: of the table with its indexes on PostgreSQL, of the whole file on SQLite."""

    messages: int
    oldest: float | None
    newest: float | None
    size: int | None


class HistoryStore(Protocol):
    """Where history is kept. Every verb is one transaction, and raises StoreError."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def write(self, rows: Sequence[RecordedRow]) -> None:
        """Add rows, all or none; those whose keys are known are left out."""

    async def page(self, wanted: HistoryFilter, limit: int, cursor: str | None = None) -> HistoryPage:
        """Return messages, the newest first. Raises BadInputError for a cursor that is none."""
        ...

    async def find(
        self, chat_id: ChatId, message_id: int, bot: BotId | None = None
    ) -> list[HistoryMessage]: ...

    async def find_ticket(self, ticket: TicketId) -> list[HistoryMessage]: ...

    async def attempts(self, ticket: TicketId, limit: int) -> list[MessageAttempt]:
        """Return the last attempts that did not deliver a message, the oldest first."""
        ...

    async def chain(
        self, chat_id: ChatId, message_id: int, bot: BotId | None, depth: int
    ) -> ReplyChain | None:
        """Return a message with at most `depth` messages above it and replies to it, in one statement."""
        ...

    async def stats(self) -> HistoryStats: ...

    async def erase(self, chat_id: ChatId, bot: BotId | None = None) -> ErasedRows:
        """Delete all of a chat, its words too; return how many rows there were."""
        ...

    async def purge(self, before: float, limit: int) -> int:
        """Delete rows of messages that came in or ended before a time, and of attempts before it, `limit` at
        most of each; return how many.
        """
        ...

    async def rewrite(self) -> None:
        """Leave no byte of what was erased in a file. Raises StoreError if that fails."""


class HistoryHost(Protocol):
    """The part of the gate that history needs."""

    clock: Clock

    def bot_id(self, bot: Any) -> BotId: ...  # noqa: ANN401  (a number, a token or an object of a library)


class History:
    """`gate.history`: what was recorded. Looking at it creates no database, and records nothing.

    A database that was not made yet holds nothing. Raises StoreAwayError while it cannot be reached.
    """

    def __init__(
        self,
        host: HistoryHost,
        make_store: Callable[[], HistoryStore],
        exist: Callable[[], Awaitable[bool]],
    ) -> None:
        self._host = host
        self._store = StoreOpener(make_store, exist)

    async def list(
        self,
        *,
        bot: object = None,
        chat_id: ChatId | None = None,
        direction: Direction | None = None,
        states: Iterable[HistoryState | str] = (),
        since: float | None = None,
        until: float | None = None,
        text: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> HistoryPage:
        """Return messages, the newest first, from where `cursor` of an earlier page points.

        `text`: only those with all of these words; `pay*` is every word that begins with pay. The newest
        first is by `created_at`, and with `text` by when they were recorded.
        """
        wanted = HistoryFilter(
            bot=self._bot(bot),
            chat_id=None if chat_id is None else check_chat(chat_id),
            direction=_checked_direction(direction),
            states=tuple(map(_checked_state, states)),
            since=since,
            until=until,
            words=() if text is None else words_of(text),
        )
        if not 1 <= limit <= LARGEST_PAGE:
            raise BadInputError(f"limit is {limit}: give 1 to {LARGEST_PAGE:,}")
        if not await self.exist():
            return HistoryPage([])
        return await (await self.opened()).page(wanted, limit, cursor)

    async def search(self, text: str, **options: Any) -> HistoryPage:  # noqa: ANN401  (those of `list`)
        """Return messages that have all of these words. `options` are those of `list`."""
        return await self.list(text=text, **options)

    async def find(
        self,
        chat_id: ChatId | None = None,
        message_id: int | None = None,
        *,
        bot: object = None,
        ticket: str | None = None,
    ) -> "FoundMessages":
        """Return a message and its changes, the oldest first: by its id in a chat, or by its ticket.

        Several bots may have seen a message of a group; in private chats each bot counts for itself: name the
        bot. A ticket has several rows if it was an album, or was replayed.
        """
        if (ticket is None) == (chat_id is None) or (chat_id is None) != (message_id is None):
            raise BadInputError("find takes a chat_id and a message_id, or ticket=…: give one of both")
        if not await self.exist():
            return []
        store = await self.opened()
        if chat_id is None or message_id is None:
            return await store.find_ticket(TicketId(str(ticket)))
        return await store.find(check_chat(chat_id), message_id, self._bot(bot))

    async def attempts(self, ticket: str) -> "RecordedAttempts":
        """Return the attempts that did not deliver a queued message, the oldest first; 1,000 at most.

        The attempt that delivered it is in its record alone.
        """
        if not await self.exist():
            return []
        return await (await self.opened()).attempts(TicketId(str(ticket)), MOST_ATTEMPTS)

    async def chain(
        self, chat_id: ChatId, message_id: int, *, bot: object = None, depth: int = 20
    ) -> ReplyChain | None:
        """Return a message, what it replies to, and the replies to it; None if it is not recorded.

        At most `depth` of each. Without a bot, it is that of the bot that saw the message last.
        """
        if not 0 <= depth <= LONGEST_CHAIN:
            raise BadInputError(f"depth is {depth}: give 0 to {LONGEST_CHAIN}")
        if not await self.exist():
            return None
        return await (await self.opened()).chain(check_chat(chat_id), message_id, self._bot(bot), depth)

    async def stats(self) -> HistoryStats:
        """Return how many messages are recorded, of which time, and how large that is."""
        if not await self.exist():
            return HistoryStats(messages=0, oldest=None, newest=None, size=None)
        return await (await self.opened()).stats()

    async def purge(self, before: float) -> int:
        """Delete what came in or ended before a time, in small steps; return how many rows that were."""
        if not await self.exist():
            return 0
        store, purged = await self.opened(), 0
        while some := await store.purge(before, PURGED_AT_ONCE):
            purged += some
            await self._host.clock.sleep(PAUSE_OF_PURGE)
        return purged

    async def forget(self, chat_id: ChatId, bot: object = None, *, rewrite: bool = False) -> int:
        """Delete everything about a chat; return how many messages there were. Creates no database.

        With `rewrite`, a SQLite file is then written anew, so that nothing of them can be found in it.
        """
        if not await self.exist():
            return 0
        store = await self.opened()
        erased = await store.erase(check_chat(chat_id), self._bot(bot))
        if any(erased) and rewrite:
            await store.rewrite()
        return erased.messages

    async def exist(self) -> bool:
        """Return whether there may be a history: whether its database was made. Creates none."""
        return await self._store.may_hold_rows()

    async def opened(self) -> HistoryStore:
        """Return the open store. Raises StoreAwayError."""
        return await self._store.opened()

    async def close(self) -> None:
        """Disconnect. It is opened again when it is needed."""
        await self._store.close()

    def _bot(self, bot: object) -> BotId | None:
        """A number need not be that of a bot that is known here: its messages are recorded all the same."""
        if bot is None or isinstance(bot, int):
            return None if bot is None else BotId(bot)
        return self._host.bot_id(bot)


FoundMessages = list[HistoryMessage]  # `list` is a method above
RecordedAttempts = list[MessageAttempt]


def words_of(text: str) -> tuple[str, ...]:
    """Return the words of a search. Raises BadInputError if there are none."""
    words = tuple(word for word in text.split() if any(map(str.isalnum, word)))
    if not words:
        raise BadInputError(f"{text!r} has no word to search for: write some letters or digits")
    return words


def _checked_direction(direction: object) -> Direction | None:
    if direction not in (None, "in", "out"):
        raise BadInputError(f'direction is {direction!r}: it is "in" or "out"')
    return direction


def _checked_state(state: str) -> HistoryState:
    try:
        return HistoryState(state)
    except ValueError:
        raise BadInputError(
            f"there is no state {str(state)!r} in history: use {', '.join(HistoryState)}"
        ) from None
