"""Counts by bot and ages in Redis: on data of an older version, beside its processes, after damage."""

from contract.post import BOT, DELIVERED, OTHER_BOT, Post
from redis_hub import Hub, SharedConnection, inline, processes
from tidegate.model import Dead, Migrated, Outcome, Priority, Refused, Retry, State
from tidegate.outbox.port import OutboxStats
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.redis.importer import BroughtMessage, bring_messages
from tidegate.stores.redis.outbox import RedisOutbox

BAD = Dead("bad_request", "no")


def as_before(hub: Hub, *tickets: str) -> None:
    """What an older version would have stored of these messages, or of all."""
    key = hub.keys["messages"]
    stored: dict[bytes, bytes] = hub.ask("HGETALL", key)
    for ticket, body in stored.items():
        if not tickets or ticket.decode() in tickets:
            assert body[-1] < 128  # a small number: the counting that it is part of
            hub.redis.hset(key, ticket, body[:-1])


def downgrade(hub: Hub) -> None:
    as_before(hub)
    hub.redis.delete(hub.keys["bot_counts"], hub.keys["ages"], hub.keys["order"])
    hub.redis.hdel(hub.keys["meta"], "counting", "adopted", "ordered")


def numbers(stats: OutboxStats) -> dict[str, int]:
    names = ("high", "normal", "low", "retry", "sending", "dead", "parked")
    return {name: count for name in names if (count := getattr(stats, name))}


async def test_data_of_an_older_version_has_right_numbers_from_the_first_look_on(clock: VirtualClock) -> None:
    async with processes(clock, 2) as (hub, [post, other]):
        began = clock.now()
        [retried, claimed, dead] = [await post.put(chat) for chat in (1, 2, 3)]
        await post.put_many(3, 9, bot=OTHER_BOT, priority="low")
        await post.put(9, bot=OTHER_BOT, not_before=began - 50)
        await clock.sleep(10)
        await post.outbox.pause(OTHER_BOT)
        await post.settle(await post.one(), Retry(60, "502"))
        claim = await post.one()
        assert claim.message.id == claimed
        await post.send(BAD)
        await inline(downgrade, hub)

        await post.settle(claim, Retry(60, "502"))  # before anybody looks

        by_bot = await other.outbox.stats_by_bot()
        assert {bot: numbers(its) for bot, its in by_bot.items()} == {
            BOT: {"retry": 2, "dead": 1},
            OTHER_BOT: {"low": 3, "normal": 1},
        }
        assert by_bot[BOT].oldest_at == by_bot[OTHER_BOT].oldest_at == began
        await post.outbox.drop([dead])
        await post.outbox.cancel([retried, claimed])
        await post.outbox.forget(9)
        by_bot = await post.outbox.stats_by_bot()
        assert all(numbers(its) == {} and its.oldest_at is None for its in by_bot.values())


async def test_whatever_becomes_of_messages_the_numbers_of_bots_add_up(clock: VirtualClock) -> None:
    async with processes(clock, 1) as (hub, [post]):
        now = clock.now()
        for chat in range(1, 21):
            await post.put(chat, on_unknown="park", priority="high", bot=BOT if chat % 2 else OTHER_BOT)
        await post.put_many(5, -7, expires_at=now + 3, not_before=now + 2)
        claims = await post.claim_all()
        outcomes: list[Outcome] = [*[BAD] * 8, Retry(1, "502"), Migrated(-8), Refused(1)]
        for claim, outcome in zip(claims, outcomes, strict=False):
            await post.settle(claim, outcome)
        letters = [record.message.id for record in await post.outbox.dead()]
        await post.outbox.replay(letters[:3])
        await post.outbox.reprioritize(letters[:2], Priority.LOW)
        await post.outbox.cancel(letters[:1])
        await post.outbox.drop(letters[3:5])
        await post.outbox.forget(6)
        await clock.sleep(40)  # leases run out, too
        brought = BroughtMessage("b", str(BOT), "9", "send", 1, 1, State.PARKED, now, now)
        await bring_messages(link_of(post), [(brought, b"", None)])

        by_bot, stats = await post.outbox.stats_by_bot(), await post.outbox.stats()

        assert "recount" not in hub.steps
        assert stats.parked > 1
        for name in ("waiting", "dead", "parked", "sending", "cancelled", "expired", "refused"):
            assert getattr(stats, name) == sum(getattr(its, name) for its in by_bot.values()), name


