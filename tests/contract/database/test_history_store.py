"""History in SQL: in a SQLite file and in PostgreSQL."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import event

from databases import database_file, emptied_database
from history_rows import ANN, BOT, attempt, row
from memory_history import MemoryHistory
from tidegate.database.database import Database
from tidegate.database.history import ROWS_AT_ONCE, SqlHistory
from tidegate.errors import BadInputError
from tidegate.history import (
    AttemptOutcome,
    ErasedRows,
    HistoryFilter,
    HistoryMessage,
    HistoryState,
    HistoryStore,
    MessageAttempt,
    RecordedRow,
    words_of,
)
from tidegate.model import BotId, TicketId

OTHER_BOT = BotId(43)
GROUP = -100_500


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "postgres":
        request.getfixturevalue("postgres_url")  # starts it outside of the event loop
    return str(request.param)


@pytest.fixture
async def database(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    if kind == "sqlite":
        made = Database(await database_file(tmp_path))
    else:
        made = Database(await emptied_database(request.getfixturevalue("postgres_url")))
    await made.open()
    yield made
    await made.close()


@pytest.fixture
def store(database: Database) -> SqlHistory:
    return SqlHistory(database)


async def kept(store: SqlHistory, **wanted: Any) -> list[HistoryMessage]:  # noqa: ANN401
    """Return the messages that fit, the oldest first."""
    return (await store.page(HistoryFilter(**wanted), 1_000)).messages[::-1]


async def texts(store: SqlHistory, **wanted: Any) -> list[str | None]:  # noqa: ANN401
    return [message.text for message in await kept(store, **wanted)]


async def found(store: SqlHistory, words: str, **wanted: Any) -> list[str | None]:  # noqa: ANN401
    return await texts(store, words=words_of(words), **wanted)


async def test_every_field_of_a_message_comes_back(store: SqlHistory) -> None:
    await store.write(
        [
            row(
                chat_id="@channel",
                telegram_message_id=7,
                reply_to_message_id=5,
                user_id=9,
                kind="editMessageText",
                is_change=True,
                text="ein 'Text' \"mit\" \\ Umlauten: äöü 🎉\nzwei Zeilen",
                state="dead",
                reason="blocked",
                description="Forbidden: bot was blocked by the user",
                ticket="ab-1",
                priority="high",
                attempts=3,
                created_at=1_700_000_000.123456,
                ended_at=1_700_000_001.654321,
            )
        ]
    )

    [message] = await kept(store)

    assert message == HistoryMessage(
        id=message.id,
        bot=BOT,
        direction="out",
        chat_id="@channel",
        telegram_message_id=7,
        reply_to_message_id=5,
        user_id=9,
        kind="editMessageText",
        is_change=True,
        text="ein 'Text' \"mit\" \\ Umlauten: äöü 🎉\nzwei Zeilen",
        state=HistoryState.DEAD,
        reason="blocked",
        description="Forbidden: bot was blocked by the user",
        ticket=TicketId("ab-1"),
        priority="high",
        attempts=3,
        created_at=1_700_000_000.123456,
        ended_at=1_700_000_001.654321,
    )


async def test_a_batch_that_is_written_twice_is_there_once(store: SqlHistory) -> None:
    batch = [row(text=f"text {n}") for n in range(3)]
    more = row(text="text 3")

    await store.write(batch)
    await store.write([*batch, more, more])

    assert await texts(store) == ["text 0", "text 1", "text 2", "text 3"]
    assert len(await found(store, "text")) == 4


async def test_a_batch_of_more_than_one_statement_is_written_whole(store: SqlHistory) -> None:
    await store.write([row(text=f"number{n}") for n in range(ROWS_AT_ONCE + 1)])

    assert (await store.stats()).messages == ROWS_AT_ONCE + 1
    assert await found(store, f"number{ROWS_AT_ONCE}") == [f"number{ROWS_AT_ONCE}"]


async def test_values_are_kept_also_beside_rows_that_have_none(store: SqlHistory) -> None:
    whole = row(
        reply_to_message_id=7,
        user_id=8,
        is_change=True,
        text="",
        reason="blocked",
        description="",
        attempts=3,
    )
    await store.write([row(created_at=1.0), msgspec.structs.replace(whole, created_at=2.0)])

    bare, found = await kept(store)
    assert (bare.reply_to_message_id, bare.user_id, bare.is_change) == (None, None, False)
    assert (bare.reason, bare.description) == (None, None)
    assert (found.reply_to_message_id, found.user_id, found.is_change) == (7, 8, True)
    assert (found.text, found.reason, found.description, found.attempts) == ("", "blocked", "", 3)


async def test_batches_of_all_sizes_share_a_few_statements_so_that_memory_does_not_grow(
    store: SqlHistory, database: Database
) -> None:
    engine = database._engine  # noqa: SLF001  (what the database is asked, not what the store says)
    assert engine is not None
    seen: set[str] = set()

    def note(_c: object, _k: object, statement: str, *_: object) -> None:
        if statement.startswith("INSERT INTO tidegate_messages "):
            seen.add(statement)

    event.listen(engine.sync_engine, "before_cursor_execute", note)
    for size in range(1, 41):
        await store.write([row() for _ in range(size)])

    assert (await store.stats()).messages == 820
    assert len(seen) <= 6


async def test_a_value_that_cannot_be_kept_is_bad_input_and_the_batch_is_not_written(
    store: SqlHistory,
) -> None:
    with pytest.raises(BadInputError, match="cannot keep one of the values"):
        await store.write([row(), row(user_id=2**70)])

    assert await kept(store) == []


async def test_a_list_has_the_messages_to_which_every_filter_applies(store: SqlHistory) -> None:
    await store.write(
        [
            row(text="in", direction="in", state="received", created_at=10.0),
            row(text="out", created_at=20.0),
            row(text="dead", state="dead", created_at=30.0),
            row(text="parked", state="parked", chat_id=GROUP, created_at=40.0),
            row(text="other", bot=OTHER_BOT, created_at=50.0),
        ]
    )

    assert await texts(store) == ["in", "out", "dead", "parked", "other"]
    assert await texts(store, bot=OTHER_BOT) == ["other"]
    assert await texts(store, chat_id=GROUP) == ["parked"]
    assert await texts(store, direction="in") == ["in"]
    assert await texts(store, states=(HistoryState.DEAD, HistoryState.PARKED)) == ["dead", "parked"]
    assert await texts(store, states=(HistoryState.DEAD, HistoryState.DELIVERED)) == ["out", "dead", "other"]
    assert await texts(store, since=20.0, until=40.0) == ["out", "dead"]
    assert await texts(store, bot=BOT, direction="out", since=15.0, states=(HistoryState.DELIVERED,)) == [
        "out"
    ]


@pytest.mark.parametrize("words", ["", "text"])
async def test_pages_lead_through_all_messages_though_many_have_the_same_time(
    store: SqlHistory, words: str
) -> None:
    await store.write([row(text=f"text {n}", created_at=5.0 + n // 4) for n in range(11)])
    wanted = HistoryFilter(words=words_of(words) if words else ())
    seen: list[str | None] = []
    cursor: str | None = None
    pages = 0
    while pages == 0 or cursor is not None:
        page = await store.page(wanted, 3, cursor)
        seen += [message.text for message in page.messages]
        pages, cursor = pages + 1, page.cursor

    assert pages == 4
    assert seen == [f"text {n}" for n in reversed(range(11))]


async def test_a_cursor_of_another_list_is_refused(store: SqlHistory) -> None:
    for cursor in ("", "7", "x_7", "7_x", "nan_7", "7_", "1.0_99999999999999999999", "1.0_-1"):
        with pytest.raises(BadInputError, match="begin without one"):
            await store.page(HistoryFilter(), 3, cursor)
    with pytest.raises(BadInputError, match="begin without one"):
        await store.page(HistoryFilter(words=("word",)), 3, "1.5_7")


async def test_a_search_finds_whole_words_and_beginnings_whatever_their_case(store: SqlHistory) -> None:
    await store.write(
        [
            row(text="Your PAYMENT has arrived"),
            row(text="pay here"),
            row(text="a parcel, not a letter"),
            row(text=None),
            row(text="Привет, Überraschung"),
        ]
    )

    assert await found(store, "payment") == ["Your PAYMENT has arrived"]
    assert await found(store, "pay*") == ["Your PAYMENT has arrived", "pay here"]
    assert await found(store, "has your") == ["Your PAYMENT has arrived"]
    assert await found(store, "pay parcel") == []
    # PostgreSQL knows the case of such letters unless the database has the locale C, as that of the tests.
    assert await found(store, "Привет Überr*") == ["Привет, Überraschung"]
    assert await found(store, "uberraschung") == []


async def test_nothing_that_is_searched_for_is_taken_for_syntax(store: SqlHistory) -> None:
    odd = ['half"quoted', "it's", "a:b", "NOT", "(bracket", "x*y", "a-b", "{col}", "back\\slash", "a&b"]
    await store.write([row(text=f"with {words} in it", chat_id=n) for n, words in enumerate(odd, 1)])

    for chat, words in enumerate(odd, 1):
        assert await found(store, words, chat_id=chat) == [f"with {words} in it"]
        assert f"with {words} in it" in await found(store, f"with {words}")


async def test_a_search_in_a_chat_finds_that_chat_alone(store: SqlHistory) -> None:
    await store.write([row(text=f"hello {chat}", chat_id=chat) for chat in (ANN, -ANN, GROUP, "@channel")])

    for chat in (ANN, -ANN, GROUP, "@channel"):
        assert await found(store, "hello", chat_id=chat) == [f"hello {chat}"]
    assert await found(store, "hello", bot=OTHER_BOT) == []


async def test_a_number_of_a_chat_is_no_word_of_its_texts(store: SqlHistory) -> None:
    await store.write([row(text="hello", chat_id=ANN)])

    assert await found(store, str(ANN)) == []


async def test_a_message_is_found_with_its_changes_by_its_id_in_a_chat(store: SqlHistory) -> None:
    await store.write(
        [
            row(telegram_message_id=7, text="draft"),
            row(telegram_message_id=7, text="final", is_change=True, kind="editMessageText"),
            row(telegram_message_id=7, text="of another bot", bot=OTHER_BOT),
            row(telegram_message_id=8, text="another"),
            row(telegram_message_id=7, text="of another chat", chat_id=GROUP),
        ]
    )

    assert [one.text for one in await store.find(ANN, 7, BOT)] == ["draft", "final"]
    assert [one.text for one in await store.find(ANN, 7)] == ["draft", "final", "of another bot"]
    assert await store.find(ANN, 9) == []


async def test_the_ends_of_a_ticket_are_found_by_it(store: SqlHistory) -> None:
    await store.write([row(ticket="a-1", state="dead"), row(ticket="a-2"), row(ticket="a-1"), row()])

    assert [one.state for one in await store.find_ticket(TicketId("a-1"))] == ["dead", "delivered"]
    assert await store.find_ticket(TicketId("a-3")) == []


async def talk(store: SqlHistory) -> None:
    """Write 1 <- 2 <- 3 <- 4, and 5 and a button that reply to 3; all of 3 replies to 2 was edited."""
    replies = {1: None, 2: 1, 3: 2, 4: 3, 5: 3}
    await store.write(
        [row(telegram_message_id=n, reply_to_message_id=to, text=f"#{n}") for n, to in replies.items()]
        + [
            row(telegram_message_id=3, reply_to_message_id=2, text="#3 edited", is_change=True),
            row(telegram_message_id=None, reply_to_message_id=3, text="button", kind="callback_query"),
            row(telegram_message_id=2, text="of another bot", bot=OTHER_BOT),
            row(telegram_message_id=9, reply_to_message_id=3, text="to another bot", bot=OTHER_BOT),
            row(telegram_message_id=9, reply_to_message_id=3, text="in another chat", chat_id=GROUP),
        ]
    )


async def test_a_chain_has_what_a_message_replies_to_and_the_replies_to_it(store: SqlHistory) -> None:
    await talk(store)

    chain = await store.chain(ANN, 3, BOT, 20)

    assert chain is not None
    assert chain.message.text == "#3"
    assert [one.text for one in chain.above] == ["#1", "#2"]
    assert [one.text for one in chain.replies] == ["#4", "#5", "button"]


async def test_a_chain_ends_at_its_depth_and_where_nothing_is_recorded(store: SqlHistory) -> None:
    await talk(store)

    short, last = await store.chain(ANN, 4, BOT, 2), await store.chain(ANN, 1, None, 0)

    assert short is not None
    assert last is not None
    assert [one.text for one in short.above] == ["#2", "#3"]
    assert (last.above, last.replies) == ([], [])
    assert await store.chain(ANN, 99, BOT, 20) is None


async def test_a_chain_without_a_bot_is_that_of_the_one_that_saw_the_message_last(store: SqlHistory) -> None:
    await talk(store)

    chain = await store.chain(ANN, 2, None, 20)

    assert chain is not None
    assert (chain.message.bot, chain.message.text) == (OTHER_BOT, "of another bot")


async def test_messages_that_reply_to_each_other_end_at_the_depth(store: SqlHistory) -> None:
    await store.write(
        [row(telegram_message_id=1, reply_to_message_id=2), row(telegram_message_id=2, reply_to_message_id=1)]
    )

    chain = await store.chain(ANN, 1, BOT, 5)

    assert chain is not None
    assert len(chain.above) == 5


async def test_a_chain_of_any_length_is_one_statement(store: SqlHistory, database: Database) -> None:
    await store.write([row(telegram_message_id=n, reply_to_message_id=n - 1 or None) for n in range(1, 61)])
    engine = database._engine  # noqa: SLF001  (what the database is asked, not what the store says)
    assert engine is not None
    seen: list[str] = []

    def note(_c: object, _k: object, statement: str, *_: object) -> None:
        if "tidegate_messages" in statement:
            seen.append(statement)

    event.listen(engine.sync_engine, "before_cursor_execute", note)
    chain = await store.chain(ANN, 60, BOT, 100)
    page = await store.page(HistoryFilter(bot=BOT), 50)

    assert chain is not None
    assert (len(chain.above), len(page.messages)) == (59, 50)
    assert len(seen) == 2


async def test_a_chat_is_erased_with_its_words_and_nothing_else_is(store: SqlHistory) -> None:
    await store.write(
        [
            row(text="secret here", chat_id=ANN),
            row(text="secret of another bot", chat_id=ANN, bot=OTHER_BOT),
            row(text="secret elsewhere", chat_id=GROUP),
        ]
    )

    assert await store.erase(ANN, BOT) == (1, 0)
    assert await found(store, "secret") == ["secret of another bot", "secret elsewhere"]
    assert await store.erase(ANN) == (1, 0)
    assert await store.erase(ANN) == (0, 0)
    assert await found(store, "secret") == await texts(store) == ["secret elsewhere"]


async def test_nothing_of_an_erased_chat_is_left_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "data.db"
    database = Database(f"sqlite:///{path}")
    store = SqlHistory(database)
    await store.open()
    await store.write([row(text=f"number{n} shibboleth{n} word") for n in range(50)])
    await store.write([row(text="stays", chat_id=GROUP)])

    await store.erase(ANN)
    await store.rewrite()
    await store.close()

    content = await asyncio.to_thread(lambda: b"".join(file.read_bytes() for file in tmp_path.iterdir()))
    assert b"stays" in content
    assert b"hibboleth" not in content  # words of an index may share their first letter


async def test_old_messages_are_purged_in_steps_the_oldest_first(store: SqlHistory) -> None:
    await store.write([row(text=f"old {n}", created_at=10.0 + n, ended_at=11.0 + n) for n in range(5)])
    await store.write([row(text="put long ago, sent now", created_at=5.0, ended_at=200.0)])
    await store.write([row(text="in", created_at=12.0, direction="in"), row(text="new", created_at=150.0)])

    assert await store.purge(100.0, 4) == 4
    assert "old 4" in await texts(store)
    assert await store.purge(100.0, 4) == 2
    assert await store.purge(100.0, 4) == 0
    assert await texts(store) == ["put long ago, sent now", "new"]
    assert await found(store, "old") == []


async def test_the_statistics_count_rows_and_name_their_span(store: SqlHistory) -> None:
    empty = await store.stats()
    await store.write([row(created_at=10.0), row(created_at=30.0), row(created_at=20.0)])
    stats = await store.stats()

    assert (empty.messages, empty.oldest, empty.newest) == (0, None, None)
    assert (stats.messages, stats.oldest, stats.newest) == (3, 10.0, 30.0)
    assert stats.size is not None
    assert stats.size > 8_000


@pytest.mark.parametrize("name", ["incoming", "reply_lookup"])
def test_a_bot_that_has_indexes_of_these_names_keeps_them(tmp_path: Path, name: str) -> None:
    async def make_tables() -> None:
        database = Database(f"sqlite:///{tmp_path}/app.db")
        await database.open()
        await database.close()

    with closing(sqlite3.connect(tmp_path / "app.db")) as own:
        own.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, chat_db_id INTEGER)")
        own.execute(f"CREATE INDEX ix_messages_{name} ON messages (chat_db_id)")
        own.commit()

        asyncio.run(make_tables())

        query = f"SELECT name, tbl_name FROM sqlite_master WHERE type = 'index' AND name LIKE '%{name}'"  # noqa: S608
        assert set(own.execute(query)) == {
            (f"ix_messages_{name}", "messages"),
            (f"ix_tidegate_messages_{name}", "tidegate_messages"),
        }


@pytest.fixture(params=["sqlite", "postgres", "memory"])
def any_kind(request: pytest.FixtureRequest) -> str:
    if request.param == "postgres":
        request.getfixturevalue("postgres_url")  # starts it outside of the event loop
    return str(request.param)


@pytest.fixture
async def any_store(
    any_kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[HistoryStore]:
    if any_kind == "memory":
        yield MemoryHistory()
        return
    url = f"sqlite:///{tmp_path}/data.db"
    if any_kind == "postgres":
        url = await emptied_database(request.getfixturevalue("postgres_url"))
    database = Database(url)
    await database.open()
    yield SqlHistory(database)
    await database.close()


async def outcomes(store: HistoryStore, ticket: str = "ab-1", limit: int = 100) -> list[str]:
    return [str(one.outcome) for one in await store.attempts(TicketId(ticket), limit)]


async def test_every_field_of_an_attempt_comes_back(any_store: HistoryStore) -> None:
    said = "Bad Request: 'quoted' \"twice\" \\ and <b>tags</b> 🎉\nin two lines"
    made = attempt(
        chat_id="@channel",
        number=3,
        at=1_700_000_000.123456,
        outcome="dead",
        reason="bad_request",
        description=said,
    )

    await any_store.write([row(ticket="ab-1"), made])

    assert await any_store.attempts(TicketId("ab-1"), 100) == [
        MessageAttempt(
            ticket=TicketId("ab-1"),
            bot=BOT,
            chat_id="@channel",
            number=3,
            at=1_700_000_000.123456,
            seconds=0.25,
            outcome=AttemptOutcome.DEAD,
            reason="bad_request",
            description=said,
            wait=3.0,
        )
    ]


async def test_attempts_of_a_ticket_come_in_order_and_the_last_of_very_many(any_store: HistoryStore) -> None:
    first, second = attempt(at=10.0), attempt(at=20.0, number=2, outcome="retry", reason="server_error")
    await any_store.write([second, first, attempt(ticket="ab-2", outcome="unknown")])

    assert await outcomes(any_store) == ["refused", "retry"]
    assert await outcomes(any_store, limit=1) == ["retry"]
    assert await outcomes(any_store, "ab-2") == ["unknown"]
    assert await outcomes(any_store, "ab-3") == []


async def test_an_attempt_that_is_written_twice_is_there_once(any_store: HistoryStore) -> None:
    batch: list[RecordedRow] = [attempt(), row(), attempt(outcome="retry")]
    await any_store.write(batch)
    await any_store.write([*batch, batch[0]])

    assert await outcomes(any_store) == ["refused", "retry"]


async def test_the_attempts_of_an_erased_chat_are_erased(any_store: HistoryStore) -> None:
    await any_store.write(
        [
            attempt(),
            attempt(outcome="retry", bot=OTHER_BOT),
            attempt(outcome="unknown", chat_id=str(GROUP)),
            row(),
        ]
    )

    assert await any_store.erase(ANN, BOT) == ErasedRows(messages=1, attempts=1)
    assert await any_store.erase(ANN) == ErasedRows(messages=0, attempts=1)
    assert await outcomes(any_store) == ["unknown"]


async def test_old_attempts_are_purged_in_steps(any_store: HistoryStore) -> None:
    await any_store.write([attempt(at=10.0 + n) for n in range(5)])
    await any_store.write([attempt(at=200.0, outcome="dead"), row(created_at=11.0)])

    purged = [await any_store.purge(100.0, 3) for _ in range(3)]

    assert purged == [4, 2, 0], "three attempts and the message, the other attempts, nothing"
    assert await outcomes(any_store) == ["dead"]
