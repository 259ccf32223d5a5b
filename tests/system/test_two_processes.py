"""One process sends, this one does not: whatever it asks for takes effect over there."""

import asyncio
import itertools
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from system.killing import TOKEN, arrivals, asked, clock, end, kill, line_of, running, tell
from tidegate import Tidegate
from tidegate.errors import DeadError, NotTheSenderError, WithdrawnError
from tidegate.model import BotId, Rate, State, TicketId
from tidegate.outbox.tickets import LiveTicket
from tidegate.sim.telegram.flood_control import Limits
from tidegate.sim.telegram.http import TelegramServer

BOT = BotId(42)
PATIENCE = 20.0  # seconds; a machine under load is slow, and what is promised is measured elsewhere
LIMITS = Limits(bot=Rate(500, 1), private=Rate(50, 1))
RATES = {"TIDEGATE_BOT_RATE": "500/1", "TIDEGATE_CHAT_RATE": "50/1"}
chats = itertools.count(1001)  # each test has chats of its own


class Pair:
    """A store that another process sends for, and this one has open."""

    def __init__(self, store: Path, server: TelegramServer, sender: Process, gate: Tidegate) -> None:
        self.store, self.server, self.sender, self.gate = store, server, sender, gate
        self.outbox = gate.outbox

    async def send(self, chat: int, text: str, **fields: Any) -> LiveTicket:  # noqa: ANN401
        return await self.gate.send(chat_id=chat, text=text, bot=BOT, **fields)

    def arrived(self, chat: int) -> list[str]:
        return list(arrivals(self.server.telegram.request_log.log)[chat])

    def block(self, user: int, *, blocked: bool) -> None:
        world = self.server.telegram.world
        bot = world.bot(TOKEN)
        assert bot is not None
        world.user_blocks(bot, user, clock.now(), blocked=blocked)

    async def letter(self, chat: int) -> TicketId:
        """A dead letter."""
        self.block(chat, blocked=True)
        ticket = await self.send(chat, "letter #1")
        with pytest.raises(DeadError):
            await ticket.delivered(PATIENCE)
        self.block(chat, blocked=False)
        return ticket.id

    async def after_it(self) -> None:
        """When whatever was asked for before has had its effect: a later message has arrived."""
        ticket = await self.send(next(chats), "later")
        await ticket.delivered(PATIENCE)


