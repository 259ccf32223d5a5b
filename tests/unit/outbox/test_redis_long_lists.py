"""Lists among very many messages in Redis: read in their order, complete on data of an older version, too."""

import hashlib

import pytest

from contract.inline_redis import misplaced
from contract.post import BOT, DELIVERED, OTHER_BOT, Post
from redis_hub import Hub, inline, processes
from tidegate.errors import BadInputError
from tidegate.model import Dead, State, TicketId
from tidegate.outbox.port import RecordPage
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.message_codec import encode
from tidegate.stores.redis.connection import Argument
from tidegate.stores.redis.outbox_codec import OUTBOX_SCRIPTS, OutboxReply
from tidegate.stores.redis.scripts import Script

QUEUED = frozenset({State.QUEUED})
SENDING = frozenset({State.SENDING})
LETTERS = frozenset({State.DEAD, State.PARKED})
BAD = Dead("bad_request", "no")
OF_THIS_VERSION = (  # what a script of a version before this order of all messages does not have
    "Store.later('ZADD', KEY.order, message.number, message.id)",
    "if key == KEY.messages then Store.later('ZREM', KEY.order, id) end",
    "Message.note_unordered()\n  call",
    ", 'ordered', Now.numbers",
)


class OlderProcesses:
    """Steps are those of an older version, while this is entered."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._run = hub.run

    def run(self, step: str, terms: bytes, args: tuple[Argument, ...]) -> list[bytes]:
        source = OUTBOX_SCRIPTS[step].source
        for text in OF_THIS_VERSION:
            assert text in source
            source = source.replace(text, "call" if text.endswith("call") else "")
        script = Script(source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())
        reply: list[bytes] = self._hub.evaluate(script, list(self._hub.keys.values()), terms, *args)
        return reply

    def __enter__(self) -> None:
        self._hub.run = self.run  # type: ignore[method-assign]

    def __exit__(self, *_: object) -> None:
        self._hub.run = self._run  # type: ignore[method-assign]


def ids(page: RecordPage) -> list[TicketId]:
    return [one.message.id for one in page.records]


async def put_many(post: Post, count: int, chat: int = 1) -> list[TicketId]:
    messages = [post.message(chat) for _ in range(count)]
    for first in range(0, count, 1_000):
        await post.outbox.put(messages[first : first + 1_000])
    return [message.id for message in messages]


async def all_pages(post: Post, *, states: frozenset[State] = frozenset(State)) -> list[TicketId]:
    found, cursor = list[TicketId](), ""
    while True:
        page = await post.outbox.record_page(states=states, cursor=cursor)
        found, cursor = [*found, *ids(page)], page.cursor
        if not cursor:
            return found


async def test_a_page_of_many_messages_takes_one_step_wherever_it_begins(clock: VirtualClock) -> None:
    async with processes(clock, 1) as (hub, [post]):
        tickets = await put_many(post, 3_000)
        first = await post.outbox.record_page(limit=2_500)
        hub.steps.clear()

        second = await post.outbox.record_page(cursor=first.cursor, limit=200)

        assert ids(first) + ids(second) == tickets[:2_700]
        assert hub.steps == ["stats", "page"]


async def test_a_few_messages_among_many_others_are_found(clock: VirtualClock) -> None:
    async with processes(clock, 1) as (hub, [post]):
        ours = []
        for chat in range(1, 6):
            await put_many(post, 700, chat)
            ours.append(await post.put(chat, bot=OTHER_BOT))

        first = await post.outbox.record_page(bot=OTHER_BOT, states=QUEUED, limit=3)
        rest = await post.outbox.record_page(bot=OTHER_BOT, states=QUEUED, limit=3, cursor=first.cursor)

        assert ids(first) + ids(rest) == ours
        assert rest.cursor == ""
        assert "scan" not in hub.steps


async def test_a_page_that_takes_too_long_ends_early_and_its_cursor_goes_on(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.stores.redis.operator.LOOK_FOR", 0.0)
    async with processes(clock, 1) as (_, [post]):
        await put_many(post, 1_500)
        ours = [await post.put(1, bot=OTHER_BOT), await post.put(2, bot=OTHER_BOT)]

        first = await post.outbox.record_page(bot=OTHER_BOT)
        second = await post.outbox.record_page(bot=OTHER_BOT, cursor=first.cursor)

        assert (first.records, bool(first.cursor)) == ([], True)
        assert (ids(second), second.cursor) == (ours, "")
        assert [one.message.id for one in await post.outbox.records(bot=OTHER_BOT)] == ours


async def test_large_messages_are_looked_at_in_steps_that_do_not_hold_redis_for_long(
    clock: VirtualClock,
) -> None:
    async with processes(clock, 1) as (hub, [post]):
        large = [await post.put(1, params={"text": "x" * 400_000}) for _ in range(9)]
        hub.steps.clear()

        assert [one.message.id for one in await post.outbox.records()] == large
        assert hub.steps.count("page") >= 3


async def test_what_the_counts_or_the_letters_rule_out_is_not_looked_for(clock: VirtualClock) -> None:
    async with processes(clock, 1) as (hub, [post]):
        await put_many(post, 2_500)
        hub.steps.clear()

        assert await post.outbox.record_page(states=frozenset({State.RETRY, State.SENDING})) == RecordPage([])
        assert await post.outbox.record_page(states=LETTERS) == RecordPage([])
        assert await post.outbox.dead(reason="blocked") == []
        assert hub.steps.count("page") == 2

        claim = await post.one()
        assert ids(await post.outbox.record_page(states=SENDING)) == [claim.message.id]


async def test_a_damaged_message_keeps_its_place_between_pages(clock: VirtualClock) -> None:
    async with processes(clock, 1) as (hub, [post]):
        tickets = [await post.put(chat) for chat in range(1, 6)]
        first = await post.outbox.record_page(limit=2)
        for damaged in (tickets[1], tickets[3]):
            await inline(hub.redis.hset, hub.keys["messages"], damaged, b"\xc1 damaged")

        second = await post.outbox.record_page(cursor=first.cursor)

        assert ids(first) + ids(second) == tickets
        assert await all_pages(post) == tickets


@pytest.mark.parametrize("part", [b"42/send/7", b""], ids=["lane", "whole"])
async def test_a_damaged_message_is_in_the_lists_of_its_chat_and_is_erased_with_it(
    clock: VirtualClock, part: bytes
) -> None:
    async with processes(clock, 1) as (hub, [post]):
        tickets = [await post.put(7) for _ in range(3)]
        other = await post.put(8)
        raw = await inline(hub.ask, "HGET", hub.keys["messages"], tickets[1])
        assert raw.count(part)
        damaged = raw.replace(part, b"\xc1" * len(part)) if part else b"\xc1 damaged"
        await inline(hub.redis.hset, hub.keys["messages"], tickets[1], damaged)

        assert ids(await post.outbox.record_page(chat_id=7, bot=BOT)) == tickets
        assert await post.outbox.forget(7) == 3
        assert await all_pages(post) == [other]


async def test_a_cursor_of_an_older_version_goes_on(clock: VirtualClock) -> None:
    async with processes(clock, 1) as (_, [post]):
        tickets = [await post.put(chat) for chat in range(1, 5)]
        page = await post.outbox.record_page(limit=2)

        assert ids(await post.outbox.record_page(cursor=f"{page.cursor}+{tickets[1]}")) == tickets[2:]
        with pytest.raises(BadInputError, match="cursor is not one of this list"):
            await post.outbox.record_page(cursor=f"+{tickets[1]}")


async def test_lists_have_all_messages_of_an_older_version(clock: VirtualClock) -> None:
    async with processes(clock, 1) as (hub, [post]):
        with OlderProcesses(hub):
            tickets = await put_many(post, 2_000)
            await post.send(BAD)
            await inline(hub.redis.hset, hub.keys["messages"], tickets[7], b"\xc1 damaged")
        assert await inline(hub.redis.zcard, hub.keys["order"]) == 0

        assert sorted(await all_pages(post)) == sorted(tickets)
        assert sorted(await all_pages(post, states=LETTERS)) == sorted([tickets[0], tickets[7]])
        assert await inline(misplaced, hub.redis, hub.key) == set()
        hub.steps.clear()
        late = await post.put(2)
        assert (await all_pages(post))[-1] == late
        assert hub.steps.count("page") < 2 + 2_001 / 100  # nothing is looked for again


async def test_lists_have_what_processes_of_an_older_version_put_and_leave_out_what_they_forget(
    clock: VirtualClock,
) -> None:
    async with processes(clock, 1, keep=10) as (hub, [post]):
        before = [await post.put(chat) for chat in range(1, 4)]
        assert await all_pages(post) == before
        with OlderProcesses(hub):
            after = [await post.put(chat) for chat in range(4, 7)]
            await post.outbox.cancel([before[1]])
            await clock.sleep(11)
            await post.outbox.stats()  # forgets it
        assert await all_pages(post) == [before[0], before[2], *after]

        with OlderProcesses(hub):  # as many come as go: sizes tell nothing
            await post.outbox.forget(1)
            last = await post.put(7)
        assert await all_pages(post) == [before[2], *after, last]


async def test_a_list_ends_while_processes_of_an_older_version_go_on_putting(clock: VirtualClock) -> None:
    async with processes(clock, 1) as (hub, [post]):
        with OlderProcesses(hub):
            tickets = await put_many(post, 1_500)
        run, put = hub.run, 0

        def beside(step: str, terms: bytes, args: tuple[Argument, ...]) -> list[bytes]:
            nonlocal put
            put += 1
            hub.redis.hincrby(hub.keys["meta"], "numbers", 1)  # as each put of an older version does
            return run(step, terms, args)

        hub.run = beside  # type: ignore[method-assign]
        found = [one.message.id for one in await post.outbox.records(limit=5_000)]

        assert sorted(found) == sorted(tickets)
        assert put < 40


async def test_a_search_that_a_restart_of_redis_interrupts_begins_anew(clock: VirtualClock) -> None:
    async with processes(clock, 1) as (hub, [post]):
        with OlderProcesses(hub):
            tickets = await put_many(post, 2_000)
        asked = (hub.links[0].terms, ("0", 100, encode({}), "", ""))
        assert OutboxReply(await inline(hub.run, "page", *asked)).answer.more
        # What a scan of another Redis has passed by, this one may have put behind its cursor.
        assert await inline(hub.redis.hexists, hub.keys["meta"], "order_scan")
        hub.run_id = "second"

        await hub.links[0].open(hub.links[0].terms)

        assert not await inline(hub.redis.hexists, hub.keys["meta"], "order_scan")
        assert await all_pages(post) == tickets


async def test_an_order_that_redis_has_evicted_is_made_again(clock: VirtualClock) -> None:
    async with processes(clock, 1) as (hub, [post]):
        tickets = [await post.put(chat) for chat in range(1, 6)]
        for _ in range(2):
            await inline(hub.redis.delete, hub.keys["order"])
            assert await all_pages(post) == tickets


async def test_nothing_is_counted_anew_in_a_store_that_began_with_this_version(clock: VirtualClock) -> None:
    async with processes(clock, 1) as (hub, [post]):
        await put_many(post, 3_000)
        hub.steps.clear()

        assert (await post.outbox.stats_by_bot())[BOT].normal == 3_000

        assert hub.steps == ["stats"]


async def test_every_message_has_its_place_whatever_becomes_of_it(clock: VirtualClock) -> None:
    async with processes(clock, 1, keep=20) as (hub, [post]):
        await post.put(1, coalesce_key="c")
        await post.put(1, coalesce_key="c")
        for _ in range(2):
            await post.put(2, dedup_key="d", dedup_for=5.0)
        await post.put(3, expires_at=clock.now() + 1, not_before=clock.now() + 5)
        dead = [await post.put(chat) for chat in range(4, 9)]
        for claim in await post.claim_all():
            await post.settle(claim, BAD if claim.message.id in dead else DELIVERED)
        await post.outbox.replay(dead[:2])
        await post.outbox.drop(dead[2:4])
        await post.outbox.forget(8)
        assert await inline(misplaced, hub.redis, hub.key) == set()
        assert await all_pages(post) == [
            one.message.id for one in await post.outbox.records() if one.message.id not in dead[2:]
        ]
        assert (await all_pages(post))[-2:] == dead[:2]

        for _ in range(2):  # what has ended is forgotten
            await clock.sleep(30)
            await post.outbox.stats()
        assert await all_pages(post) == dead[:2]
        assert await inline(hub.redis.zcard, hub.keys["order"]) == 2
