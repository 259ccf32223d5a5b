"""Flood control against the plain definition of a sliding window."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BadInputError
from tidegate.model import Rate
from tidegate.sim.sliding_window import SlidingWindow
from tidegate.sim.telegram.flood_control import Flood, FloodControl, Limits
from tidegate.sim.virtual_time import EPOCH

LOOSE = Rate(10**6, 1)
gaps = st.lists(st.tuples(st.integers(0, 2_000), st.integers(1, 4)), max_size=80)


def ms(milliseconds: int) -> float:
    return milliseconds / 1000


@given(gaps, st.integers(1, 6), st.integers(1, 3))
def test_no_window_ever_holds_more_than_its_count(
    arrivals: list[tuple[int, int]], count: int, seconds: int
) -> None:
    window = SlidingWindow(Rate(count, seconds))
    admitted: list[tuple[int, int]] = []  # in whole milliseconds, so that the check is exact
    now = 0
    for gap, cost in arrivals:
        now += gap
        held = sum(c for at, c in admitted if now - at < 1000 * seconds)
        fits = held + cost <= count or held == 0
        assert (window.wait(ms(now), cost) <= 1e-9) == fits
        if fits:
            window.add(ms(now), cost)
            admitted.append((now, cost))


@given(gaps, st.integers(1, 6))
def test_after_the_wait_it_names_a_call_fits(arrivals: list[tuple[int, int]], count: int) -> None:
    window = SlidingWindow(Rate(count, 1))
    now = 0.0
    for gap, cost in arrivals:
        now += ms(gap)
        now += window.wait(now, cost)
        assert window.wait(now + 1e-6, cost) == 0
        window.add(now + 1e-6, cost)
        now += 1e-6


def test_one_private_chat_gets_one_message_a_second() -> None:
    flood = FloodControl(Limits(burst=1, closes="nothing"))
    assert flood.admit(0.0, 42, 7, "private", "send") is None
    assert flood.admit(0.999, 42, 7, "private", "send") == Flood("private", 1)
    assert flood.admit(1.0, 42, 7, "private", "send") is None


def test_one_bot_gets_thirty_messages_a_second_whatever_the_chats() -> None:
    flood = FloodControl(Limits(burst=1, closes="nothing"))
    assert all(flood.admit(0.0, 42, chat, "private", "send") is None for chat in range(1, 31))
    assert flood.admit(0.5, 42, 31, "private", "send") == Flood("bot", 1)
    assert flood.admit(0.5, 43, 31, "private", "send") is None  # another bot
    assert flood.peaks == {"bot": 30, "private": 1}


@pytest.mark.parametrize("kind", ["group", "supergroup", "channel"])
def test_a_group_gets_twenty_messages_a_minute(kind: str) -> None:
    flood = FloodControl(Limits(burst=1, closes="nothing"))
    assert all(flood.admit(i, 42, -5, kind, "send") is None for i in range(20))
    assert flood.admit(20, 42, -5, kind, "send") == Flood(kind, 40)
    assert flood.admit(60, 42, -5, kind, "send") is None


def test_a_refused_call_takes_no_slot_in_the_limits_that_had_room() -> None:
    flood = FloodControl(Limits(burst=1, bot=Rate(2, 1), closes="nothing"))
    assert flood.admit(0.0, 42, 7, "private", "send") is None
    assert flood.admit(0.1, 42, 7, "private", "send") is not None
    assert flood.admit(0.2, 42, 8, "private", "send") is None


def test_refused_calls_count_where_that_is_the_hypothesis() -> None:
    flood = FloodControl(Limits(burst=1, private=Rate(1, 1), closes="nothing", counts_refused=True))
    assert flood.admit(0.0, 42, 7, "private", "send") is None
    assert flood.admit(0.9, 42, 7, "private", "send") is not None
    assert flood.admit(1.5, 42, 7, "private", "send") is not None  # the refused call of 0.9 is in the way


def test_an_album_takes_a_slot_for_each_item() -> None:
    flood = FloodControl(Limits(burst=1, closes="nothing"))
    assert flood.admit(0, 42, -5, "group", "send", cost=10) is None
    assert flood.admit(1, 42, -5, "group", "send", cost=10) is None
    assert flood.admit(2, 42, -5, "group", "send") == Flood("group", 58)


def test_an_album_larger_than_the_limit_needs_an_empty_window() -> None:
    flood = FloodControl(Limits(burst=1, closes="nothing"))
    assert flood.admit(0.0, 42, 7, "private", "send") is None
    assert flood.admit(0.5, 42, 7, "private", "send", cost=3) is not None
    assert flood.admit(1.0, 42, 7, "private", "send", cost=3) is None


def test_a_429_closes_its_chat_alone() -> None:
    flood = FloodControl(Limits(burst=1, closes="chat", private=Rate(2, 1)))
    for at in (0.0, 0.9):
        assert flood.admit(at, 42, 7, "private", "send") is None
    assert flood.admit(0.95, 42, 7, "private", "send") == Flood("private", 1)
    assert flood.admit(1.5, 42, 7, "private", "send") == Flood("chat_closed", 1)  # the window has room by now
    assert flood.admit(1.5, 42, 8, "private", "send") is None
    assert flood.admit(1.95, 42, 7, "private", "send") is None


def test_a_429_closes_the_whole_bot_where_that_is_the_hypothesis() -> None:
    flood = FloodControl(Limits(burst=1, closes="bot"))
    assert flood.admit(0.0, 42, 7, "private", "send") is None
    assert flood.admit(0.1, 42, 7, "private", "send") == Flood("private", 1)
    assert flood.admit(0.2, 42, 8, "private", "send") == Flood("bot_closed", 1)
    assert flood.admit(1.1, 42, 8, "private", "send") is None


def test_ignoring_a_closure_doubles_it() -> None:
    flood = FloodControl(Limits(burst=1, closes="chat", escalates=True))
    assert flood.admit(0.0, 42, 7, "private", "send") is None
    waits = [flood.admit(0.1 * i, 42, 7, "private", "send") for i in range(1, 5)]
    assert [flooded.retry_after for flooded in waits if flooded] == [1, 2, 4, 8]
    assert flood.admit(8.5, 42, 7, "private", "send") is None


def test_edits_share_the_budget_of_sends_or_have_their_own() -> None:
    shared = FloodControl(Limits(burst=1, closes="nothing"))
    apart = FloodControl(Limits(burst=1, closes="nothing", edit_budget="separate"))
    for flood, expected in ((shared, Flood("private", 1)), (apart, None)):
        assert flood.admit(0, 42, 7, "private", "send") is None
        assert flood.admit(0, 42, 7, "private", "edit") == expected


def test_typing_has_limits_of_its_own() -> None:
    flood = FloodControl(Limits(burst=1, closes="nothing"))
    assert flood.admit(0, 42, 7, "private", "send") is None
    assert all(flood.admit(0, 42, 7, "private", "action") is None for _ in range(20))
    assert flood.admit(0, 42, 7, "private", "action") == Flood("action", 5)
    assert all(flood.admit(5, 42, 7, "private", "action") is None for _ in range(20))
    assert flood.admit(10, 42, 7, "private", "action") == Flood("action", 20)  # 40 in 30 s


def test_typing_shares_the_budget_of_sends_where_that_is_the_hypothesis() -> None:
    flood = FloodControl(Limits(burst=1, closes="nothing", action_budget="shared"))
    assert flood.admit(0, 42, 7, "private", "send") is None
    assert flood.admit(0, 42, 7, "private", "action") == Flood("private", 1)


def test_a_paid_broadcast_goes_beyond_thirty_and_costs_stars() -> None:
    flood = FloodControl(Limits(burst=1, closes="nothing"))
    assert all(flood.admit(0, 42, chat, "private", "send", paid=True) is None for chat in range(1, 1001))
    assert flood.admit(0, 42, 1001, "private", "send", paid=True) == Flood("paid", 1)
    assert flood.stars == pytest.approx(97.0)


def test_windows_of_idle_chats_are_forgotten() -> None:
    flood = FloodControl(Limits(burst=1, bot=LOOSE))
    for chat in range(1, 100_001):
        assert flood.admit(chat / 1000, 42, chat, "private", "send") is None
    assert len(flood._windows) < 5_000  # noqa: SLF001  (the memory is what is under test)


def test_a_sweep_in_the_middle_of_a_call_loses_no_call() -> None:
    flood = FloodControl(Limits(burst=1, closes="nothing"))
    for chat in range(1, 999):
        assert flood.admit(chat / 20, 1, chat, "private", "send") is None
    admitted = [flood.admit(60.0, 2, chat, "private", "send") for chat in range(1, 41)].count(None)
    assert admitted == 30


class Swept(FloodControl):
    SWEEPS_FROM = 1


calls = st.lists(
    st.tuples(st.integers(0, 700), st.integers(1, 3), st.integers(1, 4), st.integers(1, 3)), max_size=120
)


@given(calls)
def test_flood_control_counts_as_defined_however_often_it_sweeps(
    made: list[tuple[int, int, int, int]],
) -> None:
    limits = Limits(burst=1, bot=Rate(4, 1), private=Rate(2, 2), closes="nothing")
    flood = Swept(limits)
    admitted: list[tuple[int, int, int, int]] = []  # in whole milliseconds, so that the check is exact
    now = 0
    for gap, bot, chat, cost in made:
        now += gap
        of_bot = sum(c for at, b, _, c in admitted if b == bot and now - at < 1000)
        of_chat = sum(c for at, b, to, c in admitted if (b, to) == (bot, chat) and now - at < 2000)
        fits = all(held == 0 or held + cost <= most for held, most in ((of_bot, 4), (of_chat, 2)))
        assert (flood.admit(exact(now), bot, chat, "private", "send", cost=cost) is None) == fits
        if fits:
            admitted.append((now, bot, chat, cost))


def exact(milliseconds: int) -> float:
    """The same order of instants and windows, in numbers that floats hold exactly."""
    seconds, rest = divmod(milliseconds, 1000)
    return seconds + rest / 1024


@pytest.mark.parametrize("start", [0.0, EPOCH, EPOCH + 0.1])
@given(st.integers(1, 50_000), st.integers(0, 10**6))
def test_a_window_of_a_fraction_of_a_second_ends_at_one_instant(
    start: float, width: int, offset: int
) -> None:
    seconds, first = width / 1000, start + offset / 1000
    end = first + seconds
    window = SlidingWindow(Rate(1, seconds))
    window.add(first, 1)
    assert window.wait(math.nextafter(end, 0), 1) > 0
    assert window.wait(end, 1) == 0
    assert window.add(end, 1) == 1  # the first has left


def test_new_limits_empty_the_windows_and_keep_what_was_counted() -> None:
    flood = FloodControl(Limits())
    for chat in range(1, 40):
        flood.admit(0, 42, chat, "private", "send", paid=True)
    flood.change(Limits(burst=1, private=Rate(2, 1)))
    assert flood.peaks == {"paid": 39, "private": 1}
    assert flood.stars == pytest.approx(0.9)
    assert flood.admit(0, 42, 1, "private", "send") is None


@pytest.mark.parametrize("share", [7, -0.1, float("nan")])
def test_a_share_of_hidden_floods_that_cannot_be_is_refused(share: float) -> None:
    with pytest.raises(BadInputError, match="between 0 and 1"):
        Limits(burst=1, hidden_floods=share)


def test_nothing_escalates_where_nothing_is_closed() -> None:
    with pytest.raises(BadInputError, match="set closes to chat or bot"):
        Limits(burst=1, closes="nothing", escalates=True)
