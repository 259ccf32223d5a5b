"""Jobs in SQL: which index answers what, at as many rows as a week of a busy bot leaves."""

import logging
from collections.abc import Awaitable, Callable

import pytest
from sqlalchemy import text

from databases import plan, recorded
from tidegate.clock import Clock
from tidegate.database.database import Database
from tidegate.database.jobs import SqlJobs
from tidegate.jobs.port import JobLease
from tidegate.jobs.record import JobDone, NewJob

ROWS = 30_000
INDEXES = ("due", "report", "key", "state", "ended", "chat")


class SetClock(Clock):
    """A clock that stands at the time in which the first rows are due."""

    def now(self) -> float:
        return 100.0


# Of ten rows one waits or runs, one is to be reported, eight have ended.
MANY = """
INSERT INTO tidegate_jobs (id, name, key, bot, chat_id, state, token, attempts, crashes, created_at, due_at,
  started_at, ended_at, report_at, body)
SELECT n + 1000, 'job' || n % 5, 'key ' || n, 42, CAST(n / 2 AS TEXT),
  CASE n % 10 WHEN 0 THEN 'queued' WHEN 1 THEN 'dead' ELSE 'done' END, 1, 0, 0, n,
  CASE WHEN n % 10 = 0 THEN n END, n, CASE WHEN n % 10 > 0 THEN n END, CASE WHEN n % 10 = 1 THEN n END, body
"""
NUMBERS = {
    "sqlite": f"WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {ROWS})"  # noqa: S608
    " SELECT n, zeroblob(400) AS body FROM s",
    "postgres": f"SELECT n, decode(repeat('00', 400), 'hex') AS body FROM generate_series(1, {ROWS}) AS n",  # noqa: S608
}
NAMES = [f"job{n}" for n in range(5)]
QUESTIONS: dict[str, tuple[Callable[[SqlJobs], Awaitable[object]], set[str]]] = {
    "claim": (lambda store: store.claim(NAMES, 20, 15.0), {"due"}),
    "claim of the ended": (lambda store: store.claim_ended(NAMES, 20, 60.0), {"report"}),
    "next": (lambda store: store.next_due(NAMES), {"due"}),
    "counts": (lambda store: store.counts(), {"state"}),
    "chat": (lambda store: store.find(chat_id=77), {"chat"}),
    "key": (lambda store: store.add([NewJob(name="job2", key="key 77")]), {"key"}),
    "cleaning": (lambda store: store.remove(ended_before=10.0), {"ended"}),
    "forgetting": (lambda store: store.remove(chat_id=77), {"chat"}),
    "the newest": (lambda store: store.find(limit=20), set()),  # by the primary key
    "some": (lambda store: store.get([1_500, 1_600]), set()),
    "cancel": (lambda store: store.cancel([1_700]), set()),
    "renew": (lambda store: store.renew([JobLease(1_800, 1)], 15.0), set()),
    "settle": (lambda store: store.settle(JobLease(1_800, 1), JobDone(1)), set()),
    "reported": (lambda store: store.reported(JobLease(1_800, 1)), set()),
}


async def vacuum(database: Database, kind: str) -> None:
    """What PostgreSQL does by itself after a while: then an index alone can answer."""
    if kind == "sqlite":
        async with database.write() as transaction:
            await transaction.execute(text("ANALYZE"))
        return
    engine = database._engine  # noqa: SLF001  (VACUUM takes no transaction)
    assert engine is not None
    async with engine.connect() as connection:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        await connection.execute(text("VACUUM ANALYZE tidegate_jobs"))


async def test_every_question_about_jobs_is_answered_by_an_index(
    database: Database, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "tidegate.store")  # the rows are no jobs
    async with database.write() as transaction:
        await transaction.execute(text(f"{MANY} FROM ({NUMBERS[kind]}) AS numbers"))
    await vacuum(database, kind)

    for question, (ask, indexes) in QUESTIONS.items():
        async with recorded(
            database, lambda sql: "tidegate_jobs" in sql and not sql.startswith("INSERT")
        ) as queries:
            await ask(SqlJobs(database, SetClock()))
        assert queries, question
        plans = "\n".join([await plan(database, kind, *query) for query in queries])
        used = {name for name in INDEXES if f"jobs_{name}" in plans}
        assert used == indexes, f"{question}: {plans}"
        assert "Seq Scan" not in plans, question  # PostgreSQL's word for the whole table
        if question != "the newest":  # which are the last rows of the table, as their ids rise
            assert "SCAN tidegate_jobs'" not in plans, question  # SQLite's
        if question.startswith(("claim", "the newest", "chat")):
            assert "Sort" not in plans  # the rows come in the order of the index
            assert "TEMP B-TREE" not in plans
