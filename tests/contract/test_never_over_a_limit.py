"""Everything that arrives is counted by an exact and independent referee, whatever the latencies."""

import asyncio
import random
from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.post import BOT, OTHER_BOT, Post
from contract.stores import SLOW, STORES, Store
from tidegate.model import (
    BotId,
    Claim,
    Delivered,
    Message,
    NotSent,
    Outcome,
    Priority,
    Rate,
    Retry,
    Settlement,
    TicketId,
    Unknown,
)
from tidegate.outbox.port import Outbox
from tidegate.pacing.rules import Rules, cost_of, family_of, is_private
from tidegate.sim import virtual_time
from tidegate.sim.telegram.flood_control import FloodControl, Limits
from tidegate.sim.virtual_time import VirtualClock

CHATS = (1, 2, 3, 4, -1, -2)
NO_ANSWER_FOR = 2.0

rates = st.builds(Rate, st.integers(1, 6), st.sampled_from([0.5, 1.0, 3.0]))
rules = st.builds(
    Rules,
    bot=rates,
    private=rates,
    group=rates,
    paid=rates,
    actions=st.tuples(rates, rates),
    edits=st.sampled_from(["shared", "separate"]),
)


class FarEnd:
    """Counts what arrives, by the very limits that the rules know; answers, fails or falls silent."""

    def __init__(self, clock: VirtualClock, rules: Rules, draw: random.Random) -> None:
        self.clock, self.draw = clock, draw
        self.flood = FloodControl(
            Limits(
                bot=rules.bot,
                private=rules.private,
                group=rules.group,
                paid=rules.paid,
                actions=rules.actions,
                edit_budget=rules.edits,
                closes="nothing",
            )
        )
        self.refusals: list[str] = []
        self.delivered: list[Message] = []

    def count(self, bot: BotId, chat: int, method: str, cost: int, *, paid: bool = False) -> None:
        family = family_of(method)
        if family == "free":
            return
        kind = "private" if is_private(chat) else "group"
        now = self.clock.monotonic()
        flood = self.flood.admit(now, bot, chat, kind, family, cost=cost, paid=paid)
        if flood is not None:
            self.refusals.append(f"{now:.4f}: {method} of {cost} to {chat}: {flood}")

    async def call(self, outbox: Outbox, claim: Claim) -> Settlement:
        draw, clock, message = self.draw, self.clock, claim.message
        fate = draw.random()
        if fate < 0.05:
            return Settlement(claim, NotSent("too late"))
        await clock.sleep(draw.uniform(0, 0.3))
        cost = cost_of(message.method, message.params)
        paid = bool(message.params.get("allow_paid_broadcast"))
        self.count(message.bot, int(message.chat_id), message.method, cost, paid=paid)
        if fate < 0.15:
            await clock.sleep(NO_ANSWER_FOR)
            await outbox.cool([claim])
            await clock.sleep(draw.uniform(0, 2))
            return Settlement(claim, Unknown("no answer", 0.5))
        await clock.sleep(draw.uniform(0.001, 0.3))
        heard = clock.monotonic()
        outcome: Outcome = Retry(0.5, "502")
        if fate > 0.25:
            self.delivered.append(message)
            outcome = Delivered({})
        await clock.sleep(draw.uniform(0, 0.2))  # settled in a batch, a little later
        return Settlement(claim, outcome, clock.monotonic() - heard)


def some_message(post: Post, draw: random.Random) -> Message:
    kind = draw.choice(["text", "text", "text", "album", "action", "edit", "paid", "free"])
    method, params = {
        "text": ("sendMessage", {"text": "x"}),
        "album": ("sendMediaGroup", {"media": [{}] * draw.randint(2, 8)}),
        "action": ("sendChatAction", {"action": "typing"}),
        "edit": ("editMessageText", {"text": "x"}),
        "paid": ("sendMessage", {"text": "x", "allow_paid_broadcast": True}),
        "free": ("deleteMessage", {"message_id": 1}),
    }[kind]
    return post.message(
        draw.choice(CHATS),
        bot=draw.choice([BOT, OTHER_BOT]),
        method=method,
        params=params,
        priority=draw.choice(list(Priority)),
        max_attempts=1_000,
    )


