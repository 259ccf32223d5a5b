"""History in SQL: which index answers what, at 20,000 rows and, for `make proof`, at a million."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from databases import emptied_database, plan, recorded
from tidegate.clock import Clock
from tidegate.database.database import Database
from tidegate.database.history import SqlHistory
from tidegate.history import HistoryFilter, HistoryState
from tidegate.model import BotId, TicketId

BOT = BotId(42)
FEW, MANY = 20_000, 1_000_000
QUICK = 0.2  # seconds, for any question at a million rows
ASKED = 3  # times
INDEXES = {
    "ix_messages_chat_telegram_msg",
    "ix_messages_reply_lookup",
    "ix_messages_incoming",
    "ix_tidegate_messages_time",
    "ix_tidegate_messages_failed",
    "ix_tidegate_messages_ticket",
    "ix_tidegate_messages_words",
}

# Of ten rows three came in; of a thousand one is dead. Fifty bots, chats of ten messages, each a reply to the
# one before; every hundredth is of one group. SQLite knows nothing of them, as nobody runs ANALYZE for it.
ROWS = """
INSERT INTO tidegate_messages (key, bot, direction, chat_id, telegram_message_id, reply_to_message_id, kind,
    is_change, text, state, ticket, created_at, ended_at)
SELECT 'key-' || n, n / 10 % 50, CASE WHEN n % 10 < 3 THEN 'in' ELSE 'out' END,
    CASE WHEN n % 100 = 99 THEN '-100500' ELSE CAST(n / 10 AS TEXT) END, n,
    CASE WHEN n % 10 > 0 THEN n - 1 END,
    'sendMessage', {false}, 'every message number' || n || ' has a word' || n % 1000,
    CASE WHEN n % 1000 = 5 THEN 'dead' WHEN n % 10 < 3 THEN 'received' ELSE 'delivered' END,
    CASE WHEN n % 10 >= 3 THEN 'ticket-' || n END, n, n + 1
