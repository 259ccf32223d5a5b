"""A window of slots against a far end that counts exactly, in whole milliseconds so that sums are exact."""

import math
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tidegate.model import Rate
from tidegate.pacing.window import Window

W = 1_000


class Call(NamedTuple):
    """A call that wants to be made `gap` after the one before; all in milliseconds."""

    gap: int
    cost: int
    there: int  # until the far end counts it
    back: int  # until its answer is here
    told: int  # until the answer is told to the window


calls = st.lists(
    st.builds(
        Call,
        gap=st.integers(0, 400),
        cost=st.integers(1, 7),
        there=st.integers(0, 900),
        back=st.integers(0, 900),
        told=st.integers(0, 300),
    ),
    max_size=60,
)
counts = st.integers(1, 5)


def play(window: Window, wanted: list[Call]) -> list[tuple[int, int]]:
    """Make the calls as early as the window allows, answers told in any order; what the far end counted."""
    counted: list[tuple[int, int]] = []
    answers: list[tuple[int, int, int]] = []  # when told, when heard, cost
    now = 0

    def hear(until: int) -> None:
        while answers and answers[0][0] <= until:
            told, heard, cost = answers.pop(0)
            window.answered(heard, cost)
            assert told <= until

    for call in wanted:
        now += call.gap
        hear(now)
        while (wait := window.wait(now, call.cost)) > 0:
            next_answer = answers[0][0] if answers else math.inf
            now = math.ceil(min(now + wait, next_answer))
            hear(now)
        window.take(call.cost)
        at = now + call.there
        counted.append((at, call.cost))
        answers.append((at + call.back + call.told, at + call.back, call.cost))
        answers.sort()
    return counted


def fits_the_limit(counted: list[tuple[int, int]], count: int) -> bool:
    """No W milliseconds hold more than `count`, but for a single call that is larger by itself."""
    for start, _ in counted:
        within = [cost for at, cost in counted if start <= at < start + W]
        if sum(within) > max(count, *within) or (max(within) > count and len(within) > 1):
            return False
    return True


@given(calls, counts)
def test_the_far_end_never_counts_more_than_n_in_any_w_whatever_the_latency(
    wanted: list[Call], count: int
) -> None:
    counted = play(Window.of(Rate(count, W)), wanted)

    assert len(counted) == len(wanted)
    assert fits_the_limit(counted, count)


@given(calls, counts, counts)
def test_a_window_resized_on_the_way_holds_the_larger_of_its_sizes(
    wanted: list[Call], before: int, after: int
) -> None:
    window = Window.of(Rate(before, W))
    half = len(wanted) // 2
    counted = play(window, [])
    counted += play(window, wanted[:half])
    window.resize(Rate(after, W))

    assert window.free(10**9) == after - window.held
    assert fits_the_limit(counted, before)


@given(calls, counts, st.integers(1, 7))
def test_wait_names_the_first_instant_at_which_a_call_fits(wanted: list[Call], count: int, cost: int) -> None:
    window = Window.of(Rate(count, W))
    for call in wanted[:count]:
        window.take(call.cost)
    for call in wanted[:count]:
        window.answered(call.there, call.cost)

    wait = window.wait(0, cost)

    if wait > 0:
        assert not window.fits(math.ceil(wait) - 1, cost)
    assert window.fits(wait, cost)


@given(counts, st.integers(1, 7))
def test_while_a_call_is_in_flight_nobody_knows_when_its_slots_are_free(count: int, cost: int) -> None:
    window = Window.of(Rate(count, W))
    window.take(count)

    assert window.wait(0, cost) == math.inf
    assert not window.fits(10**9, 1)


@given(counts, st.integers(1, 7))
def test_slots_of_a_call_that_was_never_sent_are_free_at_once(count: int, cost: int) -> None:
    window = Window.of(Rate(count, W))
    window.take(cost)

    window.give_back(cost)

    assert window.free(0) == count
    assert window.idle(0)


def test_a_call_takes_and_gives_back_one_slot_unless_told_otherwise() -> None:
    window = Window.of(Rate(3, W))
    window.take()
    assert window.free(0) == 2

    window.give_back()
    assert window.free(0) == 3