async def live(
    clock: VirtualClock, store: Store, rules: Rules, seed: int, messages: int, claimers: int
) -> tuple[FarEnd, list[Message]]:
    draw = random.Random(seed)
    outbox = store(clock, rules, lease=30.0, keep=10_000.0)
    await outbox.open()
    post, far_end = Post(outbox, clock), FarEnd(clock, rules, draw)
    put: list[Message] = []
    calls: set[asyncio.Task[None]] = set()

    async def call(claim: Claim) -> None:
        await outbox.settle([await far_end.call(outbox, claim)])

    async def work() -> None:
        while True:
            for claim in await outbox.claim(draw.randint(1, 5)):
                task = asyncio.create_task(call(claim))
                calls.add(task)
                task.add_done_callback(calls.discard)

    async def talk() -> None:
        for _ in range(messages // 5):
            await clock.sleep(draw.expovariate(1.0))
            bot, chat = draw.choice([BOT, OTHER_BOT]), draw.choice(CHATS)
            turn = await outbox.turn(bot, chat, "send", 1)
            await clock.sleep(draw.uniform(0, 0.3))
            far_end.count(bot, chat, "sendMessage", 1)
            await clock.sleep(draw.uniform(0.001, 0.3))
            await outbox.end_turn(turn, Delivered({}))

    workers = [asyncio.create_task(work()) for _ in range(claimers)]
    talking = asyncio.create_task(talk())
    for _ in range(messages):
        if draw.random() < 0.3:
            await clock.sleep(draw.expovariate(2.0))
        message = some_message(post, draw)
        put.append(message)
        await outbox.put([message])
    await talking
    await outbox.drained()
    for worker in workers:
        worker.cancel()
    await asyncio.wait(workers)
    await outbox.close()
    return far_end, put


def judge(far_end: FarEnd, put: list[Message]) -> None:
    assert far_end.refusals == []
    arrived = Counter(message.id for message in far_end.delivered)
    assert arrived == Counter(message.id for message in put)  # nothing lost, nothing doubled
    lines: dict[object, list[TicketId]] = defaultdict(list)
    for message in far_end.delivered:
        if family_of(message.method) != "action":  # typing has no order
            lines[line_of(message)].append(message.id)
    number = {message.id: place for place, message in enumerate(put)}
    for line in lines.values():
        assert line == sorted(line, key=number.__getitem__)


def line_of(message: Message) -> object:
    return message.bot, message.chat_id, message.priority, family_of(message.method) == "edit"


@pytest.mark.parametrize("store", STORES)
def test_no_limit_is_ever_broken_and_nothing_is_lost_doubled_or_out_of_order(store: str) -> None:
    def lives_well(rules: Rules, seed: int, messages: int, claimers: int) -> None:
        async def main(clock: VirtualClock) -> tuple[FarEnd, list[Message]]:
            async with clock.timeout(100_000):
                return await live(clock, STORES[store], rules, seed, messages, claimers)

        judge(*virtual_time.run(main, seed))

    lives = given(rules, st.integers(0, 2**32), st.integers(1, 60), st.integers(1, 4))(lives_well)
    settings(max_examples=settings().max_examples // SLOW.get(store, 1))(lives)()


@pytest.mark.parametrize("store", STORES)
def test_a_busy_hour_at_telegrams_own_limits_draws_no_429(store: str) -> None:
    async def main(clock: VirtualClock) -> tuple[FarEnd, list[Message]]:
        return await live(clock, STORES[store], Rules(), 1, 1_500 // SLOW.get(store, 1), 8)

    judge(*virtual_time.run(main, 1))
