"""Stored audiences on every kind of store: in a SQLite file, in PostgreSQL, and the tests' own."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import text

from databases import SetClock
from memory_audiences import MemoryAudiences
from tidegate.broadcast.stored_audience import AudienceRow, AudienceStore, AudienceTerms
from tidegate.database.database import Database
from tidegate.database.stored_audiences import CHATS_AT_ONCE, SqlAudiences
from tidegate.errors import StoreError
from tidegate.model import BotId

BOT, OTHER_BOT = BotId(42), BotId(43)


@pytest.fixture
async def store(database: Database | None, clock: SetClock) -> AsyncIterator[AudienceStore]:
    store = MemoryAudiences(clock) if database is None else SqlAudiences(database, clock)
    await store.open()
    yield store
    await store.close()


def terms(name: str = "sale", bot: BotId = BOT) -> AudienceTerms:
    return AudienceTerms(
        bot=bot,
        name=name,
        audience="people.csv",
        letter={"text": "Hi", "reply_markup": {"a": [1, None]}},
        fields={"priority": "low", "expires_at": 2_000.5},
        remember=60.0,
        ahead=7,
    )


def rows(*numbers: int) -> list[AudienceRow]:
    return [AudienceRow(number, str(1000 + number), f'{{"name": "Ann {number}"}}') for number in numbers]


async def ready(store: AudienceStore, name: str = "sale", *, bot: BotId = BOT, count: int = 3) -> int:
    audience = await store.add(terms(name, bot))
    await store.append(audience, rows(*range(1, count + 1)))
    await store.complete(audience, count, "digest")
    return audience


async def test_rows_are_read_a_page_at_a_time_as_they_were_stored(store: AudienceStore) -> None:
    audience, other = await store.add(terms()), await store.add(terms("news"))
    odd = AudienceRow(9, "@harbour", '{"chat_id": "@Harbour", "name": "nul \\u0000, 😀"}')
    assert await store.append(audience, rows(1, 2, 3, 7)) == set()
    assert await store.append(other, rows(1, 2)) == set()
    assert await store.append(audience, [odd]) == set()

    assert await store.page(audience, 0, 2) == rows(1, 2)
    assert await store.page(audience, 2, 2) == rows(3, 7)
    assert await store.page(audience, 7, 2) == [odd]
    assert await store.page(audience, 9, 2) == []


async def test_a_chat_is_stored_once_and_told_the_second_time(store: AudienceStore) -> None:
    audience = await store.add(terms())
    many = rows(*range(1, CHATS_AT_ONCE + 2))
    await store.append(audience, many)

    again = [AudienceRow(8_000 + row.number, row.chat, "{}") for row in (many[0], many[-1])]
    assert await store.append(audience, [*again, *rows(7_000)]) == {again[0].chat, again[1].chat}
    assert await store.page(audience, CHATS_AT_ONCE + 1, 9) == rows(7_000)


async def test_an_audience_is_found_as_it_was_given(store: AudienceStore, clock: SetClock) -> None:
    audience = await store.add(terms())
    clock.at = 1_001.0
    await store.append(audience, rows(1))
    loading = await store.find(audience)
    clock.at = 1_002.0
    complete = await store.complete(audience, 1, "abc")

    assert loading is not None
    assert (loading.state, loading.changed_at, loading.terms) == ("loading", 1_001.0, terms())
    assert (complete.state, complete.changed_at) == ("ready", 1_002.0)
    assert (complete.rows, complete.digest) == (1, "abc")
    assert await store.find(audience) == complete
    assert await store.all() == [complete]
    assert await store.find(audience + 1) is None


async def test_one_audience_at_a_time_has_a_name(store: AudienceStore) -> None:
    first, second = await store.add(terms()), await store.add(terms())
    assert (await store.complete(first, 0, "a")).id == first
    assert (await store.complete(second, 0, "b")).id == first
    await store.begin(first)
    assert (await store.complete(second, 0, "b")).state == "begun"

    other_bot, other_name = await store.add(terms(bot=OTHER_BOT)), await store.add(terms("news"))
    assert (await store.complete(other_bot, 0, "c")).id == other_bot
    assert (await store.complete(other_name, 0, "d")).id == other_name

    await store.end(first)
    assert (await store.complete(second, 0, "b")).id == second


async def test_of_two_that_take_a_name_at_the_same_time_one_has_it(store: AudienceStore) -> None:
    ids = [await store.add(terms()) for _ in range(4)]
    holders = await asyncio.gather(*(store.complete(one, 0, "x") for one in ids))
    assert len({holder.id for holder in holders}) == 1


async def test_it_is_removed_in_steps_with_its_rows_and_no_others(store: AudienceStore) -> None:
    audience, other = await ready(store, count=5), await ready(store, "news", count=2)
    await store.end(audience)

    assert [await store.remove(audience, 2) for _ in range(3)] == [False, False, True]
    assert await store.remove(audience, 2)  # nothing is left
    assert await store.page(audience, 0, 9) == []
    assert [one.id for one in await store.all()] == [other]
    assert await store.page(other, 0, 9) == rows(1, 2)


async def test_rows_that_come_after_it_was_removed_are_refused(store: AudienceStore) -> None:
    audience = await store.add(terms())
    assert await store.remove(audience, 10)

    with pytest.raises(StoreError, match="took too long"):
        await store.append(audience, rows(1))


async def test_a_chat_is_forgotten_in_all_audiences_or_in_those_of_a_bot(store: AudienceStore) -> None:
    ours, news, theirs = [
        await ready(store, name, bot=bot) for name, bot in (("a", BOT), ("b", BOT), ("a", OTHER_BOT))
    ]

    assert (await store.count("1002", BOT), await store.count("1002", None)) == (2, 3)
    assert await store.forget("1002", BOT) == 2
    assert [await store.page(one, 0, 9) for one in (ours, news)] == [rows(1, 3), rows(1, 3)]
    assert await store.page(theirs, 0, 9) == rows(1, 2, 3)
    assert await store.forget("1002", None) == 1
    assert await store.count("1002", None) == 0


async def test_an_audience_that_cannot_be_decoded_hides_no_other(
    store: AudienceStore, database: Database | None
) -> None:
    broken, good = await ready(store, "a"), await ready(store, "b")
    if database is None:
        return
    async with database.write() as transaction:
        spoil = text("UPDATE tidegate_audiences SET terms = :bytes WHERE id = :id")
        await transaction.execute(spoil, {"bytes": b"\xff", "id": broken})

    assert [one.id for one in await store.all()] == [good]


async def test_a_chat_is_found_by_an_index(
    store: AudienceStore, database: Database | None, kind: str
) -> None:
    if database is None:
        return
    await ready(store)
    explain = {"file": "EXPLAIN QUERY PLAN ", "postgres": "EXPLAIN "}[kind]
    async with database.read(latest=True) as transaction:
        if kind == "postgres":
            await transaction.execute(text("SET LOCAL enable_seqscan = off"))
        query = "SELECT * FROM tidegate_audience_rows WHERE chat = '1002'"
        plan = str(await transaction.rows(text(explain + query)))
    assert "ix_tidegate_audience_rows_chat" in plan
