"""The journal through which the sender follows other processes within 100 ms."""

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec

from tidegate.clock import Clock
from tidegate.errors import StoreError
from tidegate.stores.message_codec import CODEC_ERRORS
from tidegate.stores.sqlite import own_limits, settle_sql
from tidegate.stores.sqlite.file import StoreFile, Transaction
from tidegate.stores.sqlite.message_rows import WAITING_COLUMNS, WaitingRow

log = logging.getLogger("tidegate.store")

JournalEntry = tuple[str, Any]  # a verb and its arguments
Answer = TypeVar("Answer")

QUESTIONS: Final = frozenset({"why", "health"})  # verbs that the sender answers


def take(tx: Transaction) -> list[JournalEntry]:
    """Remove and return all entries, in order. The sender follows them once this is on disk."""
    rows = tx.execute("SELECT n, verb, body FROM journal ORDER BY n").fetchall()
    if rows:
        tx.execute("DELETE FROM journal WHERE n <= ?", (rows[-1][0],))
    return [_read(tx, n, verb, body) for n, verb, body in rows]


def _read(tx: Transaction, n: int, verb: str, raw: bytes) -> JournalEntry:
    try:
        return verb, _arguments(tx, n, verb, msgspec.msgpack.decode(raw))
    except CODEC_ERRORS as error:
        # It may have named new messages: all that wait are read again, which changes nothing for the others.
        log.error("an entry of the journal cannot be decoded (%s): reading what waits again", error)  # noqa: TRY400
        found = tx.execute(
            f"SELECT {WAITING_COLUMNS} FROM messages WHERE settled_at IS NULL AND {settle_sql.WAITS}"
            " ORDER BY seq"
        )
        return "put", [WaitingRow(*row) for row in found]


def _arguments(tx: Transaction, n: int, verb: str, body: Any) -> Any:  # noqa: ANN401  (by verb)
    if verb == "put":
        found = tx.execute(
            f"SELECT {WAITING_COLUMNS} FROM messages WHERE seq IN (SELECT value FROM json_each(?))"
            " AND state IN ('queued', 'retry') ORDER BY seq",
            (json.dumps(body),),
        )
        return [WaitingRow(*row) for row in found]
    if verb == "limits":  # the latest, as the file has them: this process may have changed them since
        return body, own_limits.read(tx, [body])[body].own
    return (n, body) if verb in QUESTIONS else body


def ask(tx: Transaction, verb: str, body: object) -> int:
    """Ask the sender; returns the number of the question."""
    cursor = tx.execute(
        "INSERT INTO journal (verb, body) VALUES (?, ?)", (verb, msgspec.msgpack.encode(body))
    )
    assert cursor.lastrowid is not None  # noqa: S101  (it was inserted)
    return cursor.lastrowid


def answer(tx: Transaction, question: int, body: object) -> None:
    tx.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (question, msgspec.msgpack.encode(body)))


def take_answer(tx: Transaction, question: int, kind: type[Answer]) -> Answer | None:
    """Return None if it is not answered yet, or with None."""
    row = tx.execute("DELETE FROM answers WHERE n = ? RETURNING body", (question,)).fetchone()
    return None if row is None else msgspec.msgpack.decode(row[0], type=kind | None)


CLEAN_EVERY: Final = 1.0  # seconds
PROBE_EVERY: Final = 0.5  # seconds, of a file that could not be written


class JournalFollower:
    """Runs while a store is open: follows other processes, and removes what can be forgotten.

    `catch_up` is called when another process has changed the file; `sends`: whether this process sends;
    `check` is called before each look; `longest` returns the seconds of the longest window.
    """

    def __init__(
        self,
        file: StoreFile,
        clock: Clock,
        *,
        longest: Callable[[], float],
        poll: float,
        catch_up: Callable[[], Awaitable[None]],
        sends: Callable[[], bool],
        check: Callable[[], Awaitable[None]],
    ) -> None:
        self._file = file
        self._clock = clock
        self._poll = poll
        self._catch_up = catch_up
        self._sends = sends
        self._check = check
        self._longest = longest
        self._cleaned = 0  # the row number up to which forgotten messages were removed
        self._clean_at = 0.0
        self._probe_at = 0.0

    async def run(self) -> None:
        seen = await self._file.changed()
        while True:
            await self._clock.sleep(self._poll)
            try:
                await self._check()
                version = await self._file.changed()
                if version != seen:
                    await self._catch_up()
                    seen = version
                if self._file.owes:
                    await self._file.write(lambda _: None, delivers=True)
                await self._probe()
                if self._clock.monotonic() >= self._clean_at:
                    # In a process that does not send, nothing else notices that a deadline has passed.
                    await (self._clean() if self._sends() else self._look_again())
            except StoreError as error:
                log.debug("%s", error)  # whoever writes meets it, too; here it is tried again

    async def _probe(self) -> None:
        """Find out by itself that a file can be written again, though nobody puts anything."""
        if self._file.health.trouble is not None and self._clock.monotonic() >= self._probe_at:
            self._probe_at = self._clock.monotonic() + PROBE_EVERY
            await self._file.probe()

    async def _look_again(self) -> None:
        await self._catch_up()
        self._clean_at = self._clock.monotonic() + CLEAN_EVERY

    async def _clean(self) -> None:
        now, after, longest = self._clock.now(), self._cleaned, self._longest()
        self._cleaned, much = await self._file.write(
            lambda tx: settle_sql.remove_forgotten(tx, now, longest, after)
        )
        self._clean_at = self._clock.monotonic() + (0.0 if much else CLEAN_EVERY)
