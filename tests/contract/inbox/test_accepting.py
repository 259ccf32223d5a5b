"""An item is accepted once and recognised later; of a batch all items are accepted, or none."""

import asyncio

import msgspec
import pytest

from contract.inbox.inbox_driver import BOT, OTHER_BOT, InboxDriver, arrival, keys, set_bound
from contract.inbox.inboxes import StoredInbox
from tidegate.errors import StoreFullError
from tidegate.inbound.inbox import DEDUP_SECONDS


async def test_what_was_accepted_is_claimed_as_it_came(driver: InboxDriver) -> None:
    assert await driver.accept("1") == [True]
    arrived_at = driver.clock.now()
    await driver.clock.sleep(3)

    [held] = await driver.claim()

    assert held.item == arrival("1")
    assert held.arrived_at == pytest.approx(arrived_at)
    assert (held.attempts, held.crashes) == (0, 0)


async def test_what_comes_again_while_it_waits_is_known(driver: InboxDriver) -> None:
    await driver.accept("1")

    assert await driver.accept("1", "2") == [False, True]

    assert await driver.handle_all() == ["1", "2"]


async def test_what_comes_twice_in_one_batch_is_taken_once(driver: InboxDriver) -> None:
    assert await driver.accept("1", "1", "2") == [True, False, True]

    assert await driver.handle_all() == ["1", "2"]


async def test_what_comes_again_while_it_is_handled_is_known(driver: InboxDriver) -> None:
    await driver.accept("1")
    await driver.claim_one()

    assert await driver.accept("1") == [False]


async def test_what_comes_again_after_it_was_handled_is_known(
    driver: InboxDriver, stored: StoredInbox
) -> None:
    await driver.accept("1")
    await driver.handle_all()

    await driver.clock.sleep(60 if stored.own_time else DEDUP_SECONDS - 10)

    assert await driver.accept("1") == [False]
    assert await driver.claim() == []


async def test_what_comes_again_after_it_was_parked_is_known(driver: InboxDriver) -> None:
    await driver.accept("1")
    await driver.inbox.park(await driver.claim_one(), "no")

    assert await driver.accept("1") == [False]


async def test_what_comes_again_after_it_was_dropped_is_known(driver: InboxDriver) -> None:
    await driver.accept("1")
    await driver.inbox.park(await driver.claim_one(), "no")
    await driver.inbox.drop(BOT, "1")

    assert await driver.accept("1") == [False]


@pytest.mark.parametrize("stored", ["memory", "sqlite"], indirect=True)  # Redis forgets by its own clock
async def test_an_event_is_not_remembered_for_ever(driver: InboxDriver) -> None:
    await driver.accept("event")
    await driver.handle_all()

    await driver.clock.sleep(2 * DEDUP_SECONDS + 10)

    assert await driver.accept("event") == [True]
    assert await driver.handle_all() == ["event"]


async def test_the_same_key_of_another_source_is_another_arrival(driver: InboxDriver) -> None:
    await driver.accept("1")

    assert await driver.accept("1", source=OTHER_BOT) == [True]

    held = await driver.claim(sources=[BOT, OTHER_BOT])
    assert [one.item.source for one in held] == [BOT, OTHER_BOT]


