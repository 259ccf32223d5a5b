"""Event ids that the application gave, remembered beyond the session that they changed."""

import hashlib
from typing import Final

from tidegate.clock import Clock
from tidegate.polling.restorer import SUBSCRIPTIONS_PER_PAGE
from tidegate.polling.subscriptions import StoredSubscription, Subscription, Subscriptions

SEEN_SECONDS: Final = 7 * 86_400.0  # seconds: longer than anybody repeats a call that was not answered
SEEN_SWEEP_INTERVAL: Final = 3_600.0  # seconds between two looks at what is too old


class SeenEvents:
    """Ids of events, for a week; in the store, so that all processes and later ones know them."""

    def __init__(self, subscriptions: Subscriptions, clock: Clock) -> None:
        self._subscriptions = subscriptions
        self._clock = clock
        self._known: dict[str, StoredSubscription] = {}  # by rising numbers
        self._number = 0  # up to which the store was read
        self._sweep_at = 0.0  # monotonic

    async def knows(self, place: str, event: str) -> bool:
        await self._read()
        await self._sweep()
        return _key(place, event) in self._known

    async def note(self, place: str, event: str) -> None:
        """After it was handled: one that was cut short is handled when it is said again."""
        await self._subscriptions.add([Subscription(_key(place, event), {}, self._clock.now())])

    async def _read(self) -> None:
        """Those noted since, here or elsewhere."""
        while page := await self._subscriptions.after(self._number, SUBSCRIPTIONS_PER_PAGE):
            self._number = page[-1].number
            self._known |= {kept.subscription.key: kept for kept in page}

    async def _sweep(self) -> None:
        if self._clock.monotonic() < self._sweep_at:
            return
        self._sweep_at = self._clock.monotonic() + SEEN_SWEEP_INTERVAL
        oldest = self._clock.now() - SEEN_SECONDS
        if old := [kept for kept in self._known.values() if kept.subscription.since < oldest]:
            await self._subscriptions.remove(old)
            self._known = {
                key: kept for key, kept in self._known.items() if kept.subscription.since >= oldest
            }

    def forget(self) -> None:
        """The store may be another one when it starts again."""
        self._known.clear()
        self._number = 0


def _key(place: str, event: str) -> str:
    """Short, whatever the application calls it."""
    return f"{place}:{hashlib.blake2b(event.encode(), digest_size=12).hexdigest()}"
