"""Throttle buckets in memory, for one process."""

import math
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

import msgspec

from tidegate.clock import Clock
from tidegate.inbound.throttle import (
    ALBUM_SECONDS,
    ALLOWED,
    Charge,
    Throttled,
    ThrottleRules,
    ThrottleStore,
    ThrottleVerdict,
)
from tidegate.model import Rate
from tidegate.pacing.bucket import Bucket

LONG_AGO: Final = -math.inf
UNUSED_RATE: Final = Rate(1, 1)  # where chats have no limit, none is charged

_Key = tuple[int, int] | None  # bot and user, or bot and chat; None: nothing is charged
V = TypeVar("V")


class ExpiringMap(Generic[V]):
    """Keeps a value for at least `lifetime` seconds after it was set, and while in use not for twice that.

    There are two generations of keys, and the older one is dropped as a whole, without a pass over its keys.
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


class BucketLevels:
    """The level of each key's bucket; forgotten once it is full again."""

    def __init__(self, rate: Rate) -> None:
        self._bucket = Bucket(rate.count, rate.count / rate.seconds)
        self._full_at: ExpiringMap[tuple[float, float]] = ExpiringMap(self._bucket.depth)  # and as of when

    def __len__(self) -> int:
        return len(self._full_at)

    def peek(self, key: _Key, now: float, cost: float) -> tuple[float, float]:
        """Return when the bucket is full after the cost is taken, and the seconds until it can be taken."""
        if key is None:
            return 0.0, 0.0
        full_at, at = self._full_at.get(key, now) or (LONG_AGO, LONG_AGO)
        # Late updates may be mixed with others: time does not go back.
        return self._bucket.take(full_at, max(now, at), cost)

    def set(self, key: _Key, now: float, full_at: float) -> None:
        if key is not None:
            _, at = self._full_at.get(key, now) or (LONG_AGO, LONG_AGO)
            self._full_at.set(key, (full_at, max(now, at)), now)


class Strikes(msgspec.Struct):
    """Dropped updates of a user. A window begins with the first one outside of a window."""

    window_ends: float = LONG_AGO
    count: float = 0.0
    is_notified: bool = False
    paused_until: float = LONG_AGO


class LastAlbum(msgspec.Struct, frozen=True):
    """The last album of a user."""

    name: str
    known_until: float
    free_at: float | None  # if its first part was throttled


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
        """Everything that is remembered."""
        return len(self._users) + len(self._chats) + len(self._strikes) + len(self._albums)

    async def charge(self, charge: Charge) -> ThrottleVerdict:
        age = charge.age(self._clock.now())
        now = self._clock.monotonic() - age
        user = None if charge.user is None else (charge.bot, charge.user)
        chat = None if charge.chat is None else (charge.bot, charge.chat)
        if charge.never_throttled:
            self._count(self._users, user, charge.cost, now)
            self._count(self._chats, chat, charge.cost, now)
            return ALLOWED
        if charge.mode == "full":
            return self._drop(user, charge, now, may_notify=charge.may_notify and not age)
        verdict = self._known_verdict(user, charge.album, now)
        if verdict is None:
            verdict = self._take(user, chat, charge, now, may_notify=charge.may_notify and not age)
            if charge.mode == "drop" or verdict is ALLOWED:
                self._note_album(user, charge.album, verdict, now)
        return verdict

    def _drop(self, user: _Key, charge: Charge, now: float, *, may_notify: bool) -> Throttled:
        wait = self._rules.user.seconds / self._rules.user.count
        if user is None:
            return Throttled(notify=False, wait=wait)
        return self._strike(user, wait, now, charge.strike, may_notify=may_notify)

    @staticmethod
    def _count(levels: BucketLevels, key: _Key, cost: float, now: float) -> None:
        """Take the cost if there is enough left: an update that passes anyway makes no debts."""
        full_at, wait = levels.peek(key, now, cost)
        if not wait:
            levels.set(key, now, full_at)

    def _known_verdict(self, user: _Key, album: str | None, now: float) -> ThrottleVerdict | None:
        """The verdict of a pause, or of an earlier part of the same album."""
        strikes = self._strikes.get(user, now)
        if strikes is not None and strikes.paused_until > now:
            return Throttled(notify=False, wait=strikes.paused_until - now)
        known = None if album is None else self._albums.get(user, now)
        if known is None or known.name != album or known.known_until <= now:
            return None
        return (
            ALLOWED if known.free_at is None else Throttled(notify=False, wait=max(0.0, known.free_at - now))
        )

    def _take(
        self, user: _Key, chat: _Key, charge: Charge, now: float, *, may_notify: bool
    ) -> ThrottleVerdict:
        user_full_at, wait = self._users.peek(user, now, charge.cost)
        if wait and charge.mode == "wait":
            return Throttled(notify=False, wait=wait)
        if wait:
            return self._strike(user, wait, now, charge.strike, may_notify=may_notify)
        chat_full_at, wait = self._chats.peek(chat, now, charge.cost)
        if wait:
            return Throttled(notify=False, wait=wait)
        self._users.set(user, now, user_full_at)
        self._chats.set(chat, now, chat_full_at)
        return ALLOWED

    def _strike(self, user: _Key, wait: float, now: float, strike: float, *, may_notify: bool) -> Throttled:
        rules, strikes = self._rules, self._strikes.get(user, now) or Strikes()
        if strikes.window_ends <= now:
            strikes = Strikes(now + rules.user.seconds)
        strikes.count += strike
        if strikes.count >= rules.stubborn and rules.pause and not rules.is_queue:
            # The window goes on: a short pause must not bring a second notice.
            wait = max(wait, rules.pause)
            strikes.count, strikes.paused_until = 0.0, now + wait
        notify = may_notify and not strikes.is_notified
        strikes.is_notified = strikes.is_notified or notify
        self._strikes.set(user, strikes, now)
        return Throttled(notify=notify, wait=wait)

    def _note_album(self, user: _Key, album: str | None, verdict: ThrottleVerdict, now: float) -> None:
        if album is not None and user is not None:
            free_at = now + verdict.wait if isinstance(verdict, Throttled) else None
            self._albums.set(user, LastAlbum(album, now + ALBUM_SECONDS, free_at), now)
