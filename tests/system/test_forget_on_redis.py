"""Erasing a chat from Redis: no key and no value mentions it any more, and others lose nothing."""

from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from system.killing import clock
from tidegate import Tidegate
from tidegate.flows.port import SessionKey, subscription_data
from tidegate.flows.session import Session
from tidegate.inbound.inbox import InboxItem, bot_source
from tidegate.inbound.update_feed import NewUpdate
from tidegate.model import BotId
from tidegate.polling.subscriptions import News, Subscription
from tidegate.settings import Settings
from tidegate.stores.redis.conversations import CONVERSATION_PREFIX
from tidegate.stores.redis.store import RedisStore

BOT, CHAT, OTHER = BotId(42), 70_001_001, 70_002_002
MARK = "secret-of-70001001"


async def test_after_forget_nothing_that_was_kept_about_a_chat_is_in_redis(
    empty_redis_url: str, tmp_path: Path
) -> None:
    settings = Settings(tidegate_spool=str(tmp_path))
    async with Tidegate(empty_redis_url, settings=settings) as gate, Redis.from_url(empty_redis_url) as redis:
        gate.add_bot("42:any")
        store = gate.core.store
        assert isinstance(store, RedisStore)
        for chat, text in ((CHAT, MARK), (OTHER, "kept")):
            for n in range(300):
                await gate.send(
                    bot=BOT, chat_id=chat, text=f"{text} {n}", dedup_key=f"{text} {n}", dedup_for=600
                )
            key = SessionKey(BOT, chat, chat)
            session = Session(flow="shop", state="ask", visit=1, data={"name": text})
            await store.flow_sessions("shop").commit(key, session, expected=0, seen=text, at=clock.now())
            await store.subscriptions("orders").add(
                [Subscription(f"order {text}", subscription_data(key, text))]
            )
            for part in ("state", "data"):
                await redis.set(f"{CONVERSATION_PREFIX}:{BOT}:{chat}:{chat}:default:{part}", text)
            await redis.set(f"{CONVERSATION_PREFIX}:{BOT}:connection:{chat}:5:{chat}:default:data", text)
            items = [InboxItem(bot_source(BOT), f"{chat}{n}", str(chat), text.encode()) for n in range(3)]
            await store.inbox.accept(items)
            await store.update_feed.append(BOT, [NewUpdate(chat, "message", chat, text.encode())])
        claimed = await store.inbox.claim([bot_source(BOT)], 2, suspects=2)
        for one in claimed:
            await store.inbox.park(one, f"{one.item.body.decode()} failed")
        await store.subscriptions("orders").note_news([News(f"order {MARK}", {"name": MARK})])
        before = await everything(redis)

        erased = await store.erase(CHAT)

        assert len([text for text in before if MARK in text]) > 300
        assert [text for text in await everything(redis) if MARK in text] == []
        assert erased._replace(copies=()) == (300, 4, 2, 1, 1, ())
        assert len(await gate.outbox.records(chat_id=OTHER, limit=1000)) == 300
        assert (await store.flow_sessions("shop").load(SessionKey(BOT, OTHER, OTHER), "kept")).is_seen
        assert [one.subscription.key for one in await store.subscriptions("orders").after(0)] == [
            "order kept"
        ]
        assert (await store.inbox.stats()).waiting == 2
        assert [one.item.lane for one in await store.inbox.parked()] == [str(OTHER)]
        [again] = await store.inbox.claim([bot_source(BOT)], 10, suspects=2)
        assert again.item.key == f"{OTHER}1"


async def everything(redis: "Redis") -> list[str]:
    found: list[str] = []
    async for key in redis.scan_iter():
        found.append(key.decode(errors="replace"))
        found += [str(one) for one in await _values(redis, key)]
    return found


async def _values(redis: Any, key: bytes) -> Any:  # noqa: ANN401  (Redis's)
    match await redis.type(key):
        case b"hash":
            return [part for pair in (await redis.hgetall(key)).items() for part in pair]
        case b"zset":
            return await redis.zrange(key, 0, -1)
        case b"set":
            return await redis.smembers(key)
        case b"list":
            return await redis.lrange(key, 0, -1)
        case b"string":
            return [await redis.get(key)]
        case kind:
            pytest.fail(f"{key!r} is a {kind!r}")
