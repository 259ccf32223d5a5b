"""Messages as rows of the file: columns, numbers and queries."""

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, Self

from tidegate.errors import BadInputError
from tidegate.model import BotId, ChatId, Message, Priority, Record, State, TicketId
from tidegate.outbox.flood_control import WHOLE_BOT
from tidegate.outbox.port import LetterGroup
from tidegate.outbox.transitions import DEAD_LETTER_STATES, UNREADABLE
from tidegate.pacing.rules import Family, cost_of, family_of
from tidegate.stores.message_codec import (
    UnreadableBody,
    decode_result,
    encode_result,
    read_body,
    report_unreadable,
    stand_in,
)
from tidegate.stores.sqlite.file import Transaction
from tidegate.stores.sqlite.schema import SINCE

PRIORITIES: Final = tuple(Priority)
Buried = tuple[Record, UnreadableBody]  # a message that cannot be decoded, as it is after it was settled


class WaitingRow(NamedTuple):
    """The columns of a waiting message that the schedule needs: the first ones of its row."""

    seq: int
    bot: BotId
    chat_id: ChatId
    family: Family
    priority: int
    urgent: int
    cost: int
    paid: int
    created_at: float
    not_before: float | None
    expires_at: float | None
    retry_at: float | None
    attempts: int
    crashes: int


WAITING_COLUMNS: Final = ", ".join(WaitingRow._fields)
RECORD_COLUMNS: Final = (
    "id, bot, chat_id, priority, body,"
    " state, created_at, attempts, crashes, settled_at, reason, description, result, expires_at"
)

SETTLED_AT: Final = 9  # its place among these columns
LARGEST_SEQ: Final = 2**63 - 1
NUMBERS_PER_STEP: Final = 20_000  # messages looked at in one step, in which nobody else is served: 2 ms


def waiting_row(message: Message, seq: int, now: float) -> WaitingRow:
    method, params = message.method, message.params
    family = family_of(method)
    # `_make` is in C: this is done for every message.
    return WaitingRow._make(
        (
            seq,
            message.bot,
            message.chat_id,
            family,
            PRIORITIES.index(message.priority),
            1 if message.urgent else 0,
            0 if family == "free" else cost_of(method, params),
            1 if params.get("allow_paid_broadcast") else 0,
            now,
            message.not_before,
            message.expires_at,
            None,
            0,
            0,
        )
    )


def record_of(row: tuple[Any, ...], now: float) -> Record:
    """A record from `RECORD_COLUMNS`. One past its deadline has expired, even if that is not written.

    If its body cannot be decoded, it is shown with what its row knows, in the state that is written there.
    """
    ticket, bot, chat_id, priority, body, state, created_at, attempts, crashes = row[:9]
    settled_at, reason, description, result, expires_at = row[9:]
    if expires_at is not None and expires_at <= now and state in {State.QUEUED, State.RETRY}:
        state, settled_at = State.EXPIRED, expires_at
    message, unreadable = read_body(body, ticket, bot, chat_id), None
    if isinstance(message, UnreadableBody):
        description, unreadable = description or message.description, bytes(body)
        message = stand_in(ticket, bot, chat_id, PRIORITIES[priority])
    return Record(
        message=message,
        state=State(state),
        created_at=created_at,
        attempts=attempts,
        crashes=crashes,
        settled_at=settled_at,
        reason=reason,
        description=description,
        result=decode_result(result),
        body=unreadable,
    )


def pack_result(result: object) -> bytearray | None:
    raw = encode_result(result)
    return None if raw is None else bytearray(raw)  # which sqlite3 binds faster than bytes


def bury_unreadable(tx: Transaction, bodies: Mapping[int, UnreadableBody], now: float) -> list[Buried]:
    """Settle messages as dead whose bodies cannot be decoded; the bodies stay in their rows.

    Those that have ended by now stay as they are, except parked ones. Log the others with `report_buried`
    once this is on disk.
    """
    buried: list[Buried] = []
    for seq, body in bodies.items():
        was = tx.execute(
            "SELECT state, retry_at IS NOT NULL FROM messages"
            " WHERE seq = ? AND (settled_at IS NULL OR state = 'parked')",
            (seq,),
        ).fetchone()
        if was is None:
            continue
        row = tx.execute(
            "UPDATE messages SET state = 'dead', settled_at = ?, retry_at = NULL, reason = ?, description = ?"
            f" WHERE seq = ? RETURNING {RECORD_COLUMNS}",
            (now, UNREADABLE, body.description, seq),
        ).fetchone()
        record = record_of(row, now)
        state, retrying = was
        waited_as = "retry" if retrying else record.message.priority
        tx.count(record.message.bot, state if state in {State.SENDING, State.PARKED} else waited_as, -1)
        tx.count(record.message.bot, State.DEAD)
        buried.append((record, body))
    return buried


