"""Long polling: held first, confirmed later, by one process at a time."""

from collections.abc import Sequence
from typing import Any

import pytest

from tidegate.errors import StoreAwayError
from tidegate.inbound.handler_registry import WAITING_ITEMS_WHILE_FETCHING, HandlerRegistry
from tidegate.inbound.inbox import InboxItem, InboxStats
from tidegate.inbound.long_polling import LongPoller
from tidegate.leader_lease import LeaderLease
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.memory.inbox import MemoryInbox

Json = dict[str, Any]


class Shared(MemoryInbox):
    """Leases as processes have them that share a store; `me` is who asks."""

    def __init__(self, clock: VirtualClock, leases: dict[str, tuple[str, float]], me: str) -> None:
        super().__init__(clock)
        self._time = clock
        self._leases, self._me = leases, me
        self.away = False

    async def lease(self, name: str, seconds: float) -> bool:
        if self.away:
            raise StoreAwayError("away")
        owner, until = self._leases.get(name, ("", 0.0))
        if owner not in {"", self._me} and until > self._time.monotonic():
            return False
        self._leases[name] = (self._me, self._time.monotonic() + seconds)
        return True

    async def give_back(self, name: str) -> None:
        if self._leases.get(name, ("", 0.0))[0] == self._me:
            del self._leases[name]


class Source:
    """Telegram's side: gives what was not confirmed."""

    def __init__(self, count: int) -> None:
        self.updates: list[Json] = [{"update_id": number, "poll": {}} for number in range(1, count + 1)]
        self.offsets: list[int | None] = []

    async def fetch(self, offset: int | None) -> list[Json]:
        self.offsets.append(offset)
        self.updates = [one for one in self.updates if offset is None or one["update_id"] >= offset]
        return self.updates[:2]


async def test_an_update_is_confirmed_only_after_it_is_held(clock: VirtualClock) -> None:
    inbox, source = MemoryInbox(clock), Source(3)
    poller = LongPoller(42, HandlerRegistry(inbox, clock), clock)

    fresh = [await poller.poll(source.fetch) for _ in range(3)]
    await poller.stop()

    assert fresh == [2, 1, 0]
    assert source.offsets == [None, 3, 4]
    assert (await inbox.stats()).waiting == 3


class Unwilling(MemoryInbox):
    failures = 3

    async def accept(self, arrivals: Sequence[InboxItem]) -> list[bool]:
        if self.failures:
            self.failures -= 1
            raise StoreAwayError("Redis cannot be reached")
        return await super().accept(arrivals)


async def test_what_cannot_be_held_is_not_confirmed(clock: VirtualClock) -> None:
    inbox, source = Unwilling(clock), Source(2)
    poller = LongPoller(42, HandlerRegistry(inbox, clock), clock)

    assert await poller.poll(source.fetch) == 2
    await poller.stop()

    assert source.offsets == [None]
    assert inbox.failures == 0


class Crowded(MemoryInbox):
    waiting = WAITING_ITEMS_WHILE_FETCHING

    async def stats(self) -> InboxStats:
        self.waiting -= 1
        return InboxStats(self.waiting + 3, 0, 0)


async def test_nothing_is_fetched_while_too_much_waits(clock: VirtualClock) -> None:
    inbox, source, begun = Crowded(clock), Source(1), clock.monotonic()
    poller = LongPoller(42, HandlerRegistry(inbox, clock), clock)

    await poller.poll(source.fetch)
    await poller.stop()

    assert clock.monotonic() - begun == pytest.approx(3)


async def test_the_second_waits_and_takes_over_when_the_first_has_died(clock: VirtualClock) -> None:
    leases: dict[str, tuple[str, float]] = {}
    first = LeaderLease(Shared(clock, leases, "one"), clock, "bot:42")
    second = LeaderLease(Shared(clock, leases, "two"), clock, "bot:42")
    await first.hold()
    await clock.sleep(60)
    assert first.is_ours  # it is renewed

    assert first._renewing is not None  # noqa: SLF001  (dies)
    first._renewing.cancel()  # noqa: SLF001
    died = clock.monotonic()
    await second.hold()

    assert 3 < clock.monotonic() - died < 10
    assert not first.is_ours
    await second.give_up()


async def test_who_gives_up_lets_the_other_lead_at_once(clock: VirtualClock) -> None:
    leases: dict[str, tuple[str, float]] = {}
    first = LeaderLease(Shared(clock, leases, "one"), clock, "bot:42")
    second = LeaderLease(Shared(clock, leases, "two"), clock, "bot:42")
    await first.hold()
    await first.give_up()
    before = clock.monotonic()
    await second.hold()

    assert clock.monotonic() == before
    await second.give_up()


async def test_who_cannot_reach_the_store_leads_no_longer_than_the_lease(clock: VirtualClock) -> None:
    inbox = Shared(clock, {}, "one")
    leadership = LeaderLease(inbox, clock, "bot:42")
    await leadership.hold()
    inbox.away = True
    await clock.sleep(5.9)
    assert leadership.is_ours
    await clock.sleep(2.2)

    assert not leadership.is_ours
    inbox.away = False
    await leadership.hold()
    await leadership.give_up()
