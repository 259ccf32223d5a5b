"""A real Redis and several processes that share it, in one virtual loop: deterministic, and in no time."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.resources import files
from typing import Any, Final

from redis import Redis
from redis.client import PubSub
from redis.exceptions import NoScriptError, ResponseError

from contract.inline_redis import misplaced
from contract.post import ROOMY, Post
from contract.stores import redis_url
from tidegate.clock import Clock
from tidegate.errors import StoreAwayError
from tidegate.events import EventStream
from tidegate.pacing.rules import Rules
from tidegate.sim import virtual_time
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.message_codec import encode
from tidegate.stores.redis.connection import DATA_LOST, REDIS_SCHEMA, Argument, OnPublished, RedisConnection
from tidegate.stores.redis.outbox import RedisOutbox
from tidegate.stores.redis.outbox_codec import OUTBOX_KEYS, OUTBOX_SCRIPTS, OutboxReply
from tidegate.stores.redis.scripts import Script

Delay = Callable[[str, tuple[Argument, ...]], float]  # seconds that a step is on its way, each way
FOREVER: Final = 1e6  # seconds: of a blocking pop, so that a lost wake-up is not healed by its end
LATE: Final = 0.2  # seconds after which nobody who could act has acted


class Hub:
    """A real Redis with a blocking pop and a channel, as its clients would see them if it cost no time."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.redis: Redis = Redis.from_url(redis_url())
        self.prefix = f"t{os.getpid()}-{secrets.token_hex(4)}"
        self.keys = {name: self.key(name) for name in OUTBOX_KEYS}
        self.links: list[SharedConnection] = []
        self.run_id = "first"
        self.steps: list[str] = []
        self.sleepers: list[asyncio.Future[None]] = []
        self._channel: PubSub = self.redis.pubsub()  # type: ignore[no-untyped-call]
        self._channel.psubscribe(f"{self.prefix}:*")
        self.followed: dict[bytes, list[OnPublished]] = {}  # by channel

    def close(self) -> None:
        self._channel.close()
        wrong = misplaced(self.redis, self.key)
        self.redis.delete(*self.keys.values(), *self.redis.keys(f"{self.prefix}:*"))
        self.redis.close()
        assert wrong == set()

    def key(self, name: str) -> str:
        return f"{self.prefix}:{{0}}:{name}"

    def ask(self, *parts: Argument) -> Any:  # noqa: ANN401  (Redis's)
        return self.redis.execute_command(*parts)  # type: ignore[no-untyped-call]

    def run(self, step: str, terms: bytes, args: tuple[Argument, ...]) -> list[bytes]:
        self.steps.append(step)
        reply: list[bytes] = self.evaluate(OUTBOX_SCRIPTS[step], list(self.keys.values()), terms, *args)
        return reply

    def evaluate(self, script: Script, keys: Sequence[str], *args: Argument) -> Any:  # noqa: ANN401  (Redis's)
        asked = (len(keys), *keys, f"{self.clock.now():.17g}", *args)
        try:
            reply = self.ask("EVALSHA", script.sha, *asked)
        except NoScriptError:
            reply = self.ask("EVAL", script.source, *asked)
        self.deliver()
        return reply

    def follow(self, channel: str, heard: OnPublished) -> Callable[[], object]:
        followers = self.followed.setdefault(channel.encode(), [])
        followers.append(heard)
        return lambda: followers.remove(heard)

    def deliver(self) -> None:
        """What was pushed goes to who waits longest, what was published to all who listen."""
        self.sleepers = [sleeper for sleeper in self.sleepers if not sleeper.done()]
        while self.sleepers and self.ask("LPOP", self.keys["wake"]) is not None:
            self.sleepers.pop(0).set_result(None)
        for channel, said in self._published():
            for heard in self.followed.get(channel, []):
                heard(said)
            for link in self.links if channel == self.keys["channel"].encode() else []:
                if link.heard is not None and said in {b"*", link.me.encode()}:
                    link.heard()

    def _published(self) -> list[tuple[bytes, bytes]]:
        """Channels, and what was said on them."""
        self._channel.ping()
        said = []
        while (message := self._channel.get_message(timeout=1)) is None or message["type"] != "pong":
            if message is not None and message["type"] == "pmessage":
                said.append((message["channel"], message["data"]))
        return said