def report_buried(buried: Iterable[Buried]) -> None:
    for record, body in buried:
        message = record.message
        report_unreadable(message.id, message.bot, message.chat_id, body)


def next_number(tx: Transaction) -> int:
    number: int = tx.execute(
        "SELECT max(ifnull((SELECT max(seq) FROM messages), 0),"
        " ifnull((SELECT value FROM facts WHERE name = 'last_seq'), 0)) + 1"
    ).fetchone()[0]
    return number


def retire(tx: Transaction, numbers: Collection[int]) -> None:
    """Note the numbers of rows that are removed."""
    if numbers:
        tx.execute(
            "INSERT INTO facts VALUES ('last_seq', ?)"
            " ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)",
            (max(numbers),),
        )


def find(tx: Transaction, ticket: TicketId, now: float) -> Record | None:
    row = tx.execute(
        f"SELECT {RECORD_COLUMNS} FROM messages WHERE id = ? AND (forget_at IS NULL OR forget_at > ?)",
        (ticket, now),
    ).fetchone()
    return None if row is None else record_of(row, now)


def find_by_key(tx: Transaction, bot: BotId, dedup_key: str, now: float) -> TicketId | None:
    row = tx.execute(
        "SELECT id FROM messages WHERE bot = ? AND dedup_key = ? AND (forget_at IS NULL OR forget_at > ?)",
        (bot, dedup_key, now),
    ).fetchone()
    return None if row is None else TicketId(row[0])


def ids(tx: Transaction, start: str, end: str, now: float, limit: int) -> list[TicketId]:
    rows = tx.execute(
        "SELECT id FROM messages WHERE id >= ? AND id < ? AND (? = '' OR substr(id, -length(?)) = ?)"
        " AND (forget_at IS NULL OR forget_at > ?) ORDER BY id LIMIT ?",
        (start, start + "\U0010ffff", end, end, end, now, limit),
    )
    return [ticket for [ticket] in rows]


class RecordFilter(NamedTuple):
    bot: BotId | None
    chat_id: ChatId | None
    states: frozenset[State]
    reason: str | None
    before: float | None = None

    @property
    def are_letters(self) -> bool:
        """Return True if only dead letters are wanted, which are in the order of their ends."""
        return self.states <= DEAD_LETTER_STATES

    @property
    def has_index(self) -> bool:
        """Return True if no other messages are looked at than those in these states."""
        return self.are_letters or self.states == {State.RETRY}

    def step(
        self, tx: Transaction, now: float, *, cursor: str, limit: int
    ) -> tuple[list[tuple[Record, str]], str]:
        """Look for messages after a cursor, and not further than `NUMBERS_PER_STEP` without an index.

        Return each with the cursor to those after it, and the cursor at which the next step goes on; that is
        empty at the end. Raises BadInputError for a foreign cursor.
        """
        conditions = [self.place_after(cursor)] if cursor else []
        last = None
        if not self.has_index:
            after = conditions[0][1] if conditions else (0,)
            [first] = tx.execute("SELECT min(seq) FROM messages WHERE seq > ?", after).fetchone()
            if first is None:
                return [], ""
            last = first + NUMBERS_PER_STEP - 1
            conditions = [("seq BETWEEN ? AND ?", (first, last))]
        found = [
            (record_of(row[:-1], now), self.cursor_of(row)) for row in self._rows(tx, now, conditions, limit)
        ]
        return found, "" if last is None else f"{last}"

    def _rows(
        self, tx: Transaction, now: float, conditions: Iterable[tuple[str, tuple[object, ...]]], limit: int
    ) -> list[tuple[Any, ...]]:
        """Return `RECORD_COLUMNS` and `seq` of messages, in their order."""
        # Written out, so that SQLite can use the indexes of dead letters. Those of one bot, state and reason
        # are in the order of one of them; a plus before a column keeps SQLite from using it for others, and
        # sorting.
        among = ", ".join(f"'{state}'" for state in sorted(self.states))
        letters = "settled_at IS NOT NULL AND forget_at IS NULL AND" if self.are_letters else ""
        retrying = "retry_at IS NOT NULL AND" if self.states == {State.RETRY} else ""
        in_order = letters and len(self.states) == 1 and self.bot is not None and self.reason is not None
        order = "settled_at, seq" if letters else "seq"
        given: list[tuple[str, tuple[object, ...]]] = [
            (f"{'' if in_order else '+'}{name} = ?", (value,))
            for name, value in (("bot", self.bot), ("chat_id", self.chat_id), ("reason", self.reason))
            if value is not None
        ]
        if self.before is not None:
            given.append(("ifnull(settled_at, created_at) < ?", (self.before,)))
        # The first columns of a row are read in less time than its state.
        given += [*conditions, (f"state IN ({among})", ()), ("(forget_at IS NULL OR forget_at > ?)", (now,))]
        return tx.execute(
            f"SELECT {RECORD_COLUMNS}, seq FROM messages WHERE {letters} {retrying}"
            f" {' AND '.join(condition for condition, _ in given)} ORDER BY {order} LIMIT ?",
            [*(value for _, values in given for value in values), limit],
        ).fetchall()

    def place_after(self, cursor: str) -> tuple[str, tuple[object, ...]]:
        """Return the condition for what comes after a page. Raises BadInputError."""
        ended, _, seq = cursor.rpartition("_")
        try:
            if self.are_letters:
                return "(settled_at, seq) > (?, ?)", (float(ended), _checked_seq(seq))
            if not ended:
                return "seq > ?", (_checked_seq(seq),)
        except ValueError:
            pass
        raise BadInputError("the cursor is not one of this list")

    def cursor_of(self, row: tuple[Any, ...]) -> str:
        settled_at, seq = row[SETTLED_AT], row[-1]
        return f"{settled_at!r}_{seq}" if self.are_letters else f"{seq}"


