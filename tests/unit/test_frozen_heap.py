"""What exists when a gate begins to deliver is kept out of garbage collections, and let go in the end."""

import gc

import pytest

from tidegate import Tidegate
from tidegate.frozen_heap import NEW_OBJECTS, FrozenHeap, rare_searches

pytestmark = pytest.mark.usefixtures("unfrozen_heap")


def test_the_last_of_several_holders_lets_go() -> None:
    heap = FrozenHeap()
    heap.hold()
    heap.hold()
    heap.release()
    assert gc.get_freeze_count() > 0
    heap.release()
    assert gc.get_freeze_count() == 0


def test_what_was_made_since_then_can_be_added_while_it_is_held() -> None:
    heap = FrozenHeap()
    heap.add()
    assert gc.get_freeze_count() == 0
    heap.hold()
    before = gc.get_freeze_count()
    made = [[number] for number in range(1_000)]
    heap.add()
    assert gc.get_freeze_count() >= before + len(made)
    heap.release()


def test_what_the_application_has_frozen_itself_stays_frozen() -> None:
    gc.freeze()
    heap = FrozenHeap()
    heap.hold()
    heap.release()
    assert gc.get_freeze_count() > 0


def test_garbage_that_is_made_while_it_is_held_is_collected() -> None:
    heap = FrozenHeap()
    heap.hold()
    cycle: list[object] = []
    cycle.append(cycle)
    del cycle
    assert gc.collect() >= 1
    heap.release()


def test_new_objects_are_searched_more_rarely_while_a_server_runs() -> None:
    before = gc.get_threshold()
    with rare_searches():
        with rare_searches():  # of a second server in the process
            pass
        assert gc.get_threshold() == (NEW_OBJECTS, *before[1:])
    assert gc.get_threshold() == before


@pytest.mark.parametrize("own", [(0, 10, 10), (50_000, 20, 100)])
def test_a_threshold_of_the_application_stays(own: tuple[int, int, int]) -> None:
    before = gc.get_threshold()
    try:
        gc.set_threshold(*own)
        with rare_searches():
            assert gc.get_threshold() == own
        gc.set_threshold(*before)
        with rare_searches():
            gc.set_threshold(*own)
        assert gc.get_threshold() == own
    finally:
        gc.set_threshold(*before)


async def test_a_gate_that_delivers_leaves_the_threshold_of_the_bot_alone() -> None:
    before = gc.get_threshold()
    async with Tidegate("memory://") as gate, gate.worker():
        assert gc.get_threshold() == before


async def test_a_gate_that_delivers_holds_it_until_it_stops() -> None:
    async with Tidegate("memory://") as gate:
        assert gc.get_freeze_count() == 0
        async with gate.worker():
            assert gc.get_freeze_count() > 0
        assert gc.get_freeze_count() == 0


async def test_a_setting_switches_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_GC_FREEZE", "0")
    async with Tidegate("memory://") as gate, gate.worker():
        assert gc.get_freeze_count() == 0
