"""What a 429 closes and cuts, and what of that is there again after a restart. On the bare schedule."""

import itertools

import msgspec
import pytest

from tidegate.model import BotId, ChatId, Rate
from tidegate.outbox.flood_control import (
    FULL_FOR_WINDOWS,
    WHOLE_BOT,
    StoredLimit,
    limits_of,
    remember_call,
    remember_limit,
    step_up,
)
from tidegate.outbox.lanes import HIGH, NEVER, TURN, Entry, Lane, Pool
from tidegate.outbox.schedule import Schedule
from tidegate.pacing.learned import FORGET_AFTER, STEP_UP_AFTER
from tidegate.pacing.rules import Family, Rules

BOT = BotId(42)
RULES = Rules(
    bot=Rate(10, 1), private=Rate(1, 1), burst=1, group=Rate(4, 60), paid=Rate(100, 1), actions=(Rate(8, 5),)
)
RESTARTED = 5_000.0  # by the clock of the next process

numbers = itertools.count(1)


def call(
    schedule: Schedule,
    now: float,
    chat: ChatId = 1,
    family: Family = "send",
    *,
    cost: int = 1,
    paid: bool = False,
) -> Entry:
    """A call that is under way."""
    number = next(numbers)
    entry = Entry(number, schedule.lane(BOT, chat, family), HIGH, cost, seq=number, paid=paid)
    schedule.wake(now)
    schedule.add(entry, now)
    assert schedule.claim(now, 1) == [entry]
    return entry


def answered(schedule: Schedule, now: float, chat: ChatId = 1) -> None:
    schedule.release(call(schedule, now, chat), now, answered=True)
    schedule.settle_lane(schedule.lane(BOT, chat, "send"), now)


def refused(
    schedule: Schedule, now: float, chat: ChatId = 1, wait: float = 7.0, *, paid: bool = False
) -> Entry:
    entry = call(schedule, now, chat, paid=paid)
    schedule.refused(entry, now, wait)
    return entry


def end(schedule: Schedule, entry: Entry, now: float) -> None:
    schedule.release(entry, now, answered=True)
    schedule.settle_lane(entry.lane, now)


def pool_of(schedule: Schedule, budget: str = "send") -> Pool:
    return schedule.pool_of(schedule.bot(BOT), budget)


def rate(limited: Lane | Pool) -> Rate | None:
    """What it has learned."""
    return None if limited.learned is None else limited.learned.rate


def test_a_429_closes_its_chat_and_no_other() -> None:
    schedule = Schedule(RULES)
    entry = refused(schedule, 100.0)

    assert entry.lane.closed_until == 107.0
    assert schedule.bot(BOT).closed_until == 0.0
    assert schedule.lane(BOT, 2, "send").closed_until == 0.0


def test_a_second_chat_refused_within_a_window_closes_the_bot() -> None:
    schedule = Schedule(RULES)
    refused(schedule, 100.0)
    refused(schedule, 100.9, chat=2, wait=3.0)

    assert schedule.bot(BOT).closed_until == pytest.approx(103.9)
    assert rate(pool_of(schedule)) == Rate(8, 1)


def test_a_second_chat_refused_a_window_later_closes_itself_alone() -> None:
    schedule = Schedule(RULES)
    refused(schedule, 100.0)
    refused(schedule, 101.0, chat=2)

    assert schedule.bot(BOT).closed_until == 0.0
    assert set(schedule.bot(BOT).refused) == {2}  # the first one is forgotten


def test_a_moment_is_as_long_as_the_window_of_the_limit() -> None:
    schedule = Schedule(Rules(bot=Rate(10, 3), private=Rate(1, 2), burst=1))
    answered(schedule, 100.0)
    entry = refused(schedule, 102.9)
    assert rate(entry.lane) == Rate(1, 2.5)
    assert schedule.bot(BOT).closed_until == 0.0

    refused(schedule, 105.8, chat=2)
    assert schedule.bot(BOT).closed_until == pytest.approx(112.8)


def test_the_same_chat_refused_twice_closes_no_bot_and_the_longer_wait_counts() -> None:
    schedule = Schedule(RULES)
    entry = refused(schedule, 100.0, wait=60.0)
    schedule.refused(entry, 100.5, 5.0)

    assert entry.lane.closed_until == 160.0
    assert schedule.bot(BOT).closed_until == 0.0


def test_a_bot_that_is_closed_for_long_is_not_opened_by_a_shorter_wait() -> None:
    schedule = Schedule(RULES)
    first, second = call(schedule, 100.0, 1), call(schedule, 100.0, 2)
    schedule.refused(first, 100.0, 60.0)
    schedule.refused(second, 100.0, 60.0)
    schedule.refused(first, 100.5, 5.0)

    assert schedule.bot(BOT).closed_until == 160.0


