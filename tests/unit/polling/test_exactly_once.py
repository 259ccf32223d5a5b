"""Failures and killed processes: each subscriber is notified by one effect key, exactly once in a process."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.errors import StoreAwayError, UpstreamAwayError
from tidegate.outbox.effect_keys import effect_key
from tidegate.polling.batch import BatchPoller
from tidegate.polling.per_user import UserPoller
from tidegate.polling.poller import Poller
from tidegate.polling.subscriptions import News, Subscription
from tidegate.sim.virtual_time import VirtualClock, run
from unit.polling.polled import Disk

KEYS = "abcdef"
ACTIONS = ["pay", "fail", "raise", "away", "kill", "unsubscribe"]
Action = tuple[str, str, float]  # what, of which key, seconds until the next


class World:
    """One process at a time polls; what it told is written down with its cause, if it was alive then."""

    def __init__(self, clock: VirtualClock, kind: str) -> None:
        self.clock = clock
        self.kind = kind
        self.disk = Disk(clock)
        self.paid: set[str] = set()
        self.failing: set[str] = set()
        self.raising: set[str] = set()
        self.told: list[tuple[str, str | None]] = []
        self.kills = 0
        self.dead: list[Poller] = []
        self.poller = self.begin()

    def begin(self) -> Poller:
        view = self.disk.process()

        async def fetch(keys: Sequence[str]) -> dict[str, Any]:
            await self.clock.sleep(0.3)
            if self.failing.intersection(keys):
                raise UpstreamAwayError("down", api="api", method="GET", endpoint="records")
            return {key: True for key in keys if key in self.paid}

        async def fetch_one(key: str) -> bool:
            return bool(await fetch([key]))

        async def notify(subscription: Subscription, _: News) -> None:
            await self.clock.sleep(0.4)
            if subscription.key in self.raising:
                raise ValueError(subscription.key)
            if not view.is_dead:
                self.told.append((subscription.key, effect_key("paid")))
            await self.clock.sleep(0.4)

        self.view = view
        if self.kind == "batch":
            return BatchPoller(fetch, 5, 2, clock=self.clock, notify=notify, subscriptions=view)
        return UserPoller(fetch_one, 5, clock=self.clock, notify=notify, subscriptions=view)

    async def act(self, what: str, key: str) -> None:
        if what == "pay":
            self.paid.add(key)
        elif what == "fail":
            self.failing ^= {key}
        elif what == "raise":
            self.raising ^= {key}
        elif what == "away":
            self.disk.is_away = not self.disk.is_away
        elif what == "kill":
            await self.kill()
        elif key not in self.paid:
            try:
                await self.poller.unsubscribe(key)
            except StoreAwayError:
                self.paid.add(key)
            else:
                self.left.add(key)

    async def kill(self) -> None:
        """Nothing that it does from now on has an effect."""
        self.kills += 1
        self.view.die()
        self.dead.append(self.poller)
        self.poller = self.begin()
        await self.poller.start()

    async def run(self, actions: Sequence[Action]) -> None:
        self.left: set[str] = set()
        for key in KEYS:
            await self.poller.subscribe(key)
        await self.poller.start()
        for what, key, seconds in actions:
            await self.act(what, key)
            await self.clock.sleep(seconds)
        self.failing, self.raising, self.disk.is_away = set(), set(), False
        self.paid.update(KEYS)
        for poller in self.dead:
            await poller.stop()
        await self.clock.sleep(45)
        await self.poller.stop()
        self.poller = self.begin()  # whose callback failed too often is told after a start
        async with self.poller:
            await self.clock.sleep(15)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["batch", "each"]),
    st.lists(st.tuples(st.sampled_from(ACTIONS), st.sampled_from(KEYS), st.floats(0, 8)), max_size=25),
)
def test_everybody_is_told_for_one_cause_and_once_where_no_process_died(
    kind: str, actions: list[Action]
) -> None:
    async def main(clock: VirtualClock) -> World:
        world = World(clock, kind)
        await world.run(actions)
        return world

    world = run(main)
    told = Counter(key for key, _ in world.told)
    assert set(told) == set(KEYS) - world.left
    assert len(set(world.told)) == len(told)  # whoever was told twice was told for the same cause
    assert sum(told.values()) <= len(told) + 16 * world.kills
    if not world.kills:
        assert set(told.values()) <= {1}
