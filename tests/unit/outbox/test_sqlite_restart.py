"""A restart of the sender: nothing that was learned or promised is lost with a process."""

import asyncio

import pytest

from contract.post import BOT, DELIVERED, OTHER_BOT, ROOMY, SOON, Post
from restarts import Disk, store
from tidegate.events import Ended, EventStream
from tidegate.model import (
    ChatId,
    Dead,
    Delivered,
    Migrated,
    NotSent,
    Outcome,
    Priority,
    Rate,
    Refused,
    Retry,
    State,
    TicketId,
)
from tidegate.pacing.learned import PROBE_AFTER
from tidegate.pacing.rules import Family, Rules
from tidegate.sim.virtual_time import EPOCH, VirtualClock

DAY = 86_400.0
STRICT = Rules(bot=Rate(1000, 1), private=Rate(1, 10), burst=1, group=Rate(3, 60))
GROUP = -7


@pytest.fixture(params=["closed", "killed"])
def how(request: pytest.FixtureRequest) -> str:
    """How the first process ends."""
    return str(request.param)


async def again(disk: Disk, post: Post, how: str, rules: Rules = ROOMY) -> Post:
    await (disk.close(post) if how == "closed" else disk.kill(post))
    return await disk.sender(rules)


async def waits(post: Post, longest: float = 3 * DAY) -> float:
    """Seconds until the next message goes."""
    start = post.clock.monotonic()
    claim = await post.one(within=longest)
    waited = post.clock.monotonic() - start
    await post.settle(claim)
    return waited


async def test_a_private_chat_waits_out_its_window(disk: Disk, how: str) -> None:
    post = await disk.sender(STRICT)
    await post.put_many(2)
    await post.send()
    sent = post.clock.monotonic()

    post = await again(disk, post, how, STRICT)
    await post.one(within=60)

    assert post.clock.monotonic() - sent == pytest.approx(10, abs=0.1)


async def test_a_burst_of_replies_goes_on_where_it_was(disk: Disk, how: str) -> None:
    """After a crash the replies of the last seconds are not known: none exceeds the average for a while."""
    rules = Rules(bot=Rate(1000, 1))
    post = await disk.sender(rules)
    for _ in range(5):
        await post.outbox.end_turn(await post.turn(), DELIVERED)
    sent = post.clock.monotonic()

    post = await again(disk, post, how, rules)
    times = []
    for _ in range(4):
        await post.outbox.end_turn(await post.turn(), DELIVERED)
        times.append(post.clock.monotonic() - sent)

    expected = [5, 5, 5, 5] if how == "closed" else [1, 2, 3, 4]
    assert times == pytest.approx(expected, abs=0.2)


async def test_a_group_waits_out_its_window(disk: Disk, how: str) -> None:
    post = await disk.sender(STRICT)
    await post.put_many(4, GROUP)
    for _ in range(3):
        await post.send()
    sent = post.clock.monotonic()
    await post.clock.sleep(20)

    post = await again(disk, post, how, STRICT)
    await post.one(within=100)

    assert post.clock.monotonic() - sent == pytest.approx(60, abs=0.1)


async def test_the_whole_bot_waits_out_its_window(disk: Disk, how: str) -> None:
    rules = Rules(bot=Rate(3, 20), private=Rate(100, 1))
    post = await disk.sender(rules)
    await post.put_many(4, priority=Priority.HIGH)
    for _ in range(3):
        await post.send()
    sent = post.clock.monotonic()

    post = await again(disk, post, how, rules)
    await post.one(within=100)

    assert post.clock.monotonic() - sent == pytest.approx(20, abs=0.1)


async def test_a_direct_call_counts_after_a_restart(disk: Disk, how: str) -> None:
    post = await disk.sender(STRICT)
    for _ in range(3):
        await post.outbox.end_turn(await post.turn(GROUP), DELIVERED)
    await post.put(GROUP)
    sent = post.clock.monotonic()

    post = await again(disk, post, how, STRICT)
    await post.one(within=100)

    assert post.clock.monotonic() - sent == pytest.approx(60, abs=0.1)


async def test_a_message_in_flight_at_a_crash_counts_as_sent(disk: Disk) -> None:
    post = await disk.sender(STRICT)
    await post.put_many(3, GROUP)
    await post.send()
    await post.send()
    await post.one()

    post = await disk.restart(post, STRICT)

    assert await waits(post) > 50  # though only two of three are known to have arrived


