"""Turns of direct calls of this process: those that wait for a grant, and those held."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, Generic, TypeVar

import msgspec

from tidegate.clock import Clock
from tidegate.errors import ClosedError, StoreAwayError, StoreError
from tidegate.model import BotId, ChatId, Outcome, Priority
from tidegate.outbox.dispatcher import CLOSED_WHILE_WAITING, TURN_LEVELS
from tidegate.outbox.port import Turn
from tidegate.pacing.rules import Family, Rules
from tidegate.stores.group_commit import SerialGroupCommit
from tidegate.stores.message_codec import encode
from tidegate.stores.redis.connection import Argument, RedisConnection
from tidegate.stores.redis.outbox_codec import TURN_PREFIX, OutboxReply, TurnEnd, TurnRequest, turn_end
from tidegate.tasks import BackgroundTasks

TURNS_PER_STEP: Final = 200
RENEWALS_PER_LEASE: Final = 3
GRANT_USABLE_FOR: Final = 5.0  # seconds; a process that comes later was frozen, and does not use the grant
OUTAGE_ENDURED_FOR: Final = 1.0  # seconds for which turns in line wait for a Redis that is away
TURN_RETRY_EVERY: Final = 0.2  # seconds, while Redis is away

RunStep = Callable[..., Awaitable[OutboxReply]]
TurnGrant = tuple[int, float]  # the token, and when this process made the step that brought it
T = TypeVar("T")


class TurnLostError(StoreAwayError):
    """The lease of a waiting turn ran out, although Redis can be reached."""


class RedisTurns:
    """`run` makes one step of the outbox, and reports the granted turns to `granted`."""

    def __init__(
        self, connection: RedisConnection, clock: Clock, rules: Rules, lease: float, run: RunStep
    ) -> None:
        self._connection, self._clock, self._rules, self._lease = connection, clock, rules, lease
        self._run = run
        self._numbers = itertools.count(1)
        self._waiting: dict[str, asyncio.Future[TurnGrant]] = {}
        self._in_line: dict[str, None] = {}  # those of the waiting that Redis knows
        self._held: dict[int, tuple[str, ChatId]] = {}  # by token
        self._grants_possible = asyncio.Event()
        self._watching, self._renewing = BackgroundTasks(), BackgroundTasks()  # one task each at most
        self._finishing = BackgroundTasks()
        self._asking: SharedStep[TurnRequest] = SharedStep(run, "turn")
        self._ending: SharedStep[TurnEnd] = SharedStep(run, "end_turn")
        self._unreported: list[tuple[TurnEnd, float]] = []  # ends that Redis has not heard, and since when

    async def close(self) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ClosedError(CLOSED_WHILE_WAITING))
        await self._watching.stop()
        await self._renewing.stop()
        await self._finishing.join()
        await self._asking.join()
        await self._ending.join()

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
        name = f"{TURN_PREFIX}{self._connection.me}/{next(self._numbers)}"
        kind, level = self._rules.kind(family), TURN_LEVELS[priority]
        request = TurnRequest(name, str(bot), str(chat_id), kind, level, cost, paid, waits)
        granted: asyncio.Future[TurnGrant] = asyncio.get_running_loop().create_future()
        self._waiting[name] = granted
        asking = self._finishing.start(self._asking.take(request), "turn", awaited=True)
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
            self._finishing.start(self._withdraw(name, asking), "withdraw a turn")
            raise
        self._held[token] = (name, chat_id)
        self._renew()
        return Turn(bot, chat_id, token)

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
        self._watch()
        self._renew()
        left = None if max_wait is None else began + max_wait - self._clock.monotonic()
        async with self._clock.timeout(left):
            await asyncio.wait([granted])

    async def _withdraw(self, name: str, asking: asyncio.Task[None]) -> None:
        """Take a turn whose caller is gone out of its line, or give it back if it was just granted."""
        await asyncio.wait([asking])
        if not asking.cancelled():
            asking.exception()  # the turn may be in Redis although no answer came
        await self._report(TurnEnd(name, 0, 0.0))

    def granted(self, turns: dict[str, int], asked_at: float) -> None:
        for name, token in turns.items():
            future = self._leave_line(name)
            if future is not None:
                future.set_result((token, asked_at))

    def lost(self, names: Iterable[str], error: StoreAwayError) -> None:
        """These turns will not be granted."""
        for name in names:
            future = self._leave_line(name)
            if future is not None:
                future.set_exception(error)

    def _leave_line(self, name: str) -> asyncio.Future[TurnGrant] | None:
        """The future of a turn that still waits."""
        self._in_line.pop(name, None)
        future = self._waiting.pop(name, None)
        return None if future is None or future.done() else future

    def id_and_token(self, turn: Turn) -> tuple[str, int] | None:
        held = self._held.get(turn.token)
        return None if held is None else (held[0], turn.token)

    async def end(self, turn: Turn, outcome: Outcome, age: float) -> None:
        name, chat_id = self._held.pop(turn.token, (None, turn.chat_id))
        if name is not None:
            ending = turn_end(name, turn.token, chat_id, outcome, age)
            try:
                await self._report(ending)
            except asyncio.CancelledError:
                self._finishing.start(self._report(ending), "end a turn")  # a second report changes nothing
                raise

    async def _report(self, ending: TurnEnd) -> None:
        try:
            await self._ending.take(ending)
        except StoreError:  # its slots are held until Redis hears of it, or its lease runs out
            self._unreported.append((ending, self._clock.monotonic()))
            self._renew()

    async def repeat_ends(self) -> None:
        """Report the ends that Redis has not heard while it was away."""
        now = self._clock.monotonic()
        # The leases of the others have run out by now.
        self._unreported = [one for one in self._unreported if now - one[1] < self._lease]
        while self._unreported:
            ending, since = self._unreported[0]
            aged = msgspec.structs.replace(ending, age=ending.age + self._clock.monotonic() - since)
            await self._run("end_turn", encode([aged]))
            self._unreported = [one for one in self._unreported if one[0] is not ending]

    def _watch(self) -> None:
        self._grants_possible.set()
        if not self._watching:
            self._connection.on_grants(self.look_again)
            self._watching.start(self._watch_line(), "turns that wait")

    def look_again(self) -> None:
        """The turns in line may have been granted or lost."""
        self._grants_possible.set()

    async def _watch_line(self) -> None:
        """Make the steps that grant the next turn, and listen for those that other processes make."""
        away_since: float | None = None
        while self._in_line:
            self._grants_possible.clear()
            try:
                delay = await self._ask_for(list(self._in_line))
            except StoreAwayError:
                away_since = away_since or self._clock.monotonic()
                if self._clock.monotonic() - away_since > OUTAGE_ENDURED_FOR:  # they go on without Redis
                    self.lost(list(self._in_line), StoreAwayError("Redis went away while this waited"))
                    return
                await self._clock.sleep(TURN_RETRY_EVERY)
                continue
            away_since = None
            if self._in_line and not self._grants_possible.is_set():
                await self._sleep(delay)

    async def _ask_for(self, names: list[str]) -> float | None:
        """Ask for all: any process may have granted one. Return the seconds until the next look."""
        delay: float | None = None
        for first in range(0, len(names), TURNS_PER_STEP):
            asked: list[Argument] = [*names[first : first + TURNS_PER_STEP]]
            reply = await self._run("claim", 0, "", 0, 0, *asked)
            self.lost(reply.answer.lost, TurnLostError("this process did not renew the lease for too long"))
            delay = reply.answer.delay
        return delay

    async def _sleep(self, delay: float | None) -> None:
        longest = self._connection.longest_wait
        with suppress(TimeoutError):
            async with self._clock.timeout(longest if delay is None else min(delay, longest)):
                await self._grants_possible.wait()

    def _renew(self) -> None:
        if not self._renewing:
            self._renewing.start(self._renew_leases(), "leases of turns")

    async def _renew_leases(self) -> None:
        """Renew the leases of turns as long as this process lives."""
        while self._in_line or self._held or self._unreported:
            await self._clock.sleep(self._lease / RENEWALS_PER_LEASE)
            pairs = [(name, token) for token, (name, _) in self._held.items()]
            pairs += [(name, 0) for name in self._in_line]
            with suppress(StoreError):
                await self.repeat_ends()
                if pairs:
                    await self._run("extend", encode(pairs))


class SharedStep(Generic[T]):
    """A step that is made for several requests: the script costs little more for ten than for one.

    A request that comes alone goes at once. Those that come while one is under way go together in the next.
    """

    def __init__(self, run: RunStep, step: str) -> None:
        self._run = run
        self._step = step
        self._group: SerialGroupCommit[T, None] = SerialGroupCommit(self._make, TURNS_PER_STEP, step)
        self._is_alone = False  # one is under way that came alone

    async def take(self, request: T) -> None:
        """Return when the step was made. Raises StoreError."""
        if self._is_alone or self._group.pending:
            await self._group.ask([request])
            return
        self._is_alone = True
        try:
            await self._make([[request]])
        finally:
            self._is_alone = False

    async def join(self) -> None:
        await self._group.join()

    async def _make(self, requests: Sequence[Sequence[T]]) -> list[None]:
        await self._run(self._step, encode([one for request in requests for one in request]))
        return [None] * len(requests)
