"""The schedule in Lua against the schedule in Python: the same workload goes in the same order.

Both outboxes get every step at the same instant. Instants are drawn from continuous ranges, so that none
falls on the microsecond by which a slot in Redis is free later. What 429s teach has its own twin test.

Crashes are left out: when a lease has run out is noticed by the next step, which each outbox takes in its own
time, and slots cool from then on. What they do to a line is in `tests/contract/test_suspects.py`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from random import Random
from typing import Any, Final, TypeVar

import pytest

from contract.inline_redis import InlineConnection
from contract.post import BOT, DELIVERED, OTHER_BOT, Post
from contract.stores import redis_url
from tidegate.model import (
    BotId,
    Claim,
    Dead,
    Message,
    Migrated,
    NotSent,
    Outcome,
    Priority,
    Rate,
    Refused,
    Retry,
    Settlement,
    Unknown,
    Unreachable,
)
from tidegate.outbox.port import Outbox, Turn
from tidegate.pacing.rules import Family, Rules, family_of
from tidegate.sim import virtual_time
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.memory.outbox import MemoryOutbox
from tidegate.stores.redis.outbox import RedisOutbox

T = TypeVar("T")

AN_INSTANT: Final = 1e-6  # seconds in which a claim takes what may go now
TIGHT: Final = Rules(bot=Rate(6, 1), private=Rate(2, 1), group=Rate(4, 3))
LOOSE: Final = Rules(bot=Rate(40, 1), private=Rate(1, 1), group=Rate(3, 2), edits="separate", paid=Rate(5, 1))
CHATS: Final = (1, 2, 3, -1, -2)
SEEDS: Final = {"pauses": 10, "refusals": 0, "costly turns": 0}  # that once went differently are among them
FEW_SEEDS: Final = [0, 1, 2, 3, *(pytest.param(seed, marks=pytest.mark.proof) for seed in range(4, 8))]
PAID_CHATS: Final = (4, -4)  # calls of one chat that wait in two pools would go as the pools take turns


class Twins:
    """The same outbox twice, and what it is asked."""

    def __init__(
        self,
        python: Outbox,
        lua: Outbox,
        clock: VirtualClock,
        draw: Random,
        *,
        one_pool: bool,
        beside: Collection[str],
    ) -> None:
        self.python, self.lua = Post(python, clock), Post(lua, clock)
        self.one_pool, self.beside = one_pool, beside
        self.bots = [BOT] if one_pool else [BOT, OTHER_BOT]
        self.clock, self.draw = clock, draw
        self.put: list[Message] = []
        self.claims: list[tuple[Claim, Claim]] = []
        self.turns: list[tuple[asyncio.Task[Turn], asyncio.Task[Turn]]] = []
        self.paused: set[tuple[BotId, int | None]] = set()

    async def both(self, act: Callable[[Outbox], Awaitable[T]]) -> tuple[T, T]:
        one, other = await asyncio.gather(act(self.python.outbox), act(self.lua.outbox))
        return one, other

    async def live(self, steps: int) -> None:
        acts = [
            self.add,
            self.add,
            self.claim,
            self.claim,
            self.settle,
            self.settle,
            self.cool,
            self.take_turn,
        ]
        acts += [self.end_turn, self.end_turn, self.pause_or_resume]
        for _ in range(steps):
            await self.both(lambda outbox: outbox.stats())  # what is due acts first
            await self.draw.choice(acts)()
            await self.clock.sleep(self.draw.uniform(0.0005, 0.2))
            self.compare_turns()
        await self.compare_records()

    async def add(self) -> None:
        messages = [self.some_message() for _ in range(self.draw.randint(1, 4))]
        self.put += messages
        one, other = await self.both(lambda outbox: outbox.put(messages))
        assert other == one

    def some_message(self) -> Message:
        draw, now = self.draw, self.clock.now()
        fields: dict[str, Any] = {"priority": draw.choice(list(Priority)), "bot": draw.choice(self.bots)}
        kind = draw.random()
        if kind < 0.15:
            fields |= {"method": "sendMediaGroup", "params": {"media": [{}] * draw.randint(2, 7)}}
        elif kind < 0.25 and not self.one_pool:
            fields |= {"method": "sendChatAction", "params": {"action": "typing"}}
        elif kind < 0.35:
            fields |= {"method": "editMessageText", "params": {"text": "x"}}
        if draw.random() < 0.1:
            fields["not_before"] = now + draw.uniform(0.1, 2)
        if draw.random() < 0.1:
            fields["expires_at"] = now + draw.uniform(0.5, 4)
        if draw.random() < 0.1:
            fields["coalesce_key"] = draw.choice("ab")
        if draw.random() < 0.1:
            fields["dedup_key"] = draw.choice("abcd")
        if draw.random() < 0.05:
            fields["urgent"] = True
        if "paid calls" in self.beside and draw.random() < 0.2:
            fields |= {"method": "sendMessage", "params": {"text": "x", "allow_paid_broadcast": True}}
            return self.python.message(draw.choice(PAID_CHATS), **fields)
        return self.python.message(draw.choice(CHATS), **fields)

    async def claim(self) -> None:
        # Pools take turns, and either schedule may begin with another one: so there is room for all of them.
        room = self.draw.randint(1, 5) if self.one_pool else 100
        one, other = await asyncio.gather(
            self.python.claim(room, within=AN_INSTANT), self.lua.claim(room, within=AN_INSTANT)
        )
        one.sort(key=pool_of)
        other.sort(key=pool_of)
        assert [named(claim) for claim in other] == [named(claim) for claim in one]
        self.claims += zip(one, other, strict=True)

    async def settle(self) -> None:
        if self.claims:
            one, other = self.claims.pop(self.draw.randrange(len(self.claims)))
            outcome, age = self.some_outcome(one.message), self.draw.choice([0.0, self.draw.uniform(0, 0.3)])
            [ended], [its] = await asyncio.gather(
                self.python.outbox.settle([Settlement(one, outcome, age)]),
                self.lua.outbox.settle([Settlement(other, outcome, age)]),
            )
            assert (its and its.state) == (ended and ended.state)

    def some_outcome(self, message: Message) -> Outcome:
        draw = self.draw
        rare: list[Outcome] = [
            Retry(draw.uniform(0.1, 2), "502"),
            NotSent("x"),
            Unknown("x", draw.uniform(0.1, 2)),
            Dead("blocked", "gone", whole_chat=draw.random() < 0.5),
        ]
        if self.one_pool:  # else the probe would be of the pool whose turn it is
            rare.append(Unreachable(draw.uniform(0.1, 1), "x"))
        if message.chat_id == -2:
            rare.append(Migrated(-102))
        if "refusals" in self.beside:
            rare += [Refused(draw.uniform(0.1, 3))] * 2
        return draw.choice(rare) if draw.random() < 0.4 else DELIVERED

    async def cool(self) -> None:
        if self.claims and self.draw.random() < 0.3:
            one, other = self.draw.choice(self.claims)
            await asyncio.gather(self.python.outbox.cool([one]), self.lua.outbox.cool([other]))

    async def take_turn(self) -> None:
        bot, chat = self.draw.choice(self.bots), self.draw.choice(CHATS)
        families: list[Family] = ["send", "edit"] if self.one_pool else ["send", "edit", "action"]
        family, priority = self.draw.choice(families), self.draw.choice(list(Priority))
        cost = self.draw.choice([1, 1, 2, 5]) if "costly turns" in self.beside else 1
        paid = "paid calls" in self.beside and self.draw.random() < 0.2
        if paid:
            family, chat = "send", self.draw.choice(PAID_CHATS)
        one = await self.python.begin(self.python.outbox.turn(bot, chat, family, cost, priority, paid=paid))
        other = await self.lua.begin(self.lua.outbox.turn(bot, chat, family, cost, priority, paid=paid))
        self.turns.append((one, other))

    def compare_turns(self) -> None:
        assert [lua.done() for _, lua in self.turns] == [python.done() for python, _ in self.turns]

    async def end_turn(self) -> None:
        granted = [pair for pair in self.turns if pair[0].done()]
        if granted:
            one, other = pair = self.draw.choice(granted)
            self.turns.remove(pair)
            outcome: Outcome = DELIVERED if self.draw.random() < 0.7 else NotSent("x")
            if "refusals" in self.beside and self.draw.random() < 0.2:
                outcome = Refused(self.draw.uniform(0.1, 3))
            await self.python.outbox.end_turn(one.result(), outcome)
            await self.lua.outbox.end_turn(other.result(), outcome)

    async def pause_or_resume(self) -> None:
        if "pauses" not in self.beside:
            return
        bot, chat = self.draw.choice(self.bots), self.draw.choice([None, *CHATS])
        if (bot, chat) in self.paused:
            self.paused.remove((bot, chat))
            await self.both(lambda outbox: outbox.resume(bot, chat))
        elif self.draw.random() < 0.5:
            self.paused.add((bot, chat))
            await self.both(lambda outbox: outbox.pause(bot, chat))

    async def cancel(self) -> None:
        if self.put and self.draw.random() < 0.3:
            ticket = self.draw.choice(self.put).id
            one, other = await self.both(lambda outbox: outbox.cancel([ticket]))
            assert other == one

    async def compare_records(self) -> None:
        for message in self.put:
            one = await self.python.outbox.find(message.id)
            other = await self.lua.outbox.find(message.id)
            assert (other and (other.state, other.attempts, other.reason)) == (
                one and (one.state, one.attempts, one.reason)
            )


def named(claim: Claim) -> tuple[str, int, int | str]:
    return claim.message.id, claim.attempt, claim.message.chat_id


def pool_of(claim: Claim) -> tuple[int, str, bool]:
    message = claim.message
    return message.bot, family_of(message.method), "allow_paid_broadcast" in message.params


async def play(
    clock: VirtualClock,
    rules: Rules,
    seed: int,
    *,
    one_pool: bool,
    steps: int = 150,
    beside: Collection[str] = (),
) -> None:
    connection = await asyncio.get_running_loop().run_in_executor(None, InlineConnection, redis_url(), clock)
    python, lua = MemoryOutbox(clock, rules, keep=1e6), RedisOutbox(connection, clock, rules, keep=1e6)
    twins = Twins(python, lua, clock, Random(seed), one_pool=one_pool, beside=beside)
    await twins.both(lambda outbox: outbox.open())
    try:
        await twins.live(steps)
    finally:
        for pair in twins.turns:
            for task in pair:
                task.cancel()
        await asyncio.gather(*(task for pair in twins.turns for task in pair), return_exceptions=True)
        await twins.both(lambda outbox: outbox.close())


@pytest.mark.parametrize("seed", FEW_SEEDS)
def test_the_same_workload_of_one_bot_goes_in_the_same_order(seed: int) -> None:
    virtual_time.run(lambda clock: play(clock, TIGHT, seed, one_pool=True))


@pytest.mark.parametrize("seed", FEW_SEEDS)
def test_the_same_workload_of_two_bots_goes_at_the_same_times(seed: int) -> None:
    virtual_time.run(lambda clock: play(clock, LOOSE, seed, one_pool=False))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("beside", ["pauses", "refusals", "costly turns"])
def test_the_same_workload_of_one_bot_goes_in_the_same_order_with(beside: str, seed: int) -> None:
    virtual_time.run(lambda clock: play(clock, TIGHT, SEEDS[beside] + seed, one_pool=True, beside={beside}))


@pytest.mark.parametrize("seed", range(8))
def test_the_same_workload_of_two_bots_goes_at_the_same_times_with_all_of_these(seed: int) -> None:
    beside = {"pauses", "refusals", "costly turns", "paid calls"}
    virtual_time.run(lambda clock: play(clock, LOOSE, seed, one_pool=False, beside=beside))