class SharedConnection(RedisConnection):
    """One process's way to the hub. It may take a while, lose answers, or be cut."""

    heartbeat = None

    def __init__(
        self, hub: Hub, me: str, *, longest_wait: float = FOREVER, delay: Delay | None = None
    ) -> None:
        self.hub, self.me, self.longest_wait, self.delay = hub, me, longest_wait, delay
        self.heard: Callable[[], None] | None = None
        self.terms = b""
        self.away = False
        self.in_vain = 0  # steps that were asked for while it was away
        self.deaf: set[str] = set()  # steps whose answers are lost
        self.epoch = ""  # of the data that this process knows
        self.loss_noted: Callable[[bool], None] | None = None
        hub.links.append(self)

    def key(self, name: str) -> str:
        return self.hub.key(name)

    async def open(self, terms: bytes) -> None:
        self.terms = terms
        await self._travel("open", ())
        args = (self.hub.run_id, REDIS_SCHEMA, self.epoch, secrets.token_hex(8))
        opened = OutboxReply(await inline(self.hub.run, "open", self.terms, args)).answer
        self.epoch = opened.epoch
        if opened.emptied and self.loss_noted is not None:
            self.loss_noted(opened.noted)

    def on_data_loss(self, callback: Callable[[bool], None]) -> None:
        self.loss_noted = callback

    async def close(self) -> None:
        self.hub.links.remove(self)

    async def run(self, step: str, *args: Argument) -> list[bytes]:
        await self._travel(step, args)
        try:
            reply: list[bytes] = await inline(self.hub.run, step, self.terms + encode(self.epoch), args)
        except ResponseError as error:
            if DATA_LOST not in str(error):
                raise
            await self.open(self.terms)
            return await self.run(step, *args)
        if step in self.deaf:
            raise StoreAwayError("the answer is lost")
        await self._travel(step, args)
        return reply

    async def script(self, script: Script, keys: Sequence[str], *args: Argument) -> Any:  # noqa: ANN401
        await self._travel(script.sha, args)
        reply = await inline(self.hub.evaluate, script, keys, *args)
        if script.sha in self.deaf:
            raise StoreAwayError("the answer is lost")
        await self._travel(script.sha, args)
        return reply

    async def command(self, *parts: Argument) -> Any:  # noqa: ANN401
        await self._travel("command", parts)
        reply = await inline(self.hub.ask, *parts)
        await inline(self.hub.deliver)
        return reply

    async def wait(self, seconds: float | None) -> None:
        await self._travel("wait", ())
        sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.hub.sleepers.append(sleeper)
        await inline(self.hub.deliver)
        with suppress(TimeoutError):
            async with self.hub.clock.timeout(min(seconds or self.longest_wait, self.longest_wait)):
                await sleeper

    def on_grants(self, callback: Callable[[], None]) -> None:
        self.heard = callback

    def subscribe(self, topic: str, callback: OnPublished) -> Callable[[], object]:
        return self.hub.follow(self.key(topic), callback)

    async def _travel(self, step: str, args: tuple[Argument, ...]) -> None:
        if self.away:
            self.in_vain += 1
            raise StoreAwayError("it is away")
        if self.delay is not None:
            await self.hub.clock.sleep(self.delay(step, args))


async def inline(function: Callable[..., Any], *args: object) -> Any:  # noqa: ANN401
    """A virtual loop calls it here and now."""
    return await asyncio.get_running_loop().run_in_executor(None, function, *args)


def promise_of(stage: str, step: str) -> str:
    """The comment above a step of the Lua scripts; at the head of its file if it is the whole file."""
    texts = {
        file.name: file.read_text()
        for file in (files("tidegate.stores.redis") / "lua" / stage).iterdir()
        if file.is_file()
    }
    for text in texts.values():
        above, named, _ = text.partition(f"function Steps.{step}()")
        if named:
            return above.rpartition("\n\n")[2]
    return texts[f"{step}.lua"].partition("\n\n")[0]


@asynccontextmanager
async def processes(
    clock: VirtualClock,
    count: int,
    rules: Rules = ROOMY,
    *,
    delay: Delay | None = None,
    longest_wait: float = FOREVER,
    keep: float = 1e5,
    events: EventStream | None = None,
) -> AsyncIterator[tuple[Hub, list[Post]]]:
    hub = await inline(Hub, clock)
    links = [
        SharedConnection(hub, f"p{number}", longest_wait=longest_wait, delay=delay) for number in range(count)
    ]
    made = [RedisOutbox(link, clock, rules, keep=keep, events=events) for link in links]
    for outbox in made:
        await outbox.open()
    yield hub, [Post(outbox, clock) for outbox in made]
    for outbox in made:
        await outbox.close()
    await inline(hub.close)


class Watchman:
    """Looks for what may go while somebody sleeps who could see to it."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.complaints: list[str] = []

    async def keep_watch(self) -> None:
        active_since: float | None = None
        while True:
            await self.hub.clock.sleep(LATE / 2)
            now, hub = self.hub.clock.now(), self.hub
            if not [sleeper for sleeper in hub.sleepers if not sleeper.done()]:
                active_since = None
                continue
            late = await inline(hub.ask, "ZRANGEBYSCORE", hub.keys["timers"], "-inf", now - LATE)
            late += await inline(hub.ask, "ZRANGEBYSCORE", hub.keys["leases"], "-inf", now - LATE)
            if late:
                self.complaints.append(f"{now - virtual_time.EPOCH:.3f}: {late} are due, and a worker sleeps")
            if await inline(hub.ask, "ZCARD", hub.keys["active"]) == 0:
                active_since = None
            elif active_since is None:
                active_since = now
            elif now - active_since > LATE:
                self.complaints.append(
                    f"{now - virtual_time.EPOCH:.3f}: pools are active, and a worker sleeps"
                )
                active_since = None
