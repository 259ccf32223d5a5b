"""A store and the simple model take the same steps, in any order that Hypothesis can think of."""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any, ClassVar, Literal, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from contract.model import Model
from contract.post import BOT, OTHER_BOT, Post
from contract.stores import Store
from tidegate.model import (
    BotId,
    ChatId,
    Claim,
    Dead,
    Delivered,
    Migrated,
    NotSent,
    Outcome,
    Priority,
    Rate,
    Refused,
    Retry,
    Settlement,
    State,
    TicketId,
    Unknown,
)
from tidegate.outbox.port import OutboxStats, Turn
from tidegate.pacing.rules import Rules, cost_of, is_private
from tidegate.sim.telegram.flood_control import FloodControl, Limits
from tidegate.sim.virtual_time import VirtualClock, VirtualLoop

T = TypeVar("T")

LEASE = 30.0
RULES = Rules(bot=Rate(3, 1), private=Rate(1, 1), group=Rate(3, 5))
LIMITS = Limits(bot=RULES.bot, private=RULES.private, group=RULES.group, closes="nothing")
OLD, NEW = -3, -103  # a group, and what it becomes
CLOSE = 1e-3  # seconds: too near to an instant to say on which side of it a step falls

bots = st.sampled_from([BOT, OTHER_BOT])
chats = st.sampled_from([1, 2, OLD, NEW])
outcomes = st.one_of(
    st.just(Delivered({"message_id": 1})),
    st.builds(Retry, st.sampled_from([0.0, 0.5, 20.0]), st.just("502")),
    st.builds(Unknown, st.just("no answer"), st.sampled_from([0.5, 20.0])),
    st.builds(Refused, st.sampled_from([1.0, 10.0])),
    st.builds(Dead, st.just("blocked"), st.just("gone"), st.booleans()),
    st.just(Migrated(NEW)),
    st.just(NotSent("too late")),
)
# None is a sum of windows and gaps: which of two things due at one instant comes first says nothing.
seconds_ahead = st.none() | st.sampled_from([0.37, 3.13, 40.71])