async def test_a_direct_call_in_flight_at_a_crash_counts_as_made(disk: Disk) -> None:
    post = await disk.sender(STRICT)
    await post.put_many(3, GROUP)
    await post.send()
    await post.send()
    await post.turn(GROUP)

    post = await disk.restart(post, STRICT)

    assert await waits(post) > 50


@pytest.mark.parametrize("chat", [7, GROUP])
async def test_a_direct_call_in_flight_at_a_clean_close_counts_for_the_next_sender(
    disk: Disk, chat: int
) -> None:
    rules = Rules(bot=Rate(1000, 1), private=Rate(1, 4), group=Rate(1, 60))
    post = await disk.sender(rules)
    await post.turn(chat)
    await post.clock.sleep(1)

    post = await again(disk, post, "closed", rules)

    assert await post.no_turn(chat, within=rules.chat(chat).seconds - 0.1)
    assert not await post.no_turn(chat, within=0.2)


@pytest.mark.parametrize(
    ("chat", "family", "outcome"),
    [
        (7, "send", DELIVERED),
        (7, "action", DELIVERED),
        (GROUP, "send", DELIVERED),
        ("@news", "send", Delivered({"message_id": 1, "chat": {"id": GROUP}})),
        (GROUP, "send", Migrated(-1007)),
        (7, "send", Refused(5)),
        (7, "send", Dead("blocked", "x", whole_chat=True)),
        (GROUP, "send", Dead("kicked", "x", whole_chat=True)),
    ],
)
async def test_a_direct_call_that_ends_after_the_store_was_closed_raises_nothing(
    disk: Disk, chat: ChatId, family: Family, outcome: Outcome
) -> None:
    post = await disk.sender(Rules())
    await post.put_many(2, chat)
    turn = await post.outbox.turn(BOT, chat, family, 1)
    await disk.close(post)

    await post.outbox.end_turn(turn, outcome)

    assert len(await (await disk.sender(Rules(), poll=60)).order(5)) == 2


async def test_paid_direct_calls_with_a_long_window_count_after_a_restart(disk: Disk, how: str) -> None:
    rules = Rules(private=Rate(100, 1), paid=Rate(2, 30))
    post = await disk.sender(rules)
    for chat in (5, 6):
        await post.outbox.end_turn(await post.turn(chat, paid=True), DELIVERED)
    made = post.clock.monotonic()

    post = await again(disk, post, how, rules)
    await post.turn(7, paid=True)

    assert post.clock.monotonic() - made == pytest.approx(30, abs=0.1)


async def test_a_direct_call_that_was_not_made_leaves_its_slot_free(disk: Disk) -> None:
    post = await disk.sender(STRICT)
    await post.put_many(3, GROUP)
    await post.send()
    await post.send()
    await post.outbox.end_turn(await post.turn(GROUP), NotSent("late"))
    await post.clock.sleep(0.01)

    post = await disk.restart(post, STRICT)

    assert await waits(post) < 1


async def test_a_chat_whose_name_became_a_number_has_one_window(disk: Disk, how: str) -> None:
    post = await disk.sender(STRICT)
    await post.put("@news")
    await post.put_many(3, GROUP)
    await post.send(Delivered({"message_id": 1, "chat": {"id": GROUP}}))
    await post.send()
    await post.send()

    post = await again(disk, post, how, STRICT)

    assert await waits(post) > 50


async def test_after_a_clean_stop_nothing_waits_for_longer_than_it_must(disk: Disk) -> None:
    post = await disk.sender(STRICT)
    await post.put_many(2)
    await post.send()
    await post.clock.sleep(10)

    post = await again(disk, post, "closed", STRICT)

    assert await waits(post) < SOON


async def test_a_closed_chat_stays_closed(disk: Disk, how: str) -> None:
    post = await disk.sender()
    await post.put()
    await post.send(Refused(30))

    post = await again(disk, post, how)

    assert await waits(post) == pytest.approx(30, abs=2)


async def test_a_closed_bot_stays_closed(disk: Disk, how: str) -> None:
    post = await disk.sender()
    for chat in (1, 2, 3):
        await post.put(chat)
    for claim in await post.claim_all():
        await post.settle(claim, Refused(30))
    await post.put(4)

    post = await again(disk, post, how)

    assert await waits(post) == pytest.approx(30, abs=2)