async def test_many_that_accept_at_once_each_learn_of_their_own(driver: InboxDriver) -> None:
    answers = await asyncio.gather(*(driver.accept(str(n // 2), lane=str(n // 2)) for n in range(40)))

    assert sorted(answers) == [[False]] * 20 + [[True]] * 20
    assert sorted(await driver.handle_all(), key=int) == [str(n) for n in range(20)]


async def test_nothing_is_nothing(driver: InboxDriver) -> None:
    assert await driver.accept() == []
    await driver.inbox.done([])
    assert await driver.counts() == (0, 0, 0)


async def test_a_body_of_any_bytes_and_a_key_of_any_text_come_back(driver: InboxDriver) -> None:
    strange = arrival("evt_ü:1\n\x00'\"", "lane : \x00 {}")
    await driver.inbox.accept([strange])

    held = await driver.claim_one()

    assert held.item == strange
    await driver.inbox.done([held])
    assert await driver.inbox.accept([strange]) == [False]


async def test_a_full_inbox_takes_all_of_a_batch_or_none(
    driver: InboxDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bound(monkeypatch, "MAX_WAITING_ITEMS", 3)
    await driver.accept("1", "2")

    with pytest.raises(StoreFullError):
        await driver.accept("3", "4")

    assert await driver.accept("3") == [True]
    assert await driver.handle_all() == ["1", "2", "3"]


async def test_a_full_inbox_knows_again_what_it_has(
    driver: InboxDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bound(monkeypatch, "MAX_WAITING_ITEMS", 2)
    await driver.accept("1", "2")

    assert await driver.accept("1", "2") == [False, False]


async def test_a_full_inbox_has_room_again_when_some_were_claimed(
    driver: InboxDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bound(monkeypatch, "MAX_WAITING_ITEMS", 2)
    await driver.accept("1", "2")
    with pytest.raises(StoreFullError):
        await driver.accept("3")

    [held] = await driver.claim()

    assert await driver.accept("3") == [True]
    await driver.inbox.done([held])
    assert await driver.handle_all() == ["2", "3"]


async def test_one_that_does_not_fit_does_not_spoil_others_of_the_same_instant(
    driver: InboxDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bound(monkeypatch, "MAX_WAITING_ITEMS", 3)

    answers = await asyncio.gather(
        driver.accept("1"), driver.accept("2", "3", "4"), driver.accept("5"), return_exceptions=True
    )

    assert [type(answer) for answer in answers] == [list, StoreFullError, list]
    assert keys(await driver.claim()) == ["1"]
    assert await driver.counts() == (1, 1, 0)


async def test_a_flood_to_one_bot_takes_no_room_of_another(
    driver: InboxDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bound(monkeypatch, "MAX_WAITING_ITEMS", 2)
    await driver.accept("1", "2")

    assert await driver.accept("1", "2", source=OTHER_BOT) == [True, True]
    assert [await driver.inbox.waiting(bot) for bot in (BOT, OTHER_BOT)] == [2, 2]

    with pytest.raises(StoreFullError, match="of bot 42 wait"):
        await driver.accept("3")
    assert await driver.handle_all() == ["1", "2"]
    with pytest.raises(StoreFullError, match="of bot 43 wait"):
        await driver.accept("3", source=OTHER_BOT)
    assert await driver.accept("3", "4") == [True, True]


async def test_the_length_of_a_lane_counts_what_waits_and_what_is_handled(driver: InboxDriver) -> None:
    await driver.accept("1", "2", "3")
    await driver.accept("1", source=OTHER_BOT)
    first = await driver.claim_one()
    assert await driver.inbox.lane_length(first.item) == 3
    await driver.inbox.done([first])
    assert await driver.inbox.lane_length(first.item) == 2
    other = msgspec.structs.replace(first.item, lane=first.item.lane + "9")
    assert await driver.inbox.lane_length(other) == 0


async def test_updates_of_a_bot_whose_others_are_handled_take_their_room(
    driver: InboxDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bound(monkeypatch, "MAX_WAITING_ITEMS", 3)
    await driver.accept("1", "2", source=OTHER_BOT)
    await driver.accept("1", "2")
    await driver.claim_one()  # of the first bot, which makes room for nobody else
    assert [await driver.inbox.waiting(bot) for bot in (BOT, OTHER_BOT)] == [1, 2]

    assert await driver.accept("3", "4") == [True, True]
    with pytest.raises(StoreFullError):
        await driver.accept("3", "4", source=OTHER_BOT)


async def test_a_batch_of_two_bots_is_refused_whole_if_one_of_them_is_full(
    driver: InboxDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bound(monkeypatch, "MAX_WAITING_ITEMS", 2)
    await driver.accept("1", "2")

    with pytest.raises(StoreFullError):
        await driver.inbox.accept([arrival("1", source=OTHER_BOT), arrival("3")])

    assert await driver.accept("1", source=OTHER_BOT) == [True]
