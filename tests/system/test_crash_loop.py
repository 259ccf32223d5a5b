"""Senders that die again and again: everything is delivered in the end, and only poison is set aside."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from system.killing import LIMITS, POISON, TOKEN, arrivals, asked, clock, kill, line_of, running
from tidegate import Tidegate
from tidegate.outbox.transitions import CRASHES_ALLOWED
from tidegate.sim.telegram.http import TelegramServer

pytestmark = pytest.mark.timeout(120)

CHATS = range(1, 201)
MOST_IN_FLIGHT = LIMITS.bot.count


@asynccontextmanager
async def silent_api() -> AsyncIterator[str]:
    """Accepts every request and never answers."""
    connections: set[asyncio.StreamWriter] = set()

    async def keep(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(writer)

    server = await asyncio.start_server(keep, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in connections:
            writer.transport.abort()


async def put(store: Path, texts: Mapping[int, str]) -> None:
    async with Tidegate(store) as gate:
        gate.add_bot(TOKEN)
        await gate.send_many({"chat_id": chat, "text": text} for chat, text in texts.items())


async def until_in_flight(store: Path, count: int) -> None:
    async with clock.timeout(20):
        while await asked(store, "SELECT count(*) FROM messages WHERE state = 'sending'") < [(count,)]:
            await clock.sleep(0.02)


async def ended(store: Path) -> dict[tuple[str, str | None], int]:
    rows = await asked(store, "SELECT state, reason, count(*) FROM messages GROUP BY 1, 2")
    return {(state, reason): count for state, reason, count in rows}


async def test_an_api_that_hangs_and_a_sender_killed_three_times_set_nobody_aside(tmp_path: Path) -> None:
    store, texts = tmp_path / "store.db", {chat: f"to {chat} #0" for chat in CHATS}
    await put(store, texts)
    async with silent_api() as url:
        for _ in range(3):
            async with running("mortal", str(store), url) as process:
                assert await line_of(process) == "sending"
                await until_in_flight(store, MOST_IN_FLIGHT)
                await kill(process)
    [[crashes]] = await asked(store, "SELECT sum(crashes) FROM messages")
    assert crashes == 2 * MOST_IN_FLIGHT, "those of the last kill are counted by the next sender"

    async with TelegramServer(limits=LIMITS) as server:
        async with running("mortal", str(store), server.url) as process:
            assert [await line_of(process), await line_of(process)] == ["sending", "drained"]
        arrived = arrivals(server.telegram.request_log.log)

    assert await ended(store) == {("delivered", None): len(texts)}
    assert {chat: came for chat, [came] in arrived.items()} == texts
    crashed = await asked(store, "SELECT crashes, count(*) FROM messages GROUP BY crashes ORDER BY crashes")
    assert crashed == [(0, 101), (1, 49), (2, 49), (3, 1)], "a crash counts against one suspect"


async def test_one_message_that_kills_its_sender_is_parked_and_200_others_are_delivered(
    tmp_path: Path,
) -> None:
    store, texts = tmp_path / "store.db", {chat: f"to {chat} #0" for chat in CHATS}
    texts |= {20: POISON}
    texts |= {201: "to 201 #0"}
    await put(store, texts)
    deaths = 0
    async with TelegramServer(limits=LIMITS) as server:
        while True:
            async with running("mortal", str(store), server.url) as process:
                assert await line_of(process) == "sending"
                if await line_of(process) == "drained":
                    break
                deaths += 1
                assert deaths <= CRASHES_ALLOWED
        arrived, report = arrivals(server.telegram.request_log.log), server.telegram.report()

    assert deaths == CRASHES_ALLOWED
    assert await ended(store) == {("delivered", None): 200, ("parked", "crashes"): 1}
    assert await asked(store, "SELECT chat_id FROM messages WHERE state = 'parked'") == [(20,)]
    innocent = {chat: text for chat, text in texts.items() if chat != 20}
    assert {chat: set(came) for chat, came in arrived.items()} == {chat: {t} for chat, t in innocent.items()}
    doubled = Counter(len(came) for came in arrived.values())
    print(f"{deaths} deaths; times that a message arrived: {dict(doubled)}")  # noqa: T201
    assert max(doubled) <= CRASHES_ALLOWED
    assert report["refused"] == 0
