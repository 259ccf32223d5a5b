"""Subscriptions and a simple model of them take the same steps, in any order that Hypothesis can think of."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from contract.subscribers import Ground, keys, order
from tidegate.clock import Clock
from tidegate.polling.subscriptions import AfterNews, News, NewsKind, StoredSubscription, Subscription
from tidegate.sim.virtual_time import VirtualClock, VirtualLoop

T = TypeVar("T")

names = st.sampled_from("abcde")
some = st.lists(names, max_size=4)
kinds = st.sampled_from(("met", "met", "reversed", "gone"))
numbers = st.integers(0, 3)
fates = st.sampled_from(("forget", "watch", "wait"))


class One:
    """A subscription of the model: one at a time changes."""

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self.met = False
        self.news: News | None = None
        self.numbered_anew = False  # since it was read

    def concerned_by(self, kind: NewsKind) -> bool:
        states: dict[NewsKind, tuple[bool, ...]] = {
            "met": (False,),
            "reversed": (True,),
            "gone": (False, True),
        }
        return self.news is None and self.met in states[kind]


class SubscribersMachine(RuleBasedStateMachine):
    """Subclass it with a `make`. `model` has those who are there, in the order in which they came."""

    make: ClassVar[Callable[[Clock], Ground]]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=VirtualLoop)
        self.clock = VirtualClock(self.runner.get_loop())
        self.ground = type(self).make(self.clock)
        self.run(self.ground.open())
        self.kept = self.ground.of("orders")
        self.model: list[One] = []
        self.marked: str | None = None
        self.last = 0  # the greatest number that was seen
        self.read: list[StoredSubscription] = []  # a while ago
        self.read_model: dict[str, One] = {}

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.runner.get_loop().run_until_complete(coroutine)

    def find(self, key: str) -> One | None:
        return next((one for one in self.model if one.subscription.key == key), None)

    def drop(self, key: str) -> bool:
        found = self.find(key)
        if found is not None:
            self.model.remove(found)
        return found is not None

    @rule(who=some, number=numbers)
    def add(self, who: list[str], number: int) -> None:
        given = [order(key, number=number, place=place) for place, key in enumerate(who)]
        fresh = self.run(self.kept.add(given))
        expected = []
        for one in given:
            expected.append(not self.drop(one.key))
            self.model.append(One(one))
        assert fresh == expected
        newer = [one.subscription for one in self.run(self.kept.after(self.last))]
        assert newer == [one.subscription for one in self.model[len(self.model) - len(set(who)) :]]

    @rule(who=some, number=numbers)
    def add_missing(self, who: list[str], number: int) -> None:
        given = [order(key, number=number, missing=place) for place, key in enumerate(who)]
        expected = []
        for one in given:
            expected.append(self.find(one.key) is None)
            self.model += [One(one)] if expected[-1] else []
        assert self.run(self.kept.add(given, replace=False)) == expected

    @rule(who=some)
    def remove(self, who: list[str]) -> None:
        assert self.run(self.kept.remove(who)) == sum([self.drop(key) for key in who])

    @rule()
    def remember(self) -> None:
        self.read = self.run(self.kept.after(0))
        self.read_model = {one.subscription.key: one for one in self.model}
        for one in self.model:
            one.numbered_anew = False

    def same(self, who: list[str]) -> list[StoredSubscription]:
        return [one for one in self.read if one.subscription.key in who]

    def is_same(self, kept: StoredSubscription) -> bool:
        one = self.find(kept.subscription.key)
        return one is not None and one is self.read_model[kept.subscription.key] and not one.numbered_anew

    @rule(who=some)
    def remove_those_who_were_read(self, who: list[str]) -> None:
        there = self.same(who)
        expected = sum([self.is_same(kept) and self.drop(kept.subscription.key) for kept in there])
        assert self.run(self.kept.remove(there)) == expected

    @rule(found=st.lists(st.tuples(names, kinds, numbers), max_size=4))
    def note_news(self, found: list[tuple[str, NewsKind, int]]) -> None:
        given = [News(key, {"n": value}, kind) for key, kind, value in found]
        expected = []
        for news in given:
            one = self.find(news.key)
            if one is not None and one.concerned_by(news.kind):
                one.news = news
                expected.append((one.subscription, one.met, news))
        told = self.run(self.kept.note_news(given))
        assert [(one.subscription, one.met, one.news) for one in told] == expected

    @rule(who=some, then=fates)
    def settle_news(self, who: list[str], then: AfterNews) -> None:
        self.run(self.kept.settle_news(who, then))
        for key in who:
            self.settle(key, then)

    @rule(who=some, then=fates)
    def told_those_who_were_read(self, who: list[str], then: AfterNews) -> None:
        there = self.same(who)
        self.run(self.kept.settle_news(there, then))
        for kept in there:
            if self.is_same(kept):
                self.settle(kept.subscription.key, then)

    def settle(self, key: str, then: AfterNews) -> None:
        one = self.find(key)
        if one is None or one.news is None:
            return
        if then != "watch":
            self.model.remove(one)
        if then == "wait":
            self.model.append(one)
            one.numbered_anew = True
        one.met, one.news = then == "watch", None

    @rule(mark=st.text(max_size=3))
    def save_watermark(self, mark: str) -> None:
        self.run(self.kept.save_watermark(mark))
        self.marked = mark

    @rule(limit=st.integers(1, 3))
    def read_in_pages(self, limit: int) -> None:
        found, last = list[str](), 0
        while page := self.run(self.kept.after(last, limit)):
            found, last = found + keys(page), page[-1].number
        assert found == [one.subscription.key for one in self.model]

    @invariant()
    def everyone_is_there_in_his_state(self) -> None:
        found = self.run(self.kept.after(0))
        expected = [(one.subscription, one.met, one.news) for one in self.model]
        assert [(one.subscription, one.met, one.news) for one in found] == expected
        assert self.run(self.kept.count()) == len(expected)
        assert self.run(self.kept.watermark()) == self.marked
        self.last = max([self.last, *(one.number for one in found)])

    def teardown(self) -> None:
        self.run(self.ground.close())
        self.runner.close()


def machine_for(make: Callable[[Clock], Ground]) -> type[SubscribersMachine]:
    return type("Machine", (SubscribersMachine,), {"make": staticmethod(make)})
