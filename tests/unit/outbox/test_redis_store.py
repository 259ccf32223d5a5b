"""What only the store in Redis has to get right: lost answers, restarts, clocks, cancelled callers."""

import asyncio

import pytest

from contract.post import BOT, DELIVERED, ROOMY, Post
from redis_hub import Hub, SharedConnection, inline, processes
from tidegate.delivery.sender import LATE_AFTER, SILENCE_AFTER
from tidegate.events import Ended, EventStream
from tidegate.model import (
    Dead,
    Migrated,
    NotSent,
    Rate,
    Record,
    Refused,
    Settlement,
    State,
)
from tidegate.outbox.port import Turn
from tidegate.pacing.rules import Rules
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.redis.outbox import LONGEST_CALL, RedisOutbox
from tidegate.stores.redis.turns import GRANT_USABLE_FOR, RedisTurns, TurnLostError

LEASE = 30.0
SLOW = Rules(bot=Rate(1000, 1), private=Rate(1, 1), group=Rate(1, 60))


def link_of(post: Post) -> SharedConnection:
    assert isinstance(post.outbox, RedisOutbox)
    assert isinstance(post.outbox.connection, SharedConnection)
    return post.outbox.connection


async def test_a_turn_whose_answer_was_lost_blocks_nobody(clock: VirtualClock) -> None:
    async with processes(clock, 2) as (_, [one, other]):
        link_of(one).deaf = {"turn"}
        alone = await one.turn(1)  # best effort
        assert alone.token < 0
        link_of(one).deaf = set()
        await clock.sleep(1)

        async with clock.timeout(12):  # far less than a lease
            turn = await other.turn(1)

        await other.outbox.end_turn(turn, DELIVERED)


async def test_what_was_claimed_by_a_call_whose_answer_was_lost_is_claimed_at_once_by_the_next(
    clock: VirtualClock,
) -> None:
    async with processes(clock, 1) as (_, [post]):
        ticket = await post.put(on_unknown="park")
        link_of(post).deaf = {"claim"}
        claiming = await post.begin(post.outbox.claim(1))
        await clock.sleep(0.1)
        assert await post.state(ticket) == State.SENDING
        link_of(post).deaf = set()

        async with clock.timeout(1):
            [claim] = await claiming

        record = await post.record(ticket)
        assert (claim.message.id, claim.attempt, record.crashes) == (ticket, 1, 0)


async def test_what_was_claimed_and_heard_is_not_taken_back_after_an_answer_was_lost(
    clock: VirtualClock,
) -> None:
    async with processes(clock, 1) as (_, [post]):
        held = await post.put(1)
        await post.one()
        link_of(post).deaf = {"claim"}
        claiming = await post.begin(post.outbox.claim(1))
        await clock.sleep(1)
        link_of(post).deaf = set()
        await post.put(2)

        [claim] = await claiming

        assert claim.message.chat_id == 2
        assert await post.state(held) == State.SENDING


async def test_what_was_claimed_by_a_call_whose_answer_was_lost_is_not_taken_back_from_another_worker(
    clock: VirtualClock,
) -> None:
    async with processes(clock, 2) as (_, [one, other]):
        ticket = await one.put()
        link_of(one).deaf = {"claim"}
        claiming = await one.begin(one.outbox.claim(1))
        await clock.sleep(0.1)
        assert await other.state(ticket) == State.SENDING
        link_of(one).away = True  # until its lease has run out
        await clock.sleep(LEASE + 1)
        claim = await other.one()
        assert (claim.message.id, claim.attempt) == (ticket, 1)

        link_of(one).away, link_of(one).deaf = False, set()
        await clock.sleep(5)  # the first process has asked again

        assert not claiming.done()  # nobody else sends it
        record = await other.settle(claim)
        assert record is not None
        assert (record.state, record.crashes) == (State.DELIVERED, 1)
        await one.cancel(claiming)


