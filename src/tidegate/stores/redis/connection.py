"""The connection to Redis: scripts, a blocking pop, subscriptions, and whether it can be reached."""

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import (
    ConnectionError as RedisConnectionError,
)
from redis.exceptions import (
    TimeoutError as RedisTimeoutError,
)

from tidegate.clock import Clock
from tidegate.errors import BadInputError, ClosedError, StoreAwayError, StoreError, StoreFullError
from tidegate.stores.message_codec import encode
from tidegate.stores.redis.outbox_codec import OUTBOX_KEYS, OUTBOX_SCRIPTS, OutboxReply
from tidegate.stores.redis.scripts import Script
from tidegate.tasks import BackgroundTasks

log = logging.getLogger("tidegate")

NO_SUCH_DATABASE: Final = (
    "this Redis has no database of that number: correct the number at the end of its address,"
    " or raise `databases` in its settings"
)
REDIS_SCHEMA: Final = 1  # the version of the layout of the data in Redis
LONGEST_BLOCKING_POP: Final = 5.0  # seconds: the most that a lost wake-up costs
ANSWER_TIMEOUT: Final = 5.0  # seconds that Redis has for one script
CONNECT_TIMEOUT: Final = 2.0
MOST_STEPS: Final = 64  # at once, each on a connection; others wait, as for redis-py one more is an error
MOST_SUBSCRIPTIONS: Final = 10_000  # each on a connection, too
HEARTBEAT_EVERY: Final = 10.0  # seconds
DATA_LOST: Final = "EPOCH"  # the error of a step whose process knows other data
RESUBSCRIBE_AFTER: Final = 0.5  # seconds until a broken subscription is tried again

Argument = bytes | str | int | float
OnPublished = Callable[[bytes], None]
OnDataLoss = Callable[[bool], None]  # True: another process has noted it before

MAYBE_MISSED: Final = b""  # given to subscribers when a message may have been lost


class RedisConnection(Protocol):
    """Raises StoreAwayError if Redis cannot be reached, StoreFullError if it is out of memory."""

    me: str  # names this process among those that share the store
    longest_wait: float  # seconds that `wait` lasts at most
    heartbeat: float | None  # seconds between two signs of life of this process; None: never

    async def open(self, terms: bytes) -> None:
        """`terms` are an argument of every script of the outbox."""

    async def close(self) -> None: ...

    async def run(self, step: str, *args: Argument) -> list[bytes]:
        """Run one step of the outbox."""
        ...

    async def script(self, script: Script, keys: Sequence[str], *args: Argument) -> Any:  # noqa: ANN401  (Redis's)
        """Run one script of another stage.

        Its ARGV[1] is the time in seconds, empty for Redis's own; `args` follow.
        """

    async def command(self, *parts: Argument) -> Any:  # noqa: ANN401  (Redis's)
        """Run one plain command."""

    async def wait(self, seconds: float | None) -> None:
        """Wait until something may be claimed, or for so long."""

    def on_grants(self, callback: Callable[[], None]) -> None:
        """From now on, call back when a turn may have been granted to this process."""

    def subscribe(self, topic: str, callback: OnPublished) -> Callable[[], object]:
        """Call back with each message on the channel of this key, until the returned function is called."""
        ...

    def on_data_loss(self, callback: "OnDataLoss") -> None:  # noqa: ARG002  (some never tell)
        """From now on, call back when the data that this process knew is gone, before the next step."""
        return

    def key(self, name: str) -> str: ...


