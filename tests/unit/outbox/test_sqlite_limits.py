"""Closures of a file are seen and opened from a process that does not send."""

from pathlib import Path

from contract.post import BOT, Post
from contract.stores import OnlySender
from tidegate.model import Refused
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.sqlite.outbox import SqliteOutbox


async def test_an_operator_opens_a_chat_of_a_running_sender(clock: VirtualClock, tmp_path: Path) -> None:
    sender = OnlySender(tmp_path / "store.db", clock, poll=0.05)
    operator = SqliteOutbox(tmp_path / "store.db", clock, poll=0.05)
    await sender.open()
    await operator.open()
    post = Post(sender, clock)
    ticket = await post.put(1)
    await post.send(Refused(3600))
    assert await post.claim(within=5) == []

    [state] = await operator.limits()
    assert (state.bot, state.chat_id, round(state.closed_for)) == (BOT, 1, 3595)
    assert await operator.limits(chats=False) == []
    await operator.open_limits(BOT)

    assert (await post.one(within=2)).message.id == ticket
    assert await operator.limits() == []
    await operator.close()
    await sender.close()


async def test_what_was_opened_stays_open_after_a_restart(clock: VirtualClock, tmp_path: Path) -> None:
    first = OnlySender(tmp_path / "store.db", clock)
    await first.open()
    post = Post(first, clock)
    ticket = await post.put(1)
    await post.send(Refused(3600))
    await first.open_limits(BOT, 1)
    await first.close()

    second = OnlySender(tmp_path / "store.db", clock)
    await second.open()

    assert (await Post(second, clock).one(within=10)).message.id == ticket
    await second.close()
