"""The SQL database on real servers: migrations, PgBouncer, a replica, and what happens when it is away."""

import asyncio
import os
import signal
import socket
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, text

from databases import new_database, run_sql
from history_rows import ANN, row
from servers import PGBOUNCER, Server, ServerMissing, find, pgbouncer_server, postgres_server
from tidegate import Tidegate
from tidegate.clock import Clock
from tidegate.database.access import SqlAccess
from tidegate.database.database import Database
from tidegate.database.history import SqlHistory
from tidegate.database.migrations import NEWEST, VERSION_TABLE
from tidegate.database.schema import metadata
from tidegate.errors import BadInputError, ClosedError, StoreAwayError, StoreError
from tidegate.history import HistoryFilter
from tidegate.ops.access import AccessControl

PASSWORD = "hush-hush"
COUNT = text("SELECT count(*) FROM tidegate_reminders")
WHERE = text("SELECT current_database()")


@pytest.fixture
async def address(kind: str, postgres_url: str, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/data.db" if kind == "sqlite" else await new_database(postgres_url)


async def test_a_new_database_gets_its_tables_and_the_next_process_changes_nothing(address: str) -> None:
    database = Database(address)
    assert await database.exists() == address.startswith("postgres")
    await database.open()
    try:
        again = Database(address)
        await again.open(upgrade=False)
        assert await again.revision() == (NEWEST, [])
        assert (await again.upgrade()).pending == []
        await again.close()
    finally:
        await database.close()


async def test_a_database_that_was_being_opened_was_said_not_to_answer(tmp_path: Path) -> None:
    core = Tidegate(str(tmp_path / "bot.db")).core
    _, meanwhile = await asyncio.gather(core.database.open(), core.database_answers(5))
    assert meanwhile is None
    assert await core.database_answers(5) is True
    await core.database.close()


async def test_a_database_that_could_not_be_opened_does_not_answer(tmp_path: Path) -> None:
    core = Tidegate(str(tmp_path / "no such folder" / "bot.db")).core
    with pytest.raises(BadInputError):
        await core.database.open()
    assert await core.database_answers(5) is False


async def test_the_tables_are_those_that_the_code_expects(database: Database) -> None:
    def differences(connection: Connection) -> list[Any]:
        def is_ours(name: str | None, kind: str, _: object) -> bool:
            if kind == "table":
                return name in metadata.tables
            return name not in {"words", "ix_tidegate_messages_words"}  # of PostgreSQL alone

        options = {"compare_type": True, "include_name": is_ours}
        context = MigrationContext.configure(connection, opts=options)
        return list(compare_metadata(context, metadata))

    async with database.read() as transaction:
        assert await transaction.run(differences) == []


async def test_processes_that_start_at_once_make_the_tables_once(address: str) -> None:
    databases = [Database(address, busy_timeout=20.0) for _ in range(4)]

    await asyncio.gather(*(one.open() for one in databases))

    for one in databases:
        async with one.read() as transaction:
            assert await transaction.scalar(COUNT) == 0
            assert await transaction.scalar(text(f"SELECT count(*) FROM {VERSION_TABLE}")) == 1  # noqa: S608
        await one.close()


async def test_a_database_of_a_newer_tidegate_is_refused_and_left_alone(address: str) -> None:
    database = Database(address)
    await database.open()
    async with database.write() as transaction:
        await transaction.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))  # noqa: S608

    for upgrade in (True, False):
        with pytest.raises(StoreError, match=r"newer Tidegate.*9999"):
            await Database(address).open(upgrade=upgrade)
    async with database.read() as transaction:
        assert await transaction.scalar(COUNT) == 0
    await database.close()


async def test_what_a_transaction_did_is_undone_if_its_body_fails(database: Database) -> None:
    async def change_and_fail() -> None:
        async with database.write() as transaction:
            await transaction.execute(text(f"DELETE FROM {VERSION_TABLE}"))  # noqa: S608
            raise OSError("of somebody else")

    with pytest.raises(OSError, match="of somebody else") as caught:  # which is not the database's
        await change_and_fail()

    assert not isinstance(caught.value, StoreError)
    assert (await database.revision()).current == NEWEST


async def test_an_error_of_sql_is_told_without_its_parameters(database: Database) -> None:
    async with database.read() as transaction:
        with pytest.raises(StoreError) as caught:
            await transaction.execute(text("SELECT 1 FROM nowhere WHERE 1 = :x"), {"x": PASSWORD})
    assert not isinstance(caught.value, StoreAwayError)
    assert "nowhere" in str(caught.value)
    assert PASSWORD not in str(caught.value)


