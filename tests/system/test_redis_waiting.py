"""How a process waits for Redis, and what it takes for an address."""

import asyncio

import pytest

from tidegate.clock import Clock
from tidegate.errors import BadInputError
from tidegate.model import BotId
from tidegate.stores.redis.connection import RedisPyConnection
from tidegate.stores.redis.outbox import RedisOutbox

FAR_LESS = 0.7  # seconds: by Redis's own time-outs, ten waits would take one


async def test_short_waits_end_in_time_though_redis_ends_a_blocking_pop_late(redis_url: str) -> None:
    clock = Clock()
    outbox = RedisOutbox(RedisPyConnection(redis_url, clock, "waiting", prefix="waiting"), clock)
    await outbox.open()
    began = clock.monotonic()

    for _ in range(10):
        await outbox.connection.wait(0.02)

    assert 0.2 <= clock.monotonic() - began < FAR_LESS
    await outbox.close()


async def test_a_wake_up_that_comes_while_nobody_waits_here_goes_to_another_process(redis_url: str) -> None:
    clock = Clock()
    one, other = (RedisPyConnection(redis_url, clock, name, prefix="passing") for name in ("one", "other"))
    await one.open(RedisOutbox(one, clock)._terms)  # noqa: SLF001  (what every script is told)
    await one.wait(0.01)  # leaves a blocking pop behind, the first in the queue
    waiting = asyncio.create_task(other.wait(5))
    await clock.sleep(0.1)

    await one.command("LPUSH", one.key("wake"), 1)

    async with clock.timeout(2):
        await waiting
    await one.close()
    await other.close()


@pytest.mark.parametrize("options", ["", "?max_connections=2"])
async def test_a_burst_is_no_outage(empty_redis_url: str, options: str) -> None:
    clock = Clock()
    outbox = RedisOutbox(RedisPyConnection(empty_redis_url + options, clock, "burst"), clock)
    await outbox.open()

    waits = await asyncio.gather(*(outbox.wait_for(BotId(42), chat, "send", 1) for chat in range(1, 1001)))

    assert waits == [0.0] * 1000
    await outbox.close()


async def test_many_steps_at_once_in_a_redis_without_scripts_do_not_greet_it_one_after_the_other(
    redis_url: str,
) -> None:
    clock = Clock()
    outbox = RedisOutbox(RedisPyConnection(redis_url, clock, "flushed", prefix="flushed"), clock)
    await outbox.open()
    await outbox.connection.command("SCRIPT", "FLUSH")

    async def greetings() -> int:
        stats = (await outbox.connection.command("INFO", "commandstats"))["cmdstat_eval"]
        return int(stats["calls"])

    before = await greetings()
    await asyncio.gather(*(outbox.wait_for(BotId(42), chat, "send", 1) for chat in range(1, 51)))
    made = await greetings() - before
    await outbox.close()

    # Each loads the script at most once. How many greetings they share depends on when Redis answers; one by
    # one it would be 50 more.
    assert made <= 50 + 25


@pytest.mark.parametrize("url", ["redis://host/abc", "redis://host/0?foo=1", "redis://host:port/0"])
def test_an_address_that_means_nothing_is_refused(url: str) -> None:
    with pytest.raises(BadInputError, match="redis://host:6379/0"):
        RedisPyConnection(url, Clock(), "x")


def test_two_databases_of_a_redis_are_two_stores_whatever_the_password() -> None:
    names = [
        RedisPyConnection(url, Clock(), "x").name
        for url in ("redis://host/0", "redis://:secret@host/0", "redis://host/1", "redis://other/0")
    ]

    assert names[0] == names[1]
    assert len(set(names)) == 3
