"""`gate.reminders` on virtual time: what is added fires once, on time, and what is changed is taken back."""

import asyncio
import datetime as dt
import logging
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

from tidegate import Tidegate
from tidegate.errors import BadInputError, StoreAwayError
from tidegate.model import BotId
from tidegate.reminders.firing import first_state
from tidegate.reminders.occurrences import all_zones
from tidegate.reminders.port import Shard
from tidegate.reminders.reminder import Reminder
from tidegate.reminders.reminder_options import reminder_from_options
from tidegate.reminders.reminders import Reminders
from tidegate.reminders.scheduler import AHEAD, CHUNK, POLL_EVERY, DueReminder
from tidegate.sim.telegram import SimulatedTelegram
from tidegate.sim.telegram.telegram import TelegramWire
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.memory.reminders import MemoryReminders

BERLIN = "Europe/Berlin"
ZONE = ZoneInfo(BERLIN)
MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0


@pytest.fixture
def telegram(clock: VirtualClock) -> SimulatedTelegram:
    return SimulatedTelegram(clock)


@pytest.fixture
async def gate(clock: VirtualClock, telegram: SimulatedTelegram) -> AsyncIterator[Tidegate]:
    gate = Tidegate("memory://", clock=clock, wire=TelegramWire(telegram, clock))
    gate.add_bot("42:token")
    async with gate:
        yield gate


def local_time(clock: VirtualClock, seconds: float = 0.0) -> dt.datetime:
    """The time on Berlin's clocks so many seconds from now."""
    return dt.datetime.fromtimestamp(clock.now() + seconds, ZONE)


async def add(gate: Tidegate, clock: VirtualClock, in_seconds: float = HOUR, **options: Any) -> Reminder:  # noqa: ANN401
    """Add a daily reminder that is due in so many seconds."""
    given: dict[str, Any] = {"text": "Drink!", "at": local_time(clock, in_seconds).time(), "every": "day"}
    return await gate.reminders.add(1001, **given | {"zone": BERLIN} | options)


def sent(telegram: SimulatedTelegram) -> Sequence[tuple[float, str | None]]:
    return [(entry.at, entry.text) for entry in telegram.request_log.log if entry.method == "sendMessage"]


async def test_a_reminder_fires_each_day_at_its_time(
    gate: Tidegate, clock: VirtualClock, telegram: SimulatedTelegram
) -> None:
    added = await add(gate, clock)
    async with gate.worker():
        await clock.sleep(2 * DAY + 2 * HOUR)

    assert added.next_at is not None
    assert [round(at - added.next_at) for at, _ in sent(telegram)] == [0, DAY, 2 * DAY]
    reminder = await gate.reminders.get(added.id)
    assert reminder is not None
    assert (reminder.fired, reminder.skipped, reminder.merged) == (3, 0, 0)


async def test_a_reminder_that_is_added_while_the_worker_runs_starts_the_scheduler(
    gate: Tidegate, clock: VirtualClock, telegram: SimulatedTelegram
) -> None:
    async with gate.worker():
        await clock.sleep(HOUR)
        await add(gate, clock, 2.0)
        await clock.sleep(5)

    assert len(sent(telegram)) == 1


async def test_the_first_reminder_of_another_process_is_found_by_a_worker_that_runs(
    gate: Tidegate, clock: VirtualClock, telegram: SimulatedTelegram
) -> None:
    """A worker that had looked once, at its start, left what was imported later unsent."""
    store = MemoryReminders(clock)
    looks: list[bool] = []
    exists = False

    async def exist() -> bool:
        looks.append(exists)
        return exists

    gate.core.reminders = Reminders(gate.core, lambda: store, exist, look_every=3.0)
    async with gate.worker():
        await clock.sleep(HOUR)
        await store.open()
        await asyncio.to_thread(all_zones)  # it reads files, once
        at = local_time(clock, 10).replace(tzinfo=None)
        new = reminder_from_options(
            1001, {"text": "Hi", "at": at, "zone": BERLIN}, bot=BotId(42), now=clock.now()
        )
        await store.add([new], lambda given, number, _: first_state(given, number, clock.now()))
        exists = True
        await clock.sleep(MINUTE)

    assert len(sent(telegram)) == 1
    assert looks == [False] * round(HOUR / 3) + [True]


