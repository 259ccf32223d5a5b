"""The throttle on every store: which updates pass, which are throttled, and which users are told."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.inline_redis import InlineConnection
from contract.stores import redis_url
from tidegate.inbound.throttle import (
    ALLOWED,
    Charge,
    Throttle,
    Throttled,
    ThrottleRules,
    ThrottleStore,
    ThrottleVerdict,
)
from tidegate.inbound.updates import UpdateInfo
from tidegate.model import Rate
from tidegate.sim import virtual_time
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.memory.throttle import MemoryThrottle
from tidegate.stores.redis.throttle import RedisThrottle

BOT, GROUP = 42, -100
RULES: Final = ThrottleRules(user=Rate(3, 30), chat=Rate(5, 30), stubborn=4, pause=100)


@asynccontextmanager
async def buckets(kind: str, rules: ThrottleRules, clock: VirtualClock) -> AsyncIterator[ThrottleStore]:
    if kind == "memory":
        yield MemoryThrottle(rules, clock)
        return
    link = InlineConnection(redis_url(), clock)
    yield RedisThrottle(rules, link, clock)
    await link.close()


KINDS: Final = ("memory", "redis")


@pytest.fixture(params=KINDS)
async def throttle(request: pytest.FixtureRequest, clock: VirtualClock) -> AsyncIterator[Throttle]:
    async with buckets(request.param, RULES, clock) as opened:
        yield Throttle(RULES, opened)


def private(user: int, kind: str = "message") -> UpdateInfo:
    return UpdateInfo(kind, user, user, is_private=True)


def in_group(user: int | None, kind: str = "message", chat: int = GROUP) -> UpdateInfo:
    return UpdateInfo(kind, user, chat, is_private=False)


async def flood(throttle: Throttle, about: UpdateInfo, count: int) -> list[ThrottleVerdict]:
    return [await throttle.check(about, BOT) for _ in range(count)]


def throttled(wait: float, *, notify: bool = False) -> ThrottleVerdict:
    about: Any = pytest.approx(wait)
    return Throttled(notify=notify, wait=about)


def passed(verdicts: list[ThrottleVerdict]) -> int:
    return verdicts.count(ALLOWED)


def answers(verdicts: list[ThrottleVerdict]) -> list[bool]:
    return [isinstance(verdict, Throttled) and verdict.notify for verdict in verdicts]


async def test_throttles_of_two_names_do_not_count_for_each_other_in_redis(clock: VirtualClock) -> None:
    link = InlineConnection(redis_url(), clock)
    orders, updates = (Throttle(RULES, RedisThrottle(RULES, link, clock, name)) for name in ("order", ""))
    assert passed(await flood(orders, private(71), 5)) == 3
    assert passed(await flood(updates, private(71), 5)) == 3
    await link.close()


async def test_a_user_who_writes_too_much_is_throttled_told_once_and_may_write_again(
    throttle: Throttle, clock: VirtualClock
) -> None:
    verdicts = await flood(throttle, private(1), 5)
    assert passed(verdicts[:3]) == 3
    assert verdicts[3] == throttled(10, notify=True)
    assert verdicts[4] == throttled(10)
    assert throttle.throttled == 2

    await clock.sleep(10)
    assert await flood(throttle, private(1), 2) == [ALLOWED, throttled(10)]


async def test_in_the_next_window_the_user_is_told_again(throttle: Throttle, clock: VirtualClock) -> None:
    assert answers(await flood(throttle, private(1), 4)) == [False, False, False, True]
    await clock.sleep(31)
    assert answers(await flood(throttle, private(1), 5)) == [False, False, False, True, False]


async def test_nobody_else_is_held_and_each_bot_counts_for_itself(throttle: Throttle) -> None:
    await flood(throttle, private(1), 10)
    assert passed(await flood(throttle, private(2), 3)) == 3
    assert await throttle.check(private(1), 43) == ALLOWED


async def test_the_stubborn_pauses_and_is_free_after_it(throttle: Throttle, clock: VirtualClock) -> None:
    verdicts = await flood(throttle, private(1), 7)
    assert verdicts[-1] == throttled(100)

    for left in (75, 50, 25):  # the bucket is full again, and the user goes on
        await clock.sleep(25)
        assert await throttle.check(private(1), BOT) == throttled(left)

    await clock.sleep(25)
    assert answers(await flood(throttle, private(1), 4)) == [False, False, False, True]


@pytest.mark.parametrize("kind", KINDS)
async def test_after_a_short_pause_the_strikes_begin_anew_without_a_second_notice(
    kind: str, clock: VirtualClock
) -> None:
    rules = ThrottleRules(user=Rate(3, 30), stubborn=4, pause=15)
    async with buckets(kind, rules, clock) as opened:
        throttle = Throttle(rules, opened)
        assert (await flood(throttle, private(1), 7))[-1] == throttled(15)
        await clock.sleep(15)
        assert await flood(throttle, private(1), 5) == [
            ALLOWED,
            throttled(5),
            throttled(5),
            throttled(5),
            throttled(15),
        ]


async def test_a_group_at_its_limit_is_held_in_silence(throttle: Throttle, clock: VirtualClock) -> None:
    verdicts = [await throttle.check(in_group(user), BOT) for user in range(1, 8)]
    assert verdicts == [*[ALLOWED] * 5, throttled(6), throttled(6)]

    assert await throttle.check(in_group(8, chat=-200), BOT) == ALLOWED
    await clock.sleep(6)
    assert await throttle.check(in_group(7), BOT) == ALLOWED


async def test_what_a_group_holds_is_not_taken_from_its_users(throttle: Throttle) -> None:
    for user in range(1, 6):
        await throttle.check(in_group(user), BOT)
    await flood(throttle, in_group(9), 20)
    assert isinstance(await throttle.check(in_group(9), BOT, album="a"), Throttled)
    assert passed(await flood(throttle, private(9), 4)) == 3


async def test_what_a_user_is_held_for_is_not_taken_from_the_group(throttle: Throttle) -> None:
    assert passed(await flood(throttle, in_group(1), 10)) == 3
    assert passed(await flood(throttle, in_group(2), 3)) == 2


async def test_a_flooder_in_a_group_is_told_in_a_private_chat(throttle: Throttle) -> None:
    assert not any(answers(await flood(throttle, in_group(1), 5)))
    assert answers(await flood(throttle, private(1), 2)) == [True, False]


async def test_a_button_passes_and_counts(throttle: Throttle) -> None:
    assert passed(await flood(throttle, private(1, "callback_query"), 20)) == 20
    assert passed(await flood(throttle, private(1), 1)) == 0


async def test_money_passes_in_a_pause_too(throttle: Throttle) -> None:
    await flood(throttle, private(1), 10)
    assert passed(await flood(throttle, private(1, "payment"), 3)) == 3


async def test_what_becomes_of_a_chat_passes_and_does_not_count(throttle: Throttle) -> None:
    assert passed(await flood(throttle, in_group(1, "chat_member"), 20)) == 20
    assert passed(await flood(throttle, in_group(1), 3)) == 3


async def test_those_of_nobody_pass(throttle: Throttle) -> None:
    assert passed(await flood(throttle, UpdateInfo("poll", None, None, is_private=False), 20)) == 20
    assert passed(await flood(throttle, UpdateInfo("new_kind", None, None, is_private=False), 20)) == 20


async def test_a_channel_counts_without_a_user(throttle: Throttle) -> None:
    assert passed(await flood(throttle, in_group(None, "channel_post"), 7)) == 5


async def test_anonymous_admins_of_all_groups_are_not_one_user(throttle: Throttle) -> None:
    for chat in range(-210, -200):
        assert await throttle.check(in_group(1087968824, chat=chat), BOT) == ALLOWED


@pytest.mark.parametrize("kind", KINDS)
async def test_twenty_forwarded_messages_are_not_dropped_by_the_usual_rules(
    kind: str, clock: VirtualClock
) -> None:
    """Nor a hundred from a user who was quiet, nor do they lead to a pause when nothing is left."""
    rules = ThrottleRules()
    async with buckets(kind, rules, clock) as opened:
        throttle, forwarded = Throttle(rules, opened), private(1)._replace(is_forwarded=True)
        for _ in range(3):
            assert passed(await flood(throttle, forwarded, 20)) == 20
        assert passed(await flood(throttle, private(1), 15)) == 15, "what is left of thirty"
        assert passed(await flood(throttle, private(2)._replace(is_forwarded=True), 100)) == 100

        assert passed(await flood(throttle, forwarded, 20)) == 0
        await clock.sleep(2)
        assert passed(await flood(throttle, private(1), 1)) == 1, "no pause"


async def test_an_album_counts_once(throttle: Throttle) -> None:
    album = [await throttle.check(private(1), BOT, album="a") for _ in range(10)]
    assert passed(album) == 10
    assert passed(await flood(throttle, private(1), 3)) == 2


async def test_an_album_is_held_as_a_whole_and_is_one_strike(throttle: Throttle, clock: VirtualClock) -> None:
    await flood(throttle, private(1), 3)
    parts = [await throttle.check(private(1), BOT, album="a") for _ in range(10)]
    assert answers(parts) == [True] + [False] * 9
    await clock.sleep(11)  # it would pass now, half of it
    assert isinstance(await throttle.check(private(1), BOT, album="a"), Throttled)
    assert await throttle.check(private(1), BOT) == ALLOWED


Step = tuple[int, Charge]  # 1024ths of a second since the one before

charges = st.builds(
    Charge,
    bot=st.just(BOT),
    user=st.sampled_from([1, 2]),
    chat=st.none() | st.just(GROUP),
    cost=st.sampled_from([0.5, 1.0, 2.0]),
    never_throttled=st.sampled_from([False, False, False, True]),
    may_notify=st.booleans(),
    strike=st.sampled_from([1.0, 1.0, 0.25]),
    mode=st.sampled_from(["drop", "drop", "drop", "wait", "full"]),
    album=st.none() | st.sampled_from("ab"),
) | st.builds(Charge, bot=st.just(BOT), user=st.none(), chat=st.just(GROUP), cost=st.just(1.0))
gaps = st.integers(0, 2_048) | st.integers(0, 200_000)
steps = st.lists(st.tuples(gaps, charges), max_size=60)
rules = st.builds(
    ThrottleRules,
    user=st.builds(Rate, st.integers(2, 5), st.sampled_from([3.0, 10.0, 60.0])),
    chat=st.builds(Rate, st.integers(2, 5), st.sampled_from([3.0, 60.0])),
    stubborn=st.integers(1, 5),
    pause=st.sampled_from([0.0, 1.0, 20.0, 300.0]),
    over=st.sampled_from(["drop", "drop", "queue"]),
)


def play(kind: str, rules: ThrottleRules, script: list[Step]) -> list[tuple[float, Charge, ThrottleVerdict]]:
    async def main(clock: VirtualClock) -> list[tuple[float, Charge, ThrottleVerdict]]:
        told = []
        async with buckets(kind, rules, clock) as opened:
            for gap, charge in script:
                await clock.sleep(gap / 1024)
                told.append((clock.monotonic(), charge, await opened.charge(charge)))
        return told

    return virtual_time.run(main)


@settings(max_examples=settings().max_examples // 2)
@given(rules, steps)
def test_redis_and_memory_say_the_same(rules: ThrottleRules, script: list[Step]) -> None:
    for (_, charge, here), (_, _, there) in zip(
        play("memory", rules, script), play("redis", rules, script), strict=True
    ):
        assert type(here) is type(there), charge
        if isinstance(here, Throttled) and isinstance(there, Throttled):
            assert here.notify == there.notify
            assert here.wait == pytest.approx(there.wait, abs=1e-5)


@settings(max_examples=settings().max_examples // 4)
@given(rules, steps)
def test_the_same_updates_have_the_same_verdicts(rules: ThrottleRules, script: list[Step]) -> None:
    assert play("memory", rules, script) == play("memory", rules, script)


@given(rules, steps)
def test_no_stretch_of_time_lets_more_pass_than_the_rate_and_what_had_gathered(
    rules: ThrottleRules, script: list[Step]
) -> None:
    counted = [(gap, charge) for gap, charge in script if charge.album is None and not charge.never_throttled]
    played = play("memory", rules, counted)
    for name, rate in (("user", rules.user), ("chat", rules.chat)):
        assert rate is not None
        for who in {getattr(charge, name) for _, charge in counted} - {None}:
            taken = [
                (at, charge.cost)
                for at, charge, told in played
                if told == ALLOWED and getattr(charge, name) == who
            ]
            for first, (start, _) in enumerate(taken):
                total = 0.0
                for at, cost in taken[first:]:
                    total += cost
                    assert total <= rate.count + (at - start) * rate.count / rate.seconds + 1e-6


@given(rules, steps)
def test_answers_to_one_user_are_a_window_apart(rules: ThrottleRules, script: list[Step]) -> None:
    played = play("memory", rules, script)
    for user in (1, 2):
        told = [
            at
            for at, charge, verdict in played
            if charge.user == user and isinstance(verdict, Throttled) and verdict.notify
        ]
        assert all(later - sooner >= rules.user.seconds for sooner, later in pairwise(told))


@given(rules, steps)
def test_a_user_who_waits_as_long_as_told_passes(rules: ThrottleRules, script: list[Step]) -> None:
    async def main(clock: VirtualClock) -> None:
        opened = MemoryThrottle(rules, clock)
        for gap, charge in script:
            await clock.sleep(gap / 1024)
            alike = Charge(BOT, charge.user or 3, None, 1.0)
            verdict = await opened.charge(alike)
            if isinstance(verdict, Throttled):
                await clock.sleep(verdict.wait + 1e-6)
                assert await opened.charge(alike) == ALLOWED

    virtual_time.run(main)


async def test_what_was_written_during_a_downtime_is_charged_as_of_then(
    throttle: Throttle, clock: VirtualClock
) -> None:
    """One message in ten minutes, all of them delivered at once; and a user who flooded meanwhile."""
    began = int(clock.now()) - 3600
    slow = [private(1)._replace(sent_at=began + 600 * number) for number in range(6)]
    flood_ = [private(2)._replace(sent_at=began) for _ in range(6)]

    patient = [await throttle.check(about, BOT) for about in slow]
    impatient = [await throttle.check(about, BOT) for about in flood_]
    fresh = await flood(throttle, private(1), 3)

    assert passed(patient) == 6
    assert passed(impatient) == 3
    assert not any(answers(impatient))  # it is too late to tell
    assert passed(fresh) == 3


async def test_what_is_late_passes_also_after_a_button_that_was_pressed_now(
    throttle: Throttle, clock: VirtualClock
) -> None:
    now = int(clock.now())
    late = [in_group(1)._replace(sent_at=now - age) for age in (600, 500, 120)]

    verdicts = [await throttle.check(late[0], BOT), await throttle.check(in_group(1, "callback_query"), BOT)]
    verdicts += [await throttle.check(about, BOT) for about in late[1:]]
    others = [await throttle.check(in_group(2)._replace(sent_at=now - 300), BOT) for _ in range(1)]

    assert passed(verdicts + others) == 5
