"""Which line of a pool is next, and what a grant costs its priority. On bare lines."""

import pytest

from tidegate.model import BotId, Rate
from tidegate.outbox.lanes import (
    HIGH,
    LOW,
    NORMAL,
    READY,
    TURN,
    URGENT,
    WAITING,
    BotLanes,
    Entry,
    Lane,
    Line,
    Pool,
)
from tidegate.outbox.shares import SLACK, account, join, next_line, rest_until, spacing
from tidegate.pacing.window import Window

GAP = 2 / 10  # of a call in the pool below


@pytest.fixture
def pool() -> Pool:
    return Pool(BotLanes(BotId(42)), Window.of(Rate(10, 2)))


def ready(pool: Pool, level: int, seq: int) -> Line:
    lane = Lane(pool.bot, seq, "send", pool, ())
    line = Line(lane, level, place=READY)
    line.append(Entry(seq, lane, level, 1, seq=seq))
    pool.ready[level].push(seq, line)
    return line


@pytest.mark.parametrize("turn_is_first", [True, False])
def test_of_a_turn_and_a_message_of_one_priority_the_earlier_goes(pool: Pool, *, turn_is_first: bool) -> None:
    turn = ready(pool, TURN + NORMAL, 1 if turn_is_first else 2)
    message = ready(pool, NORMAL, 2 if turn_is_first else 1)

    assert next_line(pool, 0.0, messages=True) is (turn if turn_is_first else message)
    assert next_line(pool, 0.0, messages=False) is turn


def test_urgent_goes_before_a_reserved_line_and_that_before_all_others(pool: Pool) -> None:
    ready(pool, HIGH, 1)
    pool.reserved = low = ready(pool, LOW, 2)
    assert next_line(pool, 0.0, messages=True) is low

    urgent = ready(pool, URGENT, 3)
    assert next_line(pool, 0.0, messages=True) is urgent
    assert pool.reserved is low


@pytest.mark.parametrize("why", ["it waits", "it is empty"])
def test_a_reservation_of_a_line_that_cannot_go_is_over(pool: Pool, why: str) -> None:
    high = ready(pool, HIGH, 1)
    pool.reserved = low = ready(pool, LOW, 2)
    if why == "it waits":
        low.place = WAITING
    else:
        low.pop()

    assert next_line(pool, 0.0, messages=True) is high
    assert pool.reserved is None


def test_a_pool_rests_until_its_gap_is_over_if_a_line_waits_for_that(pool: Pool) -> None:
    pool.spaced_until = 5.0
    assert rest_until(pool, 4.0) == 0.0  # nothing is ready

    ready(pool, NORMAL, 1)
    assert next_line(pool, 4.0, messages=True) is None
    assert [rest_until(pool, now) for now in (4.0, 5.0)] == [5.0, 0.0]

    ready(pool, HIGH, 2)
    assert rest_until(pool, 4.0) == 0.0  # which does not wait for a gap


@pytest.mark.parametrize(("cost", "slots"), [(0, 1), (1, 1), (4, 4)])
def test_a_grant_counts_by_its_slots_and_what_is_free_as_one(pool: Pool, cost: int, slots: int) -> None:
    account(pool, TURN + LOW, cost, 0.0)
    assert (pool.served, pool.passes[LOW]) == (0.0, slots)
    account(pool, LOW, cost, 0.0)
    assert (pool.served, pool.passes[LOW]) == (slots, 2 * slots)


def test_a_priority_that_comes_back_starts_where_the_others_are_and_one_that_is_there_stays(
    pool: Pool,
) -> None:
    pool.served = 7.0
    join(pool, LOW)
    assert pool.passes[LOW] == 7.0

    pool.served = 9.0
    ready(pool, LOW, 1)
    join(pool, LOW)
    assert pool.passes[LOW] == 7.0


def test_gaps_follow_each_other_unless_a_step_is_late(pool: Pool) -> None:
    account(pool, NORMAL, 1, 100.0)
    assert pool.spaced_until == pytest.approx(100 + GAP)

    account(pool, NORMAL, 2, 100 + GAP + SLACK / 2)  # a little late
    assert pool.spaced_until == pytest.approx(100 + 3 * GAP)

    account(pool, NORMAL, 1, 200.0)
    assert pool.spaced_until == pytest.approx(200 + GAP)

    account(pool, HIGH, 1, 200.0)
    assert pool.spaced_until == pytest.approx(200 + GAP)


def test_without_a_window_there_are_no_gaps() -> None:
    assert spacing(Pool(BotLanes(BotId(42)), None), 1) == 0.0