@pytest.mark.parametrize("ahead_of_time", [2 * HOUR, AHEAD / 2])
async def test_a_pause_takes_back_what_is_queued(
    gate: Tidegate, clock: VirtualClock, telegram: SimulatedTelegram, ahead_of_time: float
) -> None:
    added = await add(gate, clock, 3 * HOUR)
    async with gate.worker():
        await clock.sleep(3 * HOUR - ahead_of_time)
        paused = await gate.reminders.pause(added.id)
        await clock.sleep(4 * HOUR)
        assert paused.paused
        assert not sent(telegram)

        resumed = await gate.reminders.resume(added.id)
        await clock.sleep(DAY)

    assert not resumed.paused
    assert len(sent(telegram)) == 1


async def test_a_reminder_that_is_resumed_before_its_time_fires(
    gate: Tidegate, clock: VirtualClock, telegram: SimulatedTelegram
) -> None:
    """It was queued and cancelled: the outbox would not take the same key a second time."""
    added = await add(gate, clock, AHEAD / 2)
    async with gate.worker():
        await clock.sleep(5)
        await gate.reminders.pause(added.id)
        await clock.sleep(5)
        await gate.reminders.resume(added.id)
        await clock.sleep(HOUR)

    assert len(sent(telegram)) == 1


async def test_another_text_is_sent_though_the_old_one_was_queued(
    gate: Tidegate, clock: VirtualClock, telegram: SimulatedTelegram
) -> None:
    added = await add(gate, clock, AHEAD / 2, key="water")
    async with gate.worker():
        await clock.sleep(5)
        await gate.reminders.change("water", text="Drink water!")
        await clock.sleep(HOUR)

    assert [text for _, text in sent(telegram)] == ["Drink water!"]
    assert added.id == (await gate.reminders.get("water")).id  # type: ignore[union-attr]


async def test_the_same_key_replaces_a_reminder_and_what_is_queued_of_it(
    gate: Tidegate, clock: VirtualClock, telegram: SimulatedTelegram
) -> None:
    async with gate.worker():
        await add(gate, clock, AHEAD / 2, key="water", text="old")
        await clock.sleep(0.3)
        await add(gate, clock, AHEAD / 2, key="water", text="new")
        await clock.sleep(HOUR)

    assert [text for _, text in sent(telegram)] == ["new"]
    assert len(await gate.reminders.list(user_id=1001)) == 1


async def test_a_bot_that_adds_the_same_at_each_start_takes_nothing_back(
    gate: Tidegate, clock: VirtualClock, telegram: SimulatedTelegram
) -> None:
    at, counts = local_time(clock, AHEAD / 2).time(), []
    async with gate.worker():
        for _ in range(3):
            added = await add(gate, clock, key="water", at=at)
            counts.append(added.fired)
            await clock.sleep(5)  # by now it is queued
        await clock.sleep(DAY + MINUTE)

    assert counts == [0, 1, 1]
    assert len(sent(telegram)) == 2


async def test_every_three_days_is_counted_from_its_start_though_the_bot_restarts_each_day(
    gate: Tidegate, clock: VirtualClock, telegram: SimulatedTelegram
) -> None:
    at = local_time(clock, HOUR).time()
    for _ in range(7):
        async with gate.worker():
            await add(gate, clock, key="water", at=at, every="3 days")
            await clock.sleep(2 * HOUR)
        await clock.sleep(DAY - 2 * HOUR)

    assert len(sent(telegram)) == 3


async def test_what_is_paused_or_has_ended_starts_anew_when_it_is_added_again(
    gate: Tidegate, clock: VirtualClock, telegram: SimulatedTelegram
) -> None:
    async with gate.worker():
        added = await add(gate, clock, key="water", count=1)
        await gate.reminders.pause("water")
        assert not (await add(gate, clock, key="water", count=1)).paused
        await clock.sleep(2 * HOUR)
        again = await add(gate, clock, key="water", count=1, at=local_time(clock, HOUR).time())
        await clock.sleep(2 * HOUR)

    assert (again.id, again.has_ended) == (added.id, False)
    assert len(sent(telegram)) == 2