class OutboxMachine(RuleBasedStateMachine):
    """Subclass it with a `store`. Ids are chosen by number, so that every choice makes sense."""

    store: ClassVar[Store]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=VirtualLoop)
        self.clock = VirtualClock(self.runner.get_loop())
        outbox = type(self).store(self.clock, RULES, lease=LEASE, keep=1e7)
        self.run(outbox.open())
        self.outbox, self.post = outbox, Post(outbox, self.clock)
        self.model = Model(LEASE, RULES.bot.seconds)
        self.referee = FloodControl(LIMITS)
        self.held: dict[TicketId, Claim] = {}
        self.late: set[TicketId] = set()  # claims that the far end has not counted yet
        self.stale: list[Claim] = []
        self.turns: list[Turn] = []
        self.tickets: list[TicketId] = []
        self.delivered: set[TicketId] = set()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(coroutine)

    def step(self) -> float:
        """Away from every instant at which something changes by itself; the model up to date. The time."""
        while any(abs(at - self.clock.now()) < CLOSE for at in self.model.boundaries()):
            self.run(self.clock.sleep(2 * CLOSE))
        self.look()
        return self.clock.now()

    def look(self) -> None:
        self.model.wake(self.clock.now())
        for ticket in [one for one in self.held if self.state(one) != State.SENDING]:
            self.stale.append(self.held.pop(ticket))
            self.late.discard(ticket)  # it died before it sent

    def state(self, ticket: TicketId) -> State:
        return self.model.messages[ticket].state

    def pick(self, tickets: list[TicketId], number: int) -> TicketId:
        return tickets[number % len(tickets)]

    def arrives(self, bot: BotId, chat: ChatId, cost: int) -> None:
        kind = "private" if is_private(chat) else "group"
        flood = self.referee.admit(self.clock.monotonic(), bot, int(chat), kind, "send", cost=cost)
        assert flood is None, flood

    @rule(
        bot=bots,
        chat=chats,
        priority=st.sampled_from(Priority),
        cost=st.sampled_from([1, 1, 1, 2, 5]),
        due_in=seconds_ahead,
        expires_in=seconds_ahead,
        keys=st.sampled_from([{}, {}, {"dedup_key": "d", "dedup_for": 20.0}, {"coalesce_key": "c"}]),
        max_attempts=st.integers(1, 3),
        on_unknown=st.sampled_from(["resend", "park"]),
    )
    def put(
        self,
        bot: BotId,
        chat: int,
        priority: Priority,
        cost: int,
        due_in: float | None,
        expires_in: float | None,
        keys: dict[str, Any],
        max_attempts: int,
        on_unknown: Literal["resend", "park"],
    ) -> None:
        now = self.step()
        message = self.post.message(
            chat,
            bot=bot,
            priority=priority,
            method="sendMediaGroup",
            params={"media": [{}] * cost},
            not_before=None if due_in is None else now + due_in,
            expires_at=None if expires_in is None else now + expires_in,
            max_attempts=max_attempts,
            on_unknown=on_unknown,
            **keys,
        )
        [ticket] = self.run(self.outbox.put([message]))
        assert ticket.id == self.model.put(message, now)
        assert ticket.fresh == (ticket.id == message.id)
        if ticket.fresh:
            self.tickets.append(ticket.id)

    @rule(room=st.integers(1, 4), within=st.sampled_from([0.01, 0.4, 3.0]), late=st.booleans())
    def claim(self, room: int, within: float, late: bool) -> None:  # noqa: FBT001  (drawn)
        self.step()
        claims = self.run(self.post.claim(room, within=within))
        assert len(claims) <= room
        self.look()
        for claim in claims:
            self.check_claim(claim)
            if late:
                self.late.add(claim.message.id)
            else:
                self.counted(claim)

    def check_claim(self, claim: Claim) -> None:
        message, now = claim.message, self.clock.now()
        assert self.model.may_go(message.id, now + CLOSE) == ""
        known = self.model.messages[message.id]
        assert claim.attempt == known.attempts + 1
        assert message.chat_id == self.model.lane_of(message.bot, known.message.chat_id)[1]
        assert message.id not in self.delivered, "sent again after it was delivered"
        self.model.claim(message.id, now)
        self.held[message.id] = claim

    def counted(self, claim: Claim) -> None:
        message = claim.message
        self.arrives(message.bot, message.chat_id, cost_of(message.method, message.params))
        self.late.discard(message.id)

    @precondition(lambda self: self.held)
    @rule(number=st.integers(0, 99), outcome=outcomes)
    def settle(self, number: int, outcome: Outcome) -> None:
        now = self.step()
        if not self.held:
            return
        claim = self.held.pop(self.pick(list(self.held), number))
        message = claim.message
        impossible = isinstance(outcome, Migrated) and message.chat_id != OLD
        if impossible or (isinstance(outcome, NotSent) and message.id not in self.late):  # it was counted
            outcome = Delivered({"message_id": 1})
        if message.id in self.late and not isinstance(outcome, NotSent):
            self.counted(claim)
        self.late.discard(message.id)
        [record] = self.run(self.outbox.settle([Settlement(claim, outcome)]))
        self.model.settle(message.id, outcome, now)
        assert record is not None
        assert record.state == self.state(message.id)
        if record.state == State.DELIVERED:
            self.delivered.add(message.id)
        self.stale.append(claim)

    @precondition(lambda self: self.stale)
    @rule(number=st.integers(0, 99), outcome=outcomes)
    def settle_too_late(self, number: int, outcome: Outcome) -> None:
        self.step()
        claim = self.stale[number % len(self.stale)]
        assert self.run(self.outbox.settle([Settlement(claim, outcome)])) == [None]

    @precondition(lambda self: self.held)
    @rule(number=st.integers(0, 99))
    def cool(self, number: int) -> None:
        self.step()
        if not self.held:
            return
        claim = self.held[self.pick(list(self.held), number)]
        if claim.message.id in self.late:
            self.counted(claim)
        self.run(self.outbox.cool([claim]))
        known = self.model.messages[claim.message.id]
        self.model.counts["uncertain"] += not known.cooled
        known.cooled = True

    @precondition(lambda self: self.held)
    @rule(number=st.integers(0, 99))
    def extend(self, number: int) -> None:
        now = self.step()
        if not self.held:
            return
        ticket = self.pick(list(self.held), number)
        self.run(self.outbox.extend([self.held[ticket]]))
        self.model.messages[ticket].lease_ends = now + LEASE

    @rule(bot=bots, chat=chats, within=st.sampled_from([0.01, 1.5]))
    def turn(self, bot: BotId, chat: int, within: float) -> None:
        self.step()
        try:
            turn = self.run(self.turn_within(bot, chat, within))
        except TimeoutError:
            return
        finally:
            self.look()
        lane = self.model.lane_of(bot, chat)
        assert self.model.lane_may_go(lane, self.clock.now() + CLOSE) == ""
        self.model.in_flight[lane] = turn
        self.turns.append(turn)

    async def turn_within(self, bot: BotId, chat: int, within: float) -> Turn:
        async with self.clock.timeout(within):
            return await self.outbox.turn(bot, chat, "send", 1)

    @precondition(lambda self: self.turns)
    @rule(number=st.integers(0, 99), outcome=outcomes)
    def end_turn(self, number: int, outcome: Outcome) -> None:
        now = self.step()
        turn = self.turns.pop(number % len(self.turns))
        [lane] = [lane for lane, held in self.model.in_flight.items() if held is turn]
        if isinstance(outcome, Migrated) and lane[1] != OLD:
            outcome = NotSent("x")
        if not isinstance(outcome, NotSent):
            self.arrives(*lane, 1)
        self.run(self.outbox.end_turn(turn, outcome))
        del self.model.in_flight[lane]
        if isinstance(outcome, Refused):
            self.model.refused(lane, now, outcome.retry_after)
        elif isinstance(outcome, Migrated):
            self.model.migrated(lane, outcome.chat_id)
        elif isinstance(outcome, Dead) and outcome.whole_chat:
            self.model.bury(lane)

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 35.0, 4000.0]))
    def time_passes(self, seconds: float) -> None:
        self.run(self.clock.sleep(seconds))
        self.step()

    @rule(bot=bots, chat=st.none() | chats)
    def pause(self, bot: BotId, chat: int | None) -> None:
        self.step()
        self.run(self.outbox.pause(bot, chat))
        self.model.paused.add(bot if chat is None else self.model.lane_of(bot, chat))

    @rule(bot=bots, chat=st.none() | chats)
    def resume(self, bot: BotId, chat: int | None) -> None:
        self.step()
        self.run(self.outbox.resume(bot, chat))
        self.model.paused.discard(bot if chat is None else self.model.lane_of(bot, chat))

    @precondition(lambda self: self.tickets)
    @rule(number=st.integers(0, 99))
    def cancel(self, number: int) -> None:
        self.step()
        ticket = self.pick(self.tickets, number)
        assert self.run(self.outbox.cancel([ticket])) == self.model.cancel(ticket)

    @precondition(lambda self: self.tickets)
    @rule(number=st.integers(0, 99), priority=st.sampled_from(Priority))
    def reprioritize(self, number: int, priority: Priority) -> None:
        self.step()
        ticket = self.pick(self.tickets, number)
        changed = self.run(self.outbox.reprioritize([ticket], priority))
        assert changed == self.model.reprioritize(ticket, priority)

    @precondition(lambda self: self.model.letters())
    @rule(number=st.integers(0, 99))
    def replay(self, number: int) -> None:
        now = self.step()
        ticket = self.pick(self.model.letters(), number)
        assert self.run(self.outbox.replay([ticket])) == 1
        self.model.replay(ticket, now)
        self.look()  # its deadline may have passed

    @precondition(lambda self: self.model.letters())
    @rule(number=st.integers(0, 99))
    def drop(self, number: int) -> None:
        self.step()
        ticket = self.pick(self.model.letters(), number)
        assert self.run(self.outbox.drop([ticket])) == 1
        self.model.drop(ticket)
        self.tickets.remove(ticket)
        self.stale = [claim for claim in self.stale if claim.message.id != ticket]

    @invariant()
    def every_message_is_where_the_model_has_it(self) -> None:
        self.step()
        for ticket, known in self.model.messages.items():
            record = self.run(self.outbox.find(ticket))
            assert record is not None, f"{ticket} is lost"
            found = (record.state, record.attempts, record.crashes, record.message.priority)
            expected = (known.state, known.attempts, known.crashes, known.message.priority)
            assert found == expected, ticket

    @invariant()
    def the_numbers_are_those_of_the_model(self) -> None:
        now = self.step()
        stats = self.run(self.outbox.stats())
        check_stats(stats, self.model.stats(), self.model.oldest_at(now))
        by_bot = self.run(self.outbox.stats_by_bot())
        assert set(by_bot) >= self.model.bots()
        for bot, its in by_bot.items():
            check_stats(its, self.model.stats_of(bot), self.model.oldest_at(now, bot))

    def teardown(self) -> None:
        try:
            self.nothing_starves()
        finally:
            self.run(self.outbox.close())
            self.runner.close()

    def nothing_starves(self) -> None:
        """Whatever went before: where nothing stands in its way any more, everything goes."""
        while self.turns:
            self.end_turn(0, Delivered({}))
        while self.held:
            self.settle(0, Delivered({}))
        for bot in (BOT, OTHER_BOT):
            self.resume(bot, None)
            for chat in (1, 2, OLD, NEW):
                self.resume(bot, chat)
        for _ in range(3 * len(self.tickets) + 50):
            if not self.run(self.outbox.stats()).waiting:
                break
            self.claim(4, 30.0, late=False)
            while self.held:
                self.settle(0, Delivered({}))
        assert self.run(self.outbox.stats()).waiting == 0
        self.every_message_is_where_the_model_has_it()
        self.the_numbers_are_those_of_the_model()


def check_stats(found: OutboxStats, counts: Counter[str], oldest_at: float | None) -> None:
    for name in found.__struct_fields__:
        if name != "oldest_at":
            assert getattr(found, name) == counts[name], name
    assert found.oldest_at == (None if oldest_at is None else pytest.approx(oldest_at, abs=CLOSE, rel=0.0))


def machine_for(store: Store) -> type[OutboxMachine]:
    return type("Machine", (OutboxMachine,), {"store": staticmethod(store)})