async def test_a_refused_direct_call_closes_its_chat_for_the_next_process(disk: Disk, how: str) -> None:
    post = await disk.sender()
    await post.put()
    await post.outbox.end_turn(await post.turn(), Refused(30))
    await post.clock.sleep(0.01)

    post = await again(disk, post, how)

    assert await waits(post) == pytest.approx(30, abs=2)


async def test_a_group_that_migrated_while_closed_stays_closed(disk: Disk, how: str) -> None:
    post = await disk.sender()
    await post.put(GROUP)
    await post.send(Refused(30))
    await post.outbox.end_turn(await post.turn(-8), Migrated(-9))  # another one: nothing is closed there
    turn = asyncio.create_task(post.turn(GROUP))
    await post.clock.sleep(30.1)
    await post.outbox.end_turn(await turn, Refused(500))
    post_turn = post.outbox.turn(BOT, GROUP, "action", 1)  # a lane of its own, which may go
    await post.outbox.end_turn(await post_turn, Migrated(-1007))

    post = await again(disk, post, how)

    assert (await post.why(TicketId("m1"))).expected_in == pytest.approx(500, abs=40)


async def test_a_learned_limit_is_remembered(disk: Disk, how: str) -> None:
    post = await disk.sender(STRICT)
    await post.put()
    await post.send()
    await post.put()
    await post.send(Refused(5), within=20)
    learned = await post.outbox.learned()
    assert learned

    post = await again(disk, post, how, STRICT)

    assert await post.outbox.learned() == learned


async def test_a_learned_limit_goes_on_recovering_after_downtime(disk: Disk, how: str) -> None:
    post = await disk.sender(STRICT)
    await post.put()
    await post.send()
    await post.put()
    await post.send(Refused(5), within=20)
    [(place, cut)] = (await post.outbox.learned()).items()
    await (disk.close(post) if how == "closed" else disk.kill(post))
    await disk.clock.sleep(0.9 * PROBE_AFTER)

    post = await disk.sender(STRICT)
    assert await post.outbox.learned() == {place: cut}
    await post.send(within=20)
    await post.clock.sleep(0.2 * PROBE_AFTER)  # the pause counted
    await post.put()

    assert (await post.outbox.learned()).get(place) != cut


async def test_a_call_cools_for_as_long_as_the_learned_limit_says(disk: Disk, how: str) -> None:
    post = await disk.sender(STRICT)
    await post.put_many(4)
    await post.send()
    for _ in range(3):
        await post.send(Refused(1), within=100)  # 1/10 becomes 1/12.5, 1/15.6, 1/19.5
    await post.send(within=100)
    sent, [(_, rate)] = post.clock.monotonic(), (await post.outbox.learned()).items()
    assert rate.seconds > 19

    post = await again(disk, post, how, STRICT)
    await post.one(within=100)

    assert post.clock.monotonic() - sent == pytest.approx(rate.seconds, abs=0.1)


async def test_a_paused_chat_stays_paused(disk: Disk, how: str) -> None:
    post = await disk.sender()
    await post.put(1)
    other = await post.put(2)
    await post.outbox.pause(BOT, 1)

    post = await again(disk, post, how)

    assert await post.order() == [other]


async def test_a_paused_bot_stays_paused(disk: Disk, how: str) -> None:
    post = await disk.sender()
    await post.put(1)
    other = await post.put(1, bot=OTHER_BOT)
    await post.outbox.pause(BOT)

    post = await again(disk, post, how)

    assert await post.order() == [other]


async def test_a_group_that_was_paused_before_it_migrated_stays_paused(disk: Disk, how: str) -> None:
    post = await migrated_while_paused(disk)

    post = await again(disk, post, how)

    assert await post.order() == []
    assert store(post).schedule.lanes[BOT, -1007, "send"].paused


async def test_a_group_that_migrated_and_was_resumed_stays_resumed(disk: Disk, how: str) -> None:
    post = await migrated_while_paused(disk)
    await post.outbox.resume(BOT, GROUP)

    post = await again(disk, post, how)

    assert len(await post.order()) == 2


