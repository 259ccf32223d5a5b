"""Access in SQL: which index answers what, at as many rows as a year of a busy team leaves."""

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from databases import plan, recorded
from tidegate import Tidegate
from tidegate.access import NewLoginSession, Role
from tidegate.database.access import SqlAccess
from tidegate.database.database import Database
from tidegate.model import BotId
from tidegate.ops.access import AccessControl

ROWS = 20_000
INDEXES = (
    "ix_sessions_token_active_expires",
    "ix_sessions_expires_active",
    "ix_tidegate_sessions_digest",
    "ix_tidegate_tokens_digest",
    "ix_tidegate_login_links_digest",
    "ix_tidegate_audit_at",
    "ix_tidegate_audit_action",
    "ix_tidegate_audit_bot",
)
SESSION = NewLoginSession(created_at=1.0, expires_at=2.0)

NUMBERS = {
    "sqlite": f"WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {ROWS})"  # noqa: S608
    " SELECT n, CAST(printf('%032d', n) AS BLOB) AS digest FROM s",
    "postgres": "SELECT n, decode(lpad(to_hex(n), 64, '0'), 'hex') AS digest"  # noqa: S608
    f" FROM generate_series(1, {ROWS}) AS n",
}
# A hundred sessions of each token, every tenth active; one token, link and entry for each row.
MANY = {
    "tokens (id, name, role, digest, prefix, created_at)": "n, 'ci', 'viewer', digest, 'tg_', 1",
    "sessions (id, token_id, digest, is_active, created_at, expires_at)": (
        "n, n % 200, digest, n % 10 = 0, n, n"
    ),
    "login_links (id, digest, created_at, expires_at)": "n, digest, n, n",
    "audit (id, at, principal, action, bot)": "n, n, 'ci', 'action ' || (n % 100), n % 100",
}
QUESTIONS: dict[str, tuple[Callable[[SqlAccess], Awaitable[object]], set[str]]] = {
    "token": (lambda store: store.find_token(bytes(32)), {"ix_tidegate_tokens_digest"}),
    "session": (lambda store: store.find_session(bytes(32)), {"ix_tidegate_sessions_digest"}),
    "sessions of a token": (
        lambda store: store.sessions(77, 1_000.0),
        {"ix_sessions_token_active_expires"},
    ),
    "revoke": (lambda store: store.revoke_token(77, 1.0), {"ix_sessions_token_active_expires"}),
    "log out": (lambda store: store.end_session(bytes(32)), {"ix_tidegate_sessions_digest"}),
    "link": (
        lambda store: store.use_link(bytes(32), bytes(32), SESSION),
        {"ix_tidegate_login_links_digest"},
    ),
    "uses": (lambda store: store.note_uses({77: 1.0}), set()),  # by the primary key
    "audit": (lambda store: store.audit(before_id=900, limit=50, action=None, bot=None), set()),
    "audit of an action": (
        lambda store: store.audit(before_id=9_000, limit=50, action="action 7", bot=None),
        {"ix_tidegate_audit_action"},
    ),
    "audit of a bot": (
        lambda store: store.audit(before_id=9_000, limit=50, action=None, bot=BotId(7)),
        {"ix_tidegate_audit_bot"},
    ),
    # Links are looked through as a whole: there are as many as starts in an hour.
    "purge": (
        lambda store: store.purge(10.0, 10.0),
        {"ix_sessions_expires_active", "ix_tidegate_audit_at"},
    ),
}


@pytest.fixture
def a_bots_own(tmp_path: Path) -> str:
    """The database of a bot that has a table of sessions itself."""
    with closing(sqlite3.connect(tmp_path / "bot.db")) as connection:
        connection.execute("CREATE TABLE sessions (token INTEGER)")
        connection.execute("CREATE INDEX ix_sessions_expires_active ON sessions (token)")
    return f"sqlite:///{tmp_path}/bot.db"


async def test_every_question_about_access_is_answered_by_an_index(database: Database, kind: str) -> None:
    async with database.write() as transaction:
        for columns, values in MANY.items():
            rows = f"SELECT {values} FROM ({NUMBERS[kind]}) AS numbers"  # noqa: S608
            await transaction.execute(text(f"INSERT INTO tidegate_{columns} {rows}"))
        await transaction.execute(text("ANALYZE"))

    for question, (ask, indexes) in QUESTIONS.items():
        async with recorded(
            database, lambda sql: "tidegate_" in sql and not sql.startswith("INSERT")
        ) as queries:
            await ask(SqlAccess(database))
        assert queries, question
        asked = [query for query in queries if not query[0].startswith("DELETE FROM tidegate_login_links")]
        plans = "\n".join([await plan(database, kind, *query) for query in asked])
        used = {name for name in INDEXES if name in plans}
        assert used == indexes, f"{question}: {plans}"
        assert "Seq Scan" not in plans, f"{question}: {plans}"  # PostgreSQL's word for the whole table
        assert "SCAN " not in plans, f"{question}: {plans}"  # SQLite's
        if question == "audit":
            assert "Sort" not in plans, plans  # the rows come in the order of the index
            assert "TEMP B-TREE" not in plans, plans


async def test_a_bot_whose_own_sessions_have_indexes_of_these_names_keeps_them(a_bots_own: str) -> None:
    database = Database(a_bots_own)
    await database.open()
    try:
        assert await SqlAccess(database).purge(1.0, 1.0) == 0
        where = text("SELECT tbl_name FROM sqlite_master WHERE name = 'ix_sessions_expires_active'")
        async with database.read() as transaction:
            assert await transaction.scalar(where) == "sessions"
    finally:
        await database.close()


async def test_access_control_uses_the_database_of_a_gate() -> None:
    async with Tidegate("memory://") as gate, AccessControl.of(gate.core) as access:
        made = await access.create_token("ci", Role.OPERATOR)
        principal = await access.authenticate(made.secret)
    assert principal is not None
    assert principal.token_id == made.record.id
