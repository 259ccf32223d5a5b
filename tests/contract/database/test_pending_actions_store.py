"""Changes that can be undone for a while, on every kind of store: a file, PostgreSQL, the tests' own."""

import asyncio
from typing import Any

import pytest

from memory_pending_actions import MemoryPendingActions
from tidegate.database.database import Database
from tidegate.database.pending_actions import LetterChoice, NewPendingAction, SqlPendingActions
from tidegate.model import BotId, State, TicketId
from tidegate.ops.letter_actions import PendingActionStore

NOW = 1_000_000.0
LEASE = 30.0


@pytest.fixture
def store(database: Database | None) -> PendingActionStore:
    return MemoryPendingActions() if database is None else SqlPendingActions(lambda: database)


def new(due_in: float = 15.0, **fields: Any) -> NewPendingAction:  # noqa: ANN401
    usual: dict[str, Any] = {
        "action": "drop",
        "choice": LetterChoice(ended_by=NOW, reason="blocked"),
        "selected": 3,
        "principal": "ops",
        "token_id": 7,
        "asked_at": NOW,
        "due_at": NOW + due_in,
    }
    return NewPendingAction(**usual | fields)


async def test_everything_about_a_change_comes_back(store: PendingActionStore) -> None:
    choice = LetterChoice(
        ended_by=NOW - 0.25,
        ids=(TicketId("a-1"), TicketId("a-2")),
        bot=BotId(42),
        chat_id="@news",
        reason='it\'s "odd"',
        state=State.PARKED,
        limit=5,
    )
    added = await store.add(new(choice=choice, action="replay", token_id=None))

    found = await store.find(added.id)

    assert found == added
    assert (found.choice, found.action, found.principal, found.is_begun) == (choice, "replay", "ops", False)
    assert await store.find(added.id + 1) is None


async def test_changes_are_listed_by_their_time_and_bot(store: PendingActionStore) -> None:
    later, sooner = await store.add(new(20)), await store.add(new(10))
    own = await store.add(new(30, choice=LetterChoice(ended_by=NOW, bot=BotId(42))))

    assert [one.id for one in await store.list()] == [sooner.id, later.id, own.id]
    assert [one.id for one in await store.list(BotId(42))] == [own.id]
    assert await store.list(BotId(43)) == []
    assert await store.next_due() == NOW + 10


async def test_a_change_is_claimed_when_its_time_is_over_and_again_when_its_lease_is(
    store: PendingActionStore,
) -> None:
    added = await store.add(new(15))
    assert await store.claim(NOW + 14, LEASE) is None

    first = await store.claim(NOW + 15, LEASE)

    assert first is not None
    assert (first.id, first.is_begun) == (added.id, True)
    assert await store.claim(NOW + 16, LEASE) is None
    assert await store.extend(first, 2, NOW + 60)
    assert await store.next_due() == NOW + 60
    assert await store.claim(NOW + 59, LEASE) is None
    second = await store.claim(NOW + 60, LEASE)
    assert second is not None
    assert second.done == 2
    assert not await store.extend(first, 3, NOW + 99)
    assert not await store.finish(first)
    assert await store.finish(second)
    assert (await store.list(), await store.next_due()) == ([], None)


async def test_a_change_that_has_begun_is_not_undone(store: PendingActionStore) -> None:
    undone, begun = await store.add(new()), await store.add(new())

    assert await store.undo(undone.id)
    assert not await store.undo(undone.id)
    claimed = await store.claim(NOW + 15, LEASE)

    assert claimed is not None
    assert claimed.id == begun.id
    assert not await store.undo(begun.id)
    assert await store.find(begun.id) == claimed


async def test_of_many_that_claim_or_undo_at_once_each_change_has_one(store: PendingActionStore) -> None:
    ids = [(await store.add(new())).id for _ in range(5)]

    claims, undone = await asyncio.gather(
        asyncio.gather(*(store.claim(NOW + 15, LEASE) for _ in range(10))),
        asyncio.gather(*(store.undo(one) for one in ids)),
    )
    while (more := await store.claim(NOW + 15, LEASE)) is not None:
        claims.append(more)

    claimed = [one.id for one in claims if one is not None]
    taken_back = [one for one, was in zip(ids, undone, strict=True) if was]
    assert sorted(claimed + taken_back) == ids
