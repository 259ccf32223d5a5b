"""Turns of direct calls of this process: those that wait for a grant, and those held."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final

import msgspec

from tidegate.clock import Clock
from tidegate.errors import ClosedError, StoreAwayError, StoreError
from tidegate.model import BotId, ChatId, Outcome, Priority
from tidegate.outbox.dispatcher import CLOSED_WHILE_WAITING, TURN_LEVELS
from tidegate.outbox.port import Turn
from tidegate.pacing.rules import Family, Rules
from tidegate.stores.message_codec import encode
from tidegate.stores.redis.connection import Argument, RedisConnection
from tidegate.stores.redis.outbox_codec import TURN_PREFIX, OutboxReply, TurnEnd, TurnRequest, turn_end

TURNS_PER_STEP: Final = 200  # turns named in one step
RENEWALS_PER_LEASE: Final = 3  # of the heart in one lease
GRANT_USABLE_FOR: Final = 5.0  # seconds after which a grant is not used any more: this process was frozen
OUTAGE_ENDURED_FOR: Final = 1.0  # seconds that those in line wait for a Redis that is away
TURN_RETRY_EVERY: Final = 0.2  # seconds, while Redis is away

RunStep = Callable[..., Awaitable[OutboxReply]]


TurnGrant = tuple[int, float]  # the token, and when this process asked for what brought it


class TurnLostError(StoreAwayError):
    """The lease of a turn that waited ran out, and Redis can be reached."""


class RedisTurns:
    """`run` is one step of the store, which tells of the grants that it hears."""

    def __init__(self, link: RedisConnection, clock: Clock, rules: Rules, lease: float, run: RunStep) -> None:
        self._link, self._clock, self._rules, self._lease = link, clock, rules, lease
        self._run = run
        self._numbers = itertools.count(1)
        self._waiting: dict[str, asyncio.Future[TurnGrant]] = {}
        self._in_line: dict[str, None] = {}  # of those, what Redis knows
        self._held: dict[int, tuple[str, ChatId]] = {}  # by token
        self._stirred = asyncio.Event()
        self._pumping: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()  # held until they are done
        self._unsaid: list[tuple[TurnEnd, float]] = []  # ends that Redis has not heard, and since when

    def close(self) -> list[asyncio.Task[None]]:
        """What has to be waited for."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ClosedError(CLOSED_WHILE_WAITING))
        tasks = [task for task in (self._pumping, self._beating) if task is not None]
        for task in tasks:
            task.cancel()
        return [*tasks, *self._ending]

    # --- a turn ---

    async def turn(
        self,
        bot: BotId,
        chat_id: ChatId,
        family: Family,
        cost: int,
        priority: Priority,
        *,
        paid: bool,
        max_wait: float | None,
    ) -> Turn:
        began, waits = self._clock.monotonic(), max_wait is None or max_wait > 0
        name = f"{TURN_PREFIX}{self._link.me}/{next(self._numbers)}"
        kind, level = self._rules.kind(family), TURN_LEVELS[priority]
        asked = TurnRequest(name, str(bot), str(chat_id), kind, level, cost, paid, waits)
        granted: asyncio.Future[TurnGrant] = asyncio.get_running_loop().create_future()
        self._waiting[name] = granted
        asking = asyncio.create_task(self._ask(asked))
        try:
            await asyncio.shield(asking)
            if not granted.done():
                await self._wait(name, granted, waits=waits, began=began, max_wait=max_wait)
            token, asked_at = granted.result()
            if self._clock.monotonic() - asked_at > min(GRANT_USABLE_FOR, self._lease / RENEWALS_PER_LEASE):
                raise TurnLostError("this process was frozen: others may have the slots of its turn")  # noqa: TRY301
        except BaseException:
            self._waiting.pop(name, None)
            self._in_line.pop(name, None)
            self._later(self._withdraw(name, asking))
            raise
        self._held[token] = (name, chat_id)
        self._beat()
        return Turn(bot, chat_id, token)

    async def _ask(self, asked: TurnRequest) -> None:
        await self._run("turn", encode(asked))

    async def _wait(
        self,
        name: str,
        granted: asyncio.Future[TurnGrant],
        *,
        waits: bool,
        began: float,
        max_wait: float | None,
    ) -> None:
        if not waits:
            raise TimeoutError
        self._in_line[name] = None
        self._pump()
        self._beat()
        left = None if max_wait is None else began + max_wait - self._clock.monotonic()
        async with self._clock.timeout(left):
            await asyncio.wait([granted])

    async def _withdraw(self, name: str, asking: asyncio.Task[None]) -> None:
        """Its owner is gone: out of the line, or given back if it was granted in this instant."""
        await asyncio.wait([asking])
        if not asking.cancelled():
            asking.exception()  # whether or not the answer was heard, it may stand there
        await self._say(TurnEnd(name, 0, 0.0))

    def granted(self, turns: dict[str, int], asked_at: float) -> None:
        for name, token in turns.items():
            self._in_line.pop(name, None)
            future = self._waiting.pop(name, None)
            if future is not None and not future.done():
                future.set_result((token, asked_at))

    def lost(self, names: Iterable[str], error: StoreAwayError) -> None:
        """They will not be granted."""
        for name in names:
            self._in_line.pop(name, None)
            future = self._waiting.pop(name, None)
            if future is not None and not future.done():
                future.set_exception(error)

    # --- its end ---

    def pair(self, turn: Turn) -> tuple[str, int] | None:
        held = self._held.get(turn.token)
        return None if held is None else (held[0], turn.token)

    async def end(self, turn: Turn, outcome: Outcome, age: float) -> None:
        name, chat_id = self._held.pop(turn.token, (None, turn.chat_id))
        if name is not None:
            said = turn_end(name, turn.token, chat_id, outcome, age)
            try:
                await self._say(said)
            except asyncio.CancelledError:
                self._later(self._say(said))  # if it was heard before, this says nothing new
                raise

    async def _say(self, said: TurnEnd) -> None:
        try:
            await self._run("end_turn", encode([said]))
        except StoreError:  # its slots are held until it is heard, or its lease runs out
            self._unsaid.append((said, self._clock.monotonic()))
            self._beat()

    async def say_again(self) -> None:
        """What could not be said while Redis was away."""
        now = self._clock.monotonic()
        # The others ended by themselves.
        self._unsaid = [(said, since) for said, since in self._unsaid if now - since < self._lease]
        while self._unsaid:
            said, since = self._unsaid[0]
            aged = msgspec.structs.replace(said, age=said.age + self._clock.monotonic() - since)
            await self._run("end_turn", encode([aged]))
            self._unsaid = [one for one in self._unsaid if one[0] is not said]

    def _later(self, what: Awaitable[None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(what)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    # --- while some wait or are held ---

    def _pump(self) -> None:
        self._stirred.set()
        if self._pumping is None or self._pumping.done():
            self._link.listen(self._stirred.set)
            self._pumping = asyncio.create_task(self._look_until_granted(), name="tidegate: turns that wait")

    async def _look_until_granted(self) -> None:
        """Take the steps that bring the next turn, and listen for those that others take."""
        away: float | None = None  # since when
        while self._in_line:
            self._stirred.clear()
            try:
                delay = await self._ask_for(list(self._in_line))
            except StoreAwayError:
                away = away or self._clock.monotonic()
                if (
                    self._clock.monotonic() - away > OUTAGE_ENDURED_FOR
                ):  # as those who come now, they go on without it
                    self.lost(list(self._in_line), StoreAwayError("Redis went away while this waited"))
                    return
                await self._clock.sleep(TURN_RETRY_EVERY)
                continue
            away = None
            if self._in_line and not self._stirred.is_set():
                await self._doze(delay)

    async def _ask_for(self, names: list[str]) -> float | None:
        """All of them: any may have been granted by another process. Seconds until the next look."""
        delay: float | None = None
        for first in range(0, len(names), TURNS_PER_STEP):
            asked: list[Argument] = [*names[first : first + TURNS_PER_STEP]]
            reply = await self._run("claim", 0, "", 0, 0, *asked)
            self.lost(reply.answer.lost, TurnLostError("this process did not say for too long that it lives"))
            delay = reply.answer.delay
        return delay

    async def _doze(self, delay: float | None) -> None:
        longest = self._link.longest_wait
        with suppress(TimeoutError):
            async with self._clock.timeout(longest if delay is None else min(delay, longest)):
                await self._stirred.wait()

    def _beat(self) -> None:
        if self._beating is None or self._beating.done():
            self._beating = asyncio.create_task(self._live(), name="tidegate: turns are held")

    async def _live(self) -> None:
        """Leases of turns end with this process; as long as it lives, they go on."""
        while self._in_line or self._held or self._unsaid:
            await self._clock.sleep(self._lease / RENEWALS_PER_LEASE)
            pairs = [(name, token) for token, (name, _) in self._held.items()]
            pairs += [(name, 0) for name in self._in_line]
            with suppress(StoreError):
                await self.say_again()
                if pairs:
                    await self._run("extend", encode(pairs))
