"""The next item, by numbers alone: suspects one at a time, and nothing kept of settled ones."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.inbound.inbox import SUSPECT_CRASHES, bot_source
from tidegate.inbound.inbox_lanes import InboxLane, InboxLanes, WaitingItem

BOT = bot_source(42)


def lane(name: str) -> InboxLane:
    return (BOT, name)


def take(lanes: InboxLanes, limit: int = 10, *, suspects: int = 1, now: float = 0.0) -> list[int]:
    return [waiting.number for _, waiting in lanes.take([BOT], limit, suspects, now)]


def filled(*crashes: int) -> InboxLanes:
    """A lane for each, named by its number."""
    lanes = InboxLanes()
    for number, count in enumerate(crashes, 1):
        lanes.add(lane(str(number)), WaitingItem(number, count))
    return lanes


def test_no_more_suspects_are_taken_than_allowed_and_others_pass_them() -> None:
    lanes = filled(SUSPECT_CRASHES, SUSPECT_CRASHES, 0, SUSPECT_CRASHES + 1, SUSPECT_CRASHES - 1)

    assert take(lanes, suspects=1) == [1, 3, 5]
    assert take(lanes, suspects=0) == []
    lanes.free(lane("1"), 1)
    assert take(lanes, suspects=2) == [2, 4]


def test_a_suspect_waits_for_its_place_by_arrival_too() -> None:
    assert take(filled(0, SUSPECT_CRASHES, 0), limit=2) == [1, 2]


def test_what_stands_behind_a_suspect_waits_with_it() -> None:
    lanes = filled(SUSPECT_CRASHES)
    lanes.add(lane("1"), WaitingItem(2))

    assert take(lanes, suspects=0) == []
    assert take(lanes, suspects=1) == [1]


def test_what_is_not_held_is_not_freed() -> None:
    lanes = filled(0)
    assert not lanes.free(lane("1"), 1)
    take(lanes)

    assert not lanes.free(lane("1"), 2)
    assert lanes.free(lane("1"), 1)
    assert not lanes.free(lane("1"), 1)


def test_one_that_waits_for_its_next_try_tells_when() -> None:
    lanes = filled(0)
    take(lanes)

    lanes.free(lane("1"), 1, WaitingItem(1, 0, not_before=30.0))

    assert lanes.next_at() == 30.0
    assert take(lanes, now=29.9) == []
    assert take(lanes, now=30.0) == [1]
    assert lanes.next_at() is None


def test_a_suspect_that_waits_for_its_next_try_is_a_suspect_after_it() -> None:
    lanes = filled(SUSPECT_CRASHES)
    take(lanes)
    lanes.free(lane("1"), 1, WaitingItem(1, SUSPECT_CRASHES, not_before=30.0))

    assert take(lanes, suspects=0, now=31.0) == []
    assert take(lanes, suspects=1, now=31.0) == [1]


@settings(max_examples=25)
@given(st.lists(st.sampled_from("abc"), max_size=15), st.randoms(use_true_random=False))
def test_nothing_is_left_when_everything_is_over(names: list[str], chance: Random) -> None:
    lanes, order = InboxLanes(), dict[str, list[int]]()
    for number, name in enumerate(names, 1):
        lanes.add(lane(name), WaitingItem(number))

    while found := lanes.take([BOT], 2, 1, 0.0):
        for held, waiting in found:
            back = chance.random() < 0.3
            if not back:
                order.setdefault(held[1], []).append(waiting.number)
            lanes.free(held, waiting.number, waiting if back else None)

    for name in "abc":
        assert order.get(name, []) == [number for number, at in enumerate(names, 1) if at == name]
    assert (lanes.waiting, lanes.claimed) == (0, 0)
    assert [left for left in vars(lanes).values() if left] in ([], [{BOT: []}])  # an empty heap for a source


def test_the_earliest_of_all_sources_that_are_asked_for_goes_first() -> None:
    lanes, other = InboxLanes(), bot_source(43)
    for number, source in enumerate((other, BOT, other), 1):
        lanes.add((source, str(number)), WaitingItem(number))
    assert (lanes.waiting, lanes.waiting_of(BOT), lanes.waiting_of(other)) == (3, 1, 2)

    found = lanes.take([BOT, other], 2, 1, 0.0)

    assert [waiting.number for _, waiting in found] == [1, 2]
    assert (lanes.waiting, lanes.waiting_of(BOT), lanes.waiting_of(other)) == (1, 0, 1)
    assert take(lanes) == []  # what is left is of another source
    lanes.free((other, "1"), 1, WaitingItem(1))
    assert (lanes.waiting, lanes.claimed, lanes.waiting_of(other)) == (2, 1, 2)


def test_a_lane_whose_item_is_claimed_offers_no_other() -> None:
    lanes = filled(0)
    take(lanes)

    lanes.add(lane("1"), WaitingItem(2))

    assert take(lanes) == []
    assert lanes.has_claimed(lane("1"), 1)
    assert not lanes.has_claimed(lane("1"), 2)
    lanes.free(lane("1"), 1)
    assert not lanes.has_claimed(lane("1"), 1)
    assert take(lanes) == [2]
