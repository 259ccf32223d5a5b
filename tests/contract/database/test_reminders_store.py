"""Reminders on every kind of store: in memory, in a SQLite file, in PostgreSQL."""

import asyncio
import datetime as dt
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest

from databases import SetClock
from tidegate.database.database import Database
from tidegate.database.reminders import SqlReminders
from tidegate.errors import BadInputError, ClosedError
from tidegate.model import BotId, File
from tidegate.reminders.port import ADD_AT_ONCE, FirstState, ReminderCounts, ReminderStore, Shard
from tidegate.reminders.reminder import (
    Cron,
    Daily,
    EveryDays,
    NewReminder,
    Once,
    QuietHours,
    Reminder,
    Schedule,
    Spread,
    Weekly,
)
from tidegate.stores.memory.reminders import MemoryReminders

BOT, OTHER_BOT = BotId(42), BotId(43)
NINE = dt.time(9)
replace = msgspec.structs.replace


@pytest.fixture
async def store(database: Database | None, clock: SetClock) -> AsyncIterator[ReminderStore]:
    made: ReminderStore = MemoryReminders(clock) if database is None else SqlReminders(database, clock)
    await made.open()
    yield made
    await made.close()


def new(user: int = 1, **fields: Any) -> NewReminder:  # noqa: ANN401  (a reminder's own)
    given: dict[str, Any] = {"bot": BOT, "chat_id": user, "user_id": user, "schedule": Daily(NINE)}
    return NewReminder(**given | {"zone": "Europe/Berlin", "fields": {"text": "Drink!"}} | fields)


def due(at: float | None, **state: Any) -> FirstState:  # noqa: ANN401
    """What gives a reminder its first state: due at `at`."""

    def first(given: NewReminder, number: int, _: Reminder | None) -> Reminder:
        known = {"id": number, "created_at": 500.0, "occurrence_at": at, "next_at": at, **state}
        return Reminder(**msgspec.structs.asdict(given), **known)

    return first


async def added(store: ReminderStore, *at: float | None, **fields: Any) -> list[Reminder]:  # noqa: ANN401
    """Reminders that are due at these times, of the users 1, 2 and so on."""
    return [
        (await store.add([new(user, **fields)], due(when)))[0].reminder for user, when in enumerate(at, 1)
    ]


def fired(one: Reminder, next_at: float | None = 5_000.0) -> Reminder:
    queued = (*one.queued, one.occurrence_at or 0.0)
    counts = {"fired": one.fired + 1, "skipped": one.skipped + 2, "merged": one.merged + 3}
    revision = one.revision + 1
    return replace(one, occurrence_at=next_at, next_at=next_at, queued=queued, revision=revision, **counts)


async def claimed(store: ReminderStore, before: float = 2_000.0, limit: int = 100) -> list[int]:
    async with store.claim_due(before, limit) as batch:
        return [one.id for one in batch.reminders]


@pytest.mark.parametrize(
    "schedule",
    [
        Once(dt.datetime(2026, 3, 29, 2, 30)),  # noqa: DTZ001  (local time)
        Daily(NINE),
        Weekly(dt.time(9, 30), frozenset({0, 6})),
        EveryDays(NINE, 3, dt.date(2026, 1, 1)),
        Cron("*/5 9-17 * * 1-5"),
    ],
    ids=lambda schedule: type(schedule).__name__,
)
async def test_a_reminder_comes_back_as_it_was_added(store: ReminderStore, schedule: Schedule) -> None:
    given = new(
        7,
        chat_id="@channel",
        schedule=schedule,
        fields={"text": "ä\0b", "photo": File(content=b"\xff"), "reply_markup": {"k": [1, 2.5, None]}},
        key="water",
        handler="make_text",
        spread=Spread(1_800.0, "random", 7),
        engagement=0.25,
        quiet=QuietHours(dt.time(22), dt.time(7)),
        starts_at=1.5,
        until=9e9,
        count=3,
        late="merge",
        expires_in=60.0,
    )
    first = due(1_500.25, revision=5, paused=True, queued=(1.0, 2.5), fired=2, skipped=1, merged=4)

    [addition] = await store.add([given], first)

    assert addition.replaced is None
    assert addition.reminder == first(given, addition.reminder.id, None)
    assert await store.get([addition.reminder.id, 999]) == [addition.reminder]