async def migrated_while_paused(disk: Disk) -> Post:
    post = await disk.sender()
    await post.put_many(2, GROUP)
    claim = await post.one()
    await post.outbox.pause(BOT, GROUP)
    await post.settle(claim, Migrated(-1007))
    assert await post.order() == []
    return post


async def test_a_pause_while_a_sender_starts_is_kept(disk: Disk) -> None:
    post = await disk.sender()
    await post.put()
    await disk.kill(post)
    post = await disk.opener()
    starting = await post.begin(post.outbox.start_sending())

    await post.outbox.pause(BOT)
    assert not starting.done()
    await starting

    assert await post.order() == []


async def test_what_another_process_did_while_a_sender_starts_is_followed(disk: Disk) -> None:
    post = await disk.sender()
    await post.put(1)
    await disk.kill(post)
    post, other = await disk.opener(), await disk.opener()
    starting = await post.begin(post.outbox.start_sending())

    await post.clock.sleep(0.2)
    await other.outbox.pause(BOT, 1)
    ticket = await other.put(2)
    await post.clock.sleep(0.2)
    assert not starting.done()
    await starting

    assert await post.order() == [ticket]


async def test_a_migrated_group_is_written_to_under_its_new_number(disk: Disk, how: str) -> None:
    post = await disk.sender()
    await post.put_many(2, GROUP)
    await post.send(Migrated(-1007))

    post = await again(disk, post, how)
    await post.put(GROUP)

    assert [message.chat_id for _, message in await post.run(1)] == [-1007] * 3


async def test_messages_to_a_name_and_to_its_number_stay_in_one_line(disk: Disk, how: str) -> None:
    post = await disk.sender()
    await post.put("@news")
    await post.send(Delivered({"message_id": 1, "chat": {"id": GROUP}}))
    tickets = [await post.put(chat) for chat in ("@news", GROUP, "@news", GROUP)]

    post = await again(disk, post, how)

    assert await post.order() == tickets
    assert len(store(post).schedule.lanes) == 1


async def test_a_retry_keeps_its_time_and_its_attempts(disk: Disk, how: str) -> None:
    post = await disk.sender()
    ticket = await post.put()
    await post.send(Retry(100, "502"))
    await post.clock.sleep(40)

    post = await again(disk, post, how)
    start = post.clock.monotonic()
    claim = await post.one(within=DAY)

    assert post.clock.monotonic() - start == pytest.approx(60, abs=2)
    assert (claim.message.id, claim.attempt) == (ticket, 2)


async def test_a_message_for_later_keeps_its_time(disk: Disk, how: str) -> None:
    post = await disk.sender()
    await post.put(not_before=post.clock.now() + 100)

    post = await again(disk, post, how)

    assert await waits(post) == pytest.approx(100, abs=2)


async def test_a_message_that_came_due_while_nobody_sent_goes_at_once(disk: Disk, how: str) -> None:
    post = await disk.sender()
    await post.put(not_before=post.clock.now() + 10)
    await (disk.close(post) if how == "closed" else disk.kill(post))
    await disk.clock.sleep(20)

    assert await waits(await disk.sender()) < SOON


async def test_a_deadline_that_passed_while_nobody_sent_is_kept(disk: Disk, how: str) -> None:
    post = await disk.sender()
    ticket = await post.put(expires_at=post.clock.now() + 10)
    await (disk.close(post) if how == "closed" else disk.kill(post))
    await disk.clock.sleep(20)

    post = await disk.sender()

    assert await post.order() == []
    assert await post.state(ticket) == State.EXPIRED
    assert ((await post.outbox.stats()).expired, (await post.outbox.stats()).normal) == (1, 0)


async def test_a_dedup_key_counts_after_a_restart(disk: Disk, how: str) -> None:
    post = await disk.sender()
    ticket = await post.put(dedup_key="d", dedup_for=1000)
    await post.send()

    post = await again(disk, post, how)

    assert await post.put(dedup_key="d") == ticket


async def test_lines_keep_their_order(disk: Disk, how: str) -> None:
    post = await disk.sender()
    tickets = await post.put_many(50)

    post = await again(disk, post, how)

    assert await post.order() == tickets


