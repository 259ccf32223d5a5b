"""Redis cannot be reached, or has no room: what is accepted is kept, what cannot be is said, calls go on."""

import asyncio
from pathlib import Path

import pytest
from redis.asyncio import Redis

from system.fleet import Scene, arrivals, end_of, fleet, opened, scene
from system.fleet_member import FAST
from system.killing import clock
from tidegate import Tidegate
from tidegate.errors import StoreFullError
from tidegate.model import BotId
from tidegate.outbox.port import StoreHealth
from tidegate.stores.redis.outbox import LONGEST_CALL

BOT = BotId(42)
CHATS = range(1, 11)
PATIENCE = LONGEST_CALL + 10.0  # seconds; after a restart of Redis, and a machine under load is slow


async def put(gate: Tidegate, number: int) -> None:
    await gate.send_many([{"chat_id": chat, "text": f"to {chat} #{number}"} for chat in CHATS])


async def health(gate: Tidegate, *, ready: bool) -> StoreHealth:
    """Once it is known."""
    async with clock.timeout(PATIENCE):
        while (found := gate.outbox.health()).ready != ready or (ready and found.spooled):
            await clock.sleep(0.02)
    return found


async def call(gate: Tidegate, chat: int) -> None:
    async with clock.timeout(PATIENCE):
        await gate.call("sendMessage", {"chat_id": chat, "text": "direct"})


def check(stage: Scene, numbers: int) -> None:
    """Everything came, once and in order."""
    arrived = arrivals(stage.log)
    for chat in CHATS:
        assert arrived[42, chat] == [f"to {chat} #{number}" for number in range(numbers)]


async def test_a_redis_that_is_away_at_the_start_and_later_delays_and_loses_nothing(tmp_path: Path) -> None:
    async with scene(tmp_path, FAST) as stage:
        await stage.redis.kill()
        async with opened(stage.terms) as gate:
            await put(gate, 0)
            await put(gate, 1)
            await call(gate, 1001)
            found = await health(gate, ready=False)
            assert found.spooled == 2 * len(CHATS)
            assert "Redis cannot be reached" in found.reasons[0]
            assert "20 messages wait in the spool" in found.reasons[1]

            await stage.redis.start()
            async with fleet(stage.terms, {}) as [worker]:
                await health(gate, ready=True)
                await put(gate, 2)
                await stage.redis.kill()
                await put(gate, 3)
                await health(gate, ready=False)
                await call(gate, 1002)
                await stage.redis.start()
                await put(gate, 4)
                await health(gate, ready=True)
                async with clock.timeout(PATIENCE):
                    await gate.drained()
                await end_of(worker)

    check(stage, 5)
    report = stage.server.telegram.report()
    assert (report["refused"], report["doubled"], report["out_of_order"]) == (0, 0, 0)


async def test_direct_calls_that_wait_when_redis_goes_away_are_made(tmp_path: Path) -> None:
    async with scene(tmp_path, FAST) as stage, opened(stage.terms) as gate:
        waiting = [asyncio.create_task(call(gate, 1001)) for _ in range(4)]
        await clock.sleep(0.2)
        await stage.redis.kill()

        await asyncio.gather(*waiting)

        await stage.redis.start()
        await health(gate, ready=True)
    assert len(stage.log) >= 4


@pytest.mark.proof
async def test_direct_calls_do_not_wait_for_a_redis_that_is_known_to_be_frozen(tmp_path: Path) -> None:
    async with scene(tmp_path, FAST) as stage, opened(stage.terms) as gate:
        freezing = asyncio.create_task(stage.redis.freeze(9))
        await call(gate, 1001)  # finds out
        assert not gate.outbox.health().ready

        began = clock.monotonic()
        await call(gate, 1002)

        assert clock.monotonic() - began < 2
        await freezing


async def limit(url: str, room: int) -> None:
    """Redis may take so many bytes more."""
    async with Redis.from_url(url) as client:
        used = (await client.info("memory"))["used_memory"]
        await client.config_set("maxmemory", used + room)


async def is_taken(gate: Tidegate, chat: int) -> bool:
    try:
        await gate.send(chat_id=chat, text="x" * 4_000)
    except StoreFullError as error:
        assert "no memory left" in str(error)  # noqa: PT017  (others are not expected)
        return False
    return True


async def test_a_redis_without_memory_refuses_puts_and_delivers_on(tmp_path: Path) -> None:
    async with (
        scene(tmp_path, FAST, keep=0.3) as stage,
        fleet(stage.terms, {}) as [worker],
        opened(stage.terms) as gate,
    ):
        await put(gate, 0)  # the scripts take their room too
        await gate.drained()
        await gate.outbox.pause(BOT)
        await limit(stage.redis.url, 300_000)
        accepted = 0
        while await is_taken(gate, accepted + 1):
            accepted += 1
        # There is room for 70. Buffers in which scripts came, 100 kB each, are freed in a second: for more.
        assert 10 < accepted < 200
        await call(gate, 1001)

        await gate.outbox.resume(BOT)

        async with clock.timeout(PATIENCE):
            await gate.drained()
            while not await is_taken(gate, 2001):
                await clock.sleep(0.1)
            await gate.drained()
        done = await end_of(worker)

    report = stage.server.telegram.report()
    assert done.calls == len(CHATS) + accepted + 1
    assert (report["refused"], report["doubled"]) == (0, 0)


async def test_a_redis_without_memory_refuses_puts_though_something_is_due(tmp_path: Path) -> None:
    """A script that has written may go on: what is due must not open the way for a put."""
    async with scene(tmp_path, FAST) as stage, opened(stage.terms) as gate:
        await gate.send(chat_id=1, text="x", not_before=clock.now() + 0.3)
        await limit(stage.redis.url, -500_000)
        await clock.sleep(0.5)

        assert not await is_taken(gate, 2)