class RedisPyConnection(RedisConnection):
    """Connects when it is opened. `me` names this process among those that share the store."""

    longest_wait = LONGEST_BLOCKING_POP
    heartbeat = HEARTBEAT_EVERY

    def __init__(self, url: str, clock: Clock, me: str, *, prefix: str = "tidegate") -> None:
        self._clock = clock
        self.me = me
        self._prefix = prefix
        self._keys = [self.key(name) for name in OUTBOX_KEYS]
        self._scripts = OUTBOX_SCRIPTS
        self._terms = b""
        self._greeted = False  # since Redis was last away
        self._epoch = ""  # of the data in the Redis that was last greeted
        self._on_data_loss: OnDataLoss | None = None
        self._greeting = asyncio.Lock()
        self._greetings = 0  # that have begun
        self._hears_grants = False
        self._tasks = BackgroundTasks()
        self._popping: asyncio.Task[None] | None = None  # the blocking pop, which outlives a wait
        self._waits = False
        once = Retry(NoBackoff(), 0)  # retries are decided by the callers
        try:
            # No socket_timeout: with one, redis-py uses asyncio.wait_for, which in Python 3.11 may swallow
            # a cancellation: the cancelled task goes on, and whoever waits for its end waits for ever.
            self._redis, self._patient = (
                Redis.from_url(
                    url,
                    socket_timeout=None,
                    socket_connect_timeout=CONNECT_TIMEOUT,
                    retry=once,
                    max_connections=most,
                )
                for most in (MOST_STEPS, MOST_SUBSCRIPTIONS)
            )
            pool: Any = self._redis.connection_pool
            pool.make_connection()  # raises for options of the address that it does not know
            self._free = asyncio.Semaphore(min(MOST_STEPS, pool.max_connections))
        except (ValueError, TypeError) as error:
            raise BadInputError("the address of Redis cannot be used: write redis://host:6379/0") from error
        path = urlsplit(url).path.strip("/")
        if not url.startswith("unix:") and path and not path.isdigit():
            raise BadInputError("the database of Redis is a number: write redis://host:6379/0")

    @property
    def name(self) -> str:
        """A name of the store, the same in every process that uses it. It does not show the password."""
        known = self._redis.connection_pool.connection_kwargs
        address = [known.get(part, "") for part in ("host", "port", "path", "db")]
        return hashlib.sha256(f"{address} {self._prefix}".encode()).hexdigest()[:12]

    def key(self, name: str) -> str:
        # The braces are a hash tag: all keys of a partition are in one slot of a cluster.
        return f"{self._prefix}:{{0}}:{name}"

    async def open(self, terms: bytes) -> None:
        self._terms = terms
        await self._answer(self._in_turn(self._greet()))

    async def close(self) -> None:
        await self._tasks.stop()
        with suppress(RedisError, OSError):
            await self._redis.aclose()
            await self._patient.aclose()

    async def run(self, step: str, *args: Argument) -> list[bytes]:
        if not self._terms:
            raise ClosedError("the store in Redis is not open: use the gate inside async with gate:")
        reply: list[bytes] = await self._answer(self._in_turn(self._step(step, args)))
        return reply

    async def _step(self, step: str, args: tuple[Argument, ...]) -> Any:  # noqa: ANN401
        script = self._scripts[step]
        while True:
            terms = self._terms + encode(self._epoch) if self._epoch else self._terms
            try:
                return await self._evaluate(script, self._keys, ("", terms, *args))
            except ResponseError as error:
                if DATA_LOST not in str(error):
                    raise
            await self._greet()  # notes the loss; the step has changed nothing

    async def script(self, script: Script, keys: Sequence[str], *args: Argument) -> Any:  # noqa: ANN401
        return await self._answer(self._in_turn(self._evaluate(script, keys, ("", *args))))

    async def command(self, *parts: Argument) -> Any:  # noqa: ANN401
        return await self._answer(self._in_turn(_execute(self._redis, *parts)))

    async def wait(self, seconds: float | None) -> None:
        seconds = LONGEST_BLOCKING_POP if seconds is None else min(max(seconds, 0.001), LONGEST_BLOCKING_POP)
        if self._popping is None or self._popping.done():
            self._popping = self._tasks.start(self._pop(), "until woken", awaited=True)
            self._popping.add_done_callback(_ignore_outcome)
        popping, self._waits = self._popping, True
        try:
            # A blocking pop ends up to a tenth of a second late: it is left for the next wait.
            with suppress(TimeoutError):
                async with self._clock.timeout(seconds):
                    await asyncio.wait([popping])
        finally:
            self._waits = False
        if popping.done() and not popping.cancelled():
            self._popping = None
            popping.result()

    async def _pop(self) -> None:
        popped = _execute(self._patient, "BLPOP", self.key("wake"), LONGEST_BLOCKING_POP)
        woken = await self._answer(popped, LONGEST_BLOCKING_POP + ANSWER_TIMEOUT)
        if woken is not None and not self._waits:  # the wake-up is for another process
            await self.command("LPUSH", self.key("wake"), 1)

    def on_data_loss(self, callback: OnDataLoss) -> None:
        self._on_data_loss = callback

    def on_grants(self, callback: Callable[[], None]) -> None:
        for_us = {self.me.encode(), b"*", MAYBE_MISSED}
        if not self._hears_grants:
            self._hears_grants = True
            self.subscribe("channel", lambda message: callback() if message in for_us else None)

    def subscribe(self, topic: str, callback: OnPublished) -> Callable[[], object]:
        listening = self._tasks.supervise(
            lambda: self._subscribe(self.key(topic), callback),
            f"what listens to Redis ({topic})",
            self._clock,
        )
        return listening.task.cancel

    async def _evaluate(self, script: Script, keys: Sequence[str], args: tuple[Argument, ...]) -> Any:  # noqa: ANN401
        if not self._greeted:
            await self._greet()
        asked = (len(keys), *keys, *args)
        try:
            return await _execute(self._redis, "EVALSHA", script.sha, *asked)
        except NoScriptError:
            # This Redis has restarted, or never ran this step: greet it first, so that a restart is noted.
            await self._greet()
            return await _execute(self._redis, "EVAL", script.source, *asked)

    async def _greet(self) -> None:
        known = self._greetings
        async with self._greeting:
            # One that began after this was asked for has noted the same: callers that all meet a Redis
            # without scripts would else greet it one after the other.
            if self._greeted and self._greetings > known:
                return
            self._greetings += 1
            if not self._greeted:
                # Redis was away: each idle connection would fail by itself, and report that once more. Only
                # then: somebody may be about to use one.
                await self._redis.connection_pool.disconnect(inuse_connections=False)
            info = await self._redis.info("server")
            args = (str(info["run_id"]), REDIS_SCHEMA, self._epoch, secrets.token_hex(8))
            keys, greeting = self._keys, self._scripts["open"].source
            raw = await _execute(self._redis, "EVAL", greeting, len(keys), *keys, "", self._terms, *args)
            opened = OutboxReply(raw).answer
            self._greeted, self._epoch = True, opened.epoch
            if opened.emptied and self._on_data_loss is not None:
                self._on_data_loss(opened.noted)

    async def _in_turn(self, asked: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401  (Redis's)
        try:
            async with self._free:
                return await asked
        finally:
            asked.close()  # nobody has awaited it if its turn did not come in time

    async def _answer(self, asked: Coroutine[Any, Any, Any], seconds: float = ANSWER_TIMEOUT) -> Any:  # noqa: ANN401  (Redis's)
        """Return the answer, or raise an error of Tidegate: texts of the driver may hold the address."""
        try:
            async with self._clock.timeout(seconds):
                return await asked
        except OutOfMemoryError as error:
            text = "Redis has no memory left: raise its maxmemory, or wait until messages are delivered"
            raise StoreFullError(text) from error
        except (AuthenticationError, AuthorizationError) as error:
            raise StoreError("Redis does not let us in: look at user and password in its address") from error
        except (RedisConnectionError, RedisTimeoutError, OSError, BusyLoadingError, ReadOnlyError) as error:
            self._greeted = False
            reason = type(error).__name__
            raise StoreAwayError(
                f"Redis cannot be reached ({reason}): is it running, is its address right?"
            ) from None
        except ResponseError as error:
            raise _store_error(str(error)) from error

    async def _subscribe(self, channel: str, callback: OnPublished) -> None:
        while True:
            try:
                await self._listen(channel, callback)
            except (RedisError, OSError):
                callback(MAYBE_MISSED)
                await self._clock.sleep(RESUBSCRIBE_AFTER)

    async def _listen(self, name: str, callback: OnPublished) -> None:
        async with self._patient.pubsub() as channel:
            await channel.subscribe(name)
            while True:
                message = await channel.get_message(timeout=LONGEST_BLOCKING_POP)
                if message is not None:
                    callback(MAYBE_MISSED if message["type"] == "subscribe" else message["data"])


def _ignore_outcome(task: asyncio.Task[None]) -> None:
    """Retrieve the exception: nobody may be waiting any more."""
    if not task.cancelled():
        task.exception()


def _execute(redis: Redis, *parts: Argument) -> Coroutine[Any, Any, Any]:
    return redis.execute_command(*parts)  # type: ignore[no-untyped-call]


def _store_error(text: str) -> StoreError:
    if "SCHEMA" in text:
        version = text.rpartition("SCHEMA")[2].split()[0]
        return StoreError(
            f"this Redis was written by a newer Tidegate (version {version} of its layout, {REDIS_SCHEMA} is"
            " known here): upgrade this process"
        )
    if "READONLY" in text:
        return StoreAwayError("this Redis is a replica that cannot be written: is its address right?")
    if text.startswith(("MOVED", "ASK")):
        return StoreError(
            "this Redis is a node of a cluster, and the store's keys are on another: give that one's address"
        )
    if text.startswith(("MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "MISCONF")):
        return StoreAwayError(f"Redis does not work now: {text.partition(' ')[0]}")
    if "OOM" in text:
        return StoreFullError("Redis has no memory left: raise its maxmemory, or wait for deliveries")
    return StoreError(NO_SUCH_DATABASE if "DB index" in text else f"Redis refused a step: {text}")
