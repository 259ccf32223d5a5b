"""Broadcasts by code with what is real: databases, processes, kill -9.

Run as a script, this is a bot that broadcasts: `STORE URL PEOPLE`.
"""

import asyncio
import datetime as dt
import sqlite3
import sys
from collections import Counter
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # ships none
import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from tidegate import Tidegate
from tidegate.broadcast.campaign import Campaign
from tidegate.broadcast.message import MessageWriter
from tidegate.clock import Clock
from tidegate.database import audience as reading
from tidegate.database.audience import sql
from tidegate.errors import TidegateError
from tidegate.model import Rate
from tidegate.row_template import Row
from tidegate.sim.faults import Faults, Latency
from tidegate.sim.telegram import SimulatedTelegram
from tidegate.sim.telegram.http import TelegramServer
from tidegate.sim.telegram.telegram import TelegramWire

TOKEN = "42:token"
PEOPLE = 300


async def broadcast(gate: Tidegate, audience: Any, letter: object, **options: Any) -> Campaign:  # noqa: ANN401
    fields: dict[str, Any] = {"priority": "low", "on_unknown": "park"}
    campaign = Campaign(
        "sale",
        audience,
        MessageWriter(letter, fields),
        put=lambda items: gate.send_many(items, **fields),
        outbox=gate.outbox,
        clock=Clock(),
        rate=Rate(200, 1),
        **options,
    )
    await campaign.start()
    return campaign


async def test_a_bot_that_is_killed_in_the_middle_of_a_broadcast_goes_on_with_it(tmp_path: Path) -> None:
    from system.killing import LIMITS, asked, kill, line_of, running  # noqa: PLC0415  (the script has no path)

    store = tmp_path / "store.db"
    latency = Latency(5, 40)
    async with TelegramServer(
        limits=LIMITS, faults=Faults(latency_in=latency, latency_out=latency)
    ) as server:
        bot = (str(store), server.url, str(PEOPLE))
        async with running(*bot, script=__file__) as process:
            while int(await line_of(process)) < PEOPLE // 3:
                pass
            await kill(process)
        [[in_flight]] = await asked(store, "SELECT count(*) FROM messages WHERE state = 'sending'")
        async with running(*bot, script=__file__) as process:
            while (line := await line_of(process)).isdecimal():
                pass
        arrived = Counter(entry.chat_id for entry in server.telegram.request_log.log if entry.status == 200)
        report = server.telegram.report()

    assert line == f"{PEOPLE} accounted for"
    assert report["refused"] == 0
    assert set(arrived.values()) == {1}, "somebody got it twice"
    parked = {chat for [chat] in await asked(store, "SELECT chat_id FROM messages WHERE state = 'parked'")}
    missing = set(range(1, PEOPLE + 1)) - set(arrived)
    assert missing <= parked, "somebody was missed"
    assert len(parked) <= in_flight


async def _bot(store: str, url: str, people: int) -> None:
    async with Tidegate(store) as gate:
        gate.add_bot(TOKEN, api_url=url)
        async with gate.worker():
            campaign = await broadcast(gate, range(1, people + 1), "Hello #1")
            while not campaign.has_ended:
                _say(str(campaign.progress.ended))
                await Clock().sleep(0.02)
            report = await campaign.finished()
            _say(f"{report.delivered + report.parked + report.dead} accounted for")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """With a journal that lets nobody write while somebody reads."""
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE users (tg INTEGER, name TEXT, town TEXT, gone TEXT)")
        rows = [(1 + i, f"Person {i}", ("Rye", "Hythe")[i % 2], None) for i in range(2_500)]
        connection.executemany("INSERT INTO users VALUES (?, ?, ?, ?)", rows)
    return path


async def rows_of(audience: reading.SqlAudience) -> list[dict[str, Any]]:
    return [row async for row in audience]