async def test_a_value_that_does_not_fit_is_bad_input_and_not_shown(database: Database) -> None:
    async with database.write() as transaction:
        with pytest.raises(BadInputError, match="cannot keep one of the values") as caught:
            await transaction.execute(
                text("UPDATE tidegate_reminders SET bot = 1 WHERE bot = :bot"), {"bot": 10**30}
            )
    assert "1000" not in str(caught.value)


async def test_settings_of_a_transaction_end_with_it(postgres_url: str) -> None:
    database = Database(postgres_url, statement_timeout=12.0, pool_size=1, max_overflow=0)
    await database.open(upgrade=False)
    show = text("SELECT current_setting('statement_timeout'), current_setting('transaction_read_only')")
    async with database.read() as transaction:
        assert tuple((await transaction.execute(show)).one()) == ("12s", "on")
        connection = transaction._connection  # noqa: SLF001  (the session behind the pool)
        await connection.commit()
        assert tuple((await connection.execute(show)).one()) == ("0", "off")
    await database.close()


async def test_a_statement_that_takes_too_long_is_stopped(postgres_url: str) -> None:
    database = Database(postgres_url, statement_timeout=0.5)
    await database.open(upgrade=False)
    with pytest.raises(StoreAwayError, match="took longer than TIDEGATE_STATEMENT_TIMEOUT"):
        async with database.read() as transaction:
            await transaction.execute(text("SELECT pg_sleep(30)"))
    await database.close()


async def test_more_transactions_than_connections_wait_and_are_told_in_the_end(postgres_url: str) -> None:
    database = Database(postgres_url, pool_size=1, max_overflow=0, statement_timeout=0.5)
    await database.open(upgrade=False)
    async with database.read():
        with pytest.raises(StoreAwayError, match=r"every connection .* is in use: raise DB_POOL_SIZE"):
            async with database.read():
                pass
    await database.close()


async def test_a_database_in_memory_lasts_as_long_as_it_is_open() -> None:
    database = Database("sqlite://")
    await database.open()
    async with database.write() as transaction:
        assert await transaction.scalar(COUNT) == 0
    await database.close()
    with pytest.raises(ClosedError):
        await database.revision()


async def test_a_file_is_for_its_owner_alone_and_every_commit_is_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "data.db"
    database = Database(f"sqlite:///{path}")
    await database.open()
    pragmas = ("journal_mode", "synchronous", "foreign_keys")
    async with database.write() as transaction:
        found = [await transaction.scalar(text(f"PRAGMA {pragma}")) for pragma in pragmas]
    await database.close()

    assert found == ["wal", 2, 1]
    assert (await asyncio.to_thread(path.stat)).st_mode & 0o777 == 0o600


async def test_a_file_that_another_process_keeps_locked_is_named(tmp_path: Path) -> None:
    path = tmp_path / "data.db"
    database = Database(f"sqlite:///{path}", busy_timeout=0.05)
    await database.open()
    with closing(await asyncio.to_thread(sqlite3.connect, path, check_same_thread=False)) as other:
        await asyncio.to_thread(other.execute, "BEGIN IMMEDIATE")
        with pytest.raises(StoreAwayError, match=r"another process keeps .*data\.db locked"):
            async with database.write():
                pass
        async with database.read() as transaction:  # readers do not wait
            assert await transaction.scalar(COUNT) == 0
        await asyncio.to_thread(other.rollback)
    async with database.write() as transaction:
        assert await transaction.scalar(COUNT) == 0
    await database.close()


async def test_a_transaction_that_was_cancelled_beside_unread_rows_does_not_keep_the_file_locked(
    tmp_path: Path,
) -> None:
    loop = asyncio.get_running_loop()

    def cancel() -> int:
        loop.call_soon_threadsafe(task.cancel)  # called by SQLite, while the rows are on their way
        return 1

    async def select_and_be_cancelled() -> None:
        async with database.write() as transaction:
            await transaction.run(lambda one: one.connection.create_function("cancel", 0, cancel))
            await transaction.rows(text("SELECT cancel() UNION ALL SELECT 2"))

    database = Database(f"sqlite:///{tmp_path}/data.db", busy_timeout=0.05)
    await database.open()
    try:
        task = loop.create_task(select_and_be_cancelled())
        with pytest.raises(asyncio.CancelledError) as kept:  # and with it the statement
            await task
        async with database.write() as transaction:
            assert await transaction.scalar(COUNT) == 0
        assert kept.traceback  # which is there still
    finally:
        await database.close()


