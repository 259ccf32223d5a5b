"""The throttle's buckets in Redis, shared by all processes."""

import logging
from collections.abc import Sequence
from typing import Final

from tidegate.breaker import Breaker
from tidegate.clock import Clock
from tidegate.errors import StoreError
from tidegate.inbound.throttle import (
    ALBUM_SECONDS,
    ALLOWED,
    Charge,
    Throttled,
    ThrottleRules,
    ThrottleStore,
    ThrottleVerdict,
)
from tidegate.stores.group_commit import SerialGroupCommit
from tidegate.stores.memory.throttle import UNUSED_RATE, MemoryThrottle
from tidegate.stores.redis.connection import Argument, RedisConnection
from tidegate.stores.redis.scripts import load_scripts

log = logging.getLogger("tidegate.inbound")

CHARGE_TIMEOUT: Final = 1.0  # seconds that Redis has: updates must not wait longer
CHARGES_PER_STEP: Final = 500  # Redis is for others too
RETRY_AFTER: Final = 1.0  # seconds until Redis is asked again after it did not answer


SCRIPTS: Final = load_scripts("throttle", constants={"ALBUM_SECONDS": ALBUM_SECONDS})


class RedisThrottle(ThrottleStore):
    """While Redis cannot be asked, this process counts alone: more may pass, and no update waits.

    Updates that come while Redis is asked go together in the next step, in order. The caller opens and closes
    the connection.
    """

    def __init__(
        self, rules: ThrottleRules, connection: RedisConnection, clock: Clock, name: str = ""
    ) -> None:
        self._prefix = f"throttle:{name}:" if name else "throttle:"
        user, chat = rules.user, rules.chat or UNUSED_RATE
        pause = 0.0 if rules.is_queue else rules.pause
        self._limits = (user.count, user.seconds, chat.count, chat.seconds, rules.stubborn, pause)
        self._connection = connection
        self._clock = clock
        self._charges: SerialGroupCommit[Charge, ThrottleVerdict] = SerialGroupCommit(
            self._ask, CHARGES_PER_STEP, "throttle"
        )
        self._local = MemoryThrottle(rules, clock)
        self._breaker = Breaker(clock, retry_after=RETRY_AFTER, probe_seconds=CHARGE_TIMEOUT)

    async def charge(self, charge: Charge) -> ThrottleVerdict:
        if not self._breaker.blocks():
            try:
                return await self._charges.ask([charge])
            except (StoreError, TimeoutError) as error:
                self._failed(error)
        return await self._local.charge(charge)

    async def _ask(self, asked: list[Sequence[Charge]]) -> list[ThrottleVerdict]:
        keys: list[str] = []
        updates: list[Argument] = []
        for charge in (charge for one in asked for charge in one):
            user = charge.user is not None and self._key(charge.bot, "user", charge.user)
            chat = charge.chat is not None and self._key(charge.bot, "chat", charge.chat)
            keys += [key for key in (user or chat, chat or user) if key]
            who = ("u" if user else "") + ("c" if chat else "")
            age = charge.age(self._clock.now())
            allowed = (int(charge.never_throttled), int(charge.may_notify and not age))
            updates += [who, charge.cost, *allowed, charge.album or "", age, charge.strike, charge.mode]
        async with self._clock.timeout(CHARGE_TIMEOUT):
            reply = await self._connection.script(SCRIPTS["charge"], keys, *self._limits, *updates)
        if self._breaker.answered() is not None:
            log.warning("the throttle counts in Redis again")
        return [
            ALLOWED if passes else Throttled(notify=bool(notify), wait=float(wait))
            for passes, notify, wait in reply
        ]

    def _key(self, bot: int, what: str, number: int) -> str:
        return self._connection.key(f"{self._prefix}{bot}:{what}:{number}")

    def _failed(self, error: Exception) -> None:
        if self._breaker.failed():
            reason = str(error) or f"no answer within {CHARGE_TIMEOUT:g} s"
            log.warning("the throttle counts in this process alone until Redis answers: %s", reason)