async def test_the_end_of_a_message_is_told_though_the_answer_to_its_settlement_was_lost(
    clock: VirtualClock,
) -> None:
    told: list[Record] = []
    events = EventStream()
    events.subscribe(Ended, lambda event: told.append(event.record))
    async with processes(clock, 1, events=events) as (_, [post]):
        ticket = await post.put()
        claim = await post.one()
        link_of(post).deaf = {"settle"}
        settling = await post.begin(post.outbox.settle([Settlement(claim, DELIVERED)]))
        await clock.sleep(0.5)
        link_of(post).deaf = set()

        [record] = await settling

        assert await post.state(ticket) == State.DELIVERED
        assert [one.message.id for one in told] == [ticket]
        assert record is not None


async def test_ends_of_turns_that_could_not_be_told_are_told_once_each(clock: VirtualClock) -> None:
    async with processes(clock, 2, SLOW, delay=lambda *_: 0.01) as (_, [one, other]):
        assert isinstance(one.outbox, RedisOutbox)
        turns = [await one.turn(chat) for chat in (1, 2, 3)]
        link_of(one).away = True
        for turn in turns:
            await one.outbox.end_turn(turn, DELIVERED)
        link_of(one).away = False

        saying = one.outbox._turns.repeat_ends  # noqa: SLF001  (the store's heart and that of its turns both say it)
        await asyncio.gather(saying(), saying())

        for chat in (1, 2, 3):
            async with clock.timeout(2):
                await other.outbox.end_turn(await other.turn(chat), DELIVERED)


async def test_calls_that_come_at_a_time_are_asked_for_and_ended_in_few_steps(clock: VirtualClock) -> None:
    async with processes(clock, 1) as (hub, [post]):
        link_of(post).delay = lambda *_: 0.01
        turns = await asyncio.gather(*(post.turn(chat) for chat in range(1, 101)))
        await asyncio.gather(*(post.outbox.end_turn(turn, DELIVERED) for turn in turns))

    assert len({turn.token for turn in turns}) == 100
    assert hub.steps.count("turn") <= 3
    assert hub.steps.count("end_turn") <= 3


async def test_a_turn_that_another_process_grants_is_heard_however_many_wait(clock: VirtualClock) -> None:
    async with processes(clock, 2, SLOW) as (_, [one, other]):
        first = await one.turn(-1)
        crowd = [await one.begin(one.turn(-1)) for _ in range(250)]  # one a minute
        held = await other.turn(5)
        waiting = await one.begin(one.turn(5))
        await clock.sleep(0.1)
        await other.outbox.end_turn(held, NotSent("x"))  # by this step the turn is granted

        async with clock.timeout(2):
            await one.outbox.end_turn(await waiting, DELIVERED)

        for task in crowd:
            task.cancel()
        await asyncio.wait(crowd)
        await one.outbox.end_turn(first, DELIVERED)


async def test_a_turn_that_waits_when_redis_goes_away_is_paced_by_its_process_then(
    clock: VirtualClock,
) -> None:
    async with processes(clock, 1, SLOW) as (_, [post]):
        held = await post.turn(1)
        waiting = await post.begin(post.turn(1))
        await clock.sleep(0.1)
        link_of(post).away = True

        async with clock.timeout(60):
            turn = await waiting

        assert turn.token < 0
        await post.outbox.end_turn(turn, DELIVERED)
        link_of(post).away = False
        await post.outbox.end_turn(held, DELIVERED)


async def test_a_turn_whose_lease_ran_out_is_asked_for_again_if_redis_is_there(clock: VirtualClock) -> None:
    async with processes(clock, 2, SLOW) as (hub, [one, other]):
        held = await other.turn(1)
        waiting = await one.begin(one.turn(1))
        await clock.sleep(0.1)
        [name] = [name for name in await inline(hub.redis.zrange, hub.keys["leases"], 0, -1) if b"p0" in name]
        await inline(hub.ask, "ZADD", hub.keys["leases"], 1, name)  # as if its process had been frozen
        await other.outbox.end_turn(held, NotSent("x"))

        turn = await waiting

        assert turn.token > 0
        await one.outbox.end_turn(turn, DELIVERED)