def test_a_slot_cools_from_the_answer_not_from_the_sending() -> None:
    window = Window.of(Rate(1, W))
    window.take()
    window.answered(700)

    assert not window.fits(1_699, 1)
    assert window.fits(1_700, 1)


@given(counts, st.integers(1, 20))
def test_a_call_larger_than_the_window_needs_it_empty_and_holds_it_longer(count: int, more: int) -> None:
    cost = count + more
    window = Window.of(Rate(count, W))
    window.take(1)
    window.answered(0)
    assert window.wait(0, cost) == W

    window.take(cost)
    window.answered(W, cost)

    busy = W + W * cost / count
    assert not window.fits(busy - 0.001, 1)
    assert window.free(busy) == count


def test_a_call_larger_than_the_window_counts_in_full_when_the_limit_is_raised_meanwhile() -> None:
    """Of an album of 6 a limit of 5 kept 5 slots: raised to 6, it let another call pass beside it."""
    window = Window.of(Rate(5, W))
    window.take(6)
    window.answered(0, 6)

    window.resize(Rate(6, W))

    assert window.wait(0) == W * 6 / 5


def test_an_album_takes_the_half_of_a_burst_also_while_less_of_it_is_learned() -> None:
    window = Window.of(Rate(4, W), is_burst=True)
    window.resize(Rate(2, W // 2))
    window.take(6)
    window.answered(0, 6)

    assert not window.fits(W // 2 * 3 - 1, 1)
    assert window.free(W // 2 * 3) == 2


def test_a_learned_burst_that_is_raised_counts_calls_that_it_had_forgotten() -> None:
    """Learned as 1 in 0.5 s, then 2 in 1 s, it let 5 pass in the 2 s in which 4 are allowed."""
    window = Window.of(Rate(2, W), is_burst=True)
    window.resize(Rate(1, W // 2))
    window.take()
    window.answered(0)
    assert window.free(W // 2) == 1  # it has forgotten the call

    window.lengthen(Rate(2, W), W // 2)

    assert not window.fits(W - 1, 1)
    assert window.free(W) == 2


def test_an_answer_told_late_cools_from_when_it_came() -> None:
    window = Window.of(Rate(3, W))
    window.take(3)
    for heard in (500, 100, 300):  # out of order
        window.answered(heard)

    assert [window.free(at) for at in (1_099, 1_100, 1_300, 1_499, 1_500)] == [0, 1, 2, 2, 3]


def test_each_slot_that_has_cooled_can_be_taken_while_the_others_cool() -> None:
    window = Window.of(Rate(5, W))
    window.take(5)
    for heard in (100, 200, 300, 400, 500):
        window.answered(heard)

    assert [window.fits(1_100, cost) for cost in (1, 2)] == [True, False]
    assert [window.fits(1_200, cost) for cost in (2, 3)] == [True, False]
    assert (window.wait(1_200), window.wait(1_200, 3)) == (0.0, 100)
    window.take(2)
    assert window.wait(1_200) == 100


def test_what_has_cooled_is_not_kept() -> None:
    window = Window.of(Rate(3, W))
    for heard in range(0, 100_000, W // 2):
        assert window.fits(heard, 1)
        window.take()
        window.answered(heard)
        assert len(window.cooling) <= 6


def test_debt_of_an_urgent_call_is_paid_before_the_next_goes() -> None:
    window = Window.of(Rate(2, W))
    window.take(3)
    assert window.free(0) == -1

    for heard in (100, 200, 300):
        window.answered(heard)

    assert window.wait(300, 1) == 1_200 - 300  # two of the three have to cool
    assert not window.fits(1_100, 1)
    assert window.fits(1_200, 1)


@given(counts, st.integers(0, 500))
def test_it_is_idle_once_everything_has_cooled(count: int, heard: int) -> None:
    window = Window.of(Rate(count, W))
    window.take()
    assert not window.idle(10**6)

    window.answered(heard)

    assert not window.idle(heard + W - 1)
    assert window.idle(heard + W)


def test_a_smaller_window_waits_for_what_the_larger_let_go() -> None:
    window = Window.of(Rate(3, W))
    window.take(3)
    for heard in (10, 20, 30):
        window.answered(heard)

    window.resize(Rate(1, W))

    assert window.free(500) == -2
    assert window.wait(500, 1) == 1_030 - 500
