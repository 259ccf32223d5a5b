"""A process that shares a Redis with others: `fleet_member.py ROLE TERMS`, the terms as JSON.

A `worker` delivers, makes direct calls beside it, and says at the end what it has done. A `producer` puts
messages and says each that is accepted. A `claimer` says when it was given each message.
"""

import asyncio
import itertools
import random
import secrets
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from tidegate import Tidegate
from tidegate.clock import Clock
from tidegate.delivery.bot_api import BotApiClient
from tidegate.delivery.direct import DirectCalls
from tidegate.delivery.sender import LATE_AFTER, SILENCE_AFTER, BotAccess, Sender
from tidegate.delivery.transport import ApiAnswer, BotApiTransport, NoAnswer
from tidegate.delivery.worker import Worker
from tidegate.errors import TidegateError
from tidegate.model import BotId, Delivered, Message, Rate, Settlement, TicketId
from tidegate.pacing.rules import Rules
from tidegate.settings import Settings
from tidegate.stores.redis.connection import RedisPyConnection
from tidegate.stores.redis.outbox import RedisOutbox
from tidegate.stores.redis.spool import Spool
from tidegate.stores.redis.turns import GRANT_USABLE_FOR, RENEWALS_PER_LEASE

REAL: Final = Rules(burst=1)
FAST: Final = Rules(
    burst=1, bot=Rate(50, 0.25), private=Rate(1, 0.25), group=Rate(4, 2.5)
)  # a run takes seconds


class Terms(msgspec.Struct, kw_only=True, frozen=True):
    store: str
    telegram: str
    spool: str
    bots: tuple[int, ...] = (42,)
    bot_rate: str = str(FAST.bot)
    chat_rate: str = str(FAST.private)
    group_rate: str = str(FAST.group)
    lease: float = 30.0
    keep: float = 600.0
    shift: float = 0.0  # seconds by which the wall clock is wrong
    direct: float = 0.0  # calls of the first bot each second, beside the queue
    chats: int = 40  # that they go to
    seed: int = 0

    def rules(self) -> Rules:
        bot, chat, group = map(Rate.parse, (self.bot_rate, self.chat_rate, self.group_rate))
        return Rules(burst=1, bot=bot, private=chat, group=group)


class Done(msgspec.Struct):
    """What a worker has done."""

    calls: int = 0  # answered, queued or direct
    round_trips: float = 0.0  # seconds, all together
    direct: int = 0
    failed: dict[str, int] = {}  # direct calls, by the error that they raised

    def __add__(self, other: "Done") -> "Done":
        failed = Counter(self.failed) + Counter(other.failed)
        trips = self.round_trips + other.round_trips
        return Done(self.calls + other.calls, trips, self.direct + other.direct, dict(failed))


def gate_of(terms: Terms) -> Tidegate:
    """For whoever puts and looks. Not open yet."""
    gate = Tidegate(terms.store, rules=terms.rules(), settings=Settings(tidegate_spool=terms.spool))
    for bot in terms.bots:
        gate.add_bot(f"{bot}:token", api_url=terms.telegram)
    return gate


class Wrong(Clock):
    """A clock on the wall that somebody has set wrong."""

    def __init__(self, shift: float) -> None:
        self._shift = shift

    def now(self) -> float:
        return super().now() + self._shift


class Timed(BotApiTransport):
    """Telegram, and how long its answers took."""

    def __init__(self, wire: BotApiTransport, clock: Clock, done: Done) -> None:
        self._wire, self._clock, self._done = wire, clock, done

    async def call(
        self,
        token: str,
        method: str,
        params: Mapping[str, Any],
        *,
        api_url: str,
        deadline: float,
        on_left: Callable[[], None] | None = None,
        on_written: Callable[[], None] | None = None,
        wait_for_upload: bool = True,
    ) -> ApiAnswer | NoAnswer:
        began = self._clock.monotonic()
        answer = await self._wire.call(
            token,
            method,
            params,
            api_url=api_url,
            deadline=deadline,
            on_left=on_left,
            on_written=on_written,
            wait_for_upload=wait_for_upload,
        )
        if isinstance(answer, ApiAnswer):
            self._done.calls += 1
            self._done.round_trips += self._clock.monotonic() - began
        return answer

    async def close(self) -> None:
        await self._wire.close()


