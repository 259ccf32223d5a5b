"""Direct calls: turns in the same schedule as what is queued."""

import asyncio
import itertools

import pytest

from contract.conftest import OpenPost
from contract.post import BOT, DELIVERED, OTHER_BOT, SOON, Post
from tidegate.model import NotSent, Priority, Rate, Refused, State, Unknown
from tidegate.outbox.port import Turn
from tidegate.pacing.rules import Rules

ONE = Rules(bot=Rate(1, 10), private=Rate(1, 10))
FIVE = Rules(group=Rate(5, 5))
LONGER = 5.5  # seconds without a turn of FIVE: slots are kept for somebody else


async def test_a_turn_is_granted_at_once_where_the_limits_allow(post: Post) -> None:
    turn = await post.turn(5)

    assert (turn.bot, turn.chat_id) == (BOT, 5)
    assert post.clock.monotonic() == 0


async def test_turns_of_a_chat_are_granted_in_order_one_at_a_time(post: Post) -> None:
    granted: list[int] = []

    async def call(number: int) -> None:
        turn = await post.turn(5)
        granted.append(number)
        await post.clock.sleep(1)
        await post.outbox.end_turn(turn, DELIVERED)

    await asyncio.gather(*(call(number) for number in range(5)))

    assert granted == list(range(5))
    assert post.clock.monotonic() == pytest.approx(5, abs=0.1)


async def test_turns_take_slots_and_free_them_after_the_answer(open_post: OpenPost) -> None:
    post = await open_post(ONE)
    await post.put(2)
    turn = await post.turn(1)
    assert await post.claim(within=60) == []

    await post.outbox.end_turn(turn, DELIVERED, age=4)

    assert await post.claim(within=5.9) == []
    assert len(await post.claim(within=0.2)) == 1


async def test_a_turn_waits_for_its_limits_without_any_claimer(open_post: OpenPost) -> None:
    post = await open_post(ONE)
    await post.outbox.end_turn(await post.turn(1), DELIVERED)

    await post.turn(1)

    assert post.clock.monotonic() == pytest.approx(10, abs=0.01)


async def test_a_turn_goes_on_though_messages_wait_that_nobody_claims(open_post: OpenPost) -> None:
    post = await open_post(Rules(private=Rate(1, 10), burst=1))
    await post.outbox.end_turn(await post.turn(1), DELIVERED)
    await post.put(2)  # it may go, and there is no worker

    await post.turn(1)

    assert post.clock.monotonic() == pytest.approx(10, abs=0.01)
    assert (await post.outbox.stats()).normal == 1


async def test_turns_go_on_while_slots_are_kept_for_a_message_that_nobody_claims(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(5, 1), group=Rate(100, 1)))
    await post.album(5, -1)
    for chat in range(2, 60):
        await post.put(chat, priority=Priority.HIGH)

    for chat in range(100, 120):  # at some of these moments slots are kept for the album
        await post.run(0.3, room=1)
        async with post.clock.timeout(5):
            await post.outbox.end_turn(await post.turn(chat), DELIVERED)

    assert (await post.outbox.stats()).sending == 0


async def test_a_turn_is_not_starved_by_what_is_queued(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(10, 1)))
    for chat in range(2, 400):
        await post.put(chat, priority=Priority.HIGH)
    worker = await post.begin(post.run(60))
    await post.clock.sleep(5.05)

    start = post.clock.monotonic()
    turn = await post.turn(1)

    # High ones that came before it go first; nothing else does.
    assert post.clock.monotonic() - start < 40
    await post.outbox.end_turn(turn, DELIVERED)
    await post.cancel(worker)


async def test_a_turn_overtakes_a_broadcast(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(10, 1)))
    for chat in range(2, 400):
        await post.put(chat, priority=Priority.LOW)
    worker = await post.begin(post.run(60))
    waits = []
    for chat in range(1001, 1011):
        await post.clock.sleep(1.03)
        start = post.clock.monotonic()
        await post.outbox.end_turn(await post.turn(chat), DELIVERED)
        waits.append(post.clock.monotonic() - start)

    assert max(waits) < 0.2  # two gaps between slots
    await post.cancel(worker)


async def test_normal_turns_are_spaced_and_high_ones_go_between(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(10, 1)))

    async def call(chat: int, priority: Priority) -> float:
        turn = await post.turn(chat, priority=priority)
        await post.outbox.end_turn(turn, DELIVERED)
        return post.clock.monotonic()

    normal = [await call(chat, Priority.NORMAL) for chat in range(1, 6)]  # nobody claims: only turns move it
    before = post.clock.monotonic()
    high = await call(100, Priority.HIGH)

    gaps = [later - earlier for earlier, later in itertools.pairwise(normal)]
    assert gaps == pytest.approx([0.1] * 4, abs=0.01)
    assert high == before