async def test_a_message_that_replaced_another_keeps_the_place(disk: Disk, how: str) -> None:
    post = await disk.sender()
    await post.put(coalesce_key="c")
    behind = await post.put()
    newer = await post.put(coalesce_key="c")

    post = await again(disk, post, how)

    assert await post.order() == [newer, behind]


async def test_a_replayed_letter_stands_at_the_end(disk: Disk, how: str) -> None:
    post = await disk.sender()
    letter = await post.put()
    await post.send(Dead("bad_request", "x"))
    waiting = await post.put()
    await post.outbox.replay([letter])

    post = await again(disk, post, how)

    assert await post.order() == [waiting, letter]


async def test_a_retried_message_stays_the_first_of_its_line(disk: Disk, how: str) -> None:
    post = await disk.sender()
    tickets = await post.put_many(3)
    await post.send(Retry(5, "502"))

    post = await again(disk, post, how)

    assert await post.order(20) == tickets


async def test_a_message_in_flight_at_a_crash_goes_first(disk: Disk) -> None:
    post = await disk.sender()
    tickets = await post.put_many(3)
    await post.one()

    post = await disk.restart(post)

    assert await post.order() == tickets


async def test_due_messages_stand_where_their_time_put_them(disk: Disk, how: str) -> None:
    post = await disk.sender()
    await post.outbox.pause(BOT)
    start = post.clock.now()
    due = [await post.put(not_before=start + seconds) for seconds in (30, 10)]
    early = await post.put()
    await post.clock.sleep(20)
    between = await post.put()
    await post.clock.sleep(20)
    late = await post.put()

    post = await again(disk, post, how)
    await post.outbox.resume(BOT)

    assert await post.order() == [early, due[1], between, due[0], late]


async def test_a_message_that_was_due_when_it_was_put_stands_where_it_was_put(disk: Disk, how: str) -> None:
    post = await disk.sender()
    past = post.clock.now() - 100
    batch = [post.message(not_before=past), post.message(), post.message(not_before=past), post.message()]
    await post.outbox.put(batch)

    post = await again(disk, post, how)

    assert await post.order() == [message.id for message in batch]


async def test_a_replacement_does_not_change_who_was_due_first(disk: Disk, how: str) -> None:
    post = await disk.sender()
    await post.outbox.pause(BOT)
    await post.put(coalesce_key="c")
    due = await post.put(not_before=post.clock.now() + 10)
    await post.clock.sleep(20)
    after = await post.put()
    await post.clock.sleep(20)
    newer = await post.put(coalesce_key="c")

    post = await again(disk, post, how)
    await post.outbox.resume(BOT)

    assert await post.order() == [newer, due, after]


async def test_messages_that_come_due_while_a_sender_starts_go_in_order_of_their_times(disk: Disk) -> None:
    post = await disk.sender()
    due = [await post.put(not_before=post.clock.now() + seconds) for seconds in (10.0, 11.5)]
    await disk.kill(post)
    await disk.clock.sleep(11)
    post = await disk.opener()
    starting = await post.begin(post.outbox.start_sending())
    await post.clock.sleep(0.7)
    await post.outbox.stats()
    assert not starting.done()
    await starting

    assert await post.order() == due


async def test_a_crash_is_counted_and_the_message_sent_again(disk: Disk) -> None:
    post = await disk.sender()
    ticket = await post.put()
    await post.one()

    post = await disk.restart(post)
    record = await post.send()

    assert (record.message.id, record.state, record.crashes) == (ticket, State.DELIVERED, 1)


async def test_a_message_that_must_not_be_doubled_is_parked_by_a_crash(disk: Disk) -> None:
    post = await disk.sender()
    ticket = await post.put(on_unknown="park")
    await post.one()

    post = await disk.restart(post)

    record = await post.record(ticket)
    assert (record.state, record.crashes, record.reason) == (State.PARKED, 1, "unknown")
    assert await post.order() == []
    assert (await post.outbox.stats()).parked == 1


async def test_the_fifth_crash_parks_a_message(disk: Disk) -> None:
    post = await disk.sender()
    ticket = await post.put()
    behind = await post.put()
    for _ in range(5):
        assert (await post.one()).message.id == ticket
        post = await disk.restart(post)

    record = await post.record(ticket)
    assert (record.state, record.reason, record.crashes) == (State.PARKED, "crashes", 5)
    assert await post.order() == [behind]