def _checked_seq(text: str) -> int:
    """Raises ValueError."""
    if not text.isascii() or not text.isdecimal() or int(text) > LARGEST_SEQ:
        raise ValueError(text)
    return int(text)


def oldest(tx: Transaction, bots: Iterable[BotId], now: float) -> dict[BotId, float]:
    """The time from which the oldest message that waits may go, of each bot that has one."""
    # In the order of its index, of which only messages in flight are skipped.
    query = (
        f"SELECT {SINCE} AS since FROM messages INDEXED BY messages_since"
        f" WHERE settled_at IS NULL AND bot = ? AND state != 'sending' ORDER BY {SINCE} LIMIT 1"
    )
    found = {bot: tx.execute(query, (bot,)).fetchone() for bot in bots}
    return {bot: row[0] for bot, row in found.items() if row is not None and row[0] <= now}


def letters_by_reason(tx: Transaction, bot: BotId | None, ended_by: float | None) -> list[LetterGroup]:
    """Count dead letters, in the order of their index, which has all that is counted."""
    is_letter = "settled_at IS NOT NULL AND forget_at IS NULL AND settled_at <= ?"
    until = math.inf if ended_by is None else ended_by
    of_bot, values = ("", (until,)) if bot is None else ("AND bot = ?", (until, bot))
    counted = tx.execute(
        "SELECT bot, state, reason, count(*), min(settled_at), max(settled_at)"
        f" FROM messages INDEXED BY messages_by_reason WHERE {is_letter} {of_bot}"
        " GROUP BY bot, state, reason",
        values,
    ).fetchall()
    latest = (
        f"SELECT id FROM messages INDEXED BY messages_by_reason WHERE {is_letter}"
        " AND bot = ? AND state = ? AND reason IS ? ORDER BY settled_at DESC, seq DESC LIMIT 1"
    )
    return [
        LetterGroup(
            bot=owner,
            state=State(state),
            reason=reason,
            count=count,
            first_at=first_at,
            last_at=last_at,
            latest=tx.execute(latest, (until, owner, state, reason)).fetchone()[0],
        )
        for owner, state, reason, count, first_at, last_at in counted
    ]


