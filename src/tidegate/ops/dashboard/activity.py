"""The last hour of a system, sampled by the process that shows it, and what is true now."""

import asyncio
import math
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from tidegate.errors import TidegateError
from tidegate.model import BotId, BotLimits, Rate
from tidegate.ops.dashboard.webhook_watch import WebhookWatch
from tidegate.outbox.port import LimitState, OutboxStats, ProcessVitals, StoreHealth
from tidegate.stores import is_redis

if TYPE_CHECKING:
    from tidegate.gate import Tidegate

READ_AT_MOST_EVERY: Final = 1.0  # seconds, however many look
READ_TIMEOUT: Final = 3.0  # seconds that a store may take before the page says that it does not answer
SAMPLE_EVERY: Final = 10.0  # seconds
SAMPLES: Final = 360  # an hour
MOST_BOTS: Final = 200  # of which the last hour is kept


class BotState(msgspec.Struct, frozen=True, kw_only=True):
    """A bot at one moment. Rates are calls a second."""

    bot: BotId
    counts: OutboxStats
    sends: float
    refused: float
    nominal: Rate
    allowed: Rate  # learned, or nominal
    closed_for: float = 0.0
    obstacle: str = ""
    is_paused: bool = False
    paused_chats: int = 0
    oldest_age: float | None = None

    @property
    def limit(self) -> float:
        return self.allowed.count / self.allowed.seconds

    @property
    def is_learned(self) -> bool:
        return self.allowed != self.nominal

    @property
    def drains_in(self) -> float | None:
        """Seconds in which what waits leaves at the limit; None if nothing may leave now."""
        if self.is_paused or self.obstacle or self.oldest_age is None:
            return None
        return self.closed_for + self.counts.waiting / self.limit