async def test_a_key_that_is_added_again_replaces_the_reminder_and_keeps_its_id(store: ReminderStore) -> None:
    [(old, _)] = await store.add([new(key="water")], due(1_500.0))
    [(other, _)] = await store.add([new(key="water", bot=OTHER_BOT)], due(1_500.0))

    [addition] = await store.add([new(2, key="water")], due(1_700.0, created_at=600.0))

    assert addition.replaced == old
    assert (addition.reminder.id, addition.reminder.created_at) == (old.id, 600.0)
    assert await store.find() == [addition.reminder, other]
    assert await store.find(user_id=1) == [other]
    assert await claimed(store) == [other.id, old.id]


async def test_a_key_that_is_added_again_may_be_left_as_it_is_and_stays_leased(store: ReminderStore) -> None:
    [(old, _)] = await store.add([new(key="water", handler="make")], due(900.0))
    assert await store.lease_handled(["make"], 1_000.0, 60.0, 10) == [old]

    same, fresh = await store.add(
        [new(key="water", handler="make"), new(2)],
        lambda given, number, known: known or due(1_500.0)(given, number, None),
    )

    assert (same.is_unchanged, fresh.is_unchanged) == (True, False)
    assert await store.find() == [old, fresh.reminder]
    assert await store.lease_handled(["make"], 1_000.0, 60.0, 10) == []


async def test_of_a_key_that_is_added_twice_at_once_the_last_is_kept(store: ReminderStore) -> None:
    given = [new(1, key="water"), new(2), new(3, key="water")]

    first, plain, last = await store.add(given, due(1_500.0))

    assert last.replaced == first.reminder
    assert first.reminder.id == last.reminder.id != plain.reminder.id
    assert await store.find() == sorted([last.reminder, plain.reminder], key=lambda one: one.id)


async def test_a_new_key_that_several_add_at_once_is_stored_once(store: ReminderStore) -> None:
    adding = [store.add([new(user, key="water"), new(user, key="tea")], due(1_500.0)) for user in range(1, 6)]

    additions = [addition for each in await asyncio.gather(*adding) for addition in each]

    assert len({one.id for one, _ in additions}) == 2
    assert sum(replaced is None for _, replaced in additions) == 2
    assert len(await store.find()) == 2


async def test_reminders_are_added_all_or_none(store: ReminderStore) -> None:
    [(old, _)] = await store.add([new(key="water")], due(1_500.0))
    calls = itertools.count()

    def fails_at_third(given: NewReminder, number: int, old: Reminder | None) -> Reminder:
        if next(calls) == 2:
            raise BadInputError("no such zone")
        return due(1_600.0)(given, number, old)

    with pytest.raises(BadInputError, match="no such zone"):
        await store.add([new(key="water"), new(2), new(3)], fails_at_third)

    assert await store.find() == [old]
    assert await claimed(store) == [old.id]


async def test_only_so_many_are_added_at_once(store: ReminderStore) -> None:
    assert await store.add([], due(1.0)) == []
    with pytest.raises(BadInputError, match="add at most 1,000"):
        await store.add([new()] * (ADD_AT_ONCE + 1), due(1.0))


async def test_reminders_are_found_page_by_page(store: ReminderStore) -> None:
    given = [new(1 + number % 2, key=f"key {number}") for number in range(5)]
    given += [new(1, bot=OTHER_BOT, chat_id="@group")]
    all_of_them = [addition.reminder for addition in await store.add(given, due(1_500.0))]

    first = await store.find(limit=4)
    rest = await store.find(after=first[-1].id, limit=4)

    assert first + rest == all_of_them
    assert await store.find(user_id=1) == [all_of_them[number] for number in (0, 2, 4, 5)]
    assert await store.find(user_id=1, after=all_of_them[0].id, limit=1) == [all_of_them[2]]
    assert await store.find(bot=OTHER_BOT) == all_of_them[5:]
    assert await store.find(chat_id="@group") == all_of_them[5:]
    assert await store.find(chat_id=2) == [all_of_them[1], all_of_them[3]]
    assert await store.find(key="key 3") == await store.find(bot=BOT, key="key 3") == [all_of_them[3]]
    assert await store.find(bot=OTHER_BOT, key="key 3") == []


async def test_the_next_ones_are_the_active_ones_in_the_order_of_their_times(store: ReminderStore) -> None:
    a, b, c = await added(store, 1_700.0, 1_500.0, 1_600.0)
    await store.add([new(9)], due(1_400.0, paused=True))
    await store.add([new(9)], due(None))
    [handled] = await added(store, 1_550.0, handler="h", bot=OTHER_BOT)

    assert await store.upcoming() == [b, handled, c, a]
    assert await store.upcoming(bot=BOT, limit=2) == [b, c]


