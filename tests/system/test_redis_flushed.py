"""FLUSHDB under running workers: one error line, no 429, and what is put from then on is delivered."""

import asyncio
import logging
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from redis.asyncio import Redis

from system.fleet import arrivals, scene
from system.fleet_member import FAST, Member
from system.killing import clock, in_thread
from tidegate.model import BotId, Message, TicketId

CHATS = range(1, 41)
PATIENCE = 20.0  # seconds; a machine under load is slow


def message(chat: int, text: str) -> Message:
    ticket = TicketId(f"{chat} {text}")
    return Message(id=ticket, bot=BotId(42), chat_id=chat, method="sendMessage", params={"text": text})


async def test_a_redis_that_is_emptied_under_its_workers_leads_to_one_error_and_no_429(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(tmp_path, FAST, lease=2.0) as stage, AsyncExitStack() as stack:
        producer, *workers = [await in_thread(Member, stage.terms) for _ in range(3)]
        for member in (producer, *workers):
            await stack.enter_async_context(member.open())
        for worker in workers:
            await stack.enter_async_context(worker.worker())
        outbox = producer.outbox
        await outbox.put([message(chat, f"to {chat} #{number}") for number in range(20) for chat in CHATS])
        waiting = asyncio.create_task(outbox.settled(TicketId("40 to 40 #19")))
        await clock.sleep(0.6)
        known = await outbox.stats()
        caplog.clear()

        async with Redis.from_url(stage.redis.url) as client:
            await client.flushdb()
        # To the same chats at once: the windows that Redis forgot would let them go.
        await outbox.put([message(chat, f"to {chat} #new {number}") for number in range(2) for chat in CHATS])
        assert not outbox.health().ready
        with pytest.raises(LookupError, match="is gone"):
            async with clock.timeout(PATIENCE):
                await waiting
        async with clock.timeout(PATIENCE):
            await outbox.drained()
        stats = await outbox.stats()

    report = stage.server.telegram.report()
    assert report["refused"] == 0, report["refused_by"]
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1, errors
    assert "messages were known not to be settled" in errors[0]
    assert known.waiting > 100, "most of them waited"
    assert (stats.waiting, stats.sending, stats.delivered) == (0, 0, 2 * len(CHATS))
    arrived = arrivals(stage.log)
    for chat in CHATS:
        assert arrived[42, chat][-2:] == [f"to {chat} #new {number}" for number in range(2)]