async def test_an_audience_comes_from_a_query_as_often_as_it_is_asked(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = "SELECT tg AS chat_id, name FROM users WHERE town = :town ORDER BY tg"
    people = sql(f"sqlite:///{shop}", query, town="Rye")
    first = await rows_of(people)
    monkeypatch.setattr(reading, "IN_MEMORY", 10_000)  # bytes: the rest is on disk
    assert first == await rows_of(people)
    assert (len(first), first[1]) == (1_250, {"chat_id": 3, "name": "Person 2"})
    assert await rows_of(sql(f"sqlite:///{shop}", query, town="' OR 1=1 --")) == []


async def test_who_is_gone_can_be_marked_in_the_database_that_is_read(shop: Path) -> None:
    engine = await asyncio.to_thread(create_async_engine, f"sqlite+aiosqlite:///{shop}")
    people = sql(engine, "SELECT tg AS chat_id, name FROM users WHERE gone IS NULL AND tg <= 20")

    def mark(row: Row, reason: str) -> None:
        with closing(sqlite3.connect(shop, timeout=0)) as connection, connection:
            connection.execute("UPDATE users SET gone = ? WHERE tg = ?", (reason, row["chat_id"]))

    async def on_dead(row: Row, reason: str) -> None:
        await asyncio.to_thread(mark, row, reason)

    telegram = SimulatedTelegram(Clock())
    bot = telegram.world.bot(TOKEN)
    assert bot is not None
    for chat in (3, 7):
        telegram.world.user_blocks(bot, chat, Clock().now())
    gate = Tidegate("memory://", wire=TelegramWire(telegram, Clock()))
    gate.add_bot(TOKEN)
    async with gate, gate.worker():
        campaign = await broadcast(gate, people, "Hello {name}", on_dead=on_dead)
        assert campaign.progress.total == 20
        report = await campaign.finished()
    assert (report.delivered, report.dead, report.unmarked) == (18, 2, 0)
    assert len(await rows_of(people)) == 18
    await engine.dispose()


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT tg FROM nobody", "no such table: nobody"),
        ("SELECT tg FROM users WHERE name = :name", "A value is required for bind parameter 'name'"),
        ("UPDATE users SET gone = 'x'", "This result object does not return rows"),
    ],
)
async def test_a_query_that_fails_says_why(shop: Path, query: str, why: str) -> None:
    with pytest.raises(TidegateError, match=f"the audience cannot be read from sqlite:/.*: {why}") as caught:
        await rows_of(sql(f"sqlite:///{shop}", query))
    assert "sqlalche.me" not in str(caught.value)


async def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(TidegateError, match="there is no such file"):
        await rows_of(sql(f"sqlite:///{tmp_path}/none.db", "SELECT 1"))
    assert await asyncio.to_thread(lambda: list(tmp_path.iterdir())) == []


async def test_an_audience_comes_from_postgresql(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    try:
        await connection.execute("CREATE SCHEMA audience")
        await connection.execute("CREATE TABLE audience.users (tg bigint, spent numeric, since date)")
        await connection.execute(
            "INSERT INTO audience.users SELECT n, n / 2.0, date '2026-01-05' FROM generate_series(1, 2500) n"
        )
        people = sql(
            postgres_url,
            "SELECT tg AS chat_id, spent::numeric, since FROM audience.users WHERE tg > :after ORDER BY tg",
            after=500,
        )
        found = await rows_of(people)
        assert len(found) == 2_000
        assert found[0] == {"chat_id": 501, "spent": Decimal("250.5"), "since": dt.date(2026, 1, 5)}
        [[busy]] = await connection.fetch(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid != pg_backend_pid()"
        )
        assert busy == 0
        with pytest.raises(TidegateError, match=r"postgresql://.*: relation \"nobody\" does not exist$"):
            await rows_of(sql(postgres_url, "SELECT * FROM nobody"))
    finally:
        await connection.execute("DROP SCHEMA audience CASCADE")
        await connection.close()


async def test_a_database_that_does_not_answer_is_named_without_its_password() -> None:
    with pytest.raises(
        TidegateError, match=r"cannot be read from postgresql://127\.0\.0\.1:1/shop: "
    ) as caught:
        await rows_of(sql("postgresql://bob:secret@127.0.0.1:1/shop", "SELECT 1"))
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__


if __name__ == "__main__":
    asyncio.run(_bot(sys.argv[1], sys.argv[2], int(sys.argv[3])))