def link_of(post: Post) -> SharedConnection:
    assert isinstance(post.outbox, RedisOutbox)
    assert isinstance(post.outbox.connection, SharedConnection)
    return post.outbox.connection


async def test_many_messages_of_an_older_version_are_counted_in_short_steps(clock: VirtualClock) -> None:
    async with processes(clock, 2) as (hub, [post, other]):
        await post.put_many(3_000, 1)
        await inline(downgrade, hub)
        steps = hub.steps.count("stats")
        await post.send()  # what moves meanwhile is counted once

        assert numbers((await other.outbox.stats_by_bot())[BOT]) == {"normal": 2_999}
        assert (await other.outbox.stats_by_bot())[BOT].delivered == 1
        assert hub.steps.count("stats") - steps >= 6
        assert "recount" not in hub.steps


async def test_numbers_are_right_again_after_processes_of_an_older_version_have_ended(
    clock: VirtualClock,
) -> None:
    async with processes(clock, 1) as (hub, [post]):
        first, second, third = await post.put_many(3, 1)
        assert numbers((await post.outbox.stats_by_bot())[BOT]) == {"normal": 3}
        claim = await post.one()
        assert claim.message.id == first
        # As one would leave them: `second` claimed and put back, another message put by it.
        await post.put(2)
        await inline(hub.redis.hincrby, hub.keys["bot_counts"], f"{BOT}/normal", -1)
        await inline(as_before, hub, second, "m4")

        assert numbers((await post.outbox.stats_by_bot())[BOT]) == {"normal": 3, "sending": 1}
        await post.settle(claim, DELIVERED)
        assert await post.outbox.cancel([second, third]) == 2
        its = (await post.outbox.stats_by_bot())[BOT]
        assert (numbers(its), its.delivered) == ({"normal": 1}, 1)
        assert hub.steps.count("recount") == 1


async def test_a_damaged_record_makes_no_count_negative_and_is_not_counted_for_ever(
    clock: VirtualClock,
) -> None:
    async with processes(clock, 1) as (hub, [post]):
        ticket = await post.put(1, priority="low")
        await post.put(1)
        await inline(hub.redis.hset, hub.keys["messages"], ticket, b"\xc1 damaged")
        await clock.sleep(5)

        seen = [(await post.outbox.stats_by_bot())[BOT] for _ in range(5)]

        its = seen[-1]
        assert numbers(its) == {"normal": 1, "dead": 1}
        assert its.oldest_at == clock.now() - 5
        assert hub.steps.count("recount") <= 1
        assert (await post.put(1), numbers((await post.outbox.stats_by_bot())[BOT])["normal"])[1] == 2


async def test_the_age_of_the_oldest_costs_few_commands_whatever_waits_or_is_due_later(
    clock: VirtualClock,
) -> None:
    async with processes(clock, 1) as (hub, [post]):
        await post.put_many(2_000, 1, not_before=clock.now() + 1e6)
        await post.put_many(2_000, 2)
        await post.outbox.stats()

        def commands() -> int:
            return sum(int(one["calls"]) for one in hub.redis.info("commandstats").values())

        before = await inline(commands)
        stats = await post.outbox.stats()

        assert stats.oldest_at == clock.now()
        assert await inline(commands) - before < 30


async def test_nothing_is_kept_of_the_ages_of_what_has_ended(clock: VirtualClock) -> None:
    async with processes(clock, 1) as (hub, [post]):
        await post.put_many(5, 1)
        await post.put(1, coalesce_key="c")
        await post.put(1, coalesce_key="c")
        assert await inline(hub.ask, "ZCARD", hub.keys["ages"]) == 6

        await post.run(1)

        assert await inline(hub.ask, "ZCARD", hub.keys["ages"]) == 0