@pytest.mark.parametrize(
    ("gap", "chat_is_to_blame"), [(1.0, True), (FULL_FOR_WINDOWS - 0.01, True), (FULL_FOR_WINDOWS, False)]
)
def test_a_chat_of_one_call_is_to_blame_if_it_was_called_a_moment_before(
    gap: float, *, chat_is_to_blame: bool
) -> None:
    schedule = Schedule(RULES)
    answered(schedule, 100.0)
    entry = refused(schedule, 100.0 + gap)

    assert (rate(entry.lane), rate(pool_of(schedule))) == (
        (Rate(1, 1.25), None) if chat_is_to_blame else (None, Rate(8, 1))
    )


@pytest.mark.parametrize(
    ("in_group", "elsewhere", "group_is_to_blame"), [(3, 0, True), (2, 2, True), (2, 3, False)]
)
def test_the_fuller_of_both_limits_is_cut(in_group: int, elsewhere: int, *, group_is_to_blame: bool) -> None:
    """Two of four against five of ten: the shares count, without the refused call."""
    schedule = Schedule(RULES)
    for chat in range(1, elsewhere + 1):
        answered(schedule, 100.0, chat)
    for _ in range(in_group):
        answered(schedule, 100.0, -5)
    entry = refused(schedule, 100.0, chat=-5)

    assert (rate(entry.lane), rate(pool_of(schedule))) == (
        (Rate(3, 60), None) if group_is_to_blame else (None, Rate(8, 1))
    )
    window = entry.lane.windows[0] if group_is_to_blame else pool_of(schedule).window
    assert window is not None
    assert window.rate == (Rate(3, 60) if group_is_to_blame else Rate(8, 1))


def test_what_was_paid_for_cuts_the_limit_of_paid_ones() -> None:
    schedule = Schedule(RULES)
    refused(schedule, 100.0, paid=True)

    assert (rate(pool_of(schedule, "paid")), rate(pool_of(schedule))) == (Rate(85, 1), None)


def test_an_action_cuts_the_limit_of_actions() -> None:
    schedule = Schedule(RULES)
    entry = call(schedule, 100.0, family="action")
    schedule.refused(entry, 100.0, 7.0)

    assert rate(entry.lane) == Rate(6, 5)


def test_a_limit_recovers_step_by_step_and_is_then_forgotten() -> None:
    schedule = Schedule(RULES)
    refused(schedule, 100.0)
    pool = pool_of(schedule)
    assert pool.window is not None

    step_up(pool, pool.window, 100.0 + STEP_UP_AFTER - 0.1)
    assert pool.window.rate == Rate(8, 1)
    step_up(pool, pool.window, 100.0 + STEP_UP_AFTER)
    assert pool.window.rate == Rate(9, 1)

    for minute in range(1, 4):
        step_up(pool, pool.window, 100.0 + STEP_UP_AFTER + 60.0 * minute)
    assert (pool.window.rate, pool.learned) == (Rate(10, 1), None)


def restart(schedule: Schedule, entry: Entry, at: float, downtime: float) -> Schedule:
    stored = msgspec.msgpack.encode(limits_of(schedule, entry, at))
    new = Schedule(RULES)
    for limit in msgspec.msgpack.decode(stored, type=list[StoredLimit]):
        remember_limit(new, limit, RESTARTED, downtime)
    return new


def test_closed_chats_and_bots_are_closed_after_a_restart_for_what_is_left() -> None:
    schedule = Schedule(RULES)
    refused(schedule, 100.0, chat=2, wait=50.0)
    entry = refused(schedule, 100.0, wait=20.0)
    end(schedule, entry, 101.0)

    new = restart(schedule, entry, 101.0, downtime=4.0)

    assert new.lane(BOT, 1, "send").closed_until == RESTARTED + 20 - 1 - 4
    assert new.bot(BOT).closed_until == RESTARTED + 20 - 1 - 4
    assert rate(pool_of(new)) == rate(pool_of(schedule)) == Rate(8, 1)
    window = pool_of(new).window
    assert window is not None
    assert window.rate == Rate(8, 1)


def test_a_chat_that_was_cut_is_cut_after_a_restart() -> None:
    schedule = Schedule(RULES)
    for _ in range(3):
        answered(schedule, 100.0, -5)
    entry = refused(schedule, 100.0, chat=-5)

    new = restart(schedule, entry, 100.0, downtime=1.0)

    lane = new.lane(BOT, -5, "send")
    assert (rate(lane), lane.windows[0].rate, rate(pool_of(new))) == (Rate(3, 60), Rate(3, 60), None)
    assert new.lane(BOT, -6, "send").windows[0].rate == Rate(4, 60)  # another chat has the rule


def test_the_limit_of_paid_ones_is_cut_after_a_restart() -> None:
    schedule = Schedule(RULES)
    entry = refused(schedule, 100.0, paid=True)

    new = restart(schedule, entry, 100.0, downtime=1.0)

    assert (rate(pool_of(new, "paid")), rate(pool_of(new))) == (Rate(85, 1), None)