async def test_due_reminders_are_claimed_the_earliest_first(store: ReminderStore) -> None:
    late, early, same, _at_the_limit = await added(store, 1_700.0, 1_500.0, 1_500.0, 2_000.0)
    await store.add([new(9)], due(1_400.0, paused=True))
    await store.add([new(9)], due(None))
    await added(store, 1_400.0, handler="make_text")

    assert await claimed(store) == [early.id, same.id, late.id]
    assert await claimed(store, limit=2) == [early.id, same.id]
    assert await claimed(store, before=1_500.0) == []


async def test_what_was_fired_is_due_at_its_next_time(store: ReminderStore) -> None:
    one, two, three = await added(store, 1_500.0, 1_600.0, 1_700.0)

    async with store.claim_due(2_000.0, 100) as batch:
        await batch.advance([fired(one), fired(two, next_at=None)])
        await batch.advance([])

    assert await store.find() == [fired(one), fired(two, next_at=None), three]
    assert await claimed(store) == [three.id]
    assert await claimed(store, before=6_000.0) == [three.id, one.id]


async def test_nothing_has_changed_if_the_scheduler_fails(store: ReminderStore) -> None:
    before = await added(store, 1_500.0, 1_600.0)

    async def fire_and_fail() -> None:
        async with store.claim_due(2_000.0, 100) as batch:
            await batch.advance([fired(one) for one in batch.reminders])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fire_and_fail()

    assert await store.find() == before
    assert await claimed(store) == [one.id for one in before]


async def test_nothing_has_changed_if_the_scheduler_is_cancelled(store: ReminderStore) -> None:
    before = await added(store, 1_500.0, 1_600.0)
    advanced = asyncio.Event()

    async def claim() -> None:
        async with store.claim_due(2_000.0, 100) as batch:
            await batch.advance([fired(one) for one in batch.reminders])
            advanced.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(claim())
    await advanced.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert await store.find() == before
    assert await claimed(store) == [one.id for one in before]


async def test_two_schedulers_at_once_fire_each_reminder_once(store: ReminderStore, kind: str) -> None:
    given = [new(user) for user in range(1, 101)]
    ids = [addition.reminder.id for addition in await store.add(given, due(1_500.0))]
    holding = 0
    most = 0

    async def schedule() -> list[int]:
        nonlocal holding, most
        seen: list[int] = []
        while True:
            async with store.claim_due(2_000.0, 10) as batch:
                if not batch.reminders:
                    return seen
                holding += 1
                most = max(most, holding)
                await asyncio.to_thread(lambda: None)  # the outbox: others run meanwhile
                await batch.advance([fired(one) for one in batch.reminders])
                seen += [one.id for one in batch.reminders]
                holding -= 1

    parts = await asyncio.gather(*(schedule() for _ in range(4)))

    assert sorted(itertools.chain(*parts)) == ids
    assert {one.fired for one in await store.find(limit=200)} == {1}
    assert (most > 1) == (kind == "postgres")  # elsewhere, one waits for the other


@pytest.mark.parametrize("change", ["pause", "replace", "remove"])
async def test_a_change_during_a_claim_waits_and_is_not_lost(store: ReminderStore, change: str) -> None:
    [(one, _)] = await store.add([new(key="water")], due(1_500.0))

    async def interfere() -> Reminder | None:
        if change == "pause":
            return await store.change(one.id, lambda old: replace(old, paused=True))
        if change == "replace":
            return (await store.add([new(key="water")], due(1_800.0)))[0].replaced
        return (await store.remove([one.id]))[0]

    async with store.claim_due(2_000.0, 100) as batch:
        task = asyncio.create_task(interfere())
        await asyncio.to_thread(lambda: None)
        await batch.advance([fired(one)])
    changed = await task

    assert changed is not None
    assert (changed.fired, changed.queued) == (1, (1_500.0,))  # it was there when the claim had ended
    left = await store.find()
    if change == "pause":
        assert left == [replace(fired(one), paused=True)]
    if change == "replace":
        assert left == [due(1_800.0)(new(key="water"), one.id, None)]
    if change == "remove":
        assert left == []


