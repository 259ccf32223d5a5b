"""Erasure of a chat from the SQLite file, its log of writes, and the free space in both."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from tidegate.inbound.inbox import InboxSource, bot_source
from tidegate.model import BotId, ChatId
from tidegate.polling.subscriptions import unpack_subscription
from tidegate.stores.erasure import Erasure, is_for_chat
from tidegate.stores.sqlite import inbox_sql, message_rows
from tidegate.stores.sqlite.file import Transaction
from tidegate.stores.sqlite.outbox import SqliteOutbox
from tidegate.stores.sqlite.schema import APPLICATION_ID
from tidegate.stores.sqlite.update_feed import erase_fed

_ID_AT: Final = 68  # where SQLite keeps the application's id, in four bytes
# The text of a session's key is bot:chat:user, and perhaps :thread.
_CHAT_IN_KEY: Final = "substr(key, instr(key, ':') + 1) GLOB ?"


async def erase_chat(outbox: SqliteOutbox, chat: ChatId, bot: BotId | None) -> Erasure:
    """Erase a chat so that its bytes are nowhere in the file. See `StoreFile.rewrite` for what that costs.

    Messages that are being sent, and updates that are being handled, stay. Raises StoreError if rows are
    erased, and their bytes may still be found.
    """
    file, is_idle = outbox.file, await outbox.sender() is None
    names = await file.read(lambda tx: message_rows.names_of(tx, chat))
    messages = await outbox.forget(chat, bot)
    erased: Erasure = await file.write(lambda tx: _erase(tx, names, bot, is_idle=is_idle))
    await file.rewrite()
    copies = await asyncio.to_thread(_other_stores, file.path)
    return erased._replace(messages=messages, copies=copies)


def _erase(tx: Transaction, names: Sequence[ChatId], bot: BotId | None, *, is_idle: bool) -> Erasure:
    erased = Erasure()
    for chat in names:
        erased = erased._replace(
            updates=erased.updates
            + _erase_updates(tx, chat, bot, is_idle=is_idle)
            + erase_fed(tx, chat, bot),
            conversations=erased.conversations + _erase_conversations(tx, chat, bot),
            sessions=erased.sessions + _erase_sessions(tx, chat, bot),
            subscriptions=erased.subscriptions + _erase_subscriptions(tx, chat, bot),
        )
        _erase_other_names(tx, chat, bot)
    return erased


def _erase_updates(tx: Transaction, chat: ChatId, bot: BotId | None, *, is_idle: bool) -> int:
    """Erase those that wait or are parked. Those being handled stay, unless no process handles any."""
    theirs, values = "(lane = ? OR lane GLOB ?)", [str(chat), f"{chat} *"]  # of the chat, of its users
    theirs += " AND source GLOB 'bot:*'" if bot is None else " AND source = ?"
    values += [] if bot is None else [bot_source(bot)]
    free = "" if is_idle else " AND number NOT IN (SELECT number FROM held)"
    rows = tx.execute(
        f"DELETE FROM arrivals WHERE {theirs}{free} RETURNING number, source", values
    ).fetchall()
    tx.executemany("DELETE FROM held WHERE number = ?", [(number,) for number, _ in rows])
    inbox_sql.count(tx, Counter(InboxSource(source) for _, source in rows), -1)
    return len(rows) + tx.execute(f"DELETE FROM parked WHERE {theirs}", values).rowcount


def _erase_conversations(tx: Transaction, chat: ChatId, bot: BotId | None) -> int:
    delete = "DELETE FROM conversations WHERE chat = ? AND (? IS NULL OR bot = ?)"
    return tx.execute(delete, (chat, bot, bot)).rowcount


def _erase_sessions(tx: Transaction, chat: ChatId, bot: BotId | None) -> int:
    values = (f"{chat}:*", bot, f"{bot}:*")
    theirs = f"{_CHAT_IN_KEY} AND (? IS NULL OR key GLOB ?)"
    tx.execute(f"DELETE FROM flow_events WHERE {theirs}", values)
    return tx.execute(f"DELETE FROM flow_sessions WHERE {theirs}", values).rowcount


def _erase_subscriptions(tx: Transaction, chat: ChatId, bot: BotId | None) -> int:
    numbers = []
    for number, body in tx.execute("SELECT number, body FROM subscriptions"):
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            if is_for_chat(unpack_subscription(body).data, chat, bot):
                numbers.append((number,))
    tx.executemany("DELETE FROM subscriptions WHERE number = ?", numbers)
    return len(numbers)


def _erase_other_names(tx: Transaction, chat: ChatId, bot: BotId | None) -> None:
    """Once no message is left: what is still being sent must be found by all its names the next time."""
    left = "SELECT 1 FROM messages WHERE chat_id = ? AND (? IS NULL OR bot = ?)"
    if tx.execute(left, (chat, bot, bot)).fetchone() is None:
        forget = "DELETE FROM aliases WHERE ? IN (old, new) AND (? IS NULL OR bot = ?)"
        tx.execute(forget, (chat, bot, bot))


def _other_stores(store: Path) -> tuple[str, ...]:
    """The other stores in the folder, such as backups, and what a restore has set aside."""
    found = []
    for path in sorted(store.absolute().parent.iterdir()):
        with suppress(OSError):
            if path.is_file() and not path.samefile(store) and _is_store(path):
                found.append(str(path))
    return tuple(found)


def _is_store(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(_ID_AT + 4)
    return head.startswith(b"SQLite format 3\0") and head[_ID_AT:] == APPLICATION_ID.to_bytes(4, "big")