@pytest.mark.parametrize("while_", [dt.timedelta(minutes=10), "10m", " 600s "])
async def test_snoozed_for_ten_minutes_and_then_as_usual(
    gate: Tidegate, clock: VirtualClock, telegram: SimulatedTelegram, while_: dt.timedelta | str
) -> None:
    added = await add(gate, clock)
    assert added.next_at is not None
    async with gate.worker():
        await clock.sleep(HOUR + MINUTE)
        await gate.reminders.snooze(added.id, while_)
        await clock.sleep(DAY)

    assert [round(at - added.next_at) for at, _ in sent(telegram)] == [0, 11 * MINUTE, DAY]


async def test_the_next_one_is_skipped_and_the_one_after_it_fires(
    gate: Tidegate, clock: VirtualClock, telegram: SimulatedTelegram
) -> None:
    added = await add(gate, clock, AHEAD / 2)
    assert added.next_at is not None
    async with gate.worker():
        await clock.sleep(5)  # it is queued by now
        await gate.reminders.skip_next(added.id)
        await clock.sleep(DAY + HOUR)

    assert [round(at - added.next_at) for at, _ in sent(telegram)] == [DAY]


async def test_removed_reminders_leave_nothing_queued(
    gate: Tidegate, clock: VirtualClock, telegram: SimulatedTelegram
) -> None:
    added = await add(gate, clock, AHEAD / 2)
    async with gate.worker():
        await clock.sleep(5)
        assert await gate.reminders.remove(added.id) == 1
        await clock.sleep(DAY)

    assert not sent(telegram)
    assert await gate.reminders.get(added.id) is None
    with pytest.raises(BadInputError, match="there is no reminder"):
        await gate.reminders.pause(added.id)


async def test_more_than_a_chunk_at_the_same_time_leave_once_each(
    gate: Tidegate, clock: VirtualClock, telegram: SimulatedTelegram
) -> None:
    at = local_time(clock, HOUR).time()
    people = range(1, 2 * CHUNK + 10)
    added = await gate.reminders.add_many(
        {"chat_id": user, "text": "Hi", "at": at, "every": "day", "zone": BERLIN} for user in people
    )
    async with gate.worker():
        await clock.sleep(2 * HOUR)

    assert len(added) == len(people)
    assert Counter(entry.chat_id for entry in telegram.request_log.log) == Counter(people)
    assert telegram.report()["refused"] == 0


async def test_several_schedulers_share_the_users(gate: Tidegate, clock: VirtualClock) -> None:
    at = local_time(clock, HOUR).time()
    await gate.reminders.add_many(
        {"chat_id": user, "text": "Hi", "at": at, "every": "day", "zone": BERLIN} for user in range(1, 101)
    )
    shards = [Shard(number, 3) for number in range(3)]
    async with (
        gate.reminders.schedule(shard=shards[0]) as first,
        gate.reminders.schedule(shard=shards[1]) as second,
    ):
        await clock.sleep(2 * HOUR)

    assert (first.counts.fired, second.counts.fired) == (33, 34)
    assert (await gate.stats()).normal == 67  # the third shard has no scheduler
    assert (await gate.reminders.counts()).due == 33


async def test_a_scheduler_with_an_offset_looks_later_and_is_on_time(
    gate: Tidegate, clock: VirtualClock
) -> None:
    await add(gate, clock, HOUR)
    async with gate.reminders.schedule() as early, gate.reminders.schedule(offset=20) as late:
        await clock.sleep(HOUR - AHEAD + 2 * POLL_EVERY)
        assert (early.counts.fired, late.counts.fired) == (1, 0)
    await gate.reminders.change(1, text="Drink again!")  # which takes it back
    async with gate.reminders.schedule(offset=20) as late:
        await clock.sleep(15)
        assert late.counts.fired == 0
        await clock.sleep(10)
        assert late.counts.fired == 1

    with pytest.raises(BadInputError, match="give 0 to less than 60"):
        async with gate.reminders.schedule(offset=60):
            pass


async def test_a_worker_without_reminders_leaves_them_to_a_scheduler(
    gate: Tidegate, clock: VirtualClock, telegram: SimulatedTelegram
) -> None:
    await add(gate, clock, HOUR)
    async with gate.worker(reminders=False):
        await clock.sleep(2 * HOUR)
        await add(gate, clock, AHEAD / 2, text="late")
        await clock.sleep(MINUTE)
        assert not sent(telegram)
        async with gate.reminders.schedule():
            await clock.sleep(MINUTE)

    assert len(sent(telegram)) == 2