async def test_a_shard_has_the_users_of_its_remainder(store: ReminderStore) -> None:
    users = [-1_000, -7, -1, 1, 2, 3, 4, 5, 6]
    given = [new(user) for user in users]
    await store.add(given, due(1_500.0))
    parts = []

    for number in range(3):
        async with store.claim_due(2_000.0, 100, Shard(number, 3)) as batch:
            parts.append([one.user_id for one in batch.reminders])

    assert parts == [[user for user in users if user % 3 == number] for number in range(3)]


async def test_a_reminder_is_changed_in_a_step_of_its_own(store: ReminderStore) -> None:
    one, two = await added(store, 1_500.0, 1_600.0)

    changed = await store.change(one.id, lambda old: replace(old, paused=True, zone="Asia/Tokyo"))

    assert changed == replace(one, paused=True, zone="Asia/Tokyo")
    assert await store.find() == [changed, two]
    assert await claimed(store) == [two.id]
    assert await store.change(one.id, lambda old: replace(old, paused=False, next_at=1_550.0)) is not None
    assert await claimed(store) == [one.id, two.id]
    assert await store.change(999, lambda old: old) is None


async def test_a_change_that_fails_changes_nothing(store: ReminderStore) -> None:
    [one] = await added(store, 1_500.0)

    def fail(_: Reminder) -> Reminder:
        raise BadInputError("no such zone")

    with pytest.raises(BadInputError, match="no such zone"):
        await store.change(one.id, fail)

    assert await store.find() == [one]


async def test_removed_reminders_are_gone_and_their_ids_are_not_given_again(store: ReminderStore) -> None:
    one, two, three = await added(store, 1_500.0, 1_600.0, 1_700.0)

    assert await store.remove([three.id, one.id, 999]) == [one, three]
    assert await store.remove([one.id]) == []
    assert await store.find() == [two]
    assert await claimed(store) == [two.id]
    assert (await added(store, 1_500.0))[0].id > three.id


async def test_a_key_that_was_removed_can_be_added_again(store: ReminderStore) -> None:
    [(old, _)] = await store.add([new(key="water")], due(1_500.0))
    await store.remove([old.id])

    [addition] = await store.add([new(key="water")], due(1_600.0))

    assert addition.replaced is None
    assert addition.reminder.id != old.id


async def leased(store: ReminderStore, *handlers: str, before: float = 1_900.0) -> list[int]:
    return [one.id for one in await store.lease_handled(handlers, before, 30.0, 100)]


async def test_reminders_of_a_handler_are_leased_to_one_process_until_it_is_late(
    store: ReminderStore, clock: SetClock
) -> None:
    late, early = await added(store, 1_700.0, 1_500.0, handler="h")
    [other] = await added(store, 1_600.0, handler="other")
    await added(store, 1_000.0)
    clock.at = 1_800.0

    assert await store.lease_handled(["h"], 1_900.0, 30.0, 1) == [early]
    assert await leased(store, "h") == [late.id]
    assert await leased(store, "h", "h2") == []
    clock.at = 1_830.0

    assert await leased(store, "h", "other") == [other.id, late.id, early.id]  # by time, then by id


async def test_a_lease_ends_when_the_reminder_moves_on(store: ReminderStore, clock: SetClock) -> None:
    [one] = await added(store, 1_500.0, handler="h")
    clock.at = 1_800.0
    await leased(store, "h")

    await store.change(one.id, lambda old: replace(old, engagement=1.0))
    assert await leased(store, "h") == []
    await store.change(one.id, lambda old: fired(old, next_at=1_850.0))

    assert await leased(store, "h") == [one.id]


async def test_what_is_leased_is_not_leased_again_by_a_process_that_looks_ahead(
    store: ReminderStore, clock: SetClock
) -> None:
    [one] = await added(store, 1_500.0, handler="h")
    clock.at = 1_490.0

    assert await leased(store, "h", before=1_550.0) == [one.id]
    assert await leased(store, "h", before=1_550.0) == []


async def test_the_next_time_is_that_of_the_first_reminder_that_would_be_given(
    store: ReminderStore, clock: SetClock
) -> None:
    assert await store.next_due(["h"]) is None
    await store.add([new(9)], due(1_100.0, paused=True))
    await added(store, 1_700.0, 1_600.0)
    await added(store, 1_500.0, handler="h")

    assert await store.next_due() == 1_600.0
    assert await store.next_due(["h", "other"]) == 1_500.0
    assert await store.next_due(["other"]) == 1_600.0
    assert await store.next_due(shard=Shard(1, 2)) == 1_700.0
    assert await store.next_due(shard=Shard(2, 3)) == 1_600.0
    assert await store.next_due(shard=Shard(0, 3)) is None
    clock.at = 1_550.0
    await store.lease_handled(["h"], 1_560.0, 30.0, 100)
    assert await store.next_due(["h"]) == 1_580.0


