"""Steps of a store in a file that meet in one commit, or in the same instant."""

import asyncio
from pathlib import Path

from contract.post import BOT, DELIVERED, Post
from restarts import Disk, store
from tidegate.model import Dead, Rate, Settlement, State, TicketId
from tidegate.pacing.rules import Rules
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.sqlite.outbox import SqliteOutbox
from tidegate.stores.sqlite.sender_lock import SenderLock


async def test_a_message_that_ends_while_it_is_looked_up_is_told_to_whoever_waits_for_it(post: Post) -> None:
    ticket = await post.put()
    claim = await post.one()

    async with post.clock.timeout(60):
        record, _ = await asyncio.gather(
            post.outbox.settled(ticket), post.outbox.settle([Settlement(claim, DELIVERED)])
        )

    assert record.state == State.DELIVERED


async def test_the_place_of_an_erased_message_is_not_given_to_another_chat(post: Post) -> None:
    await post.put(chat=1)
    other = post.message(chat=2)

    _, _, claims = await asyncio.gather(
        post.outbox.forget(1), post.outbox.put([other]), post.outbox.claim(10)
    )

    assert [(claim.message.id, claim.message.chat_id) for claim in claims] == [(other.id, 2)]


async def test_a_message_put_after_another_was_erased_does_not_expire_in_its_place(
    disk: Disk, post: Post
) -> None:
    await post.outbox.pause(BOT)
    await post.put(chat=1, expires_at=post.clock.now() + 5)
    other = await disk.opener()
    await post.clock.sleep(5.001)

    await other.outbox.forget(1)
    ticket = await other.put(chat=2)
    await post.outbox.stats()  # in that instant it notices that the deadline has passed

    assert await post.state(ticket) == State.QUEUED


async def test_counts_read_beside_a_step_do_not_lose_it(disk: Disk, post: Post) -> None:
    other = await disk.opener()
    await other.put()
    outbox = store(post)

    await asyncio.gather(post.put(), outbox.file.refresh_counts())

    assert (await outbox.stats()).normal == 2


async def test_a_message_put_again_under_its_own_id_is_there_once(post: Post) -> None:
    message = post.message(coalesce_key="c")
    await post.outbox.put([message])

    [ticket] = await post.outbox.put([message])

    assert (ticket.id, ticket.fresh) == (message.id, False)
    assert await post.order() == [message.id]


async def test_behind_a_head_that_another_process_cancelled_the_chat_goes_on(disk: Disk) -> None:
    post = await disk.sender(Rules(bot=Rate(1000, 1), private=Rate(1, 5)), poll=3600.0)
    head, behind = await post.put_many(2)
    other = await disk.opener()

    assert await other.outbox.cancel([head]) == 1  # and the sender has not looked yet
    sent = await post.run(1)

    assert [(at, message.id) for at, message in sent] == [(0.0, behind)]  # its slots were given back, too
    assert await post.state(head) == State.CANCELLED


async def test_what_another_process_put_before_goes_before(disk: Disk, post: Post) -> None:
    other = await disk.opener()
    tickets = []
    for _ in range(3):
        tickets += [await other.put(), await post.put()]  # in one instant: nobody has looked in between

    assert await post.order() == tickets


async def test_a_letter_that_is_replayed_goes_behind_what_another_process_put_before(
    disk: Disk, post: Post
) -> None:
    letter = await post.put()
    await post.send(Dead("bad_request", "x"))
    other = await disk.opener()
    ticket = await other.put()

    await post.outbox.replay([letter])

    assert await post.order() == [ticket, letter]


async def test_a_message_that_another_process_put_is_replaced_in_its_place(disk: Disk, post: Post) -> None:
    other = await disk.opener()
    await other.put(coalesce_key="c")
    behind = await post.put()
    newer = await post.put(coalesce_key="c")

    assert await post.order() == [newer, behind]


async def test_whoever_waits_for_a_message_hears_that_it_expired_though_nobody_sends(
    tmp_path: Path, clock: VirtualClock
) -> None:
    outbox = SqliteOutbox(tmp_path / "nobody.db", clock)
    await outbox.open()
    ticket = await Post(outbox, clock).put(expires_at=clock.now() + 10)

    async with clock.timeout(15):
        record = await outbox.settled(ticket)

    assert record.state == State.EXPIRED
    await outbox.close()


async def test_why_asked_of_a_sender_that_is_silent_does_not_say_that_nobody_sends(
    tmp_path: Path, clock: VirtualClock
) -> None:
    path = tmp_path / "silent.db"
    outbox, lock = SqliteOutbox(path, clock), SenderLock(path)
    await outbox.open()
    ticket = await Post(outbox, clock).put()
    await lock.take(clock)

    why, unknown = await outbox.why(ticket), await outbox.why(TicketId("?"))

    assert why is not None
    assert "has not said why it waits" in why.waits_for[0]
    assert unknown is None
    await lock.release()
    why = await outbox.why(ticket)
    assert why is not None
    assert why.waits_for == ("nobody sends: start a worker (tidegate worker)",)
    await outbox.close()