FROM ({numbers}) AS numbers
"""
NUMBERS = {
    "sqlite": "WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {rows})"
    " SELECT n FROM s",
    "postgres": "SELECT n FROM generate_series(1, {rows}) AS n",
}
WORDS = "INSERT INTO tidegate_messages_words (tidegate_messages_words) VALUES ('rebuild')"

Ask = Callable[[SqlHistory, int], Awaitable[object]]


def page(**wanted: Any) -> Ask:  # noqa: ANN401  (the filter's)
    return lambda store, _: store.page(HistoryFilter(**wanted), 50)


def later_page(**wanted: Any) -> Ask:  # noqa: ANN401
    return lambda store, rows: store.page(HistoryFilter(**wanted), 50, f"{rows / 2}_{rows // 2}")


# What is asked, and the indexes that have to answer it. Where none is named there are several to choose from,
# or the newest rows are looked at.
QUESTIONS: dict[str, tuple[Ask, set[str]]] = {
    "one message": (lambda store, rows: store.find(rows // 20, rows // 2), {"ix_messages_chat_telegram_msg"}),
    "one message of a bot": (
        lambda store, rows: store.find(rows // 20, rows // 2, BOT),
        {"ix_messages_chat_telegram_msg"},
    ),
    "a chain": (
        lambda store, rows: store.chain(rows // 20, rows // 2 + 8, BotId(rows // 20 % 50), 20),
        {"ix_messages_chat_telegram_msg", "ix_messages_reply_lookup"},
    ),
    "a ticket": (
        lambda store, rows: store.find_ticket(TicketId(f"ticket-{rows // 2 + 5}")),
        {"ix_tidegate_messages_ticket"},
    ),
    "all": (page(), {"ix_tidegate_messages_time"}),
    "all, a later page": (later_page(), {"ix_tidegate_messages_time"}),
    "those of a time": (page(since=500.0, until=600.0), {"ix_tidegate_messages_time"}),
    "incoming": (page(direction="in"), {"ix_tidegate_messages_time"}),
    "of a bot": (page(bot=BOT), {"ix_messages_incoming"}),
    "incoming of a bot": (page(bot=BOT, direction="in", since=1_000.0), {"ix_messages_incoming"}),
    "of a bot, a later page": (later_page(bot=BOT), {"ix_messages_incoming"}),
    "of a chat": (page(chat_id=500), set()),
    "of a chat of a bot": (page(chat_id=500, bot=BotId(0)), set()),
    "of a group": (page(chat_id=-100_500), set()),
    "of a group, a later page": (later_page(chat_id=-100_500), set()),
    "of a group, those that came in": (page(chat_id=-100_500, direction="in"), set()),
    "dead": (page(states=(HistoryState.DEAD,)), {"ix_tidegate_messages_failed"}),
    "dead of a bot": (page(bot=BotId(0), states=(HistoryState.DEAD,)), {"ix_tidegate_messages_failed"}),
    "none": (page(states=(HistoryState.PARKED,)), {"ix_tidegate_messages_failed"}),
    "a rare word": (page(words=("number777",)), {"ix_tidegate_messages_words"}),
    "a word of some": (page(words=("word77",)), set()),  # PostgreSQL may prefer to look at the newest rows
    "two words": (page(words=("word77", "message")), set()),
    "a word of all": (page(words=("message",)), set()),
    "a word of all in a chat": (page(words=("message",), chat_id=500), set()),
    "a word of all in a group": (page(words=("message",), chat_id=-100_500), set()),
    "the beginning of a word": (page(words=("number77*",)), set()),
    "no such word": (page(words=("nothing",)), {"ix_tidegate_messages_words"}),
    "statistics": (lambda store, _: store.stats(), set()),
    "purge": (lambda store, _: store.purge(100.0, 50), {"ix_tidegate_messages_time"}),
    "erasure": (lambda store, _: store.erase(77), set()),
}


@pytest.fixture
async def database(kind: str, postgres_url: str, tmp_path: Path) -> AsyncIterator[Database]:
    sqlite = f"sqlite:///{tmp_path}/data.db"
    made = Database(
        sqlite if kind == "sqlite" else await emptied_database(postgres_url), statement_timeout=300.0
    )
    await made.open()
    yield made
    await made.close()


async def fill(database: Database, kind: str, rows: int) -> None:
    false = "0" if kind == "sqlite" else "false"
    statement = ROWS.format(numbers=NUMBERS[kind].format(rows=rows), false=false)
    async with database.write() as transaction:
        await transaction.execute(text(statement))
        if kind == "sqlite":
            await transaction.execute(text(WORDS))
            return
    engine = database._engine  # noqa: SLF001  (VACUUM takes no transaction)
    assert engine is not None
    async with engine.connect() as connection:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        await connection.execute(text("VACUUM ANALYZE tidegate_messages"))


async def asked(database: Database, ask: Ask, rows: int) -> tuple[float, list[tuple[str, Any]]]:
    """Ask once; return the seconds that the answer took, and the statements that were made for it."""
    clock = Clock()
    began = clock.monotonic()
    async with recorded(database, lambda sql: "tidegate_messages" in sql and "INSERT" not in sql) as queries:
        await ask(SqlHistory(database), rows)
    return clock.monotonic() - began, queries


async def check_questions(database: Database, kind: str, rows: int) -> dict[str, float]:
    """Ask everything; return the seconds that each answer took, at best: the machine may be busy."""
    took: dict[str, float] = {}
    for question, (ask, indexes) in QUESTIONS.items():
        answers = [await asked(database, ask, rows) for _ in range(ASKED)]
        took[question] = min(seconds for seconds, _ in answers)
        queries = answers[-1][1]
        found = "\n".join([await plan(database, kind, *query) for query in queries])
        used = {name for name in INDEXES if name in found}
        if kind == "sqlite" and "tidegate_messages_words" in queries[-1][0]:
            used = {"ix_tidegate_messages_words"}
        assert indexes <= used, f"{question}: {found}"
        if question == "a chain":  # all of a bot are not looked through for what a message replies to
            assert used == indexes, found
        if question != "statistics":
            assert "Seq Scan" not in found, f"{question}: {found}"
            assert "SCAN m'" not in found, f"{question}: {found}"
    return took


async def test_every_question_about_history_is_answered_by_an_index(database: Database, kind: str) -> None:
    await fill(database, kind, FEW)
    await check_questions(database, kind, FEW)


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_the_messages_of_a_large_chat_are_looked_for_by_their_times(
    database: Database, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(database, kind, FEW)
    store, wanted = SqlHistory(database), HistoryFilter(chat_id=-100_500)
    before = await store.page(wanted, 50)
    monkeypatch.setattr("tidegate.database.history.SORTED_AT_MOST", 100)

    async with recorded(database, lambda sql: "tidegate_messages" in sql and "INSERT" not in sql) as queries:
        found = await store.page(wanted, 50)

    assert found == before
    assert "USING INDEX ix_tidegate_messages_time" in await plan(database, kind, *queries[-1])


@pytest.mark.proof
async def test_with_a_million_rows_every_question_is_answered_by_an_index_and_soon(
    database: Database, kind: str
) -> None:
    await fill(database, kind, MANY)
    took = await check_questions(database, kind, MANY)
    assert {question: seconds for question, seconds in took.items() if seconds > QUICK} == {}