async def test_a_file_that_was_deleted_while_it_is_open_is_not_written_in_vain(tmp_path: Path) -> None:
    path = tmp_path / "data.db"
    database = Database(f"sqlite:///{path}")
    await database.open()
    await asyncio.to_thread(path.unlink)

    for transaction in (database.write(), database.read()):
        with pytest.raises(StoreError, match="was deleted or replaced while it was open"):
            async with transaction:
                pass
    assert not await asyncio.to_thread(path.exists)
    await database.close()


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("none/data.db", None, "there is no folder"),
        (".", None, "is a folder"),
        ("text.db", "not a database, but long enough" * 50, "is not a SQLite file"),
    ],
)
async def test_a_file_that_cannot_be_used_is_named_with_what_to_do(
    tmp_path: Path, name: str, content: str | None, told: str
) -> None:
    if content is not None:
        await asyncio.to_thread((tmp_path / name).write_text, content)
    with pytest.raises((StoreError, BadInputError), match=told):
        await Database(f"sqlite:///{tmp_path}/{name}").open()


async def test_without_permission_to_upgrade_no_file_is_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no"):
        await Database(f"sqlite:///{tmp_path}/data.db").open(upgrade=False)
    assert await asyncio.to_thread(os.listdir, tmp_path) == []


async def test_a_server_that_does_not_run_is_named_without_the_password() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: refused
        host = f"127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(StoreAwayError) as caught:
            await Database(f"postgresql://me:{PASSWORD}@{host}/shop").open()

    told = str(caught.value)
    assert told.startswith(
        f"postgresql://{host}/shop cannot be reached: start it there, or correct its address"
    )
    assert PASSWORD not in told


async def test_a_server_that_is_silent_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        Database.open.__globals__["make_engine"].__globals__["_POSTGRES_ARGUMENTS"], "timeout", 0.2
    )
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(StoreAwayError, match="no answer in time"):
            await Database(f"postgresql://me@127.0.0.1:{silent.getsockname()[1]}/shop").open()


@pytest.mark.parametrize(
    ("user", "name", "told"),
    [
        ("postgres", "nowhere", "there is no database postgresql://.*/nowhere: create it"),
        (f"nobody:{PASSWORD}", "postgres", "refuses the user or the password"),
    ],
)
async def test_what_a_server_refuses_is_told_with_what_to_do(
    postgres_url: str, user: str, name: str, told: str
) -> None:
    address = postgres_url.replace("postgres@", f"{user}@").removesuffix("/postgres") + f"/{name}"
    with pytest.raises(StoreError, match=told) as caught:
        await Database(address).open()
    assert not isinstance(caught.value, StoreAwayError)
    assert PASSWORD not in str(caught.value)


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that the account of a server can reach: pytest's own are closed to others."""
    with tempfile.TemporaryDirectory(prefix="tidegate-") as made:
        yield Path(made)


async def test_a_server_that_is_stopped_and_started_again_is_used_again(folder: Path) -> None:
    running = ExitStack()
    server = await asyncio.to_thread(running.enter_context, postgres_server(directory=folder))
    database = Database(server.url)
    await database.open()

    async def ask() -> object:
        async with database.read() as transaction:
            return await transaction.scalar(COUNT)

    async def change_in_vain() -> None:
        async with database.write() as transaction:
            await asyncio.to_thread(running.close)
            await transaction.execute(text("DELETE FROM tidegate_reminders"))

    try:
        await asyncio.gather(*(ask() for _ in range(5)))  # so that the pool has several connections
        with pytest.raises(StoreAwayError, match="cannot be reached"):
            await change_in_vain()
        for _ in range(3):
            with pytest.raises(StoreAwayError, match="cannot be reached"):
                await ask()
        again = postgres_server(directory=folder, port=server.port)
        await asyncio.to_thread(running.enter_context, again)
        assert await asyncio.gather(*(ask() for _ in range(5))) == [0] * 5
        await database.close()
    finally:
        await asyncio.to_thread(running.close)


async def session_of(database: Database) -> int:
    async with database.read() as transaction:
        session: int = await transaction.scalar(text("SELECT pg_backend_pid()"))
        return session