async def test_turns_share_by_weight_with_messages_of_their_priority(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(10, 1)))
    for chat in range(1000, 1400):
        await post.put(chat, priority=Priority.NORMAL)
    went: list[str] = []

    async def call(chat: int) -> None:
        turn = await post.turn(chat, priority=Priority.LOW)
        went.append("low turn")
        await post.outbox.end_turn(turn, DELIVERED)

    calls = [await post.begin(call(chat)) for chat in range(1, 100)]
    sent = await post.run(20)

    assert 30 <= len(went) <= 50  # one of five
    assert 140 <= len(sent) <= 170
    for waiting in calls:
        waiting.cancel()
    await asyncio.wait(calls)


async def test_low_turns_go_on_though_high_messages_wait_that_nobody_claims(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(10, 1)))
    for chat in range(1000, 1100):
        await post.put(chat, priority=Priority.HIGH)  # and there is no worker

    for chat in range(1, 6):
        async with post.clock.timeout(5):
            await post.outbox.end_turn(await post.turn(chat, priority=Priority.LOW), DELIVERED)


async def test_a_paid_turn_has_the_limit_of_paid_broadcasts(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(1, 10), paid=Rate(100, 1)))
    await post.turn(1)

    async with post.clock.timeout(1):
        for chat in range(2, 20):
            await post.turn(chat, paid=True)

    assert await post.no_turn(30)


async def test_a_turn_cancelled_while_it_waits_leaves_no_trace(open_post: OpenPost) -> None:
    post = await open_post(ONE)
    first = await post.turn(1)
    waiting = await post.begin(post.turn(1))
    ticket = await post.put(1)

    await post.cancel(waiting)
    await post.outbox.end_turn(first, NotSent("x"))

    assert await post.order(1) == [ticket]


async def test_a_turn_cancelled_in_the_instant_it_is_granted_gives_its_slots_back(
    open_post: OpenPost,
) -> None:
    post = await open_post(ONE)
    first = await post.turn(1)
    waiting = await post.begin(post.turn(2))
    await post.outbox.end_turn(first, NotSent("x"))  # grants it; its owner has not run yet

    await post.cancel(waiting)

    async with post.clock.timeout(SOON):
        await post.turn(3)


async def test_a_turn_granted_after_its_owner_was_cancelled_does_not_hold_up_the_next(
    open_post: OpenPost,
) -> None:
    post = await open_post(ONE)
    first = await post.turn(1)
    cancelled = await post.begin(post.turn(2))
    following = await post.begin(post.turn(3))
    cancelled.cancel()  # and before its owner runs:
    await post.outbox.end_turn(first, NotSent("x"))

    async with post.clock.timeout(SOON):
        turn = await following
    await post.outbox.end_turn(turn, DELIVERED)
    async with post.clock.timeout(10 + SOON):
        await post.turn(4)  # turns are still granted without a claimer


async def test_a_turn_that_was_not_sent_gives_its_slots_back_at_once(open_post: OpenPost) -> None:
    post = await open_post(ONE)
    await post.outbox.end_turn(await post.turn(1), NotSent("x"))

    async with post.clock.timeout(SOON):
        await post.turn(1)


async def test_ending_a_turn_twice_frees_its_slots_once(open_post: OpenPost) -> None:
    post = await open_post(ONE)
    turn = await post.turn(1)
    await post.outbox.end_turn(turn, DELIVERED)
    await post.outbox.end_turn(turn, NotSent("x"))

    assert await post.no_turn(2, within=9)


async def test_a_429_in_a_turn_closes_its_chat(post: Post) -> None:
    await post.put(1)
    other = await post.put(2)
    await post.outbox.end_turn(await post.turn(1), Refused(20))

    assert await post.no_turn(1)
    assert await post.order(19) == [other]
    assert (await post.outbox.stats()).refused == 1
    assert not await post.no_turn(1, within=2)


async def test_429s_in_turns_of_two_chats_close_the_bot(post: Post) -> None:
    turns = [await post.turn(chat) for chat in (1, 2)]
    for turn in turns:
        await post.outbox.end_turn(turn, Refused(20))

    assert await post.no_turn(3, within=19)
    await post.turn(3, bot=OTHER_BOT)


