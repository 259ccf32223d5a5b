"""Limits of one bot are changed at run time: they hold at once, and never let more pass than they say."""

import asyncio
import logging
import random
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.conftest import OpenPost
from contract.post import BOT, DELIVERED, OTHER_BOT, Post
from contract.stores import SLOW, STORES, Store
from tidegate.errors import BadInputError
from tidegate.model import (
    BotLimits,
    Claim,
    Delivered,
    NotSent,
    Outcome,
    Priority,
    Rate,
    Refused,
    Settlement,
)
from tidegate.outbox.port import Outbox
from tidegate.pacing.rules import Rules, cost_of, is_private, own_rules
from tidegate.sim import virtual_time
from tidegate.sim.virtual_time import VirtualClock

CHATS: Final = (1, 2, -1, -2)
CHANGES: Final = 6
ROUNDING: Final = 1e-6  # seconds

rates = st.builds(Rate, st.integers(1, 8), st.sampled_from([0.5, 1.0, 3.0]))
some_limits = st.builds(BotLimits, bot=st.none() | rates, private=st.none() | rates, group=st.none() | rates)
some_rules = st.builds(Rules, bot=rates, private=rates, group=rates, burst=st.sampled_from([1, 4]))


class Call(NamedTuple):
    """A call as Telegram saw it; `granted` is the number of its grant, `rules` held then."""

    granted: int
    arrived: float
    chat: int
    cost: int
    is_reply: bool
    rules: Rules | None  # None: they changed in this instant


def limits_of(call: Call) -> list[tuple[Rate, bool, bool]]:
    """Each limit of a call, whether it is that of its chat, and whether it is one of replies."""
    assert call.rules is not None
    whole = (call.rules.bot, False, False)
    if not is_private(call.chat):
        return [whole, (call.rules.group, True, False)]
    replies = call.rules.replies
    if replies is None:
        return [whole, (call.rules.private, True, False)]
    return [whole, (replies, True, True), *([] if call.is_reply else [(call.rules.private, True, False)])]