async def test_a_connection_that_was_closed_between_two_transactions_is_not_noticed(
    postgres_url: str,
) -> None:
    database = Database(postgres_url)
    await database.open(upgrade=False)
    before = await session_of(database)
    await run_sql(postgres_url, f"SELECT pg_terminate_backend({before})")

    assert await session_of(database) != before
    await database.close()


async def test_a_server_that_stands_still_is_given_up(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.database.database.NETWORK_MARGIN", 0.2)
    database = Database(postgres_url, statement_timeout=0.5)
    await database.open(upgrade=False)
    session = await session_of(database)
    os.kill(session, signal.SIGSTOP)
    try:
        with pytest.raises(StoreAwayError, match="no answer in time"):
            await database.revision()
    finally:
        os.kill(session, signal.SIGCONT)
    assert await session_of(database) != session
    await database.close()


async def test_questions_go_to_the_replica_and_everything_else_to_the_primary(postgres_url: str) -> None:
    primary, replica = await new_database(postgres_url), await new_database(postgres_url)
    names = [address.rpartition("/")[2] for address in (primary, replica)]
    database = Database(primary, replica=replica)
    await database.open()

    async with database.read() as transaction:
        assert await transaction.scalar(WHERE) == names[1]
    async with database.read(latest=True) as transaction:
        assert await transaction.scalar(WHERE) == names[0]
    async with database.write() as transaction:
        assert await transaction.scalar(WHERE) == names[0]
    with pytest.raises(StoreError, match="read-only"):
        async with database.read(latest=True) as transaction:
            await transaction.execute(text("DELETE FROM tidegate_reminders"))
    await database.close()


async def test_a_replica_that_is_away_stops_only_the_questions_that_go_there(postgres_url: str) -> None:
    database = Database(await new_database(postgres_url), replica="postgresql://me@127.0.0.1:1/copy")
    await database.open()
    with pytest.raises(StoreAwayError, match=r"postgresql://127\.0\.0\.1:1/copy cannot be reached"):
        async with database.read():
            pass
    async with database.write() as transaction:
        assert await transaction.scalar(COUNT) == 0
    await database.close()


@pytest.fixture(scope="module")
def pgbouncer_url(postgres_url: str) -> Iterator[str]:
    try:
        find(PGBOUNCER)
    except ServerMissing as missing:
        pytest.skip(str(missing))
    port = int(postgres_url.rpartition(":")[2].partition("/")[0])
    with pgbouncer_server(Server(postgres_url, port, 0)) as server:
        yield server.url


async def test_transactions_through_pgbouncer_share_few_connections(
    postgres_url: str, pgbouncer_url: str
) -> None:
    name = (await new_database(postgres_url)).rpartition("/")[2]
    database = Database(pgbouncer_url.removesuffix("/postgres") + f"/{name}", statement_timeout=12.0)
    await database.open()

    async def work() -> set[int]:
        seen = set()
        for _ in range(5):
            async with database.write() as transaction:
                seen.add(await transaction.scalar(text("SELECT pg_backend_pid()")))
                assert await transaction.scalar(text("SHOW statement_timeout")) == "12s"
                assert await transaction.scalar(COUNT) == 0
        return seen

    sessions = await asyncio.gather(*(work() for _ in range(10)))

    assert 1 < len(set.union(*sessions)) <= 3  # ten clients, three connections: nobody has its own
    await database.close()
    await run_sql(postgres_url, "SELECT 1")  # and the server behind it is well


async def test_history_and_access_go_through_pgbouncer(postgres_url: str, pgbouncer_url: str) -> None:
    name = (await new_database(postgres_url)).rpartition("/")[2]
    database = Database(pgbouncer_url.removesuffix("/postgres") + f"/{name}")
    await database.open()
    history, access = SqlHistory(database), AccessControl(lambda: SqlAccess(database), Clock())

    async def work(number: int) -> None:
        made = await access.create_token(f"program {number}", "viewer")
        for step in range(5):
            message = number * 10 + step + 1
            reply = None if step == 0 else message - 1
            await history.write(
                [row(text=f"word{number}", telegram_message_id=message, reply_to_message_id=reply)]
            )
            assert await access.authenticate(made.secret) is not None
        last = number * 10 + 5
        chain = await history.chain(ANN, last, None, 20)
        assert chain is not None
        assert len(chain.above) == 4
        assert len((await history.page(HistoryFilter(words=(f"word{number}",)), 50)).messages) == 5

    try:
        await asyncio.gather(*(work(number) for number in range(10)))
    finally:
        await access.close()
        await database.close()
