"""One lane in order, lanes side by side, the earliest first."""

from contract.inbox.inbox_driver import BOT, OTHER_BOT, InboxDriver, arrival, keys


async def test_one_of_a_lane_is_held_at_a_time(driver: InboxDriver) -> None:
    await driver.accept("1", "2")

    first = await driver.claim()

    assert keys(first) == ["1"]
    assert await driver.claim() == []
    await driver.inbox.done(first)
    assert keys(await driver.claim()) == ["2"]


async def test_a_lane_is_handled_in_the_order_of_arrival(driver: InboxDriver) -> None:
    await driver.accept("9", "10", "2")  # by arrival, not by key
    await driver.accept("1")

    assert await driver.handle_all() == ["9", "10", "2", "1"]


async def test_lanes_are_handled_side_by_side(driver: InboxDriver) -> None:
    for key in range(6):
        await driver.accept(str(key), lane=str(key % 3))

    assert keys(await driver.claim()) == ["0", "1", "2"]


async def test_a_slow_lane_holds_up_no_other(driver: InboxDriver) -> None:
    await driver.accept("slow", "behind it", lane="slow")
    await driver.claim_one()
    await driver.accept("1", "2", lane="quick")

    assert await driver.handle_all() == ["1", "2"]


async def test_of_free_lanes_the_one_that_came_earliest_is_first(driver: InboxDriver) -> None:
    await driver.accept("1", "2", lane="a")
    await driver.accept("3", lane="b")
    await driver.accept("4", lane="c")

    first = await driver.claim(1)
    await driver.inbox.done(first)

    assert keys(await driver.claim(2)) == ["2", "3"]


async def test_no_more_are_given_than_asked_for(driver: InboxDriver) -> None:
    for key in "abcde":
        await driver.accept(key, lane=key)

    assert keys(await driver.claim(2)) == ["a", "b"]
    assert await driver.claim(0) == []
    assert keys(await driver.claim(10)) == ["c", "d", "e"]


async def test_only_sources_that_are_asked_for_are_given(driver: InboxDriver) -> None:
    await driver.accept("1", source=OTHER_BOT)
    await driver.accept("2", source=BOT)

    assert await driver.claim(sources=[]) == []
    assert keys(await driver.claim(sources=[BOT])) == ["2"]
    assert keys(await driver.claim(sources=[BOT, OTHER_BOT])) == ["1"]


async def test_lanes_of_one_name_of_two_sources_are_two(driver: InboxDriver) -> None:
    await driver.accept("1", lane="7", source=BOT)
    await driver.accept("2", lane="7", source=OTHER_BOT)
    await driver.accept("3", lane="7", source=BOT)

    held = await driver.claim(sources=[OTHER_BOT, BOT])

    assert keys(held) == ["1", "2"]
    await driver.inbox.done(held[1:])
    assert await driver.claim(sources=[OTHER_BOT, BOT]) == []
    await driver.inbox.done(held[:1])
    assert keys(await driver.claim(sources=[OTHER_BOT, BOT])) == ["3"]


async def test_a_thousand_of_many_lanes_come_out_in_order(driver: InboxDriver) -> None:
    for start in range(0, 1_000, 100):
        await driver.inbox.accept([arrival(str(n), str(n % 30)) for n in range(start, start + 100)])

    order = await driver.handle_all()

    assert len(order) == len(set(order)) == 1_000
    for lane in range(30):
        mine = [int(key) for key in order if int(key) % 30 == lane]
        assert mine == sorted(mine)
