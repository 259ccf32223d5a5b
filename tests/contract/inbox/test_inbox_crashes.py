"""A process may die while it handles an item: the crash is counted, and the item claimed again."""

import pytest

from contract.inbox.inbox_driver import InboxDriver, arrival, keys
from contract.inbox.inboxes import StoredInbox
from tidegate.inbound.inbox import SUSPECT_CRASHES

pytestmark = pytest.mark.parametrize("stored", ["sqlite", "redis"], indirect=True)  # memory dies with it


async def test_what_was_held_is_the_head_of_its_lane_again_with_one_crash_more(
    driver: InboxDriver, stored: StoredInbox
) -> None:
    await driver.accept("1", "2")
    await driver.inbox.release(await driver.claim_one(), failed=True)
    for crashes in range(3):
        held = await driver.claim_one()
        assert (held.item, held.attempts, held.crashes) == (arrival("1"), 1, crashes)
        await stored.crash(driver.clock)

    held = await driver.claim_one()

    assert held.crashes == 3
    await driver.inbox.done([held])
    [behind] = await driver.claim()
    assert (behind.item.key, behind.crashes) == ("2", 0)


async def test_what_was_not_held_has_no_crash(driver: InboxDriver, stored: StoredInbox) -> None:
    await driver.accept("held")
    await driver.claim_one()
    await driver.accept("back", lane="b")
    await driver.inbox.release(await driver.claim_one())
    await driver.accept("waits", lane="c")

    await stored.crash(driver.clock)

    found = {held.item.key: held.crashes for held in await driver.claim()}
    assert found == {"held": 1, "back": 0, "waits": 0}


async def test_only_so_many_suspects_are_given_and_others_pass_them(
    driver: InboxDriver, stored: StoredInbox
) -> None:
    for key in "abc":
        await driver.accept(key, lane=key)
    for _ in range(SUSPECT_CRASHES):
        assert len(await driver.claim(suspects=3)) == 3
        await stored.crash(driver.clock)
    await driver.accept("new", lane="new")

    first = await driver.claim(suspects=1)

    assert keys(first) == ["a", "new"]
    assert await driver.claim(suspects=0) == []
    await driver.inbox.done(first)
    assert keys(await driver.claim(suspects=2)) == ["b", "c"]


async def test_a_suspect_that_comes_back_is_still_one(driver: InboxDriver, stored: StoredInbox) -> None:
    await driver.accept("1")
    for _ in range(SUSPECT_CRASHES):
        await driver.claim()
        await stored.crash(driver.clock)

    await driver.inbox.release(await driver.claim_one(), after=5, failed=True)
    await driver.clock.sleep(6)

    assert await driver.claim(suspects=0) == []
    [held] = await driver.claim(suspects=1)
    assert (held.crashes, held.attempts) == (SUSPECT_CRASHES, 1)


async def test_one_that_is_replayed_is_no_suspect_any_more(driver: InboxDriver, stored: StoredInbox) -> None:
    await driver.accept("1")
    for _ in range(SUSPECT_CRASHES):
        await driver.claim()
        await stored.crash(driver.clock)
    held = await driver.claim_one()
    await driver.inbox.park(held, "no")

    await driver.inbox.replay(held.item.source, "1")

    [again] = await driver.claim(suspects=0)
    assert again.crashes == 0