async def test_after_downtime_each_reminder_has_its_way_and_the_log_says_so(
    gate: Tidegate, clock: VirtualClock, telegram: SimulatedTelegram, caplog: pytest.LogCaptureFixture
) -> None:
    for late in ("fire", "skip", "merge"):
        await add(gate, clock, text=late, late=late, key=late)
    await clock.sleep(3 * DAY + 2 * HOUR)  # nothing runs
    async with gate.worker():
        await clock.sleep(MINUTE)

    assert sorted(text or "" for _, text in sent(telegram)) == ["fire"] * 4 + ["merge"]
    assert "reminders after their time: 5 put late, 4 skipped, 3 merged into another" in caplog.text


async def test_a_message_that_cannot_be_sent_is_skipped_alone(
    gate: Tidegate, clock: VirtualClock, telegram: SimulatedTelegram, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = await add(gate, clock, text="good"), await add(gate, clock, text="bad")
    store: Any = await gate.reminders._store.opened()  # noqa: SLF001  (as a newer version may have left it)
    await store.change(bad.id, lambda old: replace(old, fields={"text": ""}))
    async with gate.worker():
        await clock.sleep(2 * HOUR)

    assert [text for _, text in sent(telegram)] == ["good"]
    assert f"reminder {bad.id} is skipped once" in caplog.text
    counts = [(one.fired, one.skipped) for one in await gate.reminders.list()]
    assert counts == [(1, 0), (0, 1)]
    assert good.id < bad.id


async def test_a_zone_that_this_machine_does_not_know_pauses_one_reminder(
    gate: Tidegate, clock: VirtualClock, telegram: SimulatedTelegram, caplog: pytest.LogCaptureFixture
) -> None:
    bad = await add(gate, clock, text="bad")
    await add(gate, clock, text="good")
    store: Any = await gate.reminders._store.opened()  # noqa: SLF001  (as another machine may have left it)
    await store.change(bad.id, lambda old: replace(old, zone="Mars/Olympus"))
    async with gate.worker():
        await clock.sleep(2 * HOUR)

    assert [text for _, text in sent(telegram)] == ["good"]
    assert f"reminder {bad.id} is paused" in caplog.text


async def test_a_handler_makes_the_message_when_it_is_due(
    gate: Tidegate, clock: VirtualClock, telegram: SimulatedTelegram
) -> None:
    @gate.reminders.handler("report")
    async def report(due: DueReminder) -> str | None:
        return f"Report of {due.occurrence:%H:%M}" if due.reminder.chat_id == 1001 else None

    added = await add(gate, clock, handler="report", text=None)
    left_out = await gate.reminders.add(7, at=local_time(clock, HOUR), zone=BERLIN, handler="report")
    async with gate.worker():
        await clock.sleep(2 * HOUR)

    assert [text for _, text in sent(telegram)] == [f"Report of {added.schedule.at:%H:%M}"]  # type: ignore[union-attr]
    assert (await gate.reminders.get(left_out.id)).skipped == 1  # type: ignore[union-attr]


async def test_a_slow_handler_keeps_no_other_reminder_waiting(
    gate: Tidegate, clock: VirtualClock, telegram: SimulatedTelegram
) -> None:
    @gate.reminders.handler("slow")
    async def slow(_: DueReminder) -> str:
        await clock.sleep(40)
        return "slow"

    @gate.reminders.handler("quick")
    async def quick(_: DueReminder) -> str:
        return "quick"

    for number in range(30):
        await add(gate, clock, handler="slow", user_id=number)
    await add(gate, clock, handler="quick")
    await add(gate, clock, text="plain")
    due = clock.now() + HOUR
    async with gate.worker():
        await clock.sleep(HOUR + 10)
        quickly = [text for _, text in sent(telegram)]
        await clock.sleep(10 * MINUTE)

    assert sorted(text or "" for text in quickly) == ["plain", "quick"]
    assert [text for _, text in sent(telegram)].count("slow") == 30
    assert sent(telegram)[0][0] - due < 5


async def test_a_handler_that_fails_is_called_again_and_its_message_comes_once(
    gate: Tidegate, clock: VirtualClock, telegram: SimulatedTelegram, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[float] = []

    @gate.reminders.handler("shaky")
    async def shaky(_: DueReminder) -> str:
        calls.append(clock.now())
        if len(calls) < 3:
            raise RuntimeError("no database today")
        return "at last"

    await add(gate, clock, handler="shaky")
    async with gate.worker():
        await clock.sleep(2 * HOUR)

    assert [text for _, text in sent(telegram)] == ["at last"]
    assert [round(later - earlier) for earlier, later in pairwise(calls)] == [60, 60]
    assert "no database today" in caplog.text


class AwayReminders(MemoryReminders):
    """A store that cannot be reached at times."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.is_away = False
        self.failing_commits = 0

    def _check(self) -> None:
        if self.is_away:
            raise StoreAwayError("the database is away")

    async def open(self) -> None:
        self._check()
        await super().open()

    @asynccontextmanager
    async def claim_due(self, *args: Any) -> AsyncIterator[Any]:  # noqa: ANN401
        self._check()
        async with super().claim_due(*args) as batch:
            yield batch
            if batch.reminders and self.failing_commits:
                self.failing_commits -= 1
                raise StoreAwayError("the database went away before it could commit")


async def test_a_database_that_goes_away_is_waited_for_and_nothing_is_lost_or_doubled(
    gate: Tidegate, clock: VirtualClock, telegram: SimulatedTelegram, caplog: pytest.LogCaptureFixture
) -> None:
    store = AwayReminders(clock)
    gate.reminders._store.make = lambda: store  # noqa: SLF001  (the port is where it is replaced)
    await add(gate, clock, HOUR)
    async with gate.worker():
        await clock.sleep(MINUTE)
        store.is_away = True
        await clock.sleep(HOUR)
        reasons = gate.health().reasons
        assert not sent(telegram)
        store.is_away = False
        await clock.sleep(MINUTE)

    assert len(sent(telegram)) == 1
    assert reasons == ("reminders wait: the database is away",)
    assert gate.health().ready
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert lines[0] == "reminders wait until this is mended, and nothing is lost: the database is away"
    assert lines[-1] == "reminders go on"


async def test_a_commit_that_fails_doubles_nothing(
    gate: Tidegate, clock: VirtualClock, telegram: SimulatedTelegram
) -> None:
    store = AwayReminders(clock)
    gate.reminders._store.make = lambda: store  # noqa: SLF001
    await add(gate, clock, AHEAD + 10)
    store.failing_commits = 2

    async with gate.worker():
        await clock.sleep(15)
        assert (await gate.stats()).normal == 1  # put three times, and taken once
        await clock.sleep(5 * MINUTE)

    assert store.failing_commits == 0
    assert len(sent(telegram)) == 1


async def test_bad_input_is_refused_before_anything_is_stored(gate: Tidegate, clock: VirtualClock) -> None:
    for wrong, words in (
        ({"zone": "Europe/Berln"}, "Europe/Berlin may be meant"),
        ({"at": "25:00"}, "is not a time of day"),
        ({"text": ""}, "text"),
        ({"chat": 7}, "chat"),
        ({"cron": "nonsense", "at": None, "every": None}, "cron"),
    ):
        with pytest.raises(BadInputError, match=words):
            await add(gate, clock, **wrong)
    assert (await gate.reminders.counts()).active == 0


async def test_the_minute_before_a_handler_is_due_is_not_spent_looking_for_it(
    gate: Tidegate, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[float] = []

    @gate.reminders.handler("report")
    async def report(_: DueReminder) -> None:
        called.append(clock.now())

    looks = 0
    look = MemoryReminders.next_due

    async def counted(store: MemoryReminders, *args: Any, **options: Any) -> float | None:  # noqa: ANN401
        nonlocal looks
        looks += 1
        return await look(store, *args, **options)

    added = await add(gate, clock, AHEAD, handler="report", text=None)
    monkeypatch.setattr(MemoryReminders, "next_due", counted)
    async with gate.worker():
        await clock.sleep(AHEAD + 1)

    assert called == pytest.approx([added.next_at])
    assert looks < 30


async def test_reminders_that_come_due_one_after_another_are_put_together(
    gate: Tidegate, clock: VirtualClock, telegram: SimulatedTelegram
) -> None:
    for number in range(60):
        await add(gate, clock, 2 * AHEAD + number / 10)
    async with gate.reminders.schedule() as scheduler, gate.worker():
        await clock.sleep(3 * AHEAD)

    assert scheduler.counts.fired == len(sent(telegram)) == 60
    assert scheduler.counts.chunks <= 3


@pytest.mark.parametrize("which", [None, True, "", [], 1.5, object()])
async def test_what_is_no_id_and_no_key_never_finds_the_reminder_of_somebody_else(
    gate: Tidegate,
    clock: VirtualClock,
    which: Any,  # noqa: ANN401
) -> None:
    added = await add(gate, clock, key="a")
    reminders = gate.reminders
    for verb in (reminders.get, reminders.remove, reminders.pause, reminders.resume, reminders.skip_next):
        with pytest.raises(BadInputError, match="neither the id nor the key of a reminder"):
            await verb(which)
    with pytest.raises(BadInputError, match="neither the id"):
        await reminders.change(which, text="Other")
    with pytest.raises(BadInputError, match="neither the id"):
        await reminders.snooze(which, dt.timedelta(hours=1))
    assert await reminders.get("a") == added


@pytest.mark.parametrize("name", ["", " "])
async def test_a_handler_without_a_name_is_refused(gate: Tidegate, name: str) -> None:
    with pytest.raises(BadInputError, match="no name of a handler"):
        gate.reminders.handler(name)


async def test_a_handler_that_is_not_async_is_refused_at_once(gate: Tidegate) -> None:
    with pytest.raises(BadInputError, match="must be an `async def`"):
        gate.reminders.handler("report")(lambda _: "text")  # type: ignore[arg-type, return-value]


async def test_a_handler_may_be_an_object_with_an_async_call(
    gate: Tidegate, clock: VirtualClock, telegram: SimulatedTelegram
) -> None:
    class Report:
        async def __call__(self, due: DueReminder) -> str:
            return f"for {due.reminder.chat_id}"

    gate.reminders.handler("report")(Report())
    await add(gate, clock, handler="report", text=None)
    async with gate.worker():
        await clock.sleep(HOUR + MINUTE)
    assert [text for _, text in sent(telegram)] == ["for 1001"]


async def test_a_handler_that_returns_no_message_is_named_with_what_to_return(
    gate: Tidegate, clock: VirtualClock, telegram: SimulatedTelegram, caplog: pytest.LogCaptureFixture
) -> None:
    @gate.reminders.handler("report")
    async def report(_: DueReminder) -> Any:  # noqa: ANN401
        return 5

    await add(gate, clock, handler="report", text=None)
    async with gate.worker():
        await clock.sleep(HOUR + MINUTE / 2)
    assert not sent(telegram)
    [line] = [record.message for record in caplog.records if "has failed" in record.message]
    assert "the handler 'report'" in line
    assert "return a text, the fields of a message, or None: got 5" in line


async def test_unknown_fields_beside_a_handler_are_refused(gate: Tidegate, clock: VirtualClock) -> None:
    with pytest.raises(BadInputError, match="foo"):
        await add(gate, clock, handler="report", text=None, foo=1)


async def test_an_instant_needs_no_zone(gate: Tidegate, clock: VirtualClock) -> None:
    at = dt.datetime.fromtimestamp(clock.now() + 25, dt.UTC)
    added = await gate.reminders.add(1001, text="Once", at=at)
    assert (added.zone, added.next_at) == ("UTC", at.timestamp())
    later = dt.datetime.fromtimestamp(clock.now() + 25, dt.timezone(dt.timedelta(hours=2)))
    assert (await gate.reminders.add(1001, text="Once", at=later)).next_at == later.timestamp()
    daily = await gate.reminders.add(1001, text="Daily", at="09:00", every="day", zone=dt.UTC)
    assert daily.zone == "UTC"


@pytest.mark.parametrize(
    ("filters", "reason"),
    [
        ({"limit": 0}, "limit is 0"),
        ({"limit": "x"}, "limit"),
        ({"user_id": "x"}, "user_id"),
        ({"chat_id": "abc"}, "abc"),
    ],
)
async def test_a_filter_that_cannot_match_is_refused(
    gate: Tidegate,
    filters: dict[str, Any],
    reason: str,
) -> None:
    with pytest.raises(BadInputError, match=reason):
        await gate.reminders.list(**filters)