async def test_the_slots_of_a_turn_without_an_answer_cool(open_post: OpenPost) -> None:
    post = await open_post(ONE)
    turn = await post.turn(1)
    await post.outbox.cool([turn])

    async with post.clock.timeout(10 + SOON):
        await post.turn(2)
    assert (await post.outbox.stats()).uncertain == 1


async def test_wait_for_tells_when_a_turn_could_be_had_and_takes_nothing(open_post: OpenPost) -> None:
    post = await open_post(ONE)
    outbox = post.outbox
    assert await outbox.wait_for(BOT, 1, "send", 1) == 0

    turn = await post.turn(1)
    assert await outbox.wait_for(BOT, 1, "send", 1) == 10  # a guess: an answer has to come first
    await outbox.end_turn(turn, DELIVERED)
    await post.clock.sleep(4)

    assert await outbox.wait_for(BOT, 1, "send", 1) == pytest.approx(6)
    assert await outbox.wait_for(BOT, 2, "send", 1) == pytest.approx(6)
    assert await outbox.wait_for(OTHER_BOT, 1, "send", 1) == 0
    assert await outbox.wait_for(BOT, 2, "action", 1) == 0
    await post.clock.sleep(6)
    assert isinstance(await post.turn(2), Turn)


async def test_a_turn_of_several_slots_waits_for_all_of_them(open_post: OpenPost) -> None:
    post = await open_post(Rules(bot=Rate(3, 10), private=Rate(3, 10)))
    await post.outbox.end_turn(await post.turn(1), DELIVERED)

    await post.turn(2, cost=3)

    assert post.clock.monotonic() == pytest.approx(10, abs=0.01)


async def test_turn_and_message_of_one_chat_are_never_in_flight_together(post: Post) -> None:
    turn = await post.turn(1)
    ticket = await post.put(1)

    assert await post.claim(within=5) == []
    await post.outbox.end_turn(turn, DELIVERED)
    assert (await post.one()).message.id == ticket
    assert await post.state(ticket) == State.SENDING
    assert await post.no_turn(1)


async def test_turns_due_at_one_instant_all_go_though_another_bot_has_messages_that_nobody_claims(
    open_post: OpenPost,
) -> None:
    post = await open_post(Rules())
    await post.put(1)
    for turn in [await post.turn(chat, OTHER_BOT) for chat in (100, 101)]:
        await post.outbox.end_turn(turn, Refused(2))  # closes the whole bot
    waiting = [await post.begin(post.turn(chat, OTHER_BOT)) for chat in range(1, 6)]

    async with post.clock.timeout(2 + SOON):
        turns = await asyncio.gather(*waiting)

    assert [turn.chat_id for turn in turns] == [1, 2, 3, 4, 5]


async def test_a_turn_answered_after_its_slots_began_to_cool_counts_from_its_answer(
    open_post: OpenPost,
) -> None:
    post = await open_post(ONE)
    turn = await post.turn(1)
    await post.clock.sleep(5)
    await post.outbox.cool([turn])
    await post.clock.sleep(3)
    await post.outbox.end_turn(turn, DELIVERED)

    assert await post.no_turn(1, within=9.9)
    assert not await post.no_turn(1, within=0.2)


async def test_a_turn_that_was_never_answered_counts_from_when_its_slots_began_to_cool(
    open_post: OpenPost,
) -> None:
    post = await open_post(ONE)
    turn = await post.turn(1)
    await post.clock.sleep(5)
    await post.outbox.cool([turn])
    await post.clock.sleep(3)
    await post.outbox.end_turn(turn, Unknown("timeout"))

    assert await post.no_turn(1, within=6.9)
    assert not await post.no_turn(1, within=0.2)


class Talk:
    """Direct calls to one group, as many as it may get: five at once, every five seconds."""

    def __init__(self, post: Post, priority: Priority = Priority.HIGH) -> None:
        self.post = post
        self.priority = priority
        self.last = 0.0  # when the last one was granted
        self.waits: list[float] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        self._tasks = [await self.post.begin(self._talk()) for _ in range(3)]
        await self.post.clock.sleep(10)

    async def _talk(self) -> None:
        while True:
            turn = await self.post.turn(-1, priority=self.priority)
            self.waits.append(self.post.clock.monotonic() - self.last)
            self.last = self.post.clock.monotonic()
            await self.post.clock.sleep(0.05)
            await self.post.outbox.end_turn(turn, DELIVERED)

    async def silence(self, seconds: float) -> None:
        """Until none was granted for so long."""
        while self.post.clock.monotonic() - self.last < seconds:
            await self.post.clock.sleep(0.1)

    async def end(self) -> None:
        for task in self._tasks:
            await self.post.cancel(task)