def test_what_was_learned_is_forgotten_after_an_hour_of_downtime() -> None:
    schedule = Schedule(RULES)
    entry = refused(schedule, 100.0)

    assert rate(pool_of(restart(schedule, entry, 100.0, FORGET_AFTER))) == Rate(8, 1)
    new = restart(schedule, entry, 100.0, FORGET_AFTER + 1)
    window = pool_of(new).window
    assert window is not None
    assert (rate(pool_of(new)), window.rate) == (None, Rate(10, 1))


def test_a_stored_limit_never_opens_what_is_closed_for_longer() -> None:
    schedule = Schedule(RULES)
    lane, bot = schedule.lane(BOT, 1, "send"), schedule.bot(BOT)
    lane.closed_until = bot.closed_until = 200.0

    for chat in (1, WHOLE_BOT):
        remember_limit(schedule, StoredLimit(BOT, chat, "send", 30.0, None), 100.0, 10.0)
    assert (lane.closed_until, bot.closed_until) == (200.0, 200.0)

    for chat in (1, WHOLE_BOT):
        remember_limit(schedule, StoredLimit(BOT, chat, "send", 130.0, None), 100.0, 10.0)
    assert (lane.closed_until, bot.closed_until) == (220.0, 220.0)


def test_a_stored_limit_of_a_budget_without_a_window_is_only_a_closure() -> None:
    schedule = Schedule(RULES)

    remember_limit(schedule, StoredLimit(BOT, WHOLE_BOT, "action", 30.0, None), 100.0, 10.0)

    assert schedule.bot(BOT).closed_until == 120.0


def remembered(at: float, now: float, *, chat: ChatId = 1, cost: int = 1, paid: bool = False) -> Schedule:
    schedule = Schedule(RULES)
    remember_call(schedule, BOT, chat, "send", paid=paid, cost=cost, at=at, now=now)
    return schedule


def taken(schedule: Schedule, budget: str = "send") -> int:
    window = pool_of(schedule, budget).window
    assert window is not None
    return window.taken


def test_a_call_answered_before_a_restart_holds_its_slots_for_what_is_left_of_the_window() -> None:
    schedule = remembered(at=99.4, now=100.0)
    lane = schedule.lane(BOT, 1, "send")

    assert lane.wait(100.0, 1, TURN) == pytest.approx(0.4)
    assert (taken(schedule), lane.last_call) == (1, 99.4)
    assert schedule.lane(BOT, 2, "send").wait(100.0, 1, TURN) <= 0.0
    end(schedule, call(schedule, 100.5), 100.5)  # its slots were not counted as in flight


@pytest.mark.parametrize(("at", "in_group", "in_bot"), [(39.9, 0, 0), (40.1, 1, 0), (99.1, 1, 1)])
def test_a_call_answered_long_ago_holds_nothing(at: float, in_group: int, in_bot: int) -> None:
    schedule = remembered(at=at, now=100.0, chat=-5)

    assert (schedule.lane(BOT, -5, "send").windows[0].taken, taken(schedule)) == (in_group, in_bot)


def test_a_call_that_was_paid_for_holds_a_slot_of_paid_ones() -> None:
    schedule = remembered(at=99.5, now=100.0, paid=True)

    assert (taken(schedule, "paid"), taken(schedule)) == (1, 0)


def test_an_album_larger_than_its_limit_holds_it_for_longer_after_a_restart() -> None:
    schedule = remembered(at=95.0, now=100.0, cost=6)  # the chat's one slot for six seconds
    lane = schedule.lane(BOT, 1, "send")

    assert lane.wait(100.0, 1, TURN) == pytest.approx(1.0)
    assert taken(schedule) == 0
    assert remembered(at=94.0, now=100.0, cost=6).lane(BOT, 1, "send").wait(100.0, 1, TURN) <= 0.0


def test_what_cost_nothing_holds_nothing_after_a_restart() -> None:
    schedule = remembered(at=99.9, now=100.0, cost=0)

    assert taken(schedule) == 0
    assert schedule.lane(BOT, 1, "send").wait(100.0, 1, TURN) <= 0.0


def test_an_action_before_a_restart_holds_a_slot_of_its_chat_alone() -> None:
    schedule = Schedule(RULES)
    remember_call(schedule, BOT, 1, "action", paid=False, cost=1, at=99.0, now=100.0)

    assert schedule.lane(BOT, 1, "action").windows[0].taken == 1
    assert taken(schedule) == 0


def test_the_latest_call_of_a_chat_is_known_whatever_the_order_in_which_calls_are_read() -> None:
    schedule = remembered(at=99.5, now=100.0)
    remember_call(schedule, BOT, 1, "send", paid=False, cost=1, at=99.1, now=100.0)

    assert schedule.lane(BOT, 1, "send").last_call == 99.5
    assert Schedule(RULES).lane(BOT, 1, "send").last_call == -NEVER
