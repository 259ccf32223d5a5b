"""Reminders in SQL: which index answers what, rows that cannot be decoded, and the way through PgBouncer."""

import asyncio
import datetime as dt
import itertools
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from databases import new_database, plan, recorded
from servers import PGBOUNCER, Server, ServerMissing, find, pgbouncer_server
from tidegate.database.database import Database
from tidegate.database.reminders import SqlReminders
from tidegate.errors import StoreAwayError, StoreError
from tidegate.model import BotId
from tidegate.reminders.port import Shard
from tidegate.reminders.reminder import Daily, NewReminder, Reminder

BOT = BotId(42)
ROWS = 20_000
replace = msgspec.structs.replace


def new(user: int = 1, **fields: Any) -> NewReminder:  # noqa: ANN401  (a reminder's own)
    given: dict[str, Any] = {"bot": BOT, "chat_id": user, "user_id": user, "schedule": Daily(dt.time(9))}
    return NewReminder(**given | {"zone": "UTC", "fields": {"text": "Drink!"}} | fields)


def first(given: NewReminder, number: int, _: Reminder | None) -> Reminder:
    given_fields = msgspec.structs.asdict(given)
    return Reminder(**given_fields, id=number, created_at=500.0, occurrence_at=1_500.0, next_at=1_500.0)


def fired(one: Reminder) -> Reminder:
    return replace(one, occurrence_at=9_000.0, next_at=9_000.0, fired=one.fired + 1)


MANY = """
INSERT INTO tidegate_reminders (id, bot, user_id, chat_id, key, handler, schedule, zone, created_at, revision,
  paused, occurrence_at, next_at, due_at, queued, fired, skipped, merged, body)
SELECT n + 1000, 42, n / 2, CAST(n / 2 AS TEXT), 'key ' || n, CASE WHEN n % 4 = 0 THEN 'h' || n % 8 END,
  '{}', 'UTC', 0, 0, n % 10 = 0, n, n, CASE WHEN n % 10 > 0 THEN n END, '[]', 0, 0, 0, body
"""
NUMBERS = {
    "sqlite": f"WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {ROWS})"  # noqa: S608
    " SELECT n, zeroblob(200) AS body FROM s",
    "postgres": f"SELECT n, decode(repeat('00', 200), 'hex') AS body FROM generate_series(1, {ROWS}) AS n",  # noqa: S608
}


async def claim(store: SqlReminders) -> None:
    async with store.claim_due(5_000.0, 500):
        pass


async def claim_shard(store: SqlReminders) -> None:
    async with store.claim_due(5_000.0, 500, Shard(1, 4)):
        pass


QUESTIONS: dict[str, tuple[Callable[[SqlReminders], Awaitable[object]], set[str]]] = {
    "claim": (claim, {"due"}),
    "claim of a shard": (claim_shard, {"due"}),
    "next": (lambda store: store.next_due(["h0"]), {"due", "handled"}),
    "lease": (lambda store: store.lease_handled(["h0", "h4"], 500.0, 30.0, 100), {"handled"}),
    "user": (lambda store: store.find(user_id=77), {"user"}),
    "chat": (lambda store: store.find(chat_id=77), {"chat"}),
    "key": (lambda store: store.find(key="key 77"), {"key"}),
    "key of a bot": (lambda store: store.find(bot=BOT, key="key 77"), {"key"}),
    "known keys": (lambda store: store.add([new(key="key 77"), new(key="new")], first), {"key"}),
}


async def test_every_question_of_the_scheduler_and_of_a_user_is_answered_by_an_index(
    database: Database, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "tidegate.store")  # the rows are no reminders
    async with database.write() as transaction:
        await transaction.execute(text(f"{MANY} FROM ({NUMBERS[kind]}) AS numbers"))
    async with database.write() as transaction:
        await transaction.execute(text("ANALYZE"))

    for question, (ask, indexes) in QUESTIONS.items():
        async with recorded(database, lambda sql: "FROM tidegate_reminders" in sql) as queries:
            await ask(SqlReminders(database))
        plans = "\n".join([await plan(database, kind, *query) for query in queries])
        used = {name for name in ("due", "handled", "user", "chat", "key") if f"reminders_{name}" in plans}
        assert used == indexes, f"{question}: {plans}"
        assert "Seq Scan" not in plans, question  # PostgreSQL's word for the whole table
        assert "SCAN tidegate_reminders'" not in plans, question  # SQLite's
        if question.startswith("claim"):
            assert "Sort" not in plans  # the rows come in the order of the index
            assert "TEMP B-TREE" not in plans


