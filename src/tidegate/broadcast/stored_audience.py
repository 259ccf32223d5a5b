"""Audiences whose rows are in the SQL database: any process that has it can feed their broadcast.

Every row is checked before it is stored, by the rules of audience files. Of a row only the chat and the
fields that the letter uses are kept.
"""

import hashlib
import logging
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, Final, Literal, NamedTuple, Protocol

import msgspec

from tidegate.broadcast.audience import Audience, check_audience, each, row_of
from tidegate.broadcast.audience_file import AudienceFile, BadLine, GoodLine
from tidegate.broadcast.audience_upload import file_lines
from tidegate.broadcast.message import MessageWriter, row_text
from tidegate.clock import Clock
from tidegate.errors import BadInputError, BadRowsError, StoreError
from tidegate.failure import pause_after
from tidegate.model import BotId, ChatId, TicketId
from tidegate.outbox.admission import compose
from tidegate.outbox.campaigns import StoredSource
from tidegate.row_template import Row, value_of
from tidegate.store_opener import StoreOpener
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate.broadcast")

AudienceState = Literal["loading", "ready", "begun", "ended"]
ROWS_AT_ONCE: Final = 1_000  # stored in one transaction
BYTES_AT_ONCE: Final = 4 * 1024 * 1024  # likewise, at most
CHECKED_AT_ONCE: Final = 50  # rows between two looks at what else the process has to do
PAGE: Final = 500  # rows that are read together
REMOVED_AT_ONCE: Final = 5_000  # rows deleted in one transaction
BAD_ROWS_REPORTED: Final = 20


class AudienceTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The terms of a broadcast beside its rows: plain values, which can be stored."""

    bot: BotId
    name: str
    audience: str  # in words
    letter: Any  # a template, or a mapping of fields; None: each row has its text
    fields: dict[str, Any] = {}  # that all messages share; their times are absolute
    remember: float = 0.0
    ahead: int | None = None


class AudienceRow(NamedTuple):
    """A row as it is stored. `chat` is the key by which one chat has one message: @names in lower case."""

    number: int
    chat: str
    fields: str  # JSON


class AudienceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A stored audience. Times are seconds since the Unix epoch.

    `loading`: its rows are being stored. `ready`: they are complete, the broadcast is accepted and will be
    sent. `begun`: the broadcast is known to the store of messages. `ended`: it is to be deleted.
    """

    id: int
    terms: AudienceTerms
    state: AudienceState
    changed_at: float
    rows: int = 0
    digest: str = ""  # of the letter and the rows