@pytest.mark.parametrize("priority", [Priority.HIGH, Priority.LOW])
async def test_an_album_is_not_starved_by_direct_calls_to_its_chat(
    open_post: OpenPost, priority: Priority
) -> None:
    post = await open_post(FIVE)
    talk = Talk(post, priority)
    await talk.begin()
    album = await post.album(3, -1, priority=Priority.HIGH)

    claim = await post.one(within=60)

    assert claim.message.id == album
    await talk.end()


async def test_direct_calls_that_let_an_album_go_first_go_on_once_it_is_sent(open_post: OpenPost) -> None:
    post = await open_post(FIVE)
    talk = Talk(post)
    await talk.begin()
    await post.album(3, -1)
    await post.send(within=60)
    sent = post.clock.monotonic()

    await post.clock.sleep(0.5)

    assert talk.last >= sent  # two slots were left
    await talk.end()


async def test_direct_calls_to_a_chat_go_on_though_its_album_waits_and_nobody_claims_it(
    open_post: OpenPost,
) -> None:
    post = await open_post(FIVE)
    talk = Talk(post)
    await talk.begin()
    await post.album(3, -1)

    await post.clock.sleep(100)

    assert LONGER < max(talk.waits) < 10  # they did let it go first, for a while
    assert post.clock.monotonic() - talk.last < 10
    await talk.end()


async def test_direct_calls_that_let_an_album_go_first_go_at_once_if_it_is_cancelled(
    open_post: OpenPost,
) -> None:
    post = await open_post(FIVE)
    talk = Talk(post)
    await talk.begin()
    album = await post.album(3, -1)
    async with post.clock.timeout(100):
        await talk.silence(LONGER)

    await post.outbox.cancel([album])
    cancelled = post.clock.monotonic()
    await post.clock.sleep(SOON)

    assert talk.last >= cancelled
    await talk.end()


@pytest.mark.parametrize("chat", [5, -5])
async def test_a_turn_that_may_not_wait_is_granted_where_the_limits_allow(
    open_post: OpenPost, chat: int
) -> None:
    post = await open_post(Rules())

    turn = await post.outbox.turn(BOT, chat, "send", 1, max_wait=0)

    assert turn.chat_id == chat


async def test_a_turn_that_gave_up_waiting_leaves_no_trace(open_post: OpenPost) -> None:
    post = await open_post(ONE)
    first = await post.turn(1)

    with pytest.raises(TimeoutError):
        await post.outbox.turn(BOT, 1, "send", 1, max_wait=3)
    assert post.clock.monotonic() == pytest.approx(3)
    await post.outbox.end_turn(first, NotSent("x"))

    async with post.clock.timeout(SOON):
        await post.turn(1)


async def test_an_action_that_waits_goes_once_another_gives_its_slot_back(open_post: OpenPost) -> None:
    post = await open_post(Rules(actions=(Rate(2, 60),)))
    outbox = post.outbox
    await outbox.end_turn(await outbox.turn(BOT, 1, "action", 1), DELIVERED)
    held = await outbox.turn(BOT, 1, "action", 1)
    waiting = await post.begin(outbox.turn(BOT, 1, "action", 1))
    await post.clock.sleep(1)

    await outbox.end_turn(held, NotSent("x"))

    async with post.clock.timeout(SOON):
        await waiting


@pytest.mark.parametrize("after", range(6))
@pytest.mark.parametrize("what", ["claim", "turn"])
async def test_who_is_cancelled_in_the_instant_the_store_closes_ends_as_cancelled(
    open_post: OpenPost, what: str, after: int
) -> None:
    post = await open_post(ONE)
    await post.turn(1)
    waiting = await post.begin(post.turn(1) if what == "turn" else post.outbox.claim(1))
    closing = await post.begin(post.outbox.close())
    for _ in range(after):  # in each instant of the closing
        await post.clock.sleep(0)
    was_told = waiting.done()

    waiting.cancel()
    await asyncio.wait([waiting, closing])

    assert waiting.cancelled() is not was_told
    closing.result()


async def test_an_album_whose_worker_was_away_for_long_is_not_starved_by_direct_calls(
    open_post: OpenPost,
) -> None:
    post = await open_post(FIVE)
    talk = Talk(post)
    await talk.begin()
    album = await post.album(3, -1)
    await post.clock.sleep(60)  # what was kept for it has run out

    claim = await post.one(within=60)

    assert claim.message.id == album
    await talk.end()