async def spoil(database: Database, number: int, column: str = "body", value: object = b"\xc1") -> None:
    async with database.write() as transaction:
        await transaction.execute(
            text(f"UPDATE tidegate_reminders SET {column} = :value WHERE id = :id"),  # noqa: S608
            {"value": value, "id": number},
        )


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("body", b"\xc1"),
        ("body", b""),
        ("body", msgspec.msgpack.encode([1, 2])),
        ("body", msgspec.msgpack.encode({"fields": 7})),
        ("schedule", '{"type": "hourly"}'),
        ("schedule", "{"),
        ("queued", '["soon"]'),
        ("chat_id", "nobody"),
    ],
)
async def test_a_row_that_cannot_be_decoded_is_set_aside_and_the_others_are_claimed(
    database: Database, caplog: pytest.LogCaptureFixture, column: str, value: object
) -> None:
    store = SqlReminders(database)
    bad, good = [one for one, _ in await store.add([new(key="bad"), new(2)], first)]
    await spoil(database, bad.id, column, value)

    async with store.claim_due(2_000.0, 1) as batch:  # the bad one is the first
        assert batch.reminders == [good]
        await batch.advance([fired(good)])
    async with store.claim_due(2_000.0, 1) as batch:
        assert batch.reminders == []

    assert f"the first is {bad.id}: " in caplog.text
    assert caplog.text.count("cannot be decoded") == 1
    assert await store.find() == await store.upcoming() == [fired(good)]
    assert await store.next_due() == 9_000.0
    assert (await store.counts(0.0)).paused == 1
    with pytest.raises(StoreError, match=f"reminder {bad.id} cannot be decoded"):
        await store.change(bad.id, fired)
    async with database.read() as transaction:
        query = text(f"SELECT {column}, trouble FROM tidegate_reminders WHERE id = {bad.id}")  # noqa: S608
        [row] = await transaction.rows(query)
    assert row[column] == value
    assert row["trouble"]


async def test_one_that_was_set_aside_can_be_replaced_by_its_key_or_removed(database: Database) -> None:
    store = SqlReminders(database)
    one, two = [one for one, _ in await store.add([new(key="a"), new(key="b")], first)]
    for bad in (one, two):
        await spoil(database, bad.id)
    async with store.claim_due(2_000.0, 10) as batch:
        assert batch.reminders == []

    [addition] = await store.add([new(key="a")], first)
    assert (addition.reminder.id, addition.replaced) == (one.id, None)
    assert await store.remove([two.id]) == []

    async with store.claim_due(2_000.0, 10) as batch:
        assert batch.reminders == [addition.reminder]
    assert (await store.counts(0.0)).paused == 0


async def test_lists_and_counts_are_read_from_the_replica_and_the_rest_from_the_primary(
    postgres_url: str,
) -> None:
    primary, replica = await new_database(postgres_url), await new_database(postgres_url)
    copy = Database(replica)
    await copy.open()  # it is empty, and stays so: whoever asks it finds nothing
    await copy.close()
    store = SqlReminders(Database(primary, replica=replica))
    await store.open()

    [(one, _)] = await store.add([new(key="water")], first)

    assert [await store.find(), await store.upcoming(), (await store.counts(0.0)).active] == [[], [], 0]
    for found in (store.get([one.id]), store.find(user_id=1), store.find(key="water"), store.find(chat_id=1)):
        assert await found == [one]
    assert await store.next_due() == 1_500.0
    async with store.claim_due(2_000.0, 10) as batch:
        assert batch.reminders == [one]
    await store.close()


async def test_what_a_process_that_has_stopped_was_firing_is_claimed_by_another(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = await new_database(postgres_url)
    monkeypatch.setattr("tidegate.database.database.IDLE_TIMEOUT", 0.5)
    stopped, other = SqlReminders(Database(address)), SqlReminders(Database(address))
    await stopped.open()
    await other.open()
    [(one, _)] = await stopped.add([new()], first)

    async def stop_while_firing() -> None:
        async with stopped.claim_due(2_000.0, 10) as batch:
            while True:  # it does nothing, and PostgreSQL ends its transaction
                async with other.claim_due(2_000.0, 10) as others:
                    if others.reminders == [one]:
                        break
            await batch.advance([fired(one)])

    with pytest.raises(StoreAwayError):
        await stop_while_firing()
    assert await other.find() == [one]
    await stopped.close()
    await other.close()


async def test_schedulers_behind_pgbouncer_share_the_work(postgres_url: str) -> None:
    try:
        await asyncio.to_thread(find, PGBOUNCER)
    except ServerMissing as missing:
        pytest.skip(str(missing))
    name = (await new_database(postgres_url)).rpartition("/")[2]
    port = int(postgres_url.rpartition(":")[2].partition("/")[0])
    start = pgbouncer_server(Server(postgres_url, port, 0))
    server = await asyncio.to_thread(start.__enter__)
    try:
        address = server.url.removesuffix("/postgres") + f"/{name}"
        stores = [SqlReminders(Database(address)) for _ in range(4)]
        await asyncio.gather(*(store.open() for store in stores))
        given = [new(user, key=f"key {user}") for user in range(1, 501)]
        ids = [one.id for one, _ in await stores[0].add(given, first)]

        async def schedule(store: SqlReminders) -> list[int]:
            seen: list[int] = []
            while True:
                async with store.claim_due(2_000.0, 20) as batch:
                    if not batch.reminders:
                        return seen
                    await batch.advance([fired(one) for one in batch.reminders])
                    seen += [one.id for one in batch.reminders]

        parts = await asyncio.gather(*(schedule(store) for store in stores))

        assert sorted(itertools.chain(*parts)) == ids
        assert sum(bool(part) for part in parts) > 1
        for store in stores:
            await store.close()
    finally:
        await asyncio.to_thread(start.__exit__, None, None, None)
