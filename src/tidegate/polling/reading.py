"""Who waits, read from the store: all when this process begins to poll, then those who came or went since."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Final

from tidegate.clock import Clock
from tidegate.polling.restoring import Restored, Staggering, everyone
from tidegate.polling.roster import Roster
from tidegate.polling.store.base import Kept, Subscriptions
from tidegate.polling.subscriptions import Subscription
from tidegate.polling.telling import Teller

RECOUNT: Final = 10.0  # seconds between two looks at whether others have unsubscribed somebody


class Reader:
    """Keeps roster and teller in step with the store. `on_admitted` hears who is waited for from now on."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        clock: Clock,
        roster: Roster,
        teller: Teller,
        on_admitted: Callable[[Sequence[Subscription]], None],
    ) -> None:
        self._subscriptions = subscriptions
        self._clock = clock
        self._roster = roster
        self._teller = teller
        self._on_admitted = on_admitted
        self._number = 0  # up to which it was read
        self._recount_at = 0.0  # monotonic
        self._is_in_doubt = False
        self._restoring = asyncio.Lock()

    async def read_all(self) -> None:
        """What was known before may be outdated. What is to be told is told first."""
        kept = await everyone(self._subscriptions)
        self._number = kept[-1].number if kept else 0
        self._teller.keep({one.number for one in kept})
        self._admit(self._roster.replace([one for one in kept if one.news is None]))
        self._forget_others({one.subscription.key for one in kept})
        self._teller.tell(kept)

    async def read_new(self) -> None:
        """Those subscribed since, here or elsewhere, or who wait again."""
        kept = await everyone(self._subscriptions, self._number)
        for one in kept:
            self._number = one.number
            self._teller.drop_until(one.subscription.key, one.number - 1)
        self._take([one for one in kept if one.news is None])
        self._teller.tell(kept)
        if self._is_in_doubt:
            await self._tell_noted()
        if self._clock.monotonic() >= self._recount_at:
            await self._recount()

    def doubt(self) -> None:
        """There may be news in the store of which this process has not heard."""
        self._is_in_doubt = True

    def reserve(self, keys: Sequence[str]) -> list[str]:
        """Those who are not known yet: they are admitted when they are released."""
        reserved = [key for key in keys if key not in self._roster]
        self._roster.reserved.update(reserved)
        return reserved

    def release(self, keys: Collection[str]) -> None:
        """Whoever of them was read is admitted; the others are when they are."""
        self._admit([self._roster.pending[key] for key in keys if key in self._roster.pending])
        self._roster.reserved.difference_update(keys)

    async def restore(self, pace: Staggering) -> Restored:
        """Those found in the store, in groups; in one go at a time."""
        async with self._restoring:
            begun, found = self._clock.monotonic(), list(self._roster.pending.values())
            admitted = 0

            async def admit(group: Sequence[Kept]) -> None:
                nonlocal admitted
                there = [one for one in group if self._roster.pending.get(one.subscription.key) is one]
                admitted += len(there)  # the others have left meanwhile, or subscribed anew
                self._admit(there)

            groups = await pace.restore(found, admit, lambda one: one.subscription)
            seconds = self._clock.monotonic() - begun
            return Restored(len(found), admitted, len(found) - admitted, seconds, groups)

    def forget(self, keys: Collection[str]) -> None:
        """They are gone from the store."""
        self._roster.forget(keys)
        self._teller.forget(keys)

    def _take(self, kept: Sequence[Kept]) -> None:
        """Who was restored here is admitted in his turn, unless he has subscribed since."""
        reserved = self._roster.reserved - self._roster.unread
        self._roster.put_off([one for one in kept if one.subscription.key in reserved])
        self._admit([one for one in kept if one.subscription.key not in reserved])

    async def _tell_noted(self) -> None:
        """Those with news whom nobody tells; who was told in vain too often rests on."""
        self._is_in_doubt = False
        try:
            kept = await everyone(self._subscriptions)
        except BaseException:
            self._is_in_doubt = True
            raise
        noted = [one for one in kept if self._teller.number_of(one.subscription.key) != one.number]
        self._roster.found([one.news for one in noted if one.news is not None])
        self._teller.tell(noted)

    def _admit(self, kept: Sequence[Kept]) -> None:
        self._roster.admit(kept)
        if waiting := [one.subscription for one in kept if not one.met]:
            self._on_admitted(waiting)

    async def _recount(self) -> None:
        """Who is unsubscribed by another process leaves no trace but the number of those who are left."""
        if await self._subscriptions.count() < len(self._known()):
            self._forget_others({one.subscription.key for one in await everyone(self._subscriptions)})
        self._recount_at = self._clock.monotonic() + RECOUNT

    def _known(self) -> set[str]:
        return self._roster.read() | {*self._teller.telling, *self._teller.untold}

    def _forget_others(self, present: Collection[str]) -> None:
        known = self._known() | {*self._teller.given, *self._teller.waiters.keys}
        self.forget([key for key in known if key not in present and key not in self._roster.unread])