async def test_a_replayed_message_may_crash_anew(disk: Disk) -> None:
    post = await disk.sender()
    ticket = await post.put()
    for _ in range(5):
        await post.one()
        post = await disk.restart(post)
    await post.outbox.replay([ticket])
    await post.one()

    post = await disk.restart(post)

    assert (await post.send()).crashes == 1


async def test_a_process_that_ended_well_leaves_no_crash(disk: Disk) -> None:
    post = await disk.sender()
    await post.put_many(3)
    await post.send()
    await disk.close(post)

    start = disk.clock.monotonic()
    post = await disk.sender()

    assert disk.clock.monotonic() == start  # nothing is waited for
    assert [record.crashes for record in await post.outbox.records()] == [0, 0, 0]


async def test_a_crash_makes_the_next_sender_wait_out_what_it_cannot_know(disk: Disk) -> None:
    post = await disk.sender(STRICT)
    await disk.kill(post)

    start = disk.clock.monotonic()
    await disk.sender(STRICT)

    assert disk.clock.monotonic() - start == 5.0  # at most; its windows are of 10 seconds


async def test_a_caller_that_gives_up_while_a_sender_starts_does_not_begin_the_wait_anew(disk: Disk) -> None:
    post = await disk.sender()
    await disk.kill(post)
    post = await disk.opener()

    for _ in range(4):  # the wait is one second
        assert await post.no_turn(within=0.2)
    await post.clock.sleep(0.3)

    assert not await post.no_turn(within=0.2)


async def test_a_sender_whose_start_nobody_waits_for_remembers_everything_once(disk: Disk) -> None:
    rules = Rules(bot=Rate(1000, 1), private=Rate(2, 20))
    post = await disk.sender(rules)
    await post.put_many(2)
    await post.send()
    post = await disk.restart(post, rules)
    await disk.kill(post)
    post = await disk.opener(rules)
    assert await post.claim(within=0.2) == []

    assert len(await post.claim(within=8)) == 1  # one slot of two is free


async def test_hooks_hear_of_what_a_crash_has_ended(disk: Disk) -> None:
    post = await disk.sender()
    ticket = await post.put(on_unknown="park")
    await post.one()
    ended: list[TicketId] = []

    events = EventStream()
    events.subscribe(Ended, lambda event: ended.append(event.record.message.id))

    await disk.restart(post, events=events)

    assert ended == [ticket]


@pytest.mark.parametrize("jump", [-30 * DAY, -3600.0, -30.0, 30.0, 3600.0, 30 * DAY])
async def test_a_clock_that_was_set_holds_nothing_for_longer_than_the_windows(
    disk: Disk, clock: VirtualClock, jump: float
) -> None:
    post = await disk.sender(STRICT)
    await post.put_many(4, GROUP)
    await post.put_many(2, 1)
    for _ in range(4):
        await post.send(within=1)
    await disk.kill(post)

    clock.epoch = EPOCH + jump
    post = await disk.sender(STRICT)
    start = clock.monotonic()
    await post.run(61)

    assert (await post.outbox.stats()).waiting == 0
    assert clock.monotonic() - start < 62


async def test_a_clock_that_was_set_back_does_not_prolong_a_closure(disk: Disk, clock: VirtualClock) -> None:
    post = await disk.sender()
    await post.put()
    await post.send(Refused(30))
    await disk.kill(post)

    clock.epoch = EPOCH - DAY

    assert await waits(await disk.sender()) <= 30


async def test_a_clock_that_was_set_back_does_not_hold_up_a_retry_for_hours(
    disk: Disk, clock: VirtualClock
) -> None:
    post = await disk.sender()
    await post.put()
    await post.send(Retry(5, "502"))
    await disk.kill(post)

    clock.epoch = EPOCH - 30 * DAY

    assert await waits(await disk.sender(poll=60)) <= 3600


async def test_calls_from_a_future_that_was_taken_back_count_once(disk: Disk, clock: VirtualClock) -> None:
    post = await disk.sender(STRICT)
    await post.put_many(4, GROUP)
    for _ in range(3):
        await post.send()
    await disk.close(post)
    clock.epoch = EPOCH - DAY
    post = await disk.sender(STRICT)
    await post.clock.sleep(61)

    post = await again(disk, post, "closed", STRICT)

    assert await waits(post) < SOON
