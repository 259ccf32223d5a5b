"""Throttle buckets in memory, for one process."""

import math
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

import msgspec

from tidegate.clock import Clock
from tidegate.inbound.throttle import ALLOWED, Charge, Throttled, ThrottleStore, ThrottleVerdict
from tidegate.inbound.throttle_rules import ALBUM_SECONDS, ThrottleRules
from tidegate.model import Rate
from tidegate.pacing.bucket import Bucket

V = TypeVar("V")


class ExpiringMap(Generic[V]):
    """A value is kept for at least `lifetime` seconds after it was set, and while in use not for twice that.

    The keys stand in two generations, and the older one is dropped as a whole, without a look at its keys.
    """

    def __init__(self, lifetime: float) -> None:
        self._lifetime = lifetime
        self._young: dict[Hashable, V] = {}
        self._old: dict[Hashable, V] = {}
        self._turned_at = 0.0

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, key: Hashable, now: float) -> V | None:
        self._turn(now)
        found = self._young.get(key)
        return self._old.get(key) if found is None else found

    def set(self, key: Hashable, value: V, now: float) -> None:
        self._turn(now)
        self._young[key] = value
        self._old.pop(key, None)

    def _turn(self, now: float) -> None:
        passed = now - self._turned_at
        if passed >= self._lifetime:
            self._old = {} if passed >= 2 * self._lifetime else self._young
            self._young, self._turned_at = {}, now


LONG_AGO: Final = -math.inf
UNUSED_RATE: Final = Rate(1, 1)  # where chats have no limit, none is charged

_Key = tuple[int, int] | None  # bot and user, bot and chat; None: nobody is charged


class BucketLevels:
    """How full the bucket of each key is; forgotten once it is full again."""

    def __init__(self, rate: Rate) -> None:
        self._bucket = Bucket(rate.count, rate.count / rate.seconds)
        self._full_at: ExpiringMap[tuple[float, float]] = ExpiringMap(self._bucket.depth)  # and as of when

    def __len__(self) -> int:
        return len(self._full_at)

    def look(self, key: _Key, now: float, cost: float) -> tuple[float, float]:
        """What would be kept after the cost is taken, and the seconds to wait until it can be."""
        if key is None:
            return 0.0, 0.0
        full_at, at = self._full_at.get(key, now) or (LONG_AGO, LONG_AGO)
        return self._bucket.take(
            full_at, max(now, at), cost
        )  # time does not go back: what is late may be mixed

    def keep(self, key: _Key, now: float, full_at: float) -> None:
        if key is not None:
            _, at = self._full_at.get(key, now) or (LONG_AGO, LONG_AGO)
            self._full_at.set(key, (full_at, max(now, at)), now)


class Strikes(msgspec.Struct):
    """Of a user who was held. A window begins with the first update that is held outside of one."""

    window_ends: float = LONG_AGO
    held: int = 0
    answered: bool = False
    paused_until: float = LONG_AGO


class LastAlbum(msgspec.Struct, frozen=True):
    """The last one of a user."""

    name: str
    known_until: float
    free_at: float | None  # if its first part was held


class MemoryThrottle(ThrottleStore):
    """Remembers a user as long as that makes a difference, and not twice as long."""

    def __init__(self, rules: ThrottleRules, clock: Clock) -> None:
        self._rules = rules
        self._clock = clock
        self._users = BucketLevels(rules.user)
        self._chats = BucketLevels(rules.chat or UNUSED_RATE)
        self._strikes: ExpiringMap[Strikes] = ExpiringMap(max(rules.user.seconds, rules.pause))
        self._albums: ExpiringMap[LastAlbum] = ExpiringMap(ALBUM_SECONDS)

    def __len__(self) -> int:
        """Of all that is remembered."""
        return len(self._users) + len(self._chats) + len(self._strikes) + len(self._albums)

    async def charge(self, charge: Charge) -> ThrottleVerdict:
        age = charge.age(self._clock.now())
        now = self._clock.monotonic() - age
        user = None if charge.user is None else (charge.bot, charge.user)
        chat = None if charge.chat is None else (charge.bot, charge.chat)
        if charge.never_held:
            self._count(self._users, user, charge.cost, now)
            self._count(self._chats, chat, charge.cost, now)
            return ALLOWED
        verdict = self._decided(user, charge.album, now)
        if verdict is None:
            verdict = self._take(user, chat, charge, now, may_answer=charge.may_answer and not age)
            self._note_album(user, charge.album, verdict, now)
        return verdict

    @staticmethod
    def _count(levels: BucketLevels, key: _Key, cost: float, now: float) -> None:
        """As far as there is something left: what passes anyway makes no debts."""
        full_at, wait = levels.look(key, now, cost)
        if not wait:
            levels.keep(key, now, full_at)

    def _decided(self, user: _Key, album: str | None, now: float) -> ThrottleVerdict | None:
        """By a pause, or by the part of an album that came before."""
        strikes = self._strikes.get(user, now)
        if strikes is not None and strikes.paused_until > now:
            return Throttled(answer=False, wait=strikes.paused_until - now)
        known = None if album is None else self._albums.get(user, now)
        if known is None or known.name != album or known.known_until <= now:
            return None
        return (
            ALLOWED if known.free_at is None else Throttled(answer=False, wait=max(0.0, known.free_at - now))
        )

    def _take(
        self, user: _Key, chat: _Key, charge: Charge, now: float, *, may_answer: bool
    ) -> ThrottleVerdict:
        user_full_at, wait = self._users.look(user, now, charge.cost)
        if wait:
            return self._strike(user, wait, now, may_answer=may_answer)
        chat_full_at, wait = self._chats.look(chat, now, charge.cost)
        if wait:
            return Throttled(answer=False, wait=wait)
        self._users.keep(user, now, user_full_at)
        self._chats.keep(chat, now, chat_full_at)
        return ALLOWED

    def _strike(self, user: _Key, wait: float, now: float, *, may_answer: bool) -> Throttled:
        rules, strikes = self._rules, self._strikes.get(user, now) or Strikes()
        if strikes.window_ends <= now:
            strikes = Strikes(now + rules.user.seconds)
        strikes.held += 1
        if strikes.held >= rules.stubborn and rules.pause:
            # The window goes on: a short pause must not bring a second answer.
            wait = max(wait, rules.pause)
            strikes.held, strikes.paused_until = 0, now + wait
        answer = may_answer and not strikes.answered
        strikes.answered = strikes.answered or answer
        self._strikes.set(user, strikes, now)
        return Throttled(answer=answer, wait=wait)

    def _note_album(self, user: _Key, album: str | None, verdict: ThrottleVerdict, now: float) -> None:
        if album is not None and user is not None:
            free_at = now + verdict.wait if isinstance(verdict, Throttled) else None
            self._albums.set(user, LastAlbum(album, now + ALBUM_SECONDS, free_at), now)
