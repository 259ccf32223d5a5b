"""Which dead letters a command means, and how many at a time it works on them."""

from collections.abc import Sequence

import pytest

from tidegate.cli import progress
from tidegate.cli.dlq import ChosenLetters, LetterArguments, LetterFilter, choose, work_on
from tidegate.cli.messages import find_records
from tidegate.errors import BadInputError
from tidegate.model import BotId, ChatId, Dead, Message, Outcome, Settlement, TicketId, Unknown
from tidegate.outbox.port import Outbox
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stores.memory.outbox import MemoryOutbox

BLOCKED = Dead("blocked", "Forbidden: bot was blocked by the user")


@pytest.fixture
def outbox(clock: VirtualClock) -> Outbox:
    return MemoryOutbox(clock)


async def put(outbox: Outbox, ticket: str, chat: ChatId = 1) -> None:
    await outbox.put(
        [
            Message(
                id=TicketId(ticket),
                bot=BotId(42),
                chat_id=chat,
                method="sendMessage",
                params={"text": "x"},
                on_unknown="park",
            )
        ]
    )


async def bury(outbox: Outbox, ticket: str, outcome: Outcome = BLOCKED, chat: ChatId = 1) -> None:
    await put(outbox, ticket, chat)
    [claim] = await outbox.claim(1)
    await outbox.settle([Settlement(claim, outcome)])


def by_filter(**chosen: object) -> LetterArguments:
    return LetterArguments([], everything=not chosen, chosen=LetterFilter(**chosen))  # type: ignore[arg-type]


def by_ids(*ids: str) -> LetterArguments:
    return LetterArguments(ids, everything=False, chosen=LetterFilter())


async def chosen(outbox: Outbox, clock: VirtualClock, which: LetterArguments) -> ChosenLetters:
    return await choose(outbox, which, clock.now() + 1)


async def test_parked_letters_are_meant_only_if_that_is_said(outbox: Outbox, clock: VirtualClock) -> None:
    await bury(outbox, "dead")
    await bury(outbox, "parked", Unknown("timeout"))

    everything = await chosen(outbox, clock, by_filter())
    parked = await chosen(outbox, clock, by_filter(state="parked"))
    named = await chosen(outbox, clock, by_ids("parked", "dead", "dead"))

    assert (everything.size, everything.parked) == (1, False)
    assert (parked.size, parked.parked) == (1, True)
    assert (named.size, named.parked) == (2, True)


async def test_letters_are_chosen_by_bot_chat_reason_and_age(outbox: Outbox, clock: VirtualClock) -> None:
    await bury(outbox, "old", chat=1)
    await clock.sleep(7_200)
    await bury(outbox, "new", chat=2)
    await bury(outbox, "other", Dead("bad_request", "Bad Request"), chat=2)

    async def size(which: LetterArguments) -> int:
        return (await chosen(outbox, clock, which)).size

    assert await size(by_filter(reason="blocked")) == 2
    assert await size(by_filter(chat="2")) == 2
    assert await size(by_filter(chat="2", reason="blocked")) == 1
    assert await size(by_filter(older_than="1h")) == 1
    assert await size(by_filter(bot=42)) == 3
    assert await size(by_filter(bot=43)) == 0


@pytest.mark.parametrize(
    ("which", "told"),
    [
        (by_ids("nobody"), "message nobody is not known here.*queue list --state any"),
        (by_ids("1001"), "message 1001 is not known here.*queue list --chat 1001 --state any"),
        (by_ids("@channel"), "message @channel is not known here.*queue list --chat @channel --state any"),
        (by_ids("waits"), "message waits is queued: only dead and parked"),
        (by_ids(), "say which letters"),
        (LetterArguments(["waits"], everything=True, chosen=LetterFilter()), "either ids, or a filter"),
        (
            LetterArguments(["waits"], everything=False, chosen=LetterFilter(bot=42)),
            "either ids, or a filter",
        ),
        (by_filter(chat="0"), "--chat: chat_id 0 is no chat"),
        (by_filter(older_than="soon"), "--older-than: 'soon' is not a duration"),
    ],
)
async def test_what_cannot_be_meant_is_said(
    outbox: Outbox, clock: VirtualClock, which: LetterArguments, told: str
) -> None:
    await put(outbox, "waits")

    with pytest.raises(BadInputError, match=told):
        await chosen(outbox, clock, which)


