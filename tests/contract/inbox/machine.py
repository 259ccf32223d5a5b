"""An inbox and a simple model of it take the same steps, in any order that Hypothesis finds."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from contract.inbox.inbox_driver import BOT, OTHER_BOT, InboxDriver, arrival, keys
from contract.inbox.inboxes import StoredInbox
from tidegate.clock import Clock
from tidegate.inbound.inbox import ClaimedItem, InboxItem, InboxSource
from tidegate.sim.virtual_time import VirtualClock, VirtualLoop

T = TypeVar("T")

BOTH = (BOT, OTHER_BOT)
Name = tuple[InboxSource, str]
# The bot of one that arrives is that of its key, and so is its lane: seven of each bot in three lanes.
names = st.tuples(st.sampled_from(BOTH), st.sampled_from([str(number) for number in range(7)]))


class Model:
    """Lanes of keys, in order; claimed ones are not in their lane."""

    def __init__(self) -> None:
        self.lines: dict[tuple[InboxSource, str], list[Name]] = {}
        self.numbers: dict[Name, int] = {}  # the order of arrival
        self.seen: set[Name] = set()
        self.attempts: dict[Name, int] = {}
        self.not_before: dict[Name, float] = {}
        self.held: set[Name] = set()
        self.parked: list[Name] = []

    def put(self, name: Name, *, first: bool = False) -> None:
        line = self.lines.setdefault(_lane(name), [])
        line.insert(0 if first else len(line), name)

    def queue(self, name: Name) -> None:
        self.numbers[name] = max(self.numbers.values(), default=0) + 1
        self.attempts[name], self.not_before[name] = 0, 0.0
        self.put(name)

    def accept(self, name: Name) -> bool:
        if name in self.seen:
            return False
        self.seen.add(name)
        self.queue(name)
        return True

    def claim(self, sources: tuple[InboxSource, ...], limit: int, now: float) -> list[Name]:
        busy = {_lane(name) for name in self.held}
        heads = [line[0] for lane, line in self.lines.items() if line and lane not in busy]
        free = [name for name in heads if name[0] in sources and self.not_before[name] <= now]
        given = sorted(free, key=lambda name: self.numbers[name])[:limit]
        for name in given:
            self.lines[_lane(name)].remove(name)
        self.held |= set(given)
        return given

    @property
    def waiting(self) -> int:
        return sum(map(len, self.lines.values()))


def _arrival(name: Name) -> InboxItem:
    return arrival(name[1], str(int(name[1]) % 3), name[0])


def _lane(name: Name) -> tuple[InboxSource, str]:
    return (name[0], _arrival(name).lane)


def _name(held: ClaimedItem) -> Name:
    return (held.item.source, held.item.key)


class InboxMachine(RuleBasedStateMachine):
    """Subclass it with a `make`. A claimed item is chosen by number, so that every choice is valid."""

    make: ClassVar[Callable[[Clock], StoredInbox]]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=VirtualLoop)
        self.clock = VirtualClock(self.runner.get_loop())
        self.stored = type(self).make(self.clock)
        self.run(self.stored.open())
        self.inbox = self.stored.inbox
        self.driver = InboxDriver(self.inbox, self.clock)
        self.model = Model()
        self.held: list[ClaimedItem] = []
        self.over: list[ClaimedItem] = []

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.runner.get_loop().run_until_complete(coroutine)

    def take(self, number: int) -> tuple[ClaimedItem, Name]:
        held = self.held.pop(number % len(self.held))
        self.model.held.remove(_name(held))
        self.over.append(held)
        return held, _name(held)

    @rule(batch=st.lists(names, min_size=1, max_size=4))
    def accept(self, batch: list[Name]) -> None:
        answer = self.run(self.inbox.accept([_arrival(name) for name in batch]))
        assert answer == [self.model.accept(name) for name in batch]

    @rule(sources=st.sampled_from([(BOT,), (OTHER_BOT,), BOTH]), limit=st.integers(1, 4))
    def claim(self, sources: tuple[InboxSource, ...], limit: int) -> None:
        given = self.run(self.driver.claim(limit, sources=sources))
        assert [_name(held) for held in given] == self.model.claim(sources, limit, self.clock.monotonic())
        for held in given:
            assert held.item == _arrival(_name(held))
            assert held.attempts == self.model.attempts[_name(held)]
        self.held += given

    @precondition(lambda self: self.held)
    @rule(count=st.integers(1, 3))
    def done(self, count: int) -> None:
        ended = [self.take(0)[0] for _ in range(min(count, len(self.held)))]
        self.run(self.inbox.done(ended))

    @precondition(lambda self: self.held)
    @rule(number=st.integers(0, 9), after=st.sampled_from([0.0, 0.0, 7.3]), failed=st.booleans())
    def release(self, number: int, after: float, failed: bool) -> None:  # noqa: FBT001  (drawn)
        held, name = self.take(number)
        self.run(self.inbox.release(held, after=after, failed=failed))
        self.model.attempts[name] += failed
        self.model.not_before[name] = self.clock.monotonic() + after if after else 0.0
        self.model.put(name, first=True)

    @precondition(lambda self: self.held)
    @rule(number=st.integers(0, 9))
    def park(self, number: int) -> None:
        held, name = self.take(number)
        self.run(self.inbox.park(held, "no"))
        self.model.parked.append(name)

    @precondition(lambda self: self.over)
    @rule(number=st.integers(0, 99), how=st.sampled_from(["done", "release", "park"]))
    def settle_too_late(self, number: int, how: str) -> None:
        held = self.over[number % len(self.over)]
        if _name(held) in self.model.held:
            return
        late = {
            "done": lambda: self.inbox.done([held]),
            "release": lambda: self.inbox.release(held, failed=True),
            "park": lambda: self.inbox.park(held, "too late"),
        }
        self.run(late[how]())

    @rule(name=names, again=st.booleans())
    def decide(self, name: Name, again: bool) -> None:  # noqa: FBT001  (drawn)
        there = name in self.model.parked
        assert self.run((self.inbox.replay if again else self.inbox.drop)(*name)) == there
        if there:
            self.model.parked.remove(name)
            if again:
                self.model.queue(name)

    @rule(seconds=st.sampled_from([1.1, 5.0, 60.7]))
    def sleep(self, seconds: float) -> None:
        self.run(self.clock.sleep(seconds))

    @invariant()
    def everything_is_somewhere(self) -> None:
        model = self.model
        counts, parked = self.run(self.look())
        assert counts == (model.waiting, len(model.held), len(model.parked))
        assert parked == [key for _, key in reversed(model.parked)]

    async def look(self) -> tuple[tuple[int, int, int], list[str]]:
        return await self.driver.counts(), await self.driver.parked()

    def teardown(self) -> None:
        """In the end everything can be claimed, each lane in order."""
        self.run(self.inbox.done(self.held))
        self.model.held.clear()
        self.run(self.clock.sleep(10))
        while expected := self.model.claim(BOTH, 100, self.clock.monotonic()):
            given = self.run(self.driver.claim(sources=BOTH))
            assert keys(given) == [key for _, key in expected]
            self.run(self.inbox.done(given))
            self.model.held.clear()
        assert self.run(self.driver.claim(sources=BOTH)) == []
        self.run(self.stored.close())
        self.runner.close()


def machine_for(make: Callable[[Clock], StoredInbox]) -> type[InboxMachine]:
    return type("Machine", (InboxMachine,), {"make": staticmethod(make)})
