import asyncio

import pytest

from tidegate.errors import StoreAwayError
from tidegate.store_opener import StoreOpener


class CountedStore:
    def __init__(self) -> None:
        self.opened = self.closed = 0
        self.is_away = False

    async def open(self) -> None:
        await asyncio.sleep(0)  # noqa: TID251  (lets the others go)
        if self.is_away:
            raise StoreAwayError("away")
        self.opened += 1

    async def close(self) -> None:
        self.closed += 1


async def no_tables() -> bool:
    return False


async def test_tasks_that_ask_at_the_same_time_open_a_store_once() -> None:
    store = CountedStore()
    opener = StoreOpener(lambda: store, no_tables)
    assert await asyncio.gather(*(opener.opened() for _ in range(3))) == [store] * 3
    assert store.opened == 1


async def test_a_store_that_could_not_be_opened_is_tried_again() -> None:
    store = CountedStore()
    opener = StoreOpener(lambda: store, no_tables)
    store.is_away = True
    with pytest.raises(StoreAwayError):
        await opener.opened()
    assert not opener.is_open
    store.is_away = False
    assert await opener.opened() is store


async def test_a_store_that_is_open_may_hold_rows_until_it_is_closed() -> None:
    store = CountedStore()
    opener = StoreOpener(lambda: store, no_tables)
    assert not await opener.may_hold_rows()
    await opener.opened()
    assert await opener.may_hold_rows()
    await opener.close()
    await opener.close()
    assert (store.closed, await opener.may_hold_rows()) == (1, False)