class SystemState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything at one moment. `away`: why the store did not answer; then the numbers are those before."""

    at: float
    store: str  # memory, sqlite or redis
    bots: tuple[BotState, ...] = ()
    stats: OutboxStats = OutboxStats()
    health: StoreHealth | None = None  # of the processes that send
    own_health: StoreHealth = StoreHealth()
    vitals: tuple[ProcessVitals, ...] = ()
    database_answers: bool | None = None
    away: str = ""


class Sample(msgspec.Struct, frozen=True):
    """The system at one moment of the last hour."""

    at: float
    sends: float  # calls a second
    refused: float
    waiting: int
    oldest_age: float
    loop_p99: float


def sample_of(state: SystemState) -> Sample:
    return Sample(
        state.at,
        sum(bot.sends for bot in state.bots),
        sum(bot.refused for bot in state.bots),
        state.stats.waiting,
        max((bot.oldest_age or 0.0 for bot in state.bots), default=0.0),
        max((one.loop_p99 or 0.0 for one in state.vitals), default=0.0),
    )


class Activity:
    """Reads what is true now, at most once a second for all who ask, and remembers the last hour.

    `async with` it: then it samples, whether somebody looks or not.
    """

    def __init__(self, gate: "Tidegate") -> None:
        self._gate = gate
        self._clock = gate.clock
        self._lock = asyncio.Lock()
        self._read_at = -math.inf  # monotonic
        self._state = SystemState(at=0.0, store=_kind_of(gate.core.store_name))
        self.samples: deque[Sample] = deque(maxlen=SAMPLES)
        self.webhooks = WebhookWatch(gate)
        self.sends_of: dict[BotId, deque[float]] = {}  # one for each sample, the latest last

    async def now(self) -> SystemState:
        async with self._lock:  # those who ask meanwhile get the same
            if self._clock.monotonic() - self._read_at >= READ_AT_MOST_EVERY:
                self._state = await self._read()
                self._read_at = self._clock.monotonic()
        return self._state

    def learned_by(self, bot: BotId) -> Rate | None:
        """Return the limit of a bot that 429s have cut, as it was when somebody looked last."""
        found = next((one for one in self._state.bots if one.bot == bot), None)
        return found.allowed if found is not None and found.is_learned else None

    async def sample_often(self) -> None:
        """Sample for ever."""
        while True:
            with suppress(TidegateError):
                self._sample(await self.now())
            await self._clock.sleep(SAMPLE_EVERY)

    def _sample(self, state: SystemState) -> None:
        self.samples.append(sample_of(state))
        sends = {bot.bot: bot.sends for bot in state.bots[:MOST_BOTS]}
        for gone in self.sends_of.keys() - sends.keys():
            del self.sends_of[gone]
        for bot, value in sends.items():
            self.sends_of.setdefault(bot, deque(maxlen=SAMPLES)).append(value)

    async def _read(self) -> SystemState:
        before, answers = self._state, await self._gate.core.database_answers(READ_TIMEOUT)
        try:
            async with self._clock.timeout(READ_TIMEOUT):
                return await self._read_store(database_answers=answers)
        except (TidegateError, OSError) as error:  # a TimeoutError is an OSError
            away = str(error) or f"the store has not answered within {READ_TIMEOUT:.0f} s"
            return msgspec.structs.replace(
                before,
                at=self._clock.now(),
                away=away,
                own_health=self._gate.health(),
                database_answers=answers,
            )

    async def _read_store(self, *, database_answers: bool | None) -> SystemState:
        gate = self._gate
        own = gate.health()
        health = await self._health(own)
        vitals = () if health is None else health.vitals
        return SystemState(
            at=self._clock.now(),
            store=self._state.store,
            bots=await self._bots(vitals),
            stats=await gate.stats(),
            health=health,
            own_health=own,
            vitals=vitals,
            database_answers=database_answers,
        )

    async def _health(self, own: StoreHealth) -> StoreHealth | None:
        """Return the health of the processes that deliver, this one among them; None if none does."""
        if own.vitals and not is_redis(self._gate.core.store_name):
            return own  # there is no other
        others = await self._gate.core.store.sender_health()
        if others is None or not own.vitals:
            return others if others is not None else own if own.vitals else None
        merged = own.with_notes(others.reasons) if others.ready else own.with_problems(others.reasons)
        return msgspec.structs.replace(merged, vitals=(*own.vitals, *others.vitals))

    async def _bots(self, vitals: Sequence[ProcessVitals]) -> tuple[BotState, ...]:
        gate, outbox = self._gate, self._gate.outbox
        counts, own_limits = await outbox.stats_by_bot(), await outbox.own_limits()
        limits = {state.bot: state for state in await outbox.limits(chats=False) if state.chat_id is None}
        pauses, calls = await gate.core.store.pauses(), _calls(vitals)
        paused_chats = Counter(bot for bot, chat in pauses if chat is not None)
        now = self._clock.now()

        def state_of(bot: BotId) -> BotState:
            known, limit = counts.get(bot, OutboxStats()), limits.get(bot, LimitState(bot))
            nominal = own_limits.get(bot, BotLimits()).bot or gate.core.rules.bot
            sends, refused = calls.get(bot, (0.0, 0.0))
            return BotState(
                bot=bot,
                counts=known,
                sends=sends,
                refused=refused,
                nominal=nominal,
                allowed=limit.allowed or nominal,
                closed_for=0.0 if limit.obstacle else limit.closed_for,
                obstacle=limit.obstacle,
                is_paused=(bot, None) in pauses,
                paused_chats=paused_chats[bot],
                oldest_age=None if known.oldest_at is None else max(0.0, now - known.oldest_at),
            )

        bots = {bot.id for bot in gate.bots()} | set(counts) | {bot for bot, _ in pauses}
        return tuple(map(state_of, sorted(bots)))


def _calls(vitals: Sequence[ProcessVitals]) -> dict[BotId, tuple[float, float]]:
    """Add up what each process has called for each bot."""
    calls: dict[BotId, tuple[float, float]] = {}
    for one in vitals:
        for each in one.calls:
            made, refused = calls.get(each.bot, (0.0, 0.0))
            calls[each.bot] = (made + each.made, refused + each.refused)
    return calls


def _kind_of(store: str) -> str:
    if store == "memory://":
        return "memory"
    return "redis" if is_redis(store) else "sqlite"
