"""A process that stood still (SIGSTOP, a closed laptop) settles its calls late. No other one sends for it."""

import asyncio
from pathlib import Path
from typing import cast

import pytest

from contract.post import DELIVERED, Post
from tidegate.model import State
from tidegate.outbox.port import Outbox
from tidegate.sim.virtual_time import VirtualClock, VirtualLoop
from tidegate.stores.memory.outbox import MemoryOutbox
from tidegate.stores.sqlite.outbox import SqliteOutbox


@pytest.fixture(params=["memory", "sqlite"])
def outbox(request: pytest.FixtureRequest, clock: VirtualClock, tmp_path: Path) -> Outbox:
    if request.param == "memory":
        return MemoryOutbox(clock)
    return SqliteOutbox(tmp_path / "store.db", clock, poll=3600.0)


def freeze(seconds: float) -> None:
    """Let time pass in which nothing runs."""
    cast("VirtualLoop", asyncio.get_running_loop())._now += seconds  # noqa: SLF001


async def test_answers_that_lay_in_the_socket_during_a_freeze_count(
    outbox: Outbox, clock: VirtualClock
) -> None:
    await outbox.open()
    post = Post(outbox, clock)
    tickets = [await post.put(chat) for chat in range(1, 8)]
    claims = await post.claim_all(within=1)
    assert len(claims) == len(tickets)
    waiting = await post.begin(outbox.claim(100))  # as a worker does
    await clock.sleep(1)

    freeze(36)
    await clock.sleep(0.5)  # the timers that are due come first
    assert not waiting.done()
    records = [await post.settle(claim, DELIVERED) for claim in claims]

    assert {(record.state, record.crashes) for record in records if record} == {(State.DELIVERED, 0)}
    assert None not in records
    await post.cancel(waiting)
    await outbox.close()


async def test_a_worker_that_is_gone_after_a_freeze_loses_its_claims_all_the_same(
    outbox: Outbox, clock: VirtualClock
) -> None:
    await outbox.open()
    post = Post(outbox, clock)
    ticket = await post.put()
    await post.one()
    waiting = await post.begin(outbox.claim(1))
    freeze(36)
    await clock.sleep(31)

    [claim] = await waiting

    assert claim.message.id == ticket
    assert (await post.record(ticket)).crashes == 1
    await outbox.close()