def broken(calls: list[Call]) -> list[str]:
    """Limits that were exceeded by a call that was granted under them, counted in exact sliding windows."""
    found = []
    for call in calls:
        for rate, of_chat, is_burst in limits_of(call) if call.rules is not None else ():
            largest = max(1, rate.count // 2) if is_burst else rate.count
            near = sorted(
                (other.arrived, min(other.cost, largest))
                for other in calls
                if other.granted <= call.granted
                and (other.chat == call.chat or not of_chat)
                and abs(other.arrived - call.arrived) < rate.seconds
            )
            for start, _ in near:
                if start > call.arrived:
                    break
                inside = sum(cost for at, cost in near if start <= at < start + rate.seconds - ROUNDING)
                if call.arrived < start + rate.seconds - ROUNDING and inside > rate.count:
                    found.append(f"{call.arrived:.3f}: {inside} in {rate} (chat {call.chat}, {of_chat=})")
                    break
    return found


class BusyBot:
    """A bot under load, whose limits change at random moments."""

    def __init__(self, clock: VirtualClock, outbox: Outbox, rules: Rules, seed: int) -> None:
        self.clock, self.outbox, self.rules = clock, outbox, rules
        self.post, self.draw, self.calls = Post(outbox, clock), random.Random(seed), list[Call]()
        self.present: Rules | None = rules
        self.changed_at, self.grants = -1.0, 0
        self.tasks = set[asyncio.Task[None]]()

    async def live(self, changes: list[BotLimits]) -> None:
        tasks = self.tasks
        tasks.update(asyncio.create_task(one()) for one in (self.work, self.work, self.talk, self.put))
        for own in changes:
            await self.clock.sleep(self.draw.expovariate(0.4))
            self.present = None  # until it is done, either may hold
            await self.outbox.set_limits(BOT, own)
            self.present, self.changed_at = own_rules(self.rules, own), self.clock.monotonic()
        await self.clock.sleep(5)
        for one in tasks:
            one.cancel()
        await asyncio.wait(tasks)

    def granted(self) -> tuple[int, Rules | None]:
        """The number of this grant, and the rules that surely held."""
        self.grants += 1
        return self.grants, self.present if self.clock.monotonic() > self.changed_at else None

    async def work(self) -> None:
        while True:
            for claim in await self.outbox.claim(self.draw.randint(1, 5)):
                task = asyncio.create_task(self.call(claim, *self.granted()))
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)

    async def call(self, claim: Claim, grant: int, rules: Rules | None) -> None:
        fate, message = self.draw.random(), claim.message
        outcome: Outcome = NotSent("too late")
        if fate > 0.05:
            cost, is_reply = cost_of(message.method, message.params), message.priority is Priority.HIGH
            await self.arrive(grant, int(message.chat_id), cost, rules, is_reply=is_reply)
            outcome = Refused(0.1) if fate < 0.08 else DELIVERED
        await self.outbox.settle([Settlement(claim, outcome)])

    async def arrive(self, grant: int, chat: int, cost: int, rules: Rules | None, *, is_reply: bool) -> None:
        await self.clock.sleep(self.draw.uniform(0, 0.2))
        self.calls.append(Call(grant, self.clock.monotonic(), chat, cost, is_reply, rules))
        await self.clock.sleep(self.draw.uniform(0.001, 0.2))

    async def talk(self) -> None:
        while True:
            await self.clock.sleep(self.draw.expovariate(2.0))
            chat = self.draw.choice(CHATS)
            turn = await self.outbox.turn(BOT, chat, "send", 1)
            grant, rules = self.granted()
            await self.arrive(grant, chat, 1, rules, is_reply=True)
            await self.outbox.end_turn(turn, Delivered({}))

    async def put(self) -> None:
        draw, album = self.draw, {"method": "sendMediaGroup"}
        while True:
            fields: dict[str, Any] = (
                album | {"params": {"media": [{}] * draw.randint(2, 9)}} if draw.random() < 0.1 else {}
            )
            priority = draw.choice(list(Priority))
            await self.post.put(draw.choice(CHATS), priority=priority, max_attempts=99, **fields)
            await self.clock.sleep(draw.expovariate(8.0))


async def live(
    clock: VirtualClock, store: Store, rules: Rules, changes: list[BotLimits], seed: int
) -> list[Call]:
    outbox = store(clock, rules, lease=30.0, keep=10_000.0)
    await outbox.open()
    bot = BusyBot(clock, outbox, rules, seed)
    await bot.live(changes)
    await outbox.close()
    return bot.calls


@pytest.mark.parametrize("store", STORES)
def test_limits_that_change_at_random_moments_are_never_exceeded(store: str) -> None:
    def lives_well(rules: Rules, changes: list[BotLimits], seed: int) -> None:
        async def main(clock: VirtualClock) -> list[Call]:
            return await live(clock, STORES[store], rules, changes, seed)

        assert broken(virtual_time.run(main, seed)) == []

    many = st.lists(some_limits, min_size=1, max_size=CHANGES)
    lives = given(some_rules, many, st.integers(0, 2**32))(lives_well)
    settings(max_examples=settings().max_examples // SLOW.get(store, 1))(lives)()


async def sent(post: Post, count: int) -> None:
    """Messages to so many chats, all answered at once."""
    for chat in range(1, count + 1):
        await post.put(chat, priority=Priority.HIGH)
    claims = await post.claim_all()
    assert len(claims) == count
    for claim in claims:
        await post.settle(claim)


async def test_what_was_sent_in_the_last_window_counts_in_a_lower_limit(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(100, 1)))
    await sent(post, 10)

    await post.outbox.set_limits(BOT, BotLimits(bot=Rate(10, 1)))
    await post.put(99)

    assert await post.claim() == []
    await post.one(within=1.1)


