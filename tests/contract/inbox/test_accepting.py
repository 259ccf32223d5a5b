"""What comes in is held once: known again whatever became of it, all of a batch or none."""

import asyncio

import pytest

from contract.inbox.inboxes import House
from contract.inbox.porch import BOT, OTHER_BOT, Porch, arrival, keys, set_bound
from tidegate.errors import StoreFullError
from tidegate.inbound.inbox import DEDUP_SECONDS


async def test_what_was_accepted_is_claimed_as_it_came(porch: Porch) -> None:
    assert await porch.accept("1") == [True]
    arrived_at = porch.clock.now()
    await porch.clock.sleep(3)

    [held] = await porch.claim()

    assert held.arrival == arrival("1")
    assert held.arrived_at == pytest.approx(arrived_at)
    assert (held.attempts, held.crashes) == (0, 0)


async def test_what_comes_again_while_it_waits_is_known(porch: Porch) -> None:
    await porch.accept("1")

    assert await porch.accept("1", "2") == [False, True]

    assert await porch.handle_all() == ["1", "2"]


async def test_what_comes_twice_in_one_batch_is_taken_once(porch: Porch) -> None:
    assert await porch.accept("1", "1", "2") == [True, False, True]

    assert await porch.handle_all() == ["1", "2"]


async def test_what_comes_again_while_it_is_handled_is_known(porch: Porch) -> None:
    await porch.accept("1")
    await porch.claim_one()

    assert await porch.accept("1") == [False]


async def test_what_comes_again_after_it_was_handled_is_known(porch: Porch, house: House) -> None:
    await porch.accept("1")
    await porch.handle_all()

    await porch.clock.sleep(60 if house.own_time else DEDUP_SECONDS - 10)

    assert await porch.accept("1") == [False]
    assert await porch.claim() == []


async def test_what_comes_again_after_it_was_parked_is_known(porch: Porch) -> None:
    await porch.accept("1")
    await porch.inbox.park(await porch.claim_one(), "no")

    assert await porch.accept("1") == [False]


async def test_what_comes_again_after_it_was_dropped_is_known(porch: Porch) -> None:
    await porch.accept("1")
    await porch.inbox.park(await porch.claim_one(), "no")
    await porch.inbox.drop(BOT, "1")

    assert await porch.accept("1") == [False]


@pytest.mark.parametrize("house", ["memory", "sqlite"], indirect=True)  # Redis forgets by its own clock
async def test_an_event_is_not_remembered_for_ever(porch: Porch) -> None:
    await porch.accept("event")
    await porch.handle_all()

    await porch.clock.sleep(2 * DEDUP_SECONDS + 10)

    assert await porch.accept("event") == [True]
    assert await porch.handle_all() == ["event"]


async def test_the_same_key_of_another_source_is_another_arrival(porch: Porch) -> None:
    await porch.accept("1")

    assert await porch.accept("1", source=OTHER_BOT) == [True]

    held = await porch.claim(sources=[BOT, OTHER_BOT])
    assert [one.arrival.source for one in held] == [BOT, OTHER_BOT]


async def test_many_that_accept_at_once_each_learn_of_their_own(porch: Porch) -> None:
    answers = await asyncio.gather(*(porch.accept(str(n // 2), lane=str(n // 2)) for n in range(40)))

    assert sorted(answers) == [[False]] * 20 + [[True]] * 20
    assert sorted(await porch.handle_all(), key=int) == [str(n) for n in range(20)]


async def test_nothing_is_nothing(porch: Porch) -> None:
    assert await porch.accept() == []
    await porch.inbox.done([])
    assert await porch.counts() == (0, 0, 0)


async def test_a_body_of_any_bytes_and_a_key_of_any_text_come_back(porch: Porch) -> None:
    strange = arrival("evt_ü:1\n\x00'\"", "lane : \x00 {}")
    await porch.inbox.accept([strange])

    held = await porch.claim_one()

    assert held.arrival == strange
    await porch.inbox.done([held])
    assert await porch.inbox.accept([strange]) == [False]


# --- full ---


async def test_a_full_inbox_takes_all_of_a_batch_or_none(
    porch: Porch, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bound(monkeypatch, "MAX_WAITING_ITEMS", 3)
    await porch.accept("1", "2")

    with pytest.raises(StoreFullError):
        await porch.accept("3", "4")

    assert await porch.accept("3") == [True]
    assert await porch.handle_all() == ["1", "2", "3"]


async def test_a_full_inbox_knows_again_what_it_has(porch: Porch, monkeypatch: pytest.MonkeyPatch) -> None:
    set_bound(monkeypatch, "MAX_WAITING_ITEMS", 2)
    await porch.accept("1", "2")

    assert await porch.accept("1", "2") == [False, False]


async def test_a_full_inbox_has_room_again_when_some_were_claimed(
    porch: Porch, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bound(monkeypatch, "MAX_WAITING_ITEMS", 2)
    await porch.accept("1", "2")
    with pytest.raises(StoreFullError):
        await porch.accept("3")

    [held] = await porch.claim()

    assert await porch.accept("3") == [True]
    await porch.inbox.done([held])
    assert await porch.handle_all() == ["2", "3"]


async def test_one_that_does_not_fit_does_not_spoil_others_of_the_same_instant(
    porch: Porch, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bound(monkeypatch, "MAX_WAITING_ITEMS", 3)

    answers = await asyncio.gather(
        porch.accept("1"), porch.accept("2", "3", "4"), porch.accept("5"), return_exceptions=True
    )

    assert [type(answer) for answer in answers] == [list, StoreFullError, list]
    assert keys(await porch.claim()) == ["1"]
    assert await porch.counts() == (1, 1, 0)
