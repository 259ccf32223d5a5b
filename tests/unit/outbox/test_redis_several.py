"""Several processes share one Redis: whatever their interleaving, nothing breaks and nothing stalls."""

import asyncio
import random
from contextlib import suppress

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from contract.post import BOT, DELIVERED, OTHER_BOT, Post
from contract.test_never_over_a_limit import CHATS, FarEnd, judge, rules, some_message
from redis_hub import LATE, Hub, Watchman, processes
from tidegate.model import BotId, Claim, Delivered, Message, Priority, Rate, State
from tidegate.pacing.rules import Rules
from tidegate.sim import virtual_time
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.redis.connection import Argument
from tidegate.stores.redis.outbox import RedisOutbox

ONE_A_SECOND = Rules(bot=Rate(1000, 1), private=Rate(1, 1), group=Rate(1, 1))


class Company:
    """Several processes that put, claim, settle and take turns, each as it likes."""

    def __init__(self, hub: Hub, posts: list[Post], far_end: FarEnd) -> None:
        self.clock, self.posts, self.far_end, self.draw = hub.clock, posts, far_end, far_end.draw
        self.watchman = Watchman(hub)
        self.put: list[Message] = []

    async def live(self, messages: int) -> None:
        workers = [asyncio.create_task(self.work(post, self.draw.randint(1, 4))) for post in self.posts]
        workers.append(asyncio.create_task(self.watchman.keep_watch()))
        talking = [asyncio.create_task(self.talk(post, messages // 4)) for post in self.posts]
        for _ in range(messages):
            if self.draw.random() < 0.3:
                await self.clock.sleep(self.draw.expovariate(2.0))
            self.put.append(some_message(self.posts[0], self.draw))
            await self.draw.choice(self.posts).outbox.put(self.put[-1:])
        await asyncio.gather(*talking)
        await self.posts[0].outbox.drained()
        for task in workers:
            task.cancel()
        await asyncio.wait(workers)

    async def work(self, post: Post, concurrency: int) -> None:
        calls: set[asyncio.Task[None]] = set()
        while True:
            while len(calls) >= concurrency:
                await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            room, hasty = concurrency - len(calls), self.draw.random() < 0.2
            claiming = post.claim(room, within=self.draw.random()) if hasty else post.outbox.claim(room)
            for claim in await claiming:
                task = asyncio.create_task(self.call(post, claim))
                calls.add(task)
                task.add_done_callback(calls.discard)

    async def call(self, post: Post, claim: Claim) -> None:
        await post.outbox.settle([await self.far_end.call(post.outbox, claim)])

    async def talk(self, post: Post, times: int) -> None:
        for _ in range(times):
            await self.clock.sleep(self.draw.expovariate(1.0))
            with suppress(TimeoutError):
                await self.say(post, self.draw.choice([BOT, OTHER_BOT]), self.draw.choice(CHATS))

    async def say(self, post: Post, bot: BotId, chat: int) -> None:
        priority, max_wait = self.draw.choice(list(Priority)), self.draw.choice([None, None, 0.0, 0.3])
        turn = await post.outbox.turn(bot, chat, "send", 1, priority, max_wait=max_wait)
        await self.clock.sleep(self.draw.uniform(0, 0.3))
        self.far_end.count(bot, chat, "sendMessage", 1)
        await self.clock.sleep(self.draw.uniform(0.001, 0.3))
        await post.outbox.end_turn(turn, Delivered({}))


async def live_together(clock: VirtualClock, rules: Rules, seed: int, messages: int, count: int) -> Company:
    draw = random.Random(seed)

    def jitter(*_: object) -> float:
        return draw.choice([0.0, 0.0, 0.001, 0.004])

    async with processes(clock, count, rules, delay=jitter if seed % 2 else None) as (hub, posts):
        company = Company(hub, posts, FarEnd(clock, rules, draw))
        await company.live(messages)
    return company


@given(rules, st.integers(0, 2**32), st.integers(1, 40), st.integers(2, 3))
@settings(max_examples=settings().max_examples // 12, phases=[Phase.explicit, Phase.generate])
def test_several_processes_break_no_limit_lose_nothing_and_leave_nobody_asleep(
    rules: Rules, seed: int, messages: int, count: int
) -> None:
    async def main(clock: VirtualClock) -> Company:
        async with clock.timeout(100_000):
            return await live_together(clock, rules, seed, messages, count)

    company = virtual_time.run(main, seed)
    assert company.watchman.complaints == []
    judge(company.far_end, company.put)


async def test_a_worker_that_brings_its_own_process_a_turn_keeps_watch_for_messages(
    clock: VirtualClock,
) -> None:
    def slow_for_turns(step: str, args: tuple[Argument, ...]) -> float:
        return 0.03 if (step, args[:1]) == ("claim", (0,)) else 0.0

    async with processes(clock, 1, ONE_A_SECOND, delay=slow_for_turns) as (_, [post]):
        await post.outbox.end_turn(await post.turn(1), DELIVERED)
        await post.put(2, not_before=clock.now() + 3)
        claiming = await post.begin(post.outbox.claim(10))
        turn = await post.turn(1)  # the worker is there first when its time comes
        await post.outbox.end_turn(turn, DELIVERED)

        async with clock.timeout(5):
            [claim] = await claiming

        assert clock.monotonic() == pytest.approx(3, abs=LATE)
        await post.settle(claim)


async def test_a_watch_in_the_past_is_no_watch(clock: VirtualClock) -> None:
    async with processes(clock, 2) as (_, [one, other]):
        claiming = await one.begin(one.outbox.claim(1))
        late = await other.begin(other.outbox.claim(1))
        await one.put(1, not_before=clock.now() + 2)
        await claiming  # and it does not come back: its call hangs

        await one.put(2, not_before=clock.now() + 3)

        async with clock.timeout(5):
            await late
        assert clock.monotonic() == pytest.approx(5, abs=LATE)


async def test_a_worker_that_is_full_hands_its_watch_on(clock: VirtualClock) -> None:
    async with processes(clock, 2) as (_, [one, other]):
        claiming = await one.begin(one.outbox.claim(1))
        late = await other.begin(other.outbox.claim(1))
        await one.put(1, not_before=clock.now() + 2)
        await one.put(2, not_before=clock.now() + 4)
        await claiming

        async with clock.timeout(5):
            await late
        assert clock.monotonic() == pytest.approx(4, abs=LATE)


async def test_a_worker_takes_the_messages_of_bots_that_it_knows_and_leaves_the_others(
    clock: VirtualClock,
) -> None:
    async with processes(clock, 2) as (_, [one, other]):
        serve_only(one, BOT)
        serve_only(other, OTHER_BOT)
        first, second = await one.begin(one.outbox.claim(10)), await other.begin(other.outbox.claim(10))
        await one.put(1, bot=OTHER_BOT)
        await clock.sleep(0.3)
        assert not first.done()
        assert [claim.message.bot for claim in await second] == [OTHER_BOT]

        await one.put(1, bot=BOT)
        async with clock.timeout(0.2):
            [claim] = await first

    assert claim.message.bot == BOT


async def test_messages_of_a_bot_that_nobody_knows_keep_nobody_from_the_others(clock: VirtualClock) -> None:
    async with processes(clock, 1) as (_, [post]):
        serve_only(post, BOT)
        stays = await post.put(1, bot=OTHER_BOT)
        claiming = await post.begin(post.outbox.claim(10))
        await clock.sleep(10)

        await post.put(1)
        async with clock.timeout(0.2):
            [claim] = await claiming

        assert claim.message.bot == BOT
        assert await post.state(stays) == State.QUEUED


def serve_only(post: Post, bot: BotId) -> None:
    assert isinstance(post.outbox, RedisOutbox)
    post.outbox.serves = lambda: [bot]