async def test_many_are_worked_off_in_steps(
    outbox: Outbox, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "MESSAGES_PER_STEP", 2)
    for number in range(5):
        await bury(outbox, f"m{number}", chat=number + 1)
    choice = await chosen(outbox, clock, by_filter())
    steps: list[int] = []

    async def drop(ids: Sequence[TicketId]) -> int:
        steps.append(len(ids))
        return await outbox.drop(ids)

    assert await work_on(choice, outbox, drop, "Dropping") == 5
    assert steps == [2, 2, 1]
    assert (await outbox.stats()).dead == 0


async def test_what_dies_again_while_letters_are_replayed_is_not_replayed_for_ever(
    outbox: Outbox, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "MESSAGES_PER_STEP", 1)
    await bury(outbox, "a", chat=1)
    await bury(outbox, "b", chat=2)
    await clock.sleep(10)
    choice = await choose(outbox, by_filter(), clock.now())

    async def replay_and_fail(ids: Sequence[TicketId]) -> int:
        replayed = await outbox.replay(ids)
        [claim] = await outbox.claim(1)
        await outbox.settle([Settlement(claim, BLOCKED)])
        return replayed

    assert await work_on(choice, outbox, replay_and_fail, "Replaying") == 2
    assert (await outbox.stats()).dead == 2


async def test_it_ends_where_another_was_faster(outbox: Outbox, clock: VirtualClock) -> None:
    await bury(outbox, "a")
    choice = await chosen(outbox, clock, by_filter())

    async def nothing(_: Sequence[TicketId]) -> int:
        return 0

    assert await work_on(choice, outbox, nothing, "Dropping") == 0


async def ids_of(outbox: Outbox, *short: str) -> list[str]:
    return [record.message.id for record in await find_records(outbox, short)]


async def test_an_id_may_be_shortened_while_it_is_clear(outbox: Outbox) -> None:
    for ticket in ("9f3a41c2d5e6-00000001", "9f3a41c2d5e6-0000001b", "9fc0aaaaaaaa-00000001"):
        await put(outbox, ticket)

    assert await ids_of(outbox, "9fc") == ["9fc0aaaaaaaa-00000001"]
    assert await ids_of(outbox, "9f3a-1b", "9f3-1") == ["9f3a41c2d5e6-0000001b", "9f3a41c2d5e6-00000001"]
    assert await ids_of(outbox, "9fc", "9fc0aaaaaaaa-00000001") == ["9fc0aaaaaaaa-00000001"]


async def test_a_shortened_id_that_is_not_clear_lists_the_candidates(outbox: Outbox) -> None:
    for number in range(7):
        await put(outbox, f"9f3a41c2d5e6-0000000{number}")

    with pytest.raises(
        BadInputError, match=r"^9f is the beginning of 9f3a.*-00000004 and others: write more"
    ):
        await find_records(outbox, ["9f"])
    for short in ("9f3-b", "", "-", "-1", "9f3a41c2d5e6-000000012"):
        with pytest.raises(BadInputError, match="is not known here"):
            await find_records(outbox, [short])


async def test_a_whole_id_is_meant_though_others_begin_with_it(outbox: Outbox) -> None:
    await put(outbox, "m1")
    await put(outbox, "m10")

    assert await ids_of(outbox, "m1") == ["m1"]


async def test_a_letter_is_replayed_by_the_beginning_of_its_id(outbox: Outbox, clock: VirtualClock) -> None:
    await bury(outbox, "9f3a41c2d5e6-00000001")

    meant = await chosen(outbox, clock, by_ids("9f3"))

    assert [record.message.id for record in meant.named] == ["9f3a41c2d5e6-00000001"]