async def test_who_waits_for_the_end_of_a_message_does_not_spin_while_redis_is_away(
    clock: VirtualClock,
) -> None:
    async with processes(clock, 1) as (_, [post]):
        ticket = await post.put(not_before=clock.now() + 0.021)
        waiting = await post.begin(post.outbox.settled(ticket))
        link = link_of(post)
        await clock.sleep(0.0205)  # it has looked, and something is due soon
        link.away = True
        await clock.sleep(10)
        link.away = False

        assert link.in_vain < 100
        await clock.sleep(1)
        await post.send()
        async with clock.timeout(1):
            await waiting


@pytest.mark.parametrize("steps", range(1, 16))
async def test_a_claim_that_is_cancelled_at_any_point_holds_nothing(clock: VirtualClock, steps: int) -> None:
    async with processes(clock, 2, delay=lambda *_: 0.0) as (_, [one, other]):
        await one.put_many(2, 1)
        await one.put(2)
        claiming = asyncio.create_task(one.outbox.claim(10))
        for _ in range(steps):
            await asyncio.sleep(0)  # noqa: TID251  (a step of the loop, not a wait)
        if claiming.done():
            for claim in claiming.result():
                await one.settle(claim, NotSent("x"))
        else:
            claiming.cancel()
            await asyncio.wait([claiming])

        assert len(await other.order(seconds=2)) == 3


@pytest.mark.parametrize("steps", range(1, 16))
@pytest.mark.parametrize("rival", [False, True])
async def test_a_turn_that_is_cancelled_at_any_point_holds_nothing(
    clock: VirtualClock, steps: int, *, rival: bool
) -> None:
    async with processes(clock, 2, delay=lambda *_: 0.0) as (_, [one, other]):
        held = await other.turn(1) if rival else None
        asking = asyncio.create_task(one.turn(1))
        for _ in range(steps):
            await asyncio.sleep(0)  # noqa: TID251  (a step of the loop, not a wait)
        if held is not None:
            await other.outbox.end_turn(held, NotSent("x"))
        if asking.done():
            await one.outbox.end_turn(asking.result(), NotSent("x"))
        else:
            asking.cancel()
            await asyncio.wait([asking])

        async with clock.timeout(1):
            await other.outbox.end_turn(await other.turn(1), DELIVERED)


@pytest.mark.parametrize("steps", range(1, 8))
async def test_a_settlement_goes_on_though_its_caller_is_cancelled(clock: VirtualClock, steps: int) -> None:
    async with processes(clock, 1, delay=lambda *_: 0.0) as (_, [post]):
        ticket = await post.put()
        claim = await post.one()
        settling = asyncio.create_task(post.outbox.settle([Settlement(claim, DELIVERED)]))
        for _ in range(steps):
            await asyncio.sleep(0)  # noqa: TID251  (a step of the loop, not a wait)
        settling.cancel()
        await asyncio.wait([settling])

        await clock.sleep(0.1)

        assert await post.state(ticket) == State.DELIVERED


async def restart(hub: Hub, posts: list[Post]) -> None:
    """Redis comes back under another run id, and each process greets it."""
    hub.run_id += "+"
    for post in posts:
        link = link_of(post)
        await link.open(link.terms)


async def test_after_a_restart_no_limit_is_used_for_the_longest_call_and_one_of_its_windows(
    clock: VirtualClock,
) -> None:
    rules = Rules(bot=Rate(30, 1), private=Rate(1, 5), group=Rate(20, 60))
    async with processes(clock, 2, rules) as (hub, posts):
        one, other = posts
        await restart(hub, posts)
        start = clock.monotonic()
        await one.put(1)
        await one.put(-1)
        turning = await other.begin(other.turn(2))

        went = {message.chat_id: at for at, message in await one.run(LONGEST_CALL + 61)}
        turn = await turning

        assert went == {
            1: pytest.approx(LONGEST_CALL + 5, abs=0.1),
            -1: pytest.approx(LONGEST_CALL + 60, abs=0.1),
        }
        assert start == 0
        await other.outbox.end_turn(turn, DELIVERED)