class KeyRange(NamedTuple):
    """The dedup keys of a bot from `first` on, up to those that do not begin with the prefix any more."""

    bot: BotId
    prefix: str
    first: str

    @classmethod
    def of(cls, bot: BotId, prefix: str) -> Self:
        return cls(bot, prefix, prefix)

    def after(self, key: str) -> Self:
        """The rest of the range, after a key."""
        return self._replace(first=f"{key}\0")

    def rows(self, columns: str, limit: int) -> tuple[str, tuple[object, ...]]:
        """The query for the first rows, and its values."""
        # One lower bound: of two, SQLite would seek one, and compare each row with the other.
        query = (
            f"SELECT {columns} FROM messages WHERE bot = ? AND dedup_key >= ? AND dedup_key < ?"
            " ORDER BY dedup_key LIMIT ?"
        )
        return query, (self.bot, self.first, self.prefix + "\U0010ffff", limit)


def tally_step(
    tx: Transaction, keys: KeyRange, limit: int
) -> tuple[dict[tuple[State, str | None], int], KeyRange | None]:
    """Count the first messages of a range; return the rest of it, None at the end."""
    query, values = keys.rows("state, reason, dedup_key", limit)
    grouped = f"SELECT state, reason, count(*), max(dedup_key) FROM ({query}) GROUP BY state, reason"
    rows = tx.execute(grouped, values).fetchall()
    counts = {(State(state), reason): count for state, reason, count, _ in rows}
    at_end = sum(counts.values()) < limit
    return counts, None if at_end else keys.after(max(row[3] for row in rows))


def keyed_step(
    tx: Transaction, keys: KeyRange, states: frozenset[State], limit: int
) -> tuple[list[TicketId], KeyRange | None]:
    """Find the ids of the first messages of a range; return the rest of it, None at the end."""
    rows = tx.execute(*keys.rows("id, state, dedup_key", limit)).fetchall()
    rest = None if len(rows) < limit else keys.after(rows[-1][2])
    return [ticket for ticket, state, _ in rows if state in states], rest


def keyed_records_step(
    tx: Transaction, now: float, *, keys: KeyRange, states: frozenset[State], looked: int, limit: int
) -> tuple[list[Record], str]:
    """Find the first messages of a range that are in these states; return the last key that was looked at.

    At the end of the range, that key is empty.
    """
    rows = tx.execute(*keys.rows("id, state, dedup_key", looked)).fetchall()
    last = rows[-1][2] if len(rows) == looked else ""
    found = [row for row in rows if row[1] in states]
    if len(found) > limit:
        found = found[:limit]
        last = found[-1][2]
    marks = ", ".join("?" * len(found))
    records = tx.execute(
        f"SELECT {RECORD_COLUMNS} FROM messages WHERE id IN ({marks})"
        " AND (forget_at IS NULL OR forget_at > ?) ORDER BY dedup_key",
        [*(row[0] for row in found), now],
    ).fetchall()
    return [record_of(row, now) for row in records], last


def chat_now(tx: Transaction, bot: BotId, chat: ChatId) -> ChatId:
    """The present id of a chat."""
    while True:
        row = tx.execute("SELECT new FROM aliases WHERE bot = ? AND old = ?", (bot, chat)).fetchone()
        if row is None:
            return chat
        chat = row[0]


def names_of(tx: Transaction, chat: ChatId) -> list[ChatId]:
    """All names of a chat, for any bot."""
    names = [chat]
    for name in names:
        found = tx.execute(
            "SELECT old FROM aliases WHERE new = ? UNION SELECT new FROM aliases WHERE old = ?", (name, name)
        )
        names += [other for [other] in found if other not in names]
    return names


def pauses(tx: Transaction) -> list[tuple[BotId, ChatId | None]]:
    rows = tx.execute("SELECT bot, chat_id FROM pauses ORDER BY bot, chat_id")
    return [(bot, None if chat == WHOLE_BOT else chat) for bot, chat in rows]


def pauses_of(tx: Transaction, bot: BotId, chat: ChatId) -> list[str]:
    """Return what of a lane is paused: "bot", "chat", or both."""
    places = {"bot": WHOLE_BOT, "chat": chat_now(tx, bot, chat)}
    rows = tx.execute(
        "SELECT chat_id FROM pauses WHERE bot = ? AND chat_id IN (?, ?)", (bot, *places.values())
    )
    paused = {place for (place,) in rows}
    return [name for name, place in places.items() if place in paused]


def closures(tx: Transaction, now: float) -> list[tuple[BotId, ChatId | None, float, str]]:
    """Bots (None) and chats that a 429 has closed, and for how many seconds."""
    found = tx.execute(
        "SELECT bot, chat_id, heard_at + closed_for - ? AS left FROM limits WHERE left > 0", (now,)
    )
    return [(bot, chat or None, left, "") for bot, chat, left in found]
