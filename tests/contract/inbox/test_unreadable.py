"""An item whose bytes cannot be decoded is parked alone, and the others are handled."""

import random
from collections.abc import Callable

import pytest

from contract.inbox.inbox_driver import BOT, InboxDriver
from contract.inbox.inboxes import StoredInbox
from tidegate.errors import BadInputError
from tidegate.inbound.dispatcher import InboxDispatcher, RegisteredHandler
from tidegate.inbound.inbox import UNREADABLE, ClaimedItem, InboxItem
from tidegate.inbound.updates import decode_update
from tidegate.sim.virtual_time import VirtualClock

CUT: Callable[[bytes], bytes] = lambda body: body[: len(body) // 2]  # noqa: E731


def update(number: int, lane: str) -> InboxItem:
    return InboxItem(BOT, str(number), lane, b'{"update_id": %d, "message": {"text": "hello"}}' % number)


async def handle_for(clock: VirtualClock, stored: StoredInbox, seconds: float) -> list[int]:
    """Dispatch for so long, as a bot does; return the numbers of the updates that were handled."""
    handled: list[int] = []

    async def handle(claimed: ClaimedItem) -> None:
        handled.append(decode_update(claimed.item.body)["update_id"])

    dispatcher = InboxDispatcher(stored.inbox, clock, {BOT: RegisteredHandler(handle, attempts=3)})
    await dispatcher.start()
    await clock.sleep(seconds)
    await dispatcher.stop(0)
    await stored.inbox.open()
    return handled


async def test_one_damaged_update_is_parked_as_unreadable_and_the_others_are_handled(
    driver: InboxDriver, stored: StoredInbox
) -> None:
    await driver.inbox.accept([update(1, "a"), update(2, "a"), update(3, "a"), update(4, "b")])
    await stored.damage(2, CUT)

    assert sorted(await handle_for(driver.clock, stored, 5)) == [1, 3, 4]

    [parked] = await driver.inbox.parked()
    assert parked.is_unreadable
    assert parked.reason.startswith(UNREADABLE)
    assert b"update_id" in parked.item.body  # what is left of it
    assert await driver.counts() == (0, 0, 1)


async def test_an_unreadable_update_is_not_replayed_but_can_be_dropped(
    driver: InboxDriver, stored: StoredInbox
) -> None:
    await driver.inbox.accept([update(1, "a")])
    await stored.damage(1, CUT)
    await handle_for(driver.clock, stored, 5)
    [parked] = await driver.inbox.parked(BOT)

    with pytest.raises(BadInputError, match="cannot be read"):
        await driver.inbox.replay(BOT, parked.item.key)

    assert await driver.counts() == (0, 0, 1)
    assert await driver.inbox.drop(BOT, parked.item.key)
    assert await driver.counts() == (0, 0, 0)


async def test_a_parked_item_that_is_damaged_later_is_listed_and_dropped(
    driver: InboxDriver, stored: StoredInbox
) -> None:
    if not stored.own_time:
        pytest.skip("the other inboxes keep a parked item in columns of its own")
    await driver.inbox.accept([update(1, "a"), update(2, "b")])
    for held in await driver.claim():
        await driver.inbox.park(held, "no such town")
    await stored.damage(1, CUT)

    newest, oldest = await driver.inbox.parked()

    assert (newest.item, newest.reason) == (update(2, "b"), "no such town")
    assert (oldest.item.source, oldest.item.key, oldest.is_unreadable) == (BOT, "1", True)
    assert "no such town" in oldest.reason
    assert await driver.inbox.drop(BOT, "1")


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_bytes_are_flipped_every_other_update_is_handled(
    driver: InboxDriver, stored: StoredInbox, seed: int
) -> None:
    chance = random.Random(seed)
    await driver.inbox.accept([update(number, str(number % 5)) for number in range(1, 31)])
    damaged = chance.sample(range(1, 31), 10)
    for number in damaged:
        await stored.damage(number, lambda body: flip(body, chance))

    handled = await handle_for(driver.clock, stored, 30)

    assert set(range(1, 31)) - set(damaged) <= set(handled)
    waiting, handling, parked = await driver.counts()
    assert (waiting, handling) == (0, 0)
    assert len(handled) + parked == 30
    assert len(await driver.inbox.parked()) == parked


def flip(body: bytes, chance: random.Random) -> bytes:
    changed = bytearray(body)
    for place in chance.sample(range(len(body)), chance.randint(1, 4)):
        changed[place] ^= chance.randint(1, 255)
    return bytes(changed)