async def test_a_raised_limit_wakes_who_waits(open_post: OpenPost) -> None:
    post = await open_post(Rules(group=Rate(2, 60), bot=Rate(100, 1)))
    await post.put_many(3, -1)
    await post.send()
    await post.send()
    waiting = asyncio.create_task(post.outbox.claim(1))
    await post.clock.sleep(1)

    await post.outbox.set_limits(BOT, BotLimits(group=Rate(5, 60)))

    async with post.clock.timeout(1):
        [claim] = await waiting
    assert claim.message.chat_id == -1


async def test_a_limit_of_one_call_that_is_raised_lets_the_next_go_within_its_window(
    open_post: OpenPost,
) -> None:
    """The one slot of before may stand for an album: the new window is free once that has left it."""
    post = await open_post(Rules(private=Rate(1, 10), burst=1, bot=Rate(100, 1)))
    await post.put_many(3)
    await post.send()

    await post.outbox.set_limits(BOT, BotLimits(private=Rate(5, 1)))

    assert len(await post.run(1.2)) == 2


async def test_an_album_that_was_larger_than_its_window_counts_in_a_wider_one(open_post: OpenPost) -> None:
    post = await open_post(Rules(group=Rate(2, 10), bot=Rate(100, 1)))
    await post.album(5, -1)
    await post.send()

    await post.outbox.set_limits(BOT, BotLimits(group=Rate(6, 10)))
    await post.put_many(2, -1)

    assert await post.claim(within=9) == []


async def test_an_album_that_a_learned_limit_made_too_large_counts_in_full_in_a_new_one(
    open_post: OpenPost,
) -> None:
    """It took the 5 slots that there were; the limit of 6 that came then let one more call pass."""
    post = await open_post(Rules(bot=Rate(7, 10), private=Rate(50, 1), group=Rate(50, 1)))
    await post.put()
    await post.settle(await post.one(), Refused(0.1))
    await post.send(within=3)
    assert await post.outbox.learned() == {(BOT, None): Rate(5, 10)}
    await post.album(6, -1)
    await post.send(within=11)

    await post.outbox.set_limits(BOT, BotLimits(bot=Rate(6, 8)))
    await post.put(2)

    assert await post.claim(within=7.9) == []


async def test_a_longer_window_begins_full(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(10, 1)))
    await sent(post, 10)
    await post.clock.sleep(1.5)  # none of them is known any more

    await post.outbox.set_limits(BOT, BotLimits(bot=Rate(10, 3)))
    await post.put(99)

    assert await post.claim(within=1.9) == []
    await post.one(within=0.2)


async def test_a_short_window_in_between_does_not_forget_what_a_long_one_counts(open_post: OpenPost) -> None:
    """Calls that half a second did not remember count in the 10 s of before, also by way of a second one."""
    post = await open_post(Rules(bot=Rate(3, 10)))
    await sent(post, 3)
    await post.clock.sleep(0.52)

    for rate in (Rate(100, 0.5), Rate(3, 1), Rate(3, 10)):
        await post.outbox.set_limits(BOT, BotLimits(bot=rate))
        await post.clock.sleep(0.1)
    await post.put(99)

    assert await post.claim(within=9.1) == []


async def test_a_burst_that_was_learned_to_be_over_counts_in_another_one(open_post: OpenPost) -> None:
    """While it had learned, the window of replies was a quarter as long: it forgot three of four calls."""
    post = await open_post(Rules(private=Rate(1, 3), burst=4, bot=Rate(100, 1)))
    await post.put_many(2, priority=Priority.HIGH)
    await post.send()
    await post.settle(await post.one(within=10), Refused(0.1))
    assert set(await post.outbox.learned()) == {(BOT, 1)}
    await post.send(within=15)
    for _ in range(3):
        await post.put(priority=Priority.HIGH)
        await post.send(within=5)

    await post.outbox.set_limits(BOT, BotLimits(private=Rate(1, 2.5)))
    await post.put_many(4, priority=Priority.HIGH)

    assert len(await post.run(0.5)) <= 1


