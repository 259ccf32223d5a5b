"""The ports of the outbox: what a sender needs of every store, and what an operator needs.

Order holds within a line (one priority of one chat of one bot), with one call in flight for each chat.
Every verb is one atomic step: it happens as a whole or not at all, and is never seen half done.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from tidegate.model import (
    BotId,
    BotLimits,
    ChatId,
    Claim,
    Message,
    Outcome,
    Priority,
    Rate,
    Record,
    Settlement,
    State,
    Ticket,
    TicketId,
    Why,
)
from tidegate.pacing.rules import Family


class OutboxStats(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of messages by state. `high`, `normal`, `low` wait in line; `retry` wait for their next try.

    `oldest_at` is the time from which the oldest message that waits could have gone: the later of its put (or
    replay) and its `not_before`, which has passed. None if no message waits that may go by its time.
    """

    high: int = 0
    normal: int = 0
    low: int = 0
    retry: int = 0
    sending: int = 0
    parked: int = 0
    dead: int = 0
    delivered: int = 0
    expired: int = 0
    cancelled: int = 0
    replaced: int = 0
    refused: int = 0  # 429s heard
    uncertain: int = 0  # calls whose slots cooled without an answer
    urgent: int = 0  # calls that took a slot when none was free
    direct: int = 0  # direct calls made, each attempt; those of another process a few seconds later
    direct_refused: int = 0  # of these, answered 429
    direct_failed: int = 0  # of these, answered 5xx
    direct_given_up: int = 0  # direct calls not made in time: `max_wait` had passed
    spooled: int = 0  # accepted by this process, and on its disk until the store can be reached
    oldest_at: float | None = None  # seconds since the epoch

    @property
    def waiting(self) -> int:
        return self.high + self.normal + self.low + self.retry

    @classmethod
    def of(cls, counts: Mapping[str, int], oldest_at: float | None = None, **others: int) -> "OutboxStats":
        """Make it of counts by name; names that it does not have are left out."""
        known = {name: count for name, count in counts.items() if name in cls.__struct_fields__}
        return cls(**known | others, oldest_at=oldest_at)


def stats_of_bots(
    counts: Mapping[tuple[BotId, str], int], oldest: Mapping[BotId, float]
) -> dict[BotId, OutboxStats]:
    """The statistics of each bot that a count names."""
    found: dict[BotId, dict[str, int]] = {}
    for (bot, name), count in counts.items():
        found.setdefault(bot, {})[name] = count
    return {bot: OutboxStats.of(named, oldest.get(bot)) for bot, named in found.items()}


def stats_of_all(
    counts: Mapping[tuple[BotId, str], int], oldest: Mapping[BotId, float], **others: int
) -> OutboxStats:
    """The statistics of all bots together."""
    totals: Counter[str] = Counter()
    for (_, name), count in counts.items():
        totals[name] += count
    return OutboxStats.of(totals, min(oldest.values(), default=None), **others)


class BotCalls(msgspec.Struct, frozen=True, array_like=True):
    """Calls of a bot to Telegram that a limit counts, a second, on average over the last seconds."""

    bot: BotId
    made: float
    refused: float  # of these, answered 429


class ProcessVitals(msgspec.Struct, frozen=True, kw_only=True):
    """How a process that delivers does. The delay of its event loop is of the last minute, in seconds."""

    process: str  # host and number
    calls: tuple[BotCalls, ...] = ()
    loop_p99: float | None = None  # None: it is not watched


class StoreHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The health of a store as this process knows it; `reasons` say which promise is not kept.

    There may be reasons while it is ready: something to know that needs nobody's help.
    """

    ready: bool = True
    spooled: int = 0
    reasons: tuple[str, ...] = ()
    bots: tuple[BotId, ...] = ()  # for which the process delivers
    vitals: tuple[ProcessVitals, ...] = ()  # of the processes that deliver

    def with_problems(self, problems: Iterable[str]) -> "StoreHealth":
        """The health with further problems. With any of them it is not ready."""
        more = tuple(problems)
        if not more:
            return self
        return msgspec.structs.replace(self, ready=False, reasons=(*self.reasons, *more))

    def with_notes(self, notes: Iterable[str]) -> "StoreHealth":
        """The health with further reasons that do not make it unready."""
        return msgspec.structs.replace(self, reasons=(*self.reasons, *notes))


class LimitState(msgspec.Struct, frozen=True):
    """A bot (chat None) or chat that is not as its rules say."""

    bot: BotId
    chat_id: ChatId | None = None
    allowed: Rate | None = None  # the limit that 429s have taught, if it is known here
    closed_for: float = 0.0  # seconds, by a 429
    obstacle: str = ""  # why the bot cannot send, in an outage


class LetterGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The dead letters of a bot that ended in one state for one reason. Times are seconds since the epoch."""

    bot: BotId
    state: State
    reason: str | None
    count: int
    first_at: float
    last_at: float
    latest: TicketId  # the one that ended last


