"""One leader among processes: it renews its lease, and another takes over when it ends."""

import logging

from tidegate.errors import NotTheSenderError, StoreAwayError
from tidegate.leader_lease import LeaderLease, LeaseStore, take_over
from tidegate.sim.virtual_time import VirtualClock

LOG = logging.getLogger("tidegate.test")


class SharedLeases(LeaseStore):
    """Leases of processes that share a store; `me` is the one that asks."""

    def __init__(self, clock: VirtualClock, leases: dict[str, tuple[str, float]], me: str) -> None:
        self._time = clock
        self._leases, self._me = leases, me
        self.away = False
        self.answer_takes = 0.0  # seconds

    async def lease(self, name: str, seconds: float) -> bool:
        if self.away:
            raise StoreAwayError("away")
        owner, until = self._leases.get(name, ("", 0.0))
        if owner not in {"", self._me} and until > self._time.monotonic():
            return False
        self._leases[name] = (self._me, self._time.monotonic() + seconds)
        if self.answer_takes:
            await self._time.sleep(self.answer_takes)
        return True

    async def give_back(self, name: str) -> None:
        if self._leases.get(name, ("", 0.0))[0] == self._me:
            del self._leases[name]


async def test_the_second_waits_and_takes_over_when_the_first_has_died(clock: VirtualClock) -> None:
    leases: dict[str, tuple[str, float]] = {}
    first = LeaderLease(SharedLeases(clock, leases, "one"), clock, "bot:42", log=LOG)
    second = LeaderLease(SharedLeases(clock, leases, "two"), clock, "bot:42", log=LOG)
    await first.hold()
    await clock.sleep(60)
    assert first.is_ours  # it is renewed

    assert first._renewal is not None  # noqa: SLF001  (dies)
    first._renewal.cancel()  # noqa: SLF001
    died = clock.monotonic()
    await second.hold()

    assert 3 < clock.monotonic() - died < 10
    assert not first.is_ours
    await second.give_up()


async def test_who_gives_up_lets_the_other_lead_at_once(clock: VirtualClock) -> None:
    leases: dict[str, tuple[str, float]] = {}
    first = LeaderLease(SharedLeases(clock, leases, "one"), clock, "bot:42", log=LOG)
    second = LeaderLease(SharedLeases(clock, leases, "two"), clock, "bot:42", log=LOG)
    await first.hold()
    await first.give_up()
    before = clock.monotonic()
    await second.hold()

    assert clock.monotonic() == before
    await second.give_up()


async def test_who_cannot_reach_the_store_leads_no_longer_than_the_lease(clock: VirtualClock) -> None:
    store = SharedLeases(clock, {}, "one")
    lease = LeaderLease(store, clock, "bot:42", log=LOG)
    await lease.hold()
    store.away = True
    await clock.sleep(5.9)
    assert lease.is_ours
    await clock.sleep(2.2)

    assert not lease.is_ours
    store.away = False
    await lease.hold()
    await lease.give_up()


async def test_a_lease_whose_answer_came_late_counts_from_the_question(clock: VirtualClock) -> None:
    leases: dict[str, tuple[str, float]] = {}
    store = SharedLeases(clock, leases, "one")
    first = LeaderLease(store, clock, "bot:42", log=LOG)
    second = LeaderLease(SharedLeases(clock, leases, "two"), clock, "bot:42", log=LOG)
    store.answer_takes, asked_at = 4.0, clock.monotonic()
    await first.hold()
    assert first.is_ours
    assert clock.monotonic() == asked_at + 4
    store.away = True  # the lease is not renewed

    await second.hold()

    assert clock.monotonic() == asked_at + 6
    assert not first.is_ours  # no two processes lead at once
    await second.give_up()


async def test_a_lease_that_ran_out_and_was_taken_again_is_a_new_term(clock: VirtualClock) -> None:
    store = SharedLeases(clock, {}, "one")
    lease = LeaderLease(store, clock, "bot:42", log=LOG)
    await lease.hold()
    await lease.hold()
    assert lease.term == 1

    store.away = True
    await clock.sleep(10)
    store.away = False
    await lease.hold()

    assert lease.term == 2
    await lease.give_up()


async def test_a_process_that_starts_as_the_second_takes_over(clock: VirtualClock) -> None:
    free_at = clock.monotonic() + 2.5

    async def start() -> None:
        if clock.monotonic() < free_at:
            raise NotTheSenderError("another process sends")

    assert await take_over(start, clock, LOG) == 3
    assert clock.monotonic() >= free_at


async def test_a_process_that_is_stopped_does_not_take_over(clock: VirtualClock) -> None:
    async def start() -> None:
        raise NotTheSenderError("another process sends")

    assert await take_over(start, clock, LOG, is_wanted=lambda: False) is None