async def test_limits_of_one_bot_leave_the_others_alone(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(2, 1)))
    await post.outbox.set_limits(BOT, BotLimits(bot=Rate(1, 1)))
    for chat in (1, 2):
        await post.put(chat, bot=BOT)
        await post.put(chat, bot=OTHER_BOT)

    bots = [claim.message.bot for claim in await post.claim_all(within=0.6)]

    assert sorted(bots) == [BOT, OTHER_BOT, OTHER_BOT]


async def test_limits_are_read_replaced_and_reset(post: Post) -> None:
    outbox = post.outbox
    assert await outbox.own_limits() == {}
    both = BotLimits(bot=Rate(25, 1), group=Rate(15, 60))
    await outbox.set_limits(BOT, both)
    assert await outbox.own_limits() == {BOT: both}
    await outbox.set_limits(BOT, BotLimits(private=Rate(2, 1)))
    assert await outbox.own_limits() == {BOT: BotLimits(private=Rate(2, 1))}
    await outbox.set_limits(BOT, BotLimits())
    assert await outbox.own_limits() == {}


async def test_a_reset_brings_the_rule_back_at_once(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(10, 1)))
    await post.outbox.set_limits(BOT, BotLimits(bot=Rate(1, 1)))
    for chat in range(1, 4):
        await post.put(chat)
    await post.settle(await post.one())
    assert await post.claim() == []

    await post.outbox.set_limits(BOT, BotLimits())

    assert len(await post.claim_all(within=1.2)) == 2


@pytest.mark.parametrize(
    ("limits", "allowed"),
    [
        (BotLimits(bot=Rate(40, 1)), {(BOT, None): Rate(25, 1)}),  # it goes on below the new one
        (BotLimits(bot=Rate(20, 1)), {}),  # the rule is stricter
        (BotLimits(bot=Rate(60, 2)), {}),  # its steps would mean other rates
    ],
)
async def test_a_learned_limit_never_allows_more_than_the_new_one(
    open_post: OpenPost, limits: BotLimits, allowed: dict[object, Rate]
) -> None:
    post = await open_post(Rules(bot=Rate(30, 1), private=Rate(5, 1)))
    await post.put()
    await post.settle(await post.one(), Refused(1))
    assert await post.outbox.learned() == {(BOT, None): Rate(25, 1)}

    await post.outbox.set_limits(BOT, limits)
    await post.put(2)
    await post.send(within=5)

    assert await post.outbox.learned() == allowed


@pytest.mark.parametrize("other", ["action", "paid"])
async def test_the_learned_limit_of_a_bot_was_forgotten_once_it_typed(
    open_post: OpenPost, other: str
) -> None:
    """Sends have another limit than chat actions and paid broadcasts: those hid what it was cut to."""
    post = await open_post(Rules(bot=Rate(30, 1), private=Rate(5, 1)))
    await post.put()
    await post.settle(await post.one(), Refused(1))
    if other == "action":
        await post.put(2, method="sendChatAction", params={"action": "typing"})
    else:
        await post.put(2, params={"text": "x", "allow_paid_broadcast": True})
    await post.send(within=5)
    assert await post.outbox.learned() == {(BOT, None): Rate(25, 1)}


@pytest.mark.parametrize("rate", [Rate(10_001, 1), Rate(1, 601), Rate(1, 0.01)])
async def test_a_limit_that_cannot_be_meant_is_refused_with_what_to_give(post: Post, rate: Rate) -> None:
    with pytest.raises(BadInputError, match="such as 25/1"):
        await post.outbox.set_limits(BOT, BotLimits(bot=rate))
    assert await post.outbox.own_limits() == {}


async def test_a_change_of_limits_is_one_line_of_the_log(
    post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tidegate.outbox")
    for limits in (BotLimits(bot=Rate(25, 1)), BotLimits(bot=Rate(25, 1)), BotLimits()):
        await post.outbox.set_limits(BOT, limits)

    assert [record.getMessage() for record in caplog.records if "limits set" in record.getMessage()] == [
        "limits set: bot 42:… may send 25 in 1 s in all",
        "limits set: bot 42:… may send what the settings allow, again (before: 25 in 1 s in all)",
    ]