class Member:
    """What a gate is made of, with leases as short as the terms say, and no call longer than two of those."""

    def __init__(self, terms: Terms) -> None:
        self.terms, self.clock, self.done = terms, Wrong(terms.shift), Done()
        self.rules, self.draw = terms.rules(), random.Random(terms.seed)
        link, spool = RedisPyConnection(terms.store, self.clock, secrets.token_hex(6)), Path(terms.spool)
        late, silence = min(LATE_AFTER, terms.lease / 4), min(SILENCE_AFTER, terms.lease)
        self.outbox = RedisOutbox(
            link,
            self.clock,
            self.rules,
            lease=terms.lease,
            keep=terms.keep,
            spool=Spool(spool, self.clock),
            longest_call=min(GRANT_USABLE_FOR, terms.lease / RENEWALS_PER_LEASE) + late + silence,
        )
        wire = Timed(BotApiClient(self.clock), self.clock, self.done)
        self.sender = Sender(wire, self.clock, late=late, silence=silence)
        for bot in terms.bots:
            self.sender.bots[BotId(bot)] = BotAccess(f"{bot}:token", terms.telegram)
        self.direct = DirectCalls(self.outbox, self.sender, self.clock, max_attempts=5)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        await self.outbox.open()
        try:
            yield
        finally:
            await self.sender.close()
            await self.outbox.close()

    def worker(self) -> Worker:
        return Worker(self.outbox, self.sender, self.clock, heartbeat=self.terms.lease / 4)

    async def talk(self) -> None:
        """Direct calls, so many each second, whether the others are answered or not; at the end of all."""
        calls: list[asyncio.Task[None]] = []
        try:
            for number in itertools.count() if self.terms.direct else ():
                calls.append(asyncio.create_task(self._call(number)))
                await self.clock.sleep(1 / self.terms.direct)
        finally:
            await asyncio.gather(*calls)

    async def _call(self, number: int) -> None:
        chat = self.draw.randint(1001, 1000 + self.terms.chats)
        text = f"direct #{self.terms.seed}:{number}"
        try:
            await self.direct.call(BotId(self.terms.bots[0]), "sendMessage", {"chat_id": chat, "text": text})
        except TidegateError as error:
            name = type(error).__name__
            self.done.failed[name] = self.done.failed.get(name, 0) + 1
        else:
            self.done.direct += 1


async def work(terms: Terms) -> None:
    worker = Member(terms)
    async with worker.open(), worker.worker():
        _say("ready")
        talking = asyncio.create_task(worker.talk())
        await _told()
        talking.cancel()
        await asyncio.gather(talking, return_exceptions=True)
    _say(msgspec.json.encode(worker.done).decode())


async def produce(terms: Terms) -> None:
    """Message after message for each chat, until told to stop; says `CHAT NUMBER TIME` of each accepted."""
    producer = Member(terms)
    async with producer.open():
        _say("ready")
        producing = asyncio.gather(*(_put_on(producer, chat) for chat in range(1, terms.chats + 1)))
        await _told()
        producing.cancel()
        await asyncio.gather(producing, return_exceptions=True)
        while producer.outbox.health().spooled:
            await producer.clock.sleep(0.02)
    _say("done")


async def _put_on(producer: Member, chat: int) -> None:
    for number in itertools.count():
        text = f"to {chat} #{number}"
        ticket = TicketId(f"{producer.terms.seed} {text}")
        message = Message(id=ticket, bot=BotId(42), chat_id=chat, method="sendMessage", params={"text": text})
        await producer.outbox.put([message])
        _say(f"{chat} {number} {producer.clock.monotonic()}")
        await producer.clock.sleep(0.4)  # a chat may have four in a second


async def claim(terms: Terms) -> None:
    """Says at which monotonic time it was given each message; it takes one at a time."""
    claimer = Member(terms)
    async with claimer.open():
        _say("ready")
        while True:
            [given] = await claimer.outbox.claim(1)
            _say(str(claimer.clock.monotonic()))
            await claimer.outbox.settle([Settlement(given, Delivered(None))])


async def _told() -> str:
    line: str = await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    return line.rstrip("\n")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    roles: dict[str, Callable[[Terms], Coroutine[None, None, None]]]
    roles = {"worker": work, "producer": produce, "claimer": claim}
    uvloop.run(roles[sys.argv[1]](msgspec.json.decode(sys.argv[2], type=Terms)))
