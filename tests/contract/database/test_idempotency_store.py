"""Answers to requests with an Idempotency-Key on every kind of store: a file, PostgreSQL, the tests' own."""

import asyncio

import pytest
from sqlalchemy import func, select

from memory_answers import MemoryAnswers
from tidegate.database.database import Database
from tidegate.database.idempotency import ABANDONED_AFTER, KEEP, OnceKey, SqlIdempotency, StoredAnswer
from tidegate.database.schema import idempotency
from tidegate.ops.api.idempotency import AnswerStore

NOW = 1_000_000.0
KEY, OTHER = OnceKey("token:1", "k"), OnceKey("token:2", "k")
PRINT = bytes(range(32))


@pytest.fixture
async def store(database: Database | None) -> AnswerStore:
    return MemoryAnswers() if database is None else SqlIdempotency(lambda: database)


async def test_a_key_is_reserved_answered_and_known_again(store: AnswerStore) -> None:
    assert await store.begin(KEY, PRINT, NOW) is None
    assert await store.begin(KEY, b"other", NOW + 1) == StoredAnswer(PRINT, None, None)
    assert await store.begin(OTHER, PRINT, NOW) is None
    await store.finish(KEY, 201, b'{"id": 1}')
    assert await store.begin(KEY, PRINT, NOW + 2) == StoredAnswer(PRINT, 201, b'{"id": 1}')
    assert await store.begin(OTHER, PRINT, NOW + 2) == StoredAnswer(PRINT, None, None)


async def test_an_answer_may_be_kept_without_its_body(store: AnswerStore) -> None:
    await store.begin(KEY, PRINT, NOW)
    await store.finish(KEY, 201, None)
    assert await store.begin(KEY, PRINT, NOW) == StoredAnswer(PRINT, 201, None)


async def test_of_several_at_the_same_time_one_gets_the_key(store: AnswerStore) -> None:
    found = await asyncio.gather(*(store.begin(KEY, PRINT, NOW) for _ in range(5)))
    assert found.count(None) == 1


async def test_what_failed_is_as_if_it_had_not_been(store: AnswerStore) -> None:
    await store.begin(KEY, PRINT, NOW)
    await store.abandon(KEY)
    assert await store.begin(KEY, b"other", NOW) is None


async def test_a_reservation_gives_way_after_minutes_and_an_answer_after_a_day(store: AnswerStore) -> None:
    await store.begin(KEY, PRINT, NOW)
    assert await store.begin(KEY, PRINT, NOW + ABANDONED_AFTER - 1) is not None
    assert await store.begin(KEY, PRINT, NOW + ABANDONED_AFTER) is None
    await store.finish(KEY, 200, b"{}")
    begun = NOW + ABANDONED_AFTER
    assert await store.begin(KEY, PRINT, begun + KEEP - 1) is not None
    assert await store.begin(KEY, PRINT, begun + KEEP) is None


async def test_the_content_of_answers_can_be_forgotten(database: Database | None) -> None:
    if database is None:
        return
    store = SqlIdempotency(lambda: database)
    await store.begin(KEY, PRINT, NOW)
    await store.begin(OTHER, PRINT, NOW)
    await store.finish(KEY, 201, b'{"text": "secret"}')
    assert await store.forget() == 1
    assert await store.begin(KEY, PRINT, NOW) == StoredAnswer(PRINT, 201, None)
    assert await store.begin(OTHER, PRINT, NOW) == StoredAnswer(PRINT, None, None)


async def test_old_answers_are_deleted(store: AnswerStore, database: Database | None) -> None:
    for number in range(5):
        await store.begin(OnceKey("token:1", str(number)), PRINT, NOW)
    await store.begin(KEY, PRINT, NOW + KEEP)
    if database is not None:
        async with database.read(latest=True) as transaction:
            assert await transaction.scalar(select(func.count()).select_from(idempotency)) == 1
