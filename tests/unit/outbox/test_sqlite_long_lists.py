"""A list of a few among very many messages: it is looked for in short steps, and not without end."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contract.post import BOT, OTHER_BOT, Post
from contract.stores import OnlySender
from tidegate.model import Retry, State
from tidegate.sim.virtual_time import VirtualClock

QUEUED = frozenset({State.QUEUED})


@pytest.fixture(autouse=True)
def _short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.stores.sqlite.message_rows.NUMBERS_PER_STEP", 2)


@pytest.fixture
async def post(clock: VirtualClock, tmp_path: Path) -> AsyncIterator[Post]:
    outbox = OnlySender(tmp_path / "store.db", clock)
    await outbox.open()
    yield Post(outbox, clock)
    await outbox.close()


@pytest.fixture
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.stores.sqlite.operator.LOOK_FOR", 0.0)


async def test_a_few_messages_among_many_others_are_found(post: Post) -> None:
    ours = []
    for chat in range(1, 6):
        await post.outbox.put([post.message(chat) for _ in range(5)])
        ours.append(await post.put(chat, bot=OTHER_BOT))

    first = await post.outbox.record_page(bot=OTHER_BOT, states=QUEUED, limit=3)
    rest = await post.outbox.record_page(bot=OTHER_BOT, states=QUEUED, limit=3, cursor=first.cursor)

    assert [one.message.id for one in (*first.records, *rest.records)] == ours
    assert rest.cursor == ""


@pytest.mark.usefixtures("_no_patience")
async def test_a_page_that_takes_too_long_ends_early_and_its_cursor_goes_on(post: Post) -> None:
    await post.outbox.put([post.message(chat) for chat in range(1, 10)])
    ours = [await post.put(1, bot=OTHER_BOT), await post.put(2, bot=OTHER_BOT)]

    first = await post.outbox.record_page(bot=OTHER_BOT, states=QUEUED)
    assert (first.records, bool(first.cursor)) == ([], True)

    page, found = first, list(first.records)
    while page.cursor:
        page = await post.outbox.record_page(bot=OTHER_BOT, states=QUEUED, cursor=page.cursor)
        found += page.records
    assert [one.message.id for one in found] == ours
    whole = await post.outbox.records(bot=OTHER_BOT, states=QUEUED)
    assert [one.message.id for one in whole] == ours


@pytest.mark.usefixtures("_no_patience")
async def test_messages_in_retry_are_found_without_a_look_at_the_others(post: Post) -> None:
    await post.outbox.put([post.message(chat) for chat in range(1, 10)])
    claims = await post.claim_all()
    await post.settle(claims[-1], Retry(60.0, "server_error"))

    page = await post.outbox.record_page(bot=BOT, states=frozenset({State.RETRY}))

    assert [one.message.id for one in page.records] == [claims[-1].message.id]
    assert page.cursor == ""


async def test_a_put_is_not_held_up_by_a_list_that_looks_through_the_queue(post: Post) -> None:
    await post.outbox.put([post.message(chat) for chat in range(1, 101)])

    looking = asyncio.ensure_future(post.outbox.records(bot=OTHER_BOT))
    await post.put(1)
    await post.put(2)

    assert not looking.done()
    assert await looking == []