async def test_a_bots_own_limit_rests_after_a_restart_too(clock: VirtualClock) -> None:
    async with processes(clock, 1, Rules(bot=Rate(5, 3), private=Rate(1, 1), group=Rate(1, 1))) as (
        hub,
        posts,
    ):
        await posts[0].put(1)
        await restart(hub, posts)

        [(at, _)] = await posts[0].run(LONGEST_CALL + 4)

        assert at == pytest.approx(LONGEST_CALL + 3, abs=0.1)


async def test_who_cannot_wait_after_a_restart_is_told_for_how_long(clock: VirtualClock) -> None:
    async with processes(clock, 1, SLOW) as (hub, posts):
        [post] = posts
        await restart(hub, posts)
        ticket = await post.put(-1)

        assert await post.outbox.wait_for(BOT, 1, "send", 1) == pytest.approx(LONGEST_CALL + 1)
        assert (await post.why(ticket)).expected_in == pytest.approx(LONGEST_CALL + 60)


async def test_no_call_that_redis_forgot_is_in_a_window_with_a_new_one_however_long_it_is_on_the_wire(
    clock: VirtualClock,
) -> None:
    """A turn that is used as late as may be, written as late as may be, and counted as late as may be."""
    async with processes(clock, 1, Rules(bot=Rate(1, 1), private=Rate(1, 1), group=Rate(1, 1))) as (
        hub,
        posts,
    ):
        [post] = posts
        kept = await inline(dump, hub)
        asked_at = clock.monotonic()
        await post.turn(1)
        await inline(restore, hub, kept)  # power is lost at once: of the turn nothing is known
        await restart(hub, posts)
        counted_at = asked_at + GRANT_USABLE_FOR + LATE_AFTER + SILENCE_AFTER
        await post.put(1)

        [(at, _)] = await post.run(30)

        assert at >= counted_at + 1


def dump(hub: Hub) -> dict[bytes, bytes]:
    return {key: hub.redis.dump(key) for key in hub.redis.keys(f"{hub.prefix}:*")}  # type: ignore[misc]


def restore(hub: Hub, kept: dict[bytes, bytes]) -> None:
    hub.redis.delete(*hub.redis.keys(f"{hub.prefix}:*"))
    for key, value in kept.items():
        hub.redis.restore(key, 0, value)


async def test_leases_run_anew_after_a_restart(clock: VirtualClock) -> None:
    async with processes(clock, 1) as (hub, posts):
        [post] = posts
        ticket = await post.put()
        claim = await post.one()
        await clock.sleep(LEASE - 1)
        await restart(hub, posts)
        await clock.sleep(LEASE - 1)

        record = await post.settle(claim)

        assert record is not None
        assert (record.crashes, await post.state(ticket)) == (0, State.DELIVERED)


async def test_a_second_process_that_greets_the_same_redis_begins_no_new_quarantine(
    clock: VirtualClock,
) -> None:
    async with processes(clock, 2, SLOW) as (hub, posts):
        await restart(hub, posts)
        await clock.sleep(LONGEST_CALL + 2)
        for post in posts:
            await link_of(post).open(link_of(post).terms)
        await posts[0].put(1)

        assert len(await posts[0].claim()) == 1


async def test_deliveries_go_on_and_no_slot_is_free_early_after_the_clock_was_set_back(
    clock: VirtualClock,
) -> None:
    async with processes(clock, 1, SLOW) as (_, [post]):
        await post.put_many(4, 1)
        await post.send()
        clock.epoch -= 3600

        times = [at for at, _ in await post.run(5)]

        assert times == [pytest.approx(at, abs=0.05) for at in (1, 2, 3)]


