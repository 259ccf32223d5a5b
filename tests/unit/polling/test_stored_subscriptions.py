"""Stored subscriptions when processes end, files are copied, and Redis forgets."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from contract.inline_redis import InlineConnection
from contract.stores import redis_url
from contract.subscribers import everyone, keys, news, order
from restarts import in_thread
from tidegate.clock import Clock
from tidegate.polling.subscriptions import News, Subscriptions, pack_news, pack_subscription
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.redis.connection import Argument
from tidegate.stores.redis.scripts import Script
from tidegate.stores.redis.subscriptions import RawSubscription, RedisSubscriptions
from tidegate.stores.sqlite.backups import back_up, park_all, ready_copy, replace_store
from tidegate.stores.sqlite.file import StoreFile
from tidegate.stores.sqlite.subscriptions import SqliteSubscriptions

PAID = {"Paid": True}
STATES = [("waits", False, None), ("to be told", False, News("to be told", PAID)), ("watched", True, None)]


@asynccontextmanager
async def in_file(path: Path, clock: Clock) -> AsyncIterator[SqliteSubscriptions]:
    file = StoreFile(path)
    await file.open()
    yield SqliteSubscriptions(file, clock, "orders")
    await file.close()


async def fill(kept: Subscriptions) -> int:
    """One in each state; returns the last number."""
    await kept.add([order(key, chat=7) for key, *_ in STATES])
    await kept.note_news(news("to be told", "watched", value=PAID))
    await kept.settle_news(["watched"], "watch")
    await kept.save_watermark("2026-01-05")
    return (await kept.after(0))[-1].number


async def test_a_file_that_is_opened_again_has_everybody_in_his_state(
    tmp_path: Path, clock: VirtualClock
) -> None:
    async with in_file(tmp_path / "store.db", clock) as kept:
        last = await fill(kept)
        await kept.remove(["watched"])
        await kept.add([order("watched")])
        await kept.remove(["watched"])

    async with in_file(tmp_path / "store.db", clock) as kept:
        assert await everyone(kept) == STATES[:2]
        assert (await kept.after(0))[0].subscription == order("waits", chat=7)
        assert await kept.watermark() == "2026-01-05"
        assert await kept.note_news(news("to be told")) == []
        await kept.add([order("new")])
        assert (await kept.after(0))[-1].number > last + 1


async def test_who_died_while_it_polled_has_the_lease_until_it_is_over(
    tmp_path: Path, clock: VirtualClock
) -> None:
    async with in_file(tmp_path / "store.db", clock) as kept:
        assert await kept.leases.lease(kept.name, 10)

    async with in_file(tmp_path / "store.db", clock) as kept:
        assert not await kept.leases.lease(kept.name, 10)
        await clock.sleep(10)
        assert await kept.leases.lease(kept.name, 10)


async def test_two_processes_share_the_subscriptions_of_a_file(tmp_path: Path, clock: VirtualClock) -> None:
    async with in_file(tmp_path / "store.db", clock) as here, in_file(tmp_path / "store.db", clock) as there:
        await here.add([order("a"), order("b")])
        assert keys(await there.after(0)) == ["a", "b"]
        assert keys(await there.note_news(news("a"))) == ["a"]
        assert keys(await here.note_news(news("a", "b"))) == ["b"]
        assert await there.leases.lease(there.name, 10)
        assert not await here.leases.lease(here.name, 10)


@pytest.mark.parametrize("park", [False, True])
async def test_a_backup_has_them_and_a_restore_brings_them_back(
    tmp_path: Path, clock: VirtualClock, *, park: bool
) -> None:
    store, backup, place = (tmp_path / name for name in ("store.db", "backup.db", "place.db"))
    async with in_file(store, clock) as kept:
        await fill(kept)
        await in_thread(back_up, store, backup)

    await in_thread(restore, backup, place, park)

    async with in_file(place, clock) as kept:
        assert await everyone(kept) == STATES
        assert await kept.watermark() == "2026-01-05"


def restore(backup: Path, place: Path, park: bool) -> None:  # noqa: FBT001  (in a thread)
    with ready_copy(backup, place) as draft:
        if park:
            park_all(draft, now=1_000.0)
        replace_store(draft, place)


class OwnTime(InlineConnection):
    """Redis is not told the time, as by processes whose clocks may differ."""

    async def _evaluate(self, script: Script, keys: Sequence[str], *args: Argument) -> Any:  # noqa: ANN401
        asked = (script.source, len(keys), *keys, "", *args)
        return await self._inline(self._redis.execute_command, "EVAL", *asked)


@pytest.fixture
async def link(clock: VirtualClock) -> AsyncIterator[OwnTime]:
    link = OwnTime(redis_url(), clock)
    yield link
    await link.close()


async def test_redis_counts_by_its_own_clock(link: OwnTime, clock: VirtualClock) -> None:
    kept, other = (RedisSubscriptions(link, clock, "orders") for _ in range(2))
    await fill(kept)

    assert await everyone(kept) == STATES
    assert await kept.leases.lease(kept.name, 3_600)
    clock.epoch += 100_000  # of this machine
    assert not await other.leases.lease(other.name, 3_600)
    assert await kept.leases.lease(kept.name, 3_600)


async def test_a_redis_that_forgot_its_last_second_gives_no_number_twice(
    link: OwnTime, clock: VirtualClock
) -> None:
    """Else who has read up to there would never see whom they were given to."""
    kept = RedisSubscriptions(link, clock, "orders")
    last = await fill(kept)
    for part in ("meta", "numbers", "bodies", "met", "news"):
        await link.command("DEL", link.key(f"polling:orders:{part}"))

    await kept.add([order("new")])

    assert keys(await kept.after(last)) == ["new"]


async def test_nothing_is_left_in_redis_of_whom_was_forgotten(link: OwnTime, clock: VirtualClock) -> None:
    kept = RedisSubscriptions(link, clock, "orders")
    await fill(kept)
    await kept.note_news(news("watched", kind="gone"))
    await kept.settle_news(["to be told", "watched"], "forget")
    await kept.remove(["waits"])
    await kept.leases.lease(kept.name, 10)
    await kept.leases.give_back(kept.name)

    found = await in_thread(keys_like, link.key("polling:*"))

    assert found == [link.key("polling:orders:meta")]


def keys_like(pattern: str) -> list[str]:
    with Redis.from_url(redis_url()) as redis:
        return sorted(key.decode() for key in redis.scan_iter(pattern))


async def test_those_that_are_brought_keep_their_states_and_whoever_is_there_stays(
    link: OwnTime, tmp_path: Path, clock: VirtualClock
) -> None:
    there = RedisSubscriptions(link, clock, "orders")
    await there.add([order("waits", chat=8)])
    async with in_file(tmp_path / "store.db", clock) as kept:
        await fill(kept)
        found = [
            RawSubscription(
                one.subscription.key,
                pack_subscription(one.subscription),
                int(one.met),
                b"" if one.news is None else pack_news(one.news),
            )
            for one in await kept.after(0)
        ]

    assert await there.bring(found) == 2
    assert await there.bring(found) == 0

    assert await everyone(there) == STATES
    assert (await there.after(0))[0].subscription == order("waits", chat=8)
