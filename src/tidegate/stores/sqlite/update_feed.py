"""The update feed in the SQLite file, one transaction per step."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from tidegate.clock import Clock
from tidegate.inbound.update_feed import (
    DEFAULT_READER,
    FEED_SECONDS,
    MAX_FED_UPDATES,
    MAX_READERS,
    ON_REQUEST,
    SEEN_NOTED_EVERY,
    SEEN_NUMBERS,
    Appended,
    Dropped,
    FedUpdate,
    FeedPage,
    FeedReader,
    FeedWatchers,
    Kinds,
    NewUpdate,
    PushTarget,
    ReadRequest,
    StoredReader,
    UpdateFeed,
    moved_position,
    refusal_of_unknown,
    start_position,
)
from tidegate.leader_lease import UncontestedLeases
from tidegate.model import BotId, ChatId
from tidegate.stores.sqlite.file import StoreFile, Transaction

_INSERT: Final = (
    "INSERT INTO feed_updates (bot, number, kind, chat, arrived_at, body) VALUES (?, ?, ?, ?, ?, ?)"
)
_READERS: Final = "SELECT name, position, seen_at, poll, kinds, target FROM feed_readers WHERE bot = ?"
_SAVE: Final = "INSERT OR REPLACE INTO feed_readers VALUES (?, ?, ?, ?, ?, ?, ?)"
_encode_target: Final = msgspec.msgpack.Encoder().encode
_decode_target: Final = msgspec.msgpack.Decoder(PushTarget).decode
_decode_kinds: Final = msgspec.json.Decoder(Kinds).decode


class SqliteUpdateFeed(UpdateFeed):
    """`file` is opened before it and closed after it. The process that reads and appends is the sender."""

    def __init__(self, file: StoreFile, clock: Clock) -> None:
        self.leases = UncontestedLeases()  # one process at a time holds the sender lock
        self._file = file
        self._clock = clock
        self._watchers = FeedWatchers()

    async def open(self) -> None:
        """The file is open."""

    async def close(self) -> None:
        """The file is closed by its owner."""

    async def append(self, bot: BotId, updates: Sequence[NewUpdate]) -> Appended:
        now = self._clock.now()

        def told(appended: Appended) -> Appended:
            if any(appended.is_new):
                self._watchers.tell(bot)
            return appended

        return await self._file.write(lambda tx: _append(tx, bot, updates, now), told)

    async def read(self, bot: BotId, reader: str, request: ReadRequest) -> FeedPage:
        now = self._clock.now()
        return await self._file.write(lambda tx: _read(tx, bot, reader, request, now))

    async def readers(self, bot: BotId) -> list[FeedReader]:
        found = await self._file.read(lambda tx: stored_readers(tx, bot))
        return [one.public() for one in found]

    async def bots(self) -> list[BotId]:
        query = "SELECT bot FROM feeds ORDER BY bot"
        return await self._file.read(lambda tx: [BotId(bot) for (bot,) in tx.execute(query)])

    async def pending(self, bot: BotId, reader: str) -> int:
        return await self._file.read(lambda tx: _pending(tx, bot, reader))

    async def set_target(
        self,
        bot: BotId,
        reader: str,
        target: PushTarget | None,
        *,
        kinds: Kinds | None = None,
        drops_pending: bool = False,
    ) -> bool:
        now = self._clock.now()

        def step(tx: Transaction) -> bool:
            _begin(tx, bot, now)
            last, found = _last(tx, bot), _find(tx, bot, reader)
            if found is None and _is_crowded(tx, bot):
                return False
            found = found or StoredReader(reader, start_position(reader, None, last), now)
            found.set_target(target, kinds)
            found.position = last + 1 if drops_pending else found.position
            _save(tx, bot, found)
            return True

        return await self._file.write(step)

    async def note_error(self, bot: BotId, reader: str, url: str, error: str) -> None:
        now = self._clock.now()

        def step(tx: Transaction) -> None:
            found = _find(tx, bot, reader)
            if found is not None and found.note_error(url, error, now):
                _save(tx, bot, found)

        await self._file.write(step)

    async def drop_old(self, bot: BotId) -> Dropped:
        now = self._clock.now()
        return await self._file.write(lambda tx: _drop_old(tx, bot, now))

    async def forget(self, bot: BotId, reader: str) -> bool:
        delete = "DELETE FROM feed_readers WHERE bot = ? AND name = ?"

        def step(tx: Transaction) -> bool:
            is_gone = tx.execute(delete, (bot, reader)).rowcount == 1
            _delete_confirmed(tx, bot)
            return is_gone

        return await self._file.write(step)

    async def erase(self, chat: ChatId, bot: BotId | None = None) -> int:
        return await self._file.write(lambda tx: erase_fed(tx, chat, bot))

    def watch(self, bot: BotId, callback: Callable[[], object]) -> Callable[[], None]:
        return self._watchers.add(bot, callback)


def erase_fed(tx: Transaction, chat: ChatId, bot: BotId | None) -> int:
    """Delete the updates of a chat from the feeds."""
    delete = "DELETE FROM feed_updates WHERE chat IN (?, ?) AND (? IS NULL OR bot = ?) RETURNING bot"
    bots = tx.execute(delete, (chat, str(chat), bot, bot)).fetchall()
    tx.executemany("UPDATE feeds SET held = held - 1 WHERE bot = ?", bots)
    return len(bots)


def _begin(tx: Transaction, bot: BotId, now: float) -> None:
    """Make the feed, if there is none."""
    if tx.execute("INSERT INTO feeds VALUES (?, 0, 0, 0) ON CONFLICT DO NOTHING", (bot,)).rowcount:
        _save(tx, bot, StoredReader(DEFAULT_READER, 0, now))


def _append(tx: Transaction, bot: BotId, updates: Sequence[NewUpdate], now: float) -> Appended:
    _begin(tx, bot, now)
    last, held, appended_at = tx.execute(
        "SELECT last, held, appended_at FROM feeds WHERE bot = ?", (bot,)
    ).fetchone()
    if now - appended_at > FEED_SECONDS:
        tx.execute("DELETE FROM feed_seen WHERE bot = ?", (bot,))
    is_new = []
    for one in updates:
        note = "INSERT INTO feed_seen VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        number = max(last + 1, one.update_id)
        is_new.append(tx.execute(note, (bot, one.update_id, number)).rowcount == 1)
        if is_new[-1]:
            last = number
            tx.execute(_INSERT, (bot, number, one.kind, one.chat, now, one.body))
    tx.execute("DELETE FROM feed_seen WHERE bot = ? AND number <= ?", (bot, last - SEEN_NUMBERS))
    tx.execute(
        "UPDATE feeds SET last = ?, held = ?, appended_at = ? WHERE bot = ?",
        (last, held + sum(is_new), now, bot),
    )
    return Appended(is_new, _drop_old(tx, bot, now))


def _drop_old(tx: Transaction, bot: BotId, now: float) -> Dropped:
    cutoff = now - FEED_SECONDS
    forget = "DELETE FROM feed_readers WHERE bot = ? AND target IS NULL AND seen_at < ? RETURNING name"
    forgotten = sorted(name for (name,) in tx.execute(forget, (bot, cutoff)))
    if (end := _first_to_keep(tx, bot, cutoff)) is None:
        return Dropped({}, forgotten)
    lost = {}
    for reader in stored_readers(tx, bot):
        where, values = _waiting(bot, reader)
        count = f"SELECT count(*) FROM feed_updates WHERE {where} AND number < ?"
        if (gone := tx.execute(count, (*values, end)).fetchone()[0]) > 0:
            lost[reader.name] = gone
    _delete_before(tx, bot, end)
    return Dropped(lost, forgotten)


def _first_to_keep(tx: Transaction, bot: BotId, cutoff: float) -> int | None:
    """Return the number before which everything is too old or too much; None if nothing is."""
    held = tx.execute("SELECT held FROM feeds WHERE bot = ?", (bot,)).fetchone()
    excess = max(0, (0 if held is None else held[0]) - MAX_FED_UPDATES)
    oldest = "SELECT arrived_at FROM feed_updates WHERE bot = ? ORDER BY number LIMIT 1 OFFSET ?"
    row = tx.execute(oldest, (bot, excess)).fetchone()
    if row is None or (not excess and row[0] >= cutoff):
        return None
    keep = (
        "SELECT number FROM feed_updates WHERE bot = ? AND number >="
        " (SELECT number FROM feed_updates WHERE bot = ? ORDER BY number LIMIT 1 OFFSET ?)"
        " AND arrived_at >= ? ORDER BY number LIMIT 1"
    )
    first = tx.execute(keep, (bot, bot, excess, cutoff)).fetchone()
    return _last(tx, bot) + 1 if first is None else int(first[0])


def _delete_confirmed(tx: Transaction, bot: BotId) -> None:
    [end] = tx.execute("SELECT min(position) FROM feed_readers WHERE bot = ?", (bot,)).fetchone()
    if end is not None:
        _delete_before(tx, bot, end)


def _delete_before(tx: Transaction, bot: BotId, end: int) -> None:
    deleted = tx.execute("DELETE FROM feed_updates WHERE bot = ? AND number < ?", (bot, end)).rowcount
    if deleted:
        tx.execute("UPDATE feeds SET held = held - ? WHERE bot = ?", (deleted, bot))


def _read(tx: Transaction, bot: BotId, name: str, request: ReadRequest, now: float) -> FeedPage:
    _begin(tx, bot, now)
    dropped = _drop_old(tx, bot, now) if request.begins else Dropped()
    last, known = _last(tx, bot), _find(tx, bot, name)
    refusal = refusal_of_unknown(request) if known is None else known.refusal(request)
    if refusal is None and known is None and _is_crowded(tx, bot):
        refusal = "crowded"
    if refusal is not None:
        return FeedPage(refusal, dropped=dropped)
    reader = known or StoredReader(name, start_position(name, request.offset, last), now)
    before = msgspec.structs.replace(reader)
    reader.poll = request.poll
    reader.kinds = reader.kinds if request.kinds is None else request.kinds
    reader.position = _moved(tx, bot, reader, request.offset, last, is_first=known is None)
    where, values = _waiting(bot, reader)
    rows = tx.execute(
        f"SELECT number, body FROM feed_updates WHERE {where} ORDER BY number LIMIT ?",
        (*values, request.limit),
    ).fetchall()
    reader.position = rows[0][0] if rows else last + 1
    if known is None or reader != before or now - reader.seen_at > SEEN_NOTED_EVERY:
        reader.seen_at = now
        _save(tx, bot, reader)
    if known is None or dropped.forgotten or reader.position != before.position:
        _delete_confirmed(tx, bot)
    [count] = tx.execute("SELECT count(*) FROM feed_readers WHERE bot = ?", (bot,)).fetchone()
    return FeedPage(
        updates=[FedUpdate(number, body) for number, body in rows],
        target=reader.target,
        last=last,
        readers=count,
        has_new_kinds=known is None or reader.kinds != before.kinds,
        dropped=dropped,
    )


def _moved(
    tx: Transaction, bot: BotId, reader: StoredReader, offset: int | None, last: int, *, is_first: bool
) -> int:
    if offset is None or offset >= 0:
        return moved_position(reader.position, offset, last)
    reader.position = 0 if is_first else reader.position
    where, values = _waiting(bot, reader)
    latest = f"SELECT number FROM feed_updates WHERE {where} ORDER BY number DESC LIMIT ?"
    row = tx.execute(f"SELECT min(number) FROM ({latest})", (*values, -offset)).fetchone()
    return reader.position if row[0] is None else int(row[0])


def _waiting(bot: BotId, reader: StoredReader) -> tuple[str, list[Any]]:
    """Return the condition for updates that the reader has yet to confirm, and its values."""
    kinds = reader.kinds or tuple(ON_REQUEST)
    word = "IN" if reader.kinds else "NOT IN"
    where = f"bot = ? AND number >= ? AND kind {word} ({', '.join('?' * len(kinds))})"
    return where, [bot, reader.position, *kinds]


def _pending(tx: Transaction, bot: BotId, name: str) -> int:
    reader = _find(tx, bot, name)
    if reader is None:
        return 0
    where, values = _waiting(bot, reader)
    count: int = tx.execute(f"SELECT count(*) FROM feed_updates WHERE {where}", values).fetchone()[0]
    return count


def _last(tx: Transaction, bot: BotId) -> int:
    row = tx.execute("SELECT last FROM feeds WHERE bot = ?", (bot,)).fetchone()
    return 0 if row is None else int(row[0])


def stored_readers(tx: Transaction, bot: BotId) -> list[StoredReader]:
    return [_stored(row) for row in tx.execute(f"{_READERS} ORDER BY name", (bot,)).fetchall()]


def _find(tx: Transaction, bot: BotId, name: str) -> StoredReader | None:
    row = tx.execute(f"{_READERS} AND name = ?", (bot, name)).fetchone()
    return None if row is None else _stored(row)


def _stored(row: tuple[Any, ...]) -> StoredReader:
    name, position, seen_at, poll, kinds, target = row
    to = None if target is None else _decode_target(target)
    return StoredReader(name, position, seen_at, poll, _decode_kinds(kinds), to)


def _save(tx: Transaction, bot: BotId, reader: StoredReader) -> None:
    target = None if reader.target is None else _encode_target(reader.target)
    kinds = msgspec.json.encode(reader.kinds).decode()
    tx.execute(_SAVE, (bot, reader.name, reader.position, reader.seen_at, reader.poll, kinds, target))


def _is_crowded(tx: Transaction, bot: BotId) -> bool:
    [count] = tx.execute("SELECT count(*) FROM feed_readers WHERE bot = ?", (bot,)).fetchone()
    return bool(count >= MAX_READERS)