async def test_what_is_put_after_the_clock_was_set_back_goes_when_it_is_due(clock: VirtualClock) -> None:
    async with processes(clock, 1) as (_, [post]):
        await post.put(1)
        await post.send()
        clock.epoch -= 3600
        await post.put(1, not_before=clock.now() + 100)
        expiring = await post.put(2, expires_at=clock.now() + 100)

        [(at, message)] = [(at, message) for at, message in await post.run(101) if message.chat_id == 1]

        assert at == pytest.approx(100, abs=0.1)
        assert await post.state(expiring) == State.DELIVERED
        assert message.chat_id == 1


async def test_what_was_put_for_a_chat_is_found_under_the_id_it_was_put_for(clock: VirtualClock) -> None:
    async with processes(clock, 1) as (_, [post]):
        ticket = await post.put(-3, not_before=clock.now() + 10)
        await post.put(-3)
        await post.send(Migrated(-103))
        await post.run(11)

        assert ticket in [record.message.id for record in await post.outbox.records(chat_id=-3)]
        assert await post.outbox.forget(-3) == 2


async def test_what_was_learned_of_a_chat_is_not_told_of_its_old_id_for_ever(clock: VirtualClock) -> None:
    async with processes(clock, 1, Rules(bot=Rate(1000, 1), private=Rate(5, 1), group=Rate(5, 1))) as (
        _,
        [post],
    ):
        await post.put_many(8, -3)
        for _ in range(4):
            await post.send(within=1)
        await post.send(Refused(1.0), within=1)
        assert (BOT, -3) in await post.outbox.learned()
        await post.send(Migrated(-103), within=5)

        await post.run(60)

        assert (BOT, -3) not in await post.outbox.learned()


async def test_what_is_put_after_a_chat_died_is_not_buried_with_it(clock: VirtualClock) -> None:
    async with processes(clock, 1) as (_, [post]):
        await post.put_many(1_300, 1)
        await post.send(Dead("blocked", "gone", whole_chat=True))
        later = await post.put(1)

        went = await post.order(seconds=5)

        assert went == [later]
        assert (await post.outbox.stats()).dead == 1_300


async def test_a_message_that_dies_as_it_is_replayed_is_no_letter_any_more(clock: VirtualClock) -> None:
    async with processes(clock, 1) as (hub, [post]):
        ticket = await post.put(on_unknown="park")
        await post.one()
        await clock.sleep(LEASE + 1)  # nobody looked: its worker's death is noted in the step that replays it

        assert await post.outbox.replay([ticket]) == 1
        await post.send()

        assert await inline(hub.ask, "ZCARD", hub.keys["letters"]) == 0


async def test_processes_whose_rules_differ_give_back_no_more_than_they_took(clock: VirtualClock) -> None:
    two = Rules(bot=ROOMY.bot, private=ROOMY.private, group=ROOMY.group, actions=(Rate(5, 1), Rate(3, 1)))
    one = Rules(bot=ROOMY.bot, private=ROOMY.private, group=ROOMY.group, actions=(Rate(5, 1),))
    async with processes(clock, 1, two) as (hub, [post]):
        odd = RedisOutbox(SharedConnection(hub, "odd"), clock, one)
        await odd.open()
        turn = await post.outbox.turn(BOT, 1, "action", 1)
        await odd.end_turn(await odd.turn(BOT, 1, "action", 1), DELIVERED)
        await post.outbox.end_turn(turn, DELIVERED)
        await clock.sleep(5)

        turns = [await post.begin(post.outbox.turn(BOT, 1, "action", 1)) for _ in range(7)]
        await clock.sleep(0.1)

        assert sum(task.done() for task in turns) == 3
        await odd.close()
        for task in turns:
            task.cancel()
        await asyncio.wait(turns)


async def test_a_turn_that_was_lost_is_not_made_up_for_by_best_effort_when_its_time_is_over(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with processes(clock, 1) as (_, [post]):

        async def lose(*_: object, **__: object) -> Turn:
            await clock.sleep(2)  # the process was frozen
            raise TurnLostError("lost")

        monkeypatch.setattr(RedisTurns, "turn", lose)

        with pytest.raises(TimeoutError):
            await post.outbox.turn(BOT, 1, "send", 1, max_wait=1)
