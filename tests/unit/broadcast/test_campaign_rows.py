"""Audiences as they come: bad rows, doubled ones, slow ones, and those that break off. In virtual time."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tidegate.broadcast import tracker
from tidegate.errors import BadInputError, TidegateError
from tidegate.row_template import Row
from unit.broadcast.office import Marks, Office, is_accounted_for, people

LOGGER = "tidegate.broadcast"


async def test_who_is_in_the_audience_twice_gets_it_once(here: Office) -> None:
    chats = [1, 2, "1", 3, *range(1, 200), *range(1, 200), "@Harbour", "@harbour"]
    async with here.gate.worker():
        report = await (await here.broadcast("sale", chats, "Hello")).finished()
    assert (report.accepted, report.repeated, report.earlier) == (200, len(chats) - 200, 0)
    assert is_accounted_for(report)
    assert set(here.arrived().values()) == {1}


async def test_bad_rows_are_left_out_and_named(here: Office, caplog: pytest.LogCaptureFixture) -> None:
    rows: list[Any] = people(200)
    rows[3] = {"chat_id": 0, "name": "Nobody"}
    rows[50] = {"chat_id": 5, "name": ""}
    rows[51] = 3.5
    rows[120] = {"chat_id": 6, "name": "x" * 5_000}
    async with here.gate.worker():
        report = await (await here.broadcast("sale", rows, "Hello {name}!")).finished()
    assert (report.delivered, report.bad, report.read) == (196, 4, 200)
    assert is_accounted_for(report)
    assert [(bad.row, bad.chat_id) for bad in report.bad_rows] == [(4, 0), (51, 5), (52, None), (121, 6)]
    assert [bad.reason.partition(":")[0] for bad in report.bad_rows] == [
        "chat_id 0 is no chat",
        "name is empty",
        "a row is a chat, or a mapping with chat_id and other fields",
        "text has 5007 characters",
    ]
    assert [record.levelname for record in caplog.records if record.name == LOGGER] == ["WARNING"]


async def test_only_the_first_bad_rows_are_kept(here: Office) -> None:
    rows = [{"chat_id": i % 2, "name": "x"} for i in range(1, 201)]
    async with here.gate.worker():
        report = await (await here.broadcast("sale", rows, "Hello {name}!")).finished()
    assert (report.bad, len(report.bad_rows)) == (100, tracker.BAD_ROWS_KEPT)


async def test_an_audience_of_nothing_but_bad_rows_is_refused(here: Office) -> None:
    rows = [{"chat_id": 0}] * 1_000
    with pytest.raises(BadInputError, match=r"all of the first 100 rows cannot be sent.* Row 1: chat_id 0"):
        await here.broadcast("sale", rows, "Hello")
    with pytest.raises(BadInputError, match="the only row cannot be sent"):
        await here.broadcast("sale", rows[:1], "Hello")
    with pytest.raises(BadInputError, match=r"priority 'lowest' is not known"):
        await here.broadcast("sale", people(500), "Hello", priority="lowest")
    assert (await here.gate.stats()).waiting == 0


async def test_a_field_that_the_first_row_lacks_is_told_at_once(here: Office) -> None:
    with pytest.raises(BadInputError, match="the first row: there is no field 'town'"):
        await here.broadcast("sale", people(10), "Hello {name} of {town}")
    with pytest.raises(BadInputError, match="no field 'chat_id': the fields are id: name it so"):
        await here.broadcast("sale", [{"id": 1}], "Hello")
    with pytest.raises(BadInputError, match="no field 'name': the fields are chat_id"):
        await here.broadcast("sale", [1, 2], "Hello {name}")


async def test_nobody_in_the_audience_is_the_end(here: Office) -> None:
    report = await (await here.broadcast("sale", [], "Hello")).finished()
    assert (report.state, report.read, report.total) == ("finished", 0, 0)


async def test_a_text_that_telegram_takes_from_nobody_stops_it_and_can_be_mended(here: Office) -> None:
    marks = Marks()
    async with here.gate.worker():
        campaign = await here.broadcast(
            "sale", people(400), "x" * 5_000, parse_mode="HTML", options={"on_dead": marks.mark}
        )
        with pytest.raises(TidegateError, match=r"the first \d+ messages have all died: bad_request"):
            await campaign.finished()
        report = campaign.progress
        assert (report.state, report.waiting, report.delivered) == ("failed", 0, 0)
        assert report.dead < 250
        assert report.cancelled
        assert not marks.gone

        dead = await here.gate.outbox.dead(limit=1_000)
        await here.gate.outbox.drop([letter.message.id for letter in dead])
        report = await (await here.broadcast("sale", people(400), "x")).finished()
    assert (report.delivered, report.earlier) == (400, 0)


async def test_a_poisonous_letter_is_left_out_and_the_broadcast_goes_on(here: Office) -> None:
    cycle: list[object] = []
    cycle.append(cycle)
    poison: dict[int, dict[Any, object]] = {
        1002: {"text": "x", 5: 1},
        1003: {"text": "x", "reply_markup": {0.5: 1}},
        1004: {"text": "x", "note": float("nan")},
        1005: {"text": "x", "note": cycle},
        1006: {"text": 5},
        1007: {"text": "x", "note": 2**70},
        1008: {"text": "\ud800"},
        1009: {"text": "x", b"note": 1},
    }

    async with here.gate.worker():
        letters = await here.broadcast("sale", people(50), lambda row: poison.get(row["chat_id"], "Hello"))
        report = await letters.finished()

    assert (report.delivered, report.bad) == (42, 8)
    assert is_accounted_for(report)
    assert [bad.chat_id for bad in report.bad_rows] == list(poison)


async def test_a_function_writes_each_letter(here: Office) -> None:
    async def letter(row: Row) -> object:
        await here.clock.sleep(0.001)
        match row["chat_id"]:
            case 1001:
                return "text"
            case 1002:
                return {"text": "fields", "disable_notification": True, "priority": "high"}
            case 1003:
                return {"method": "sendPhoto", "photo": "https://example.org/a.png", "caption": "photo"}
            case 1004:
                return None
            case 1005:
                return 17
            case _:
                return row["nothing"]

    async with here.gate.worker():
        report = await (await here.broadcast("sale", people(6), letter)).finished()
    assert (report.delivered, report.skipped, report.bad) == (3, 1, 2)
    assert is_accounted_for(report)
    assert sorted(here.texts()) == ["fields", "photo", "text"]
    reasons = [bad.reason for bad in report.bad_rows]
    assert reasons == [
        "a letter is text, a mapping of fields, or None to skip the row: got int",
        "KeyError: 'nothing'",
    ]


async def test_an_audience_may_be_async_and_slow_and_is_closed_when_it_is_left(here: Office) -> None:
    left = asyncio.Event()

    async def audience() -> AsyncIterator[int]:
        try:
            for chat in range(1, 1_000):
                await here.clock.sleep(2)
                yield chat
        finally:
            left.set()

    async with here.gate.worker():
        campaign = await here.broadcast("sale", audience(), "Hello")
        assert here.clock.monotonic() == pytest.approx(2)
        await here.clock.sleep(20.5)
        assert campaign.progress.delivered == 11  # nobody waits until a batch is full
        await campaign.cancel()
    assert left.is_set()


async def test_an_audience_that_is_ahead_of_its_broadcast_is_closed_too(here: Office) -> None:
    left = asyncio.Event()

    async def audience() -> AsyncIterator[int]:
        try:
            for chat in range(1, 1_000):
                yield chat
        finally:
            left.set()

    people = audience()  # somebody holds it, so nobody else tidies it up
    campaign = await here.broadcast("sale", people, "Hello")
    await here.clock.sleep(1)
    await campaign.cancel()
    assert left.is_set()


async def test_a_large_audience_lets_others_run(here: Office) -> None:
    campaign = await here.broadcast("sale", range(1, 20_001), lambda _: None)
    longest = before = 0
    while not campaign.has_ended:
        await here.clock.sleep(0)
        longest, before = max(longest, campaign.progress.read - before), campaign.progress.read
    assert (await campaign.finished()).skipped == 20_000
    assert longest <= 100


async def test_an_audience_that_raises_makes_it_fail_and_what_was_read_still_goes(
    here: Office, caplog: pytest.LogCaptureFixture
) -> None:
    def audience() -> Iterator[int]:
        yield from range(1, 301)
        raise ConnectionError("the database is gone")

    async with here.gate.worker():
        campaign = await here.broadcast("sale", audience(), "Hello")
        with pytest.raises(ConnectionError, match="the database is gone"):
            await campaign.finished()
    assert (campaign.progress.state, campaign.progress.delivered) == ("failed", 300)
    assert campaign.progress.trouble == "the database is gone"
    assert [record.levelname for record in caplog.records if record.name == LOGGER] == ["ERROR"]


async def test_an_audience_that_raises_at_once_is_told_at_once(here: Office) -> None:
    async def audience() -> AsyncIterator[int]:
        raise ConnectionError("the database is gone")
        yield 1

    with pytest.raises(ConnectionError, match="the database is gone"):
        await here.broadcast("sale", audience(), "Hello")


@pytest.mark.parametrize("name", ["", "a:b", "two words", "x" * 65, "a\n", 7])
async def test_a_name_that_is_none_is_refused(here: Office, name: Any) -> None:  # noqa: ANN401
    with pytest.raises(BadInputError, match="is not the name of a broadcast"):
        await here.broadcast(name, [1], "Hello")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"ahead": 0}, "ahead is 0"),
        ({"ahead": True}, "ahead is True"),
        ({"remember": 0}, "remember is how many seconds"),
        ({"remember": float("nan")}, "remember is how many seconds"),
        ({"remember": "7d"}, "remember is how many seconds"),
        ({"total": "many"}, "total is 'many': give how many, as a whole number"),
        ({"remember": 3600, "total": 100_000}, "too short: sending takes 3,500 s or more"),
        ({"on_dead": print}, "on_dead must be an async function"),
    ],
)
async def test_terms_that_cannot_be_met_are_refused(
    here: Office, options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(BadInputError, match=complaint):
        await here.broadcast("sale", [1], "Hello", options=options)


@pytest.mark.parametrize(("given", "meant"), [("on_daed", "on_dead"), ("remeber", "remember")])
async def test_a_misspelt_option_of_a_broadcast_is_named_with_the_one_that_may_be_meant(
    here: Office, given: str, meant: str
) -> None:
    with pytest.raises(BadInputError, match=f"'{given}' is not known: '{meant}' may be meant"):
        await here.gate.broadcast("sale", [1], "Hello", **{given: 1})  # type: ignore[arg-type]
