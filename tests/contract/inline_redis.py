"""A real Redis on virtual time: asked without an event loop, and told what time it is."""

import asyncio
import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from redis import Redis
from redis.exceptions import NoScriptError

from tidegate.clock import Clock
from tidegate.stores.redis.connection import Argument, OnPublished, RedisConnection
from tidegate.stores.redis.outbox_codec import OUTBOX_KEYS, OUTBOX_SCRIPTS
from tidegate.stores.redis.scripts import Script

QUIET = frozenset({"claim", "find", "page", "scan", "stats", "wait_for", "why", "extend"})


def misplaced(redis: Redis, key: Callable[[str], str]) -> set[object]:
    """Messages without a place in the order of all, and places without a message: there are none.

    Unless an older version has put messages, and no list was asked for since.
    """
    numbers, ordered, unordered = redis.hmget(key("meta"), ["numbers", "ordered", "unordered"])
    if numbers != ordered or unordered is not None:
        return set()
    places, letters = (set(redis.zrange(key(name), 0, -1)) for name in ("order", "letters"))
    messages = set(redis.hkeys(key("messages")))
    return (places ^ messages) | (letters - messages)


class InlineConnection(RedisConnection):
    """Each has keys of its own in the same Redis. A wake-up is a flag instead of a blocking pop."""

    longest_wait = 1e9
    heartbeat = None

    def __init__(self, url: str, clock: Clock) -> None:
        self.me = "inline"
        self._clock = clock
        self._prefix = f"t{os.getpid()}-{secrets.token_hex(4)}"
        self._redis: Redis = Redis.from_url(url)
        self._terms = b""
        self._stirred = False
        self._sleepers: list[asyncio.Future[None]] = []
        self._heard: Callable[[], None] | None = None
        self._keys = [self.key(name) for name in OUTBOX_KEYS]
        self._others: set[str] = set()  # keys that are not the outbox's

    def key(self, name: str) -> str:
        return f"{self._prefix}:{{0}}:{name}"

    async def open(self, terms: bytes) -> None:
        self._terms = terms
        await self.run("open", "run", 1, "", "epoch")

    async def close(self) -> None:
        wrong = await self._inline(misplaced, self._redis, self.key)
        await self._inline(self._redis.delete, *self._keys, *self._others)
        await self._inline(self._redis.close)
        assert wrong == set()

    async def run(self, step: str, *args: Argument) -> list[bytes]:
        reply: list[bytes] = await self._evaluate(OUTBOX_SCRIPTS[step], self._keys, self._terms, *args)
        if step not in QUIET:
            self._stir()
        return reply

    async def script(self, script: Script, keys: Sequence[str], *args: Argument) -> Any:  # noqa: ANN401
        self._others.update(keys)
        return await self._evaluate(script, keys, *args)

    async def _evaluate(self, script: Script, keys: Sequence[str], *args: Argument) -> Any:  # noqa: ANN401
        asked = (len(keys), *keys, f"{self._clock.now():.17g}", *args)
        try:
            return await self._inline(self._redis.execute_command, "EVALSHA", script.sha, *asked)
        except NoScriptError:
            return await self._inline(self._redis.execute_command, "EVAL", script.source, *asked)

    async def command(self, *parts: Argument) -> Any:  # noqa: ANN401
        reply = await self._inline(self._redis.execute_command, *parts)
        self._stir()
        return reply

    async def wait(self, seconds: float | None) -> None:
        if not self._stirred:
            sleeper = asyncio.get_running_loop().create_future()
            self._sleepers.append(sleeper)
            with suppress(TimeoutError):
                async with self._clock.timeout(seconds):
                    await sleeper
        self._stirred = False

    def on_grants(self, callback: Callable[[], None]) -> None:
        self._heard = callback

    def subscribe(self, topic: str, callback: OnPublished) -> Callable[[], object]:  # noqa: ARG002  (it is alone)
        return lambda: None

    @staticmethod
    async def _inline(function: Callable[..., Any], *args: object) -> Any:  # noqa: ANN401
        """A virtual loop calls it here and now."""
        return await asyncio.get_running_loop().run_in_executor(None, function, *args)

    def _stir(self) -> None:
        self._stirred = True
        for sleeper in self._sleepers:
            if not sleeper.done():
                sleeper.set_result(None)
        self._sleepers.clear()
        if self._heard is not None:
            self._heard()