async def test_reminders_are_counted(store: ReminderStore) -> None:
    await added(store, 1_500.0, 1_600.0, 1_700.0)
    await added(store, 1_400.0, handler="h")
    await store.add([new(9)], due(1_400.0, paused=True))
    await store.add([new(9)] * 2, due(None))
    await store.add([new(9)], due(None, paused=True))

    assert await store.counts(1_600.0) == ReminderCounts(active=4, paused=1, ended=3, due=3)


async def test_what_is_due_is_counted_in_steps_of_time(store: ReminderStore) -> None:
    await added(store, 1_000.0, 1_059.9, 1_060.0, 1_119.0, 1_179.999, 1_180.0, 999.9, None)
    await added(store, 1_090.0, 2_000.0, handler="h")
    await store.add([new(9)], due(1_100.0, paused=True))
    await store.add([new(9, bot=OTHER_BOT)], due(1_010.0))

    assert await store.due_counts(1_000.0, 60.0, 3) == [3, 3, 1]
    assert await store.due_counts(1_000.0, 60.0, 3, BOT) == [2, 3, 1]
    assert await store.due_counts(1_000.0, 60.0, 3, OTHER_BOT) == [1, 0, 0]
    assert await store.due_counts(5_000.0, 0.5, 2) == [0, 0]


async def test_a_store_that_is_not_open_says_so(store: ReminderStore) -> None:
    await store.close()

    for verb in (
        store.add([new()], due(1.0)),
        store.find(),
        store.get([1]),
        store.remove([1]),
        store.change(1, lambda old: old),
        store.upcoming(),
        store.lease_handled(["h"], 1.0, 1.0, 1),
        store.next_due(),
        store.counts(1.0),
    ):
        with pytest.raises(ClosedError):
            await verb
    with pytest.raises(ClosedError):
        await claimed(store)


async def test_closing_waits_for_the_batch_that_is_open_and_keeps_it(store: ReminderStore) -> None:
    before = await added(store, 1_500.0, 1_600.0)

    async with store.claim_due(2_000.0, 100) as batch:
        closing = asyncio.create_task(store.close())
        await asyncio.to_thread(lambda: None)
        assert not closing.done()
        await batch.advance([fired(one) for one in before])
    await closing
    await store.open()

    assert await store.find() == [fired(one) for one in before]


@pytest.mark.parametrize("seed", range(3))
async def test_every_store_does_what_the_one_in_memory_does(
    store: ReminderStore, clock: SetClock, seed: int
) -> None:
    model = MemoryReminders(clock)
    await model.open()
    chance = random.Random(seed)
    for _ in range(60):
        clock.at += chance.choice([0, 5, 40])
        step = random_step(chance, clock.at)
        assert await step(store) == await step(model)
    assert await everything(store, clock.at) == await everything(model, clock.at)


def random_step(chance: random.Random, now: float) -> Callable[[ReminderStore], Awaitable[object]]:
    when = now + chance.randint(-50, 50)
    user = chance.randint(-3, 3)
    handler = chance.choice([None, None, "h"])
    given = [new(user, handler=handler, key=chance.choice([None, "a", "b"])), new(user + 1)]
    first = due(when, paused=chance.random() < 0.2)
    ids = chance.sample(range(1, 40), 3)
    shard = Shard(user % 2, 2) if user > 1 else None

    async def claim(store: ReminderStore) -> object:
        async with store.claim_due(now, 3, shard) as batch:
            await batch.advance([fired(one, when) for one in batch.reminders[:2]])
            return list(batch.reminders)

    return chance.choice(
        [
            claim,
            claim,
            lambda store: store.add(given, first),
            lambda store: store.add(given, first),
            lambda store: store.change(ids[0], lambda old: replace(old, next_at=when, handler=handler)),
            lambda store: store.lease_handled(["h"], when, 30.0, 2),
            lambda store: store.remove(ids),
            lambda store: everything(store, now),
        ]
    )


async def everything(store: ReminderStore, now: float) -> list[object]:
    questions = (store.find(limit=200), store.upcoming(), store.next_due(["h"]), store.counts(now))
    return [await question for question in questions]