@pytest.fixture(scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    store = tmp_path_factory.mktemp("pair") / "store.db"
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(TelegramServer(limits=LIMITS))
        sender = await stack.enter_async_context(running("worker", str(store), server.url, **RATES))
        assert await line_of(sender) == "sending"
        gate = await stack.enter_async_context(Tidegate(store))
        gate.add_bot(TOKEN)
        yield Pair(store, server, sender, gate)


async def test_what_is_put_here_is_delivered_there(pair: Pair) -> None:
    chat, took = next(chats), []
    for number in range(10):
        start = clock.monotonic()
        ticket = await pair.send(chat, f"here #{number}")
        await ticket.delivered(PATIENCE)
        took.append(clock.monotonic() - start)

    assert pair.arrived(chat) == [f"here #{number}" for number in range(10)]
    print(f"put here, delivered there: {1000 * max(took):.0f} ms at most")  # noqa: T201


async def test_messages_of_both_stay_in_one_line(pair: Pair) -> None:
    chat = next(chats)
    for number in range(0, 12, 3):
        await pair.send(chat, f"here #{number}")
        await pair.send(chat, f"here #{number + 1}")
        await tell(pair.sender, f"{chat} there #{number + 2}")
    async with clock.timeout(PATIENCE):
        await pair.gate.drained(BOT)

    assert [int(text.partition("#")[2]) for text in pair.arrived(chat)] == list(range(12))


async def test_a_batch_from_here_is_delivered_there(pair: Pair) -> None:
    people = [next(chats) for _ in range(100)]
    tickets = await pair.gate.send_many([{"chat_id": chat, "text": "batch #1"} for chat in people], bot=BOT)

    async with clock.timeout(PATIENCE):
        await pair.gate.drained()

    assert {(await pair.outbox.find(ticket.id)).state for ticket in tickets} == {State.DELIVERED}  # type: ignore[union-attr]
    assert all(pair.arrived(chat) == ["batch #1"] for chat in people)


async def test_what_the_sender_puts_can_be_waited_for_here(pair: Pair) -> None:
    ticket = TicketId(await tell(pair.sender, f"{next(chats)} there #1"))

    async with clock.timeout(PATIENCE):
        assert (await pair.outbox.settled(ticket)).state == State.DELIVERED


async def test_a_chat_that_is_paused_here_waits_there(pair: Pair) -> None:
    chat = next(chats)
    await pair.outbox.pause(BOT, chat)
    ticket = await pair.send(chat, "held #1")
    await pair.after_it()
    assert pair.arrived(chat) == []
    why = await ticket.why()
    assert why is not None
    assert "paused" in " ".join(why.waits_for)

    await pair.outbox.resume(BOT, chat)

    await ticket.delivered(PATIENCE)


async def test_a_bot_that_is_paused_here_waits_there(pair: Pair) -> None:
    chat = next(chats)
    await pair.outbox.pause(BOT)
    ticket = await pair.send(chat, "held #1")
    await clock.sleep(0.3)
    assert pair.arrived(chat) == []

    await pair.outbox.resume(BOT)

    await ticket.delivered(PATIENCE)


async def test_what_is_cancelled_here_is_not_sent_there(pair: Pair) -> None:
    chat = next(chats)
    await pair.outbox.pause(BOT, chat)
    cancelled = await pair.send(chat, "cancelled #1")
    kept = await pair.send(chat, "kept #2")
    await pair.after_it()

    assert await cancelled.cancel()
    await pair.outbox.resume(BOT, chat)

    await kept.delivered(PATIENCE)
    with pytest.raises(WithdrawnError):
        await cancelled.delivered(PATIENCE)
    assert pair.arrived(chat) == ["kept #2"]


async def test_a_newer_message_from_here_takes_the_place_of_one_that_waits_there(pair: Pair) -> None:
    chat = next(chats)
    await pair.outbox.pause(BOT, chat)
    await pair.send(chat, "older #1", coalesce_key="c")
    await tell(pair.sender, f"{chat} behind #2")
    await pair.after_it()
    newer = await pair.send(chat, "newer #1", coalesce_key="c")
    await pair.after_it()

    await pair.outbox.resume(BOT, chat)

    await newer.delivered(PATIENCE)
    async with clock.timeout(PATIENCE):
        await pair.gate.drained()
    assert pair.arrived(chat) == ["newer #1", "behind #2"]


async def test_a_dedup_key_counts_for_all(pair: Pair) -> None:
    chat = next(chats)
    first = await pair.send(chat, "once #1", dedup_key="once")
    await first.delivered(PATIENCE)

    async with Tidegate(pair.store) as third:
        third.add_bot(TOKEN)
        second = await third.send(chat_id=chat, text="once #1", dedup_key="once", bot=BOT)

    assert (second.id, second.fresh) == (first.id, False)
    await pair.after_it()
    assert pair.arrived(chat) == ["once #1"]


async def test_a_letter_that_is_replayed_here_is_sent_there(pair: Pair) -> None:
    chat = next(chats)
    ticket = await pair.letter(chat)

    assert await pair.outbox.replay([ticket]) == 1

    async with clock.timeout(PATIENCE):
        assert (await pair.outbox.settled(ticket)).state == State.DELIVERED
    assert pair.arrived(chat) == ["letter #1"]


async def test_a_letter_that_is_dropped_here_is_gone(pair: Pair) -> None:
    ticket = await pair.letter(next(chats))

    assert await pair.outbox.drop([ticket]) == 1

    assert await pair.outbox.find(ticket) is None
    assert (await pair.gate.stats()).dead == 0


async def test_a_chat_that_is_forgotten_here_is_not_written_to_there(pair: Pair) -> None:
    chat = next(chats)
    await pair.outbox.pause(BOT, chat)
    ticket = await pair.send(chat, "forgotten #1")
    await pair.after_it()

    assert await pair.outbox.forget(chat) == 1
    await pair.outbox.resume(BOT, chat)
    after = await pair.send(chat, "after #2")

    await after.delivered(PATIENCE)
    assert await pair.outbox.find(ticket.id) is None
    assert pair.arrived(chat) == ["after #2"]


async def test_why_is_answered_by_the_sender(pair: Pair) -> None:
    ticket = await pair.send(next(chats), "later #1", not_before=clock.now() + 3600)

    why = await ticket.why()

    assert why is not None
    assert why.expected_in == pytest.approx(3600, abs=PATIENCE)
    await ticket.cancel()


async def test_numbers_are_the_same_in_both(pair: Pair) -> None:
    chat = next(chats)
    await pair.outbox.pause(BOT, chat)
    ticket = TicketId(await tell(pair.sender, f"{chat} counted #1"))
    async with clock.timeout(PATIENCE):
        while (await pair.gate.stats()).normal != 1:
            await clock.sleep(0.01)

    await pair.outbox.cancel([ticket])

    assert (await pair.gate.stats()).waiting == 0


async def test_a_bot_that_is_registered_here_sends_there_at_once(pair: Pair) -> None:
    async with Tidegate(pair.store) as third:
        bot = await third.register_bot("43:other", api_url=pair.server.url)
        ticket = await third.send(chat_id=next(chats), text="from another bot #1", bot=bot)

        await ticket.delivered(PATIENCE)


async def test_a_second_sender_is_refused_and_told_who_sends(pair: Pair) -> None:
    expected = rf"process {pair.sender.pid} \(killing.py\) sends for .*store.db: one process at a time"

    with pytest.raises(NotTheSenderError, match=expected):
        await pair.gate.call("sendMessage", {"chat_id": 1, "text": "x"}, bot=BOT)
    with pytest.raises(NotTheSenderError, match=expected):
        async with pair.gate.worker():
            pass


async def test_a_second_sender_is_refused_under_another_name_of_the_file(pair: Pair, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    await asyncio.get_running_loop().run_in_executor(None, link.symlink_to, pair.store)

    async with Tidegate(link) as gate:
        gate.add_bot(TOKEN)
        with pytest.raises(NotTheSenderError, match=str(pair.sender.pid)):
            await gate.call("sendMessage", {"chat_id": 1, "text": "x"}, bot=BOT)


async def test_a_second_gate_of_a_process_does_not_free_the_file(tmp_path: Path) -> None:
    """Closing any descriptor of a file frees all locks that the process has on it, SQLite's too.

    Whoever closes the file last removes its log of writes, and would take this process for gone.
    """
    store = tmp_path / "store.db"
    async with running("opener") as other, Tidegate(store) as gate:
        assert await line_of(other) == "ready"
        gate.add_bot(TOKEN)
        await gate.send(chat_id=1, text="before")

        async with Tidegate(store):
            await tell(other, str(store))
            after = await gate.send(chat_id=1, text="after")

        assert await tell(other, f"? {store} {after.id}") == "queued"


@pytest.mark.usefixtures("real_interpreters")
async def test_the_next_sender_takes_over_at_once_after_a_kill(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    async with TelegramServer(limits=LIMITS) as server:
        async with running("worker", str(store), server.url, **RATES) as first:
            assert await line_of(first) == "sending"
            await tell(first, "1 before #1")
            await kill(first)

        async with Tidegate(store) as gate:
            gate.add_bot(TOKEN, api_url=server.url)
            start = clock.monotonic()
            async with gate.worker():
                assert clock.monotonic() - start < 5  # a second of it, for what it cannot know
                ticket = await gate.send(chat_id=1, text="after #2")
                await ticket.delivered(PATIENCE)


async def test_a_sender_that_ends_well_leaves_nothing_to_recover_from(tmp_path: Path) -> None:
    store, slow = tmp_path / "store.db", RATES | {"TIDEGATE_CHAT_RATE": "1/1"}
    async with (
        TelegramServer(limits=LIMITS) as server,
        running("worker", str(store), server.url, **slow) as sender,
    ):
        assert await line_of(sender) == "sending"
        for number in range(20):
            await tell(sender, f"{number % 5 + 1} well #{number}")
        await end(sender)

    rows = await asked(store, "SELECT state, max(crashes) FROM messages GROUP BY state ORDER BY state")
    assert rows == [("delivered", 0), ("queued", 0)]
    assert await asked(store, "SELECT value FROM facts WHERE name = 'clean'") == [(1,)]


async def test_processes_that_make_a_store_at_the_same_time_share_it(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        openers = [await stack.enter_async_context(running("opener")) for _ in range(4)]
        assert {await line_of(opener) for opener in openers} == {"ready"}
        for number in range(25):
            store = tmp_path / f"store-{number}.db"

            tickets = await asyncio.gather(*(tell(opener, str(store)) for opener in openers))

            found = await asked(store, "SELECT id FROM messages ORDER BY id")
            assert found == [(ticket,) for ticket in sorted(tickets)]
        await asyncio.gather(*map(end, openers))