class Turn(msgspec.Struct, frozen=True):
    """The right to make one direct call now. End it, whatever happens."""

    bot: BotId
    chat_id: ChatId
    token: int


class RecordPage(msgspec.Struct, frozen=True):
    """`cursor` leads to further ones; an empty one says that there are none."""

    records: list[Record]
    cursor: str = ""


class OutboxSender(Protocol):
    """The outbox for those who put messages, deliver them, and make direct calls."""

    async def start_sending(self) -> None:
        """Prepare to claim and to take turns. Both do it themselves if it was not called.

        Raises NotTheSenderError where the store has one sender only, and another process is it.
        """

    async def put(self, messages: Sequence[Message]) -> list[Ticket]:
        """Accept messages, all or none. Once this has returned, they are never lost.

        A dedup key that was put within its lifetime gives the first ticket and stores nothing; a coalesce
        key that waits is replaced in its place.
        """
        ...

    async def claim(self, room: int) -> list[Claim]:
        """Wait until messages may go, and take up to `room` of them with their slots and a lease.

        Cancelling it takes nothing.
        """
        ...

    def may_claim(self) -> bool:
        """Return whether a message may go now, as far as this process knows without asking the store.

        What is paused, closed or waits for a limit may not.
        """
        return False

    async def cool(self, held: Iterable[Claim | Turn]) -> None:
        """No answer came for too long: let the slots cool from now. Claims and turns stay held."""

    async def extend(self, claims: Iterable[Claim]) -> None:
        """Renew the leases of claims that are still being worked on."""

    async def settle(self, settlements: Sequence[Settlement]) -> list[Record | None]:
        """Say how claims ended. Returns the records after the step.

        None where the claim is no longer held: its settlement changes nothing.
        """
        ...

    async def turn(
        self,
        bot: BotId,
        chat_id: ChatId,
        family: Family,
        cost: int,
        priority: Priority = Priority.HIGH,
        *,
        paid: bool = False,
        max_wait: float | None = None,
    ) -> Turn:
        """Wait for the right to make one direct call. Cancelling it gives it back.

        Turns share by weight with messages of the same priority. `paid`: under the limit of paid broadcasts.
        Raises TimeoutError if it is not granted within `max_wait` seconds.
        """
        ...

    async def end_turn(self, turn: Turn, outcome: Outcome, age: float = 0.0) -> None:
        """Say how a direct call ended; its slots cool, or are free at once if it was not sent."""

    def note_call(self, bot: BotId, call: str, outcome: Outcome | None, *, in_lane: bool) -> None:
        """Count an attempt at a direct call in `stats`; None: it was given up, as its turn came too late.

        Costs no step of the store: counts are in memory first. A refusal of a call without a turn
        (not `in_lane`) is logged here.
        """

    async def wait_for(self, bot: BotId, chat_id: ChatId, family: Family, cost: int) -> float:
        """Seconds until a direct call could be made as things stand. Takes nothing."""
        ...