class AudienceStore(Protocol):
    """Audiences of broadcasts. Every verb is one transaction; one audience has one writer."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def add(self, terms: AudienceTerms) -> int:
        """Begin an audience, `loading`; return its id."""
        ...

    async def append(self, audience: int, rows: Sequence[AudienceRow]) -> set[str]:
        """Store rows, and return the chats that were there already: their rows are not stored again.

        Raises StoreError if the audience is not there any more.
        """
        ...

    async def complete(self, audience: int, rows: int, digest: str) -> AudienceRecord:
        """Make it `ready`, unless another one of this bot and name is ready or begun; return that which is.

        Of two that are completed at the same time, one is ready.
        """
        ...

    async def begin(self, audience: int) -> None:
        """It is `begun` now."""

    async def end(self, audience: int) -> None:
        """It is `ended` now: its name is free, and it is to be removed."""

    async def find(self, audience: int) -> AudienceRecord | None: ...

    async def all(self) -> list[AudienceRecord]:
        """All audiences, the oldest first. One that cannot be decoded is left out."""
        ...

    async def page(self, audience: int, after: int, limit: int) -> list[AudienceRow]:
        """The rows with numbers above `after`, in order."""
        ...

    async def remove(self, audience: int, limit: int) -> bool:
        """Delete up to `limit` of its rows, and the audience with the last of them; whether all is gone."""
        ...

    async def count(self, chat: str, bot: BotId | None) -> int:
        """The number of rows of a chat."""
        ...

    async def forget(self, chat: str, bot: BotId | None) -> int:
        """Delete the rows of a chat; return how many there were."""
        ...

    async def rewrite(self) -> None:
        """Write a SQLite file anew, so that nothing of deleted rows is left in it."""


class StoredAudience:
    """The rows of a stored audience, read a page at a time. While the database is away, it waits."""

    def __init__(
        self, record: AudienceRecord, opened: Callable[[], Awaitable[AudienceStore]], clock: Clock
    ) -> None:
        self._record = record
        self._opened = opened
        self._clock = clock
        self.source = StoredSource(audience=record.id)
        self.description = record.terms.audience

    def __length_hint__(self) -> int:
        return self._record.rows

    async def __aiter__(self) -> AsyncGenerator[Row]:
        last = 0
        while rows := await self._page(last):
            for row in rows:
                yield _decoded(row)
            last = rows[-1].number

    async def _page(self, after: int) -> list[AudienceRow]:
        failures = 0
        while True:
            try:
                return await (await self._opened()).page(self._record.id, after, PAGE)
            except StoreError as error:
                failures += 1
                if failures == 1:
                    log.warning("broadcast %s waits for its rows: %s", self._record.terms.name, error)
                await self._clock.sleep(pause_after(failures))


def _decoded(row: AudienceRow) -> Row:
    fields: dict[str, Any] = msgspec.json.decode(row.fields)
    chat: ChatId = row.chat if row.chat.startswith("@") else int(row.chat)
    return {"chat_id": chat, **fields}


def chat_key(chat: ChatId) -> str:
    """Return the key of a chat. An @name means the same chat in any case."""
    return str(chat).lower()


def letter_of(terms: AudienceTerms) -> object:
    """Return the letter as `gate.broadcast` takes it."""
    return row_text if terms.letter is None else terms.letter


class RowChecker:
    """Checks rows one by one: what it lets pass, the outbox would accept as of `now`."""

    def __init__(self, terms: AudienceTerms, now: float) -> None:
        if "text" in terms.fields and terms.letter is None:
            raise BadInputError("each row has its own text: leave out the text for all, or give a letter")
        self._writer = MessageWriter(letter_of(terms), terms.fields)
        self._terms = terms
        self._now = now
        self.needed: Final = (*self._writer.needed, *(("text",) if terms.letter is None else ()))

    async def check(self, number: int, row: Row) -> AudienceRow:
        """Return the row as it is stored. Raises BadInputError."""
        value_of(row, "chat_id")  # if it is missing or empty, that is said as of a file
        fields = await self._writer.write(row)
        assert fields is not None  # noqa: S101  (only functions of an application skip a row)
        compose(TicketId(""), self._terms.bot, {**self._terms.fields, **fields}, self._now)
        chat = fields["chat_id"]
        kept = {name: value_of(row, name) for name in self.needed if name != "chat_id"}
        if (key := chat_key(chat)) != str(chat):
            kept["chat_id"] = chat
        return AudienceRow(number, key, msgspec.json.encode(kept).decode())


async def _lines(
    source: Audience | AudienceFile, needed: Sequence[str]
) -> AsyncGenerator[GoodLine | BadLine]:
    if isinstance(source, AudienceFile):
        async with aclosing(file_lines(source, needed)) as lines:
            async for line in lines:
                yield line
        return
    number = 0
    async with aclosing(each(check_audience(source))) as rows:
        async for one in rows:
            number += 1
            try:
                yield GoodLine(number, row_of(one))
            except BadInputError as error:
                yield BadLine(number, str(error))


class StoredAudiences:
    """The stored audiences of a gate. Their database is opened when it is first needed."""

    def __init__(
        self,
        make_store: Callable[[], AudienceStore],
        exist: Callable[[], Awaitable[bool]],
        clock: Clock,
    ) -> None:
        self._store = StoreOpener(make_store, exist)
        self._clock = clock
        self.tasks = BackgroundTasks()  # that are ended with it

    async def exist(self) -> bool:
        """Return whether there may be any: whether their database was made. Creates none."""
        return await self._store.may_hold_rows()

    async def opened(self) -> AudienceStore:
        """Return the open store. Raises StoreAwayError."""
        return await self._store.opened()

    async def close(self) -> None:
        """Disconnect. It is opened again when it is needed."""
        await self.stop()
        await self._store.close()

    async def stop(self) -> None:
        """End what runs in the background."""
        await self.tasks.stop()

    def read(self, record: AudienceRecord) -> StoredAudience:
        """Return the rows of a stored audience, to be sent to."""
        return StoredAudience(record, self.opened, self._clock)

    async def add(
        self, terms: AudienceTerms, source: Audience | AudienceFile, given: Mapping[str, Any]
    ) -> "LoadedAudience":
        """Store the rows of an audience, which is `loading`, after each of them was checked.

        Some hundreds of rows are in memory at a time. Raises BadRowsError that names the first bad rows, or
        whatever the source raises: then nothing is stored. `given` are the fields as the caller wrote them:
        with the letter and the rows, they make the digest.
        """
        checker = RowChecker(terms, self._clock.now())
        store = await self.opened()
        audience = await store.add(terms)
        try:
            loading = _Loading(store, audience, [terms.letter, dict(given)])
            async with aclosing(_lines(source, checker.needed)) as lines:
                await self._load(loading, checker, lines)
            loading.check(word="line" if isinstance(source, AudienceFile) else "row")
        except BaseException:
            with suppress(StoreError):  # then it is removed later, as one that was left behind
                await self.remove(audience)
            raise
        return LoadedAudience(audience, loading.good, loading.digest.hexdigest())

    async def _load(
        self, loading: "_Loading", checker: RowChecker, lines: AsyncIterable[GoodLine | BadLine]
    ) -> None:
        async for line in lines:
            if isinstance(line, BadLine):
                loading.refuse(line)
                continue
            try:
                await loading.accept(await checker.check(line.number, line.row))
            except BadInputError as error:
                loading.refuse(BadLine(line.number, str(error)))
            if line.number % CHECKED_AT_ONCE == 0:
                await self._clock.sleep(0)
        await loading.flush()

    async def remove(self, audience: int) -> None:
        """Delete an audience with its rows, in short steps."""
        store = await self.opened()
        await store.end(audience)
        while not await store.remove(audience, REMOVED_AT_ONCE):
            await self._clock.sleep(0)

    async def count(self, chat_id: ChatId, bot: BotId | None = None) -> int:
        """Return the number of rows of a chat. Creates no database."""
        return await (await self.opened()).count(chat_key(chat_id), bot) if await self.exist() else 0

    async def forget(self, chat_id: ChatId, bot: BotId | None = None, *, rewrite: bool = False) -> int:
        """Delete every row of a chat; return how many there were. Creates no database.

        With `rewrite`, a SQLite file is then written anew, so that nothing of them can be found in it.
        """
        if not await self.exist():
            return 0
        store = await self.opened()
        removed = await store.forget(chat_key(chat_id), bot)
        if removed and rewrite:
            await store.rewrite()
        return removed


class LoadedAudience(NamedTuple):
    """An audience whose rows are all stored. It is sent to once it is `ready`."""

    id: int
    rows: int
    digest: str


class _Loading:
    """An audience that is being stored: the rows that wait for the next transaction, and what was bad."""

    def __init__(self, store: AudienceStore, audience: int, letter: object) -> None:
        self._store = store
        self._audience = audience
        self._rows: dict[str, AudienceRow] = {}  # by chat
        self._size = 0
        self.good = self.bad = 0
        self._bad: list[BadLine] = []
        self.digest = hashlib.blake2b(msgspec.msgpack.encode(letter, order="sorted"), digest_size=16)

    async def accept(self, row: AudienceRow) -> None:
        if row.chat in self._rows:
            self._refuse_repeated(row)
            return
        self._rows[row.chat] = row
        self._size += len(row.fields)
        if len(self._rows) >= ROWS_AT_ONCE or self._size >= BYTES_AT_ONCE:
            await self.flush()

    def refuse(self, line: BadLine) -> None:
        self.bad += 1
        if len(self._bad) < BAD_ROWS_REPORTED:
            self._bad.append(line)

    async def flush(self) -> None:
        rows, self._rows, self._size = self._rows, {}, 0
        if not rows:
            return
        known = await self._store.append(self._audience, list(rows.values()))
        for row in rows.values():
            if row.chat in known:
                self._refuse_repeated(row)
                continue
            self.good += 1
            self.digest.update(f"{row.chat} {row.fields}\n".encode())

    def _refuse_repeated(self, row: AudienceRow) -> None:
        text = f"chat_id {row.chat} was in an earlier line: one message for each chat is allowed"
        self.refuse(BadLine(row.number, text))

    def check(self, *, word: str) -> None:
        """Raise BadInputError if a row is bad, or if there is none."""
        if self.bad:
            first = min(self._bad)
            raise BadRowsError(
                f"{self.bad:,} of {self.good + self.bad:,} {word}s are bad, and nothing was sent."
                f" {word.capitalize()} {first.number}: {first.reason}",
                bad=self.bad,
                rows=sorted(self._bad),
            )
        if not self.good:
            raise BadInputError("nobody is in the audience: give at least one chat_id")