class OutboxOperator(Protocol):
    """The outbox for those who look at messages and change what becomes of them."""

    async def find(self, ticket: TicketId) -> Record | None:
        """The record of a message; None if it was never put, or is forgotten."""
        ...

    async def ids(self, start: str, end: str = "", *, limit: int = 100) -> list[TicketId]:
        """The ids of known messages that begin with `start` and end with `end`, sorted; `limit` at most."""
        ...

    async def find_by_key(self, bot: BotId, dedup_key: str) -> TicketId | None:
        """The message that was accepted last with this dedup key; None if none is known."""
        ...

    async def settled(self, ticket: TicketId) -> Record:
        """Wait until a message has ended (or is parked). Raises LookupError if it is not known."""
        ...

    async def why(self, ticket: TicketId) -> Why | None:
        """The things that a message waits for; None if it is not known."""
        ...

    async def drained(self, bot: BotId | None = None) -> None:
        """Wait until nothing waits and nothing is being sent."""

    async def records(
        self,
        *,
        bot: BotId | None = None,
        chat_id: ChatId | None = None,
        states: frozenset[State] = frozenset(State),
        reason: str | None = None,
        before: float | None = None,
        limit: int = 100,
    ) -> list[Record]:
        """Known messages, oldest first. `before`: that ended, or else were put, before that time."""
        ...

    async def record_page(
        self,
        *,
        bot: BotId | None = None,
        chat_id: ChatId | None = None,
        states: frozenset[State] = frozenset(State),
        reason: str | None = None,
        cursor: str = "",
        limit: int = 100,
    ) -> RecordPage:
        """Known messages in pages, oldest first; the cost of a page does not depend on those before it.

        What comes, ends or is forgotten between two pages moves no other message from one to another. A page
        has fewer than `limit`, or none, and a cursor to go on, if they are too far apart to be found at once.
        Raises BadInputError for a foreign cursor.
        """
        ...

    async def dead(
        self,
        *,
        bot: BotId | None = None,
        chat_id: ChatId | None = None,
        reason: str | None = None,
        states: frozenset[State] = frozenset({State.DEAD, State.PARKED}),
        limit: int = 100,
    ) -> list[Record]:
        """Dead letters, oldest first."""
        ...

    async def letters_by_reason(
        self, bot: BotId | None = None, ended_by: float | None = None
    ) -> list[LetterGroup]:
        """Dead letters, counted by bot, state and reason, the largest group first.

        `ended_by`: only those that ended then or before. Counted without their bodies, in one step or
        several short ones: each letter as it was in one of them.
        """
        ...

    async def tally(self, bot: BotId, dedup_prefix: str) -> dict[tuple[State, str | None], int]:
        """Numbers of messages by state and reason, of those whose dedup key begins with the prefix.

        Counted in short steps, so that nobody waits for it: each message as it was in one of them.
        """
        ...

    def keyed(
        self, bot: BotId, dedup_prefix: str, states: frozenset[State] = frozenset(State)
    ) -> AsyncIterator[TicketId]:
        """The ids of messages whose dedup key begins with the prefix, in no order.

        Found in short steps, so that nobody waits for it. One whose state changes meanwhile may be missed; an
        id may come twice.
        """
        ...

    async def keyed_records(
        self,
        bot: BotId,
        dedup_prefix: str,
        states: frozenset[State],
        *,
        cursor: str = "",
        limit: int = 100,
    ) -> RecordPage:
        """At most `limit` messages in these states whose dedup key begins with the prefix, in no order.

        One short step: a page may have few messages, or none, and a cursor all the same. A message whose
        state changes meanwhile may be missed, or come twice. Raises BadInputError for a foreign cursor.
        """
        ...

    async def settle_crashed(self) -> int:
        """Settle what a sender that died was sending, as the next one would; returns how many.

        0 while a sender runs, which does it itself, and for stores whose leases run out.
        """
        return 0

    async def cancel(self, ids: Iterable[TicketId]) -> int:
        """Take messages out that are not being sent; returns how many."""
        ...

    async def reprioritize(self, ids: Iterable[TicketId], priority: Priority) -> int:
        """Give messages that wait another priority; returns how many of them have it now.

        In the line of that priority each stands in its place by order of arrival (one that is due later joins
        it then), and that line is in this order as a whole. State, attempts, deadlines and keys stay. Urgent
        messages and those that are being sent stay as they are.
        """
        ...

    async def replay(self, ids: Iterable[TicketId]) -> int:
        """Queue dead or parked messages anew, as if put now; returns how many."""
        ...

    async def drop(self, ids: Iterable[TicketId]) -> int:
        """Forget dead or parked messages; returns how many."""
        ...

    async def forget(self, chat_id: ChatId, bot: BotId | None = None) -> int:
        """Erase every message to a chat, waiting or ended; returns how many. One that is being sent stays."""
        ...

    async def pause(self, bot: BotId, chat_id: ChatId | None = None) -> None:
        """Hold what is queued for a bot, or for one chat of it. Direct calls go on."""

    async def resume(self, bot: BotId, chat_id: ChatId | None = None) -> None:
        """Undo `pause`."""

    async def learned(self) -> dict[tuple[BotId, ChatId | None], Rate]:
        """The limits that 429s have cut, of a bot (None) or one of its chats, and what is allowed now."""
        ...

    async def limits(self, *, chats: bool = True) -> list[LimitState]:
        """Bots and, if `chats`, chats that are closed, that learned a limit, or that cannot send.

        Bots alone are few; of chats every one that is known is looked at.
        """
        ...

    async def open_limits(self, bot: BotId, chat_id: ChatId | None = None) -> None:
        """End the closures of a bot and all its chats, or of one chat, and the wait of an outage."""

    async def own_limits(self) -> dict[BotId, BotLimits]:
        """The limits that were set for single bots. A bot that is not there has those of the rules."""
        ...

    async def set_limits(self, bot: BotId, limits: BotLimits) -> None:
        """Give a bot limits of its own, instead of those that it had before; empty ones: those of the rules.

        They hold at once, in every process, and survive a restart. Calls that were made before count, so a
        new limit is not exceeded from then on; a longer window begins full. A learned limit that its 429s
        have taught goes on below the new one, or ends if it has other seconds. Raises BadInputError.
        """

    async def stats(self) -> OutboxStats:
        """Numbers of messages by state."""
        ...

    async def stats_by_bot(self) -> dict[BotId, OutboxStats]:
        """The same for each bot that has messages or had some.

        `uncertain`, `urgent` and `spooled` are not counted by bot, and 0 here.
        """
        ...


class Outbox(OutboxSender, OutboxOperator, Protocol):
    """One store of messages and of the schedule that paces them."""

    is_durable: bool = True  # whether messages outlive the process

    async def open(self) -> None:
        """Prepare the store; one on disk recovers what a crash left behind."""

    async def close(self) -> None:
        """Release everything. What waits stays in the store."""

    def health(self) -> StoreHealth:
        """The health as this process knows it, without asking the store."""
        return StoreHealth()
