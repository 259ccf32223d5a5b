"""Broadcasts whose rows are stored: all are checked first, nothing accepted is lost, nobody gets it twice.

The store is a file, the database in memory; both outlive the gates. In virtual time.
"""

import asyncio
import logging
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from memory_audiences import MemoryAudiences
from simulated import TOKEN
from tidegate import Tidegate, sql
from tidegate.broadcast import stored_audience
from tidegate.broadcast.audience_upload import received_audience
from tidegate.broadcast.stored_audience import AudienceTerms, StoredAudiences
from tidegate.campaign_resumer import LOOK_EVERY, TEND_EVERY
from tidegate.errors import BadInputError, BadRowsError, ConflictError, StoreAwayError
from tidegate.model import BotId, File
from tidegate.outbox.campaigns import GONE_AFTER, CampaignRecord
from tidegate.sim.telegram import SimulatedTelegram
from tidegate.sim.telegram.telegram import TelegramWire
from tidegate.sim.virtual_time import VirtualClock
from tidegate.stored_broadcasts import BEGIN_AFTER, ORPHAN_KEPT, UPLOAD_GONE_AFTER
from unit.broadcast.office import WEATHER, arrived, people

BOT = BotId(42)
HELLO = "Hello {name}!"
OpenGate = Callable[[], Any]
PAGE = 50


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few rows take several of them."""
    monkeypatch.setattr(stored_audience, "PAGE", PAGE)
    monkeypatch.setattr(stored_audience, "ROWS_AT_ONCE", 40)
    monkeypatch.setattr(stored_audience, "REMOVED_AT_ONCE", 40)


@pytest.fixture
async def telegram(clock: VirtualClock) -> SimulatedTelegram:
    return SimulatedTelegram(clock, faults=WEATHER)


@pytest.fixture
async def audiences(clock: VirtualClock) -> MemoryAudiences:
    return MemoryAudiences(clock)


@pytest.fixture
async def opened(
    clock: VirtualClock, tmp_path: Path, telegram: SimulatedTelegram, audiences: MemoryAudiences
) -> OpenGate:
    """Opens a gate, as a process of its own would."""

    async def exist() -> bool:
        return True

    @asynccontextmanager
    async def open_one() -> AsyncIterator[Tidegate]:
        gate = Tidegate(tmp_path / "tidegate.db", clock=clock, wire=TelegramWire(telegram, clock))
        gate.add_bot(TOKEN)
        gate.core.audiences = StoredAudiences(lambda: audiences, exist, clock)
        async with gate:
            yield gate

    return open_one


async def kill(gate: Tidegate) -> None:
    """Let nothing of what the gate does from now on be known to others: as its record was, it stays."""
    await gate.core.campaigns._recorders.stop()  # noqa: SLF001
    await gate.core.audiences.tasks.stop()


async def until_ended(gate: Tidegate, clock: VirtualClock, name: str = "sale") -> CampaignRecord:
    async with clock.timeout(300):
        while not (record := await gate.campaign(name)).has_ended:
            await clock.sleep(1)
    await clock.sleep(2)  # its rows are deleted
    return record


def sent(telegram: SimulatedTelegram) -> dict[object, str]:
    return {entry.chat_id: entry.text for entry in telegram.request_log.log if entry.status == 200}


async def test_everybody_on_a_list_gets_it_and_the_rows_are_deleted(
    clock: VirtualClock, opened: OpenGate, telegram: SimulatedTelegram, audiences: MemoryAudiences
) -> None:
    async with opened() as gate, gate.worker():
        started = await gate.start_broadcast("sale", people(PAGE + 100), HELLO, disable_notification=True)
        stored = await audiences.all()
        ended = await until_ended(gate, clock)

    assert (started.state, started.total, started.audience) == ("running", PAGE + 100, "a list")
    assert started.is_resumable
    assert [(one.state, one.rows) for one in stored] == [("begun", PAGE + 100)]
    assert (ended.state, ended.counts["delivered"]) == ("finished", PAGE + 100)
    assert arrived(telegram) == Counter(range(1001, 1151))
    assert sent(telegram)[1003] == "Hello Person 2!"
    assert await audiences.all() == []


@pytest.mark.parametrize(
    ("rows", "letter", "fields", "texts"),
    [
        ([1001, "1002"], "Hi", {}, {1001: "Hi", 1002: "Hi"}),
        ([1001], {"text": "<b>Hi</b>", "parse_mode": "HTML"}, {}, {1001: "<b>Hi</b>"}),
        ([{"chat_id": 1001, "n": 1.5}], "{n} & more", {"parse_mode": "HTML"}, {1001: "1.5 & more"}),
        ([{"chat_id": 1001, "name": "<Bob>"}], "{name}", {"parse_mode": "HTML"}, {1001: "&lt;Bob&gt;"}),
        (
            [{"chat_id": 1001, "text": "{one}"}, {"chat_id": 1002, "text": "two"}],
            None,
            {},
            {1001: "{one}", 1002: "two"},
        ),
    ],
)
async def test_the_letter_is_a_template_or_fields_or_in_each_row(
    opened: OpenGate,
    clock: VirtualClock,
    telegram: SimulatedTelegram,
    rows: list[Any],
    letter: Any,  # noqa: ANN401
    fields: dict[str, Any],
    texts: dict[int, str],
) -> None:
    async with opened() as gate, gate.worker():
        await gate.start_broadcast("sale", rows, letter, **fields)
        await until_ended(gate, clock)
    assert sent(telegram) == texts


async def test_only_what_the_letter_uses_is_stored(opened: OpenGate, audiences: MemoryAudiences) -> None:
    async with opened() as gate:
        rows = [{"chat_id": "@Harbour", "name": "Ann", "phone": "+44"}, {"chat_id": 7, "name": "Bob"}]
        await gate.start_broadcast("sale", rows, HELLO)
        [audience] = await audiences.all()
        stored = await audiences.page(audience.id, 0, 9)
    assert [row.chat for row in stored] == ["@harbour", "7"]
    assert [row.fields for row in stored] == ['{"name":"Ann","chat_id":"@Harbour"}', '{"name":"Bob"}']


@pytest.mark.parametrize(
    ("rows", "letter", "bad"),
    [
        (
            [
                1001,
                {"chat_id": "12x"},
                {"id": 5},
                {"chat_id": " "},
                {"chat_id": True},
                3.5,
                "@harbour",
                "@Harbour",
            ],
            "Hi",
            {
                2: "chat_id '12x' is no chat: give a number other than 0, or an @name",
                3: "there is no field 'chat_id': the fields are id",
                4: "chat_id is empty",
                5: "chat_id is neither text nor a number",
                6: "a row is a chat, or a mapping with chat_id and other fields: got float",
                8: "chat_id @harbour was in an earlier line: one message for each chat is allowed",
            },
        ),
        (
            [{"chat_id": 1, "name": "x"}, {"chat_id": 2, "name": ""}, {"chat_id": 3, "name": "y" * 5000}],
            HELLO,
            {2: "name is empty", 3: "text has 5007 characters: Telegram takes at most 4096; split it"},
        ),
        ([{"chat_id": 1, "name": "x"}], None, {1: "there is no field 'text': the fields are chat_id, name"}),
    ],
)
async def test_a_bad_row_is_named_and_nothing_begins(
    opened: OpenGate, audiences: MemoryAudiences, rows: list[Any], letter: str | None, bad: dict[int, str]
) -> None:
    async with opened() as gate:
        with pytest.raises(BadRowsError) as refused:
            await gate.start_broadcast("sale", rows, letter)

        assert dict(refused.value.rows) == bad
        assert refused.value.bad == len(bad)
        first = min(bad)
        assert (
            f"{len(bad)} of {len(rows)} rows are bad, and nothing was sent. Row {first}: {bad[first]}"
            == str(refused.value)
        )
        assert await gate.campaigns() == []
        assert (await gate.stats()).waiting == 0
    assert await audiences.all() == []


async def test_many_bad_rows_are_counted_and_the_first_of_them_named(opened: OpenGate) -> None:
    async with opened() as gate:
        with pytest.raises(BadRowsError) as refused:
            await gate.start_broadcast("sale", [0] * 300, "Hi")
    assert refused.value.bad == 300
    assert [number for number, _ in refused.value.rows] == list(range(1, 21))


async def test_a_chat_that_was_stored_in_an_earlier_step_is_found_twice(opened: OpenGate) -> None:
    async with opened() as gate:
        with pytest.raises(BadRowsError) as refused:
            await gate.start_broadcast("sale", [*range(1, 100), 7, 99], "Hi")
    assert [number for number, _ in refused.value.rows] == [100, 101]


async def only_once(rows: list[Any]) -> AsyncIterator[Any]:
    for row in rows:
        yield row
    raise StoreAwayError("the line was cut")


@pytest.mark.parametrize(
    ("rows", "letter", "fields", "text"),
    [
        ([], "Hi", {}, "nobody is in the audience"),
        ({"chat_id": 1}, "Hi", {}, "an audience is an iterable of chats or rows"),
        ([1], "Hi {", {}, "the template has a single {"),
        ([1], lambda row: "Hi", {}, "functions of a row are for gate.broadcast"),  # noqa: ARG005
        (
            [1],
            {"photo": File(content=b"x", name="a.png")},
            {"method": "sendPhoto"},
            "give files by their file_id",
        ),
        ([1], None, {"text": "Hi"}, "each row has its own text: leave out the text for all"),
        ([1], "Hi", {"chat_id": 1}, "chat_id cannot be given for all"),
        ([1], "Hi", {"bot": 43}, "bot 43 is not known"),
        ([1], "Hi", {"remember": -1}, "remember is how many seconds nobody gets it twice"),
        (only_once([1, 2]), "Hi", {}, "the line was cut"),
    ],
)
async def test_what_cannot_be_sent_is_refused_and_leaves_nothing_behind(
    opened: OpenGate,
    audiences: MemoryAudiences,
    rows: Any,  # noqa: ANN401
    letter: Any,  # noqa: ANN401
    fields: dict[str, Any],
    text: str,
) -> None:
    async with opened() as gate:
        with pytest.raises((BadInputError, StoreAwayError), match=text):
            await gate.start_broadcast("sale", rows, letter, **fields)
        assert await gate.campaigns() == []
    assert await audiences.all() == []


async def test_an_uploaded_file_is_sent_to_and_its_bad_lines_are_named(
    opened: OpenGate, clock: VirtualClock, telegram: SimulatedTelegram
) -> None:
    async def upload(text: str) -> AsyncIterator[bytes]:
        for at in range(0, len(text), 7):
            yield text[at : at + 7].encode()

    async with opened() as gate, gate.worker():
        async with received_audience(upload("chat_id;name\n1001;Ann\n\n12x;Bob\n"), "people.csv") as file:
            with pytest.raises(
                BadRowsError, match=r"1 of 2 lines are bad.* Line 4: chat_id '12x' is no chat"
            ):
                await gate.start_broadcast("sale", file, HELLO)
        async with received_audience(upload('{"chat_id": 1001, "name": "Ann"}\n'), "people.ndjson") as file:
            record = await gate.start_broadcast("sale", file, HELLO)
        await until_ended(gate, clock)
    assert record.audience == "people.ndjson"
    assert sent(telegram) == {1001: "Hello Ann!"}


async def test_the_same_request_again_returns_the_broadcast_that_runs(
    opened: OpenGate, clock: VirtualClock, telegram: SimulatedTelegram, audiences: MemoryAudiences
) -> None:
    async with opened() as gate, gate.worker():
        first = await gate.start_broadcast("sale", people(300), HELLO, expires_in=3600)
        await clock.sleep(3)
        again = await gate.start_broadcast("sale", people(300), HELLO, expires_in=3600)
        assert (again.state, again.started_at) == ("running", first.started_at)
        assert len(await audiences.all()) == 1
        await until_ended(gate, clock)
    assert arrived(telegram) == Counter(range(1001, 1301))


async def test_requests_at_the_same_time_are_one_broadcast(
    opened: OpenGate, clock: VirtualClock, telegram: SimulatedTelegram
) -> None:
    async with opened() as one, opened() as other, one.worker():
        found = await asyncio.gather(
            *(gate.start_broadcast("sale", people(100), HELLO) for gate in (one, other, one))
        )
        assert {(record.name, record.state, record.total) for record in found} == {("sale", "running", 100)}
        await until_ended(one, clock)
    assert arrived(telegram) == Counter(range(1001, 1101))


@pytest.mark.parametrize(
    ("rows", "letter", "fields"),
    [(people(299), HELLO, {}), (people(300), "Bye {name}!", {}), (people(300), HELLO, {"priority": "high"})],
)
async def test_another_request_under_the_name_of_one_that_runs_is_a_conflict(
    opened: OpenGate, audiences: MemoryAudiences, rows: list[Any], letter: str, fields: dict[str, Any]
) -> None:
    async with opened() as gate:
        await gate.start_broadcast("sale", people(300), HELLO)
        with pytest.raises(ConflictError, match="broadcast 'sale' has not ended, and has other rows"):
            await gate.start_broadcast("sale", rows, letter, **fields)
    assert [one.rows for one in await audiences.all()] == [300]


async def test_after_its_end_the_name_is_free_and_goes_to_those_who_did_not_get_it(
    opened: OpenGate, clock: VirtualClock, telegram: SimulatedTelegram
) -> None:
    async with opened() as gate, gate.worker():
        await gate.start_broadcast("sale", people(50), HELLO)
        await until_ended(gate, clock)
        await gate.start_broadcast("sale", people(60), HELLO)
        ended = await until_ended(gate, clock)
    assert (ended.counts["delivered"], ended.counts["earlier"]) == (60, 50)
    assert arrived(telegram) == Counter(range(1001, 1061))


async def test_a_name_is_free_at_once_when_its_broadcast_was_cancelled(
    opened: OpenGate, audiences: MemoryAudiences
) -> None:
    async with opened() as gate:
        await gate.start_broadcast("sale", people(300), HELLO)
        await gate.cancel_campaign("sale")
        assert (await gate.start_broadcast("sale", people(10), "Bye")).state == "running"
    assert [one.rows for one in await audiences.all()] == [10]


async def test_a_broadcast_of_an_application_keeps_its_name(opened: OpenGate) -> None:
    async with opened() as gate:
        await gate.broadcast("sale", people(300), HELLO)
        with pytest.raises(ConflictError, match="'sale' is running, and was not begun with these rows"):
            await gate.start_broadcast("sale", people(300), HELLO)


async def test_a_broadcast_whose_process_was_killed_goes_on_in_another(
    opened: OpenGate, clock: VirtualClock, telegram: SimulatedTelegram, audiences: MemoryAudiences
) -> None:
    async with opened() as gate, gate.worker():
        await gate.start_broadcast("sale", people(200), HELLO)
        await clock.sleep(4)
        await kill(gate)
    assert 0 < arrived(telegram).total() < 200

    async with opened() as gate, gate.worker(), gate.keep_campaigns():
        assert (await gate.campaign("sale")).state == "running"  # nobody knows yet
        ended = await until_ended(gate, clock)
    assert (ended.state, ended.counts["delivered"]) == ("finished", 200)
    assert arrived(telegram) == Counter(range(1001, 1201))
    assert await audiences.all() == []


async def test_one_that_was_stopped_well_goes_on_at_once(
    opened: OpenGate, clock: VirtualClock, telegram: SimulatedTelegram
) -> None:
    async with opened() as gate, gate.worker():
        await gate.start_broadcast("sale", people(90), HELLO)
        await clock.sleep(1)
    async with opened() as gate, gate.worker(), gate.keep_campaigns():
        await clock.sleep(1)
        assert gate.core.campaigns.is_running(BOT, "sale")
        await until_ended(gate, clock)
    assert arrived(telegram) == Counter(range(1001, 1091))


async def test_the_same_request_resumes_one_that_was_stopped(
    opened: OpenGate, clock: VirtualClock, telegram: SimulatedTelegram
) -> None:
    async with opened() as gate, gate.worker():
        await gate.start_broadcast("sale", people(90), HELLO)
        await clock.sleep(1)
    async with opened() as gate, gate.worker():
        assert (await gate.start_broadcast("sale", people(90), HELLO)).state == "running"
        await until_ended(gate, clock)
    assert arrived(telegram) == Counter(range(1001, 1091))


async def test_what_was_accepted_begins_even_if_its_process_was_killed_before(
    opened: OpenGate, clock: VirtualClock, telegram: SimulatedTelegram, audiences: MemoryAudiences
) -> None:
    terms = AudienceTerms(bot=BOT, name="sale", audience="a list", letter=HELLO, remember=3600.0)
    kept = StoredAudiences(lambda: audiences, _true, clock)
    await audiences.complete(*await kept.add(terms, people(40), {}))

    async with opened() as gate, gate.worker(), gate.keep_campaigns():
        await clock.sleep(BEGIN_AFTER - 1)
        assert await gate.campaigns() == []  # its process may be about to begin it
        await clock.sleep(TEND_EVERY)
        await until_ended(gate, clock)
    assert arrived(telegram) == Counter(range(1001, 1041))


async def _true() -> bool:
    return True


async def test_a_pause_survives_the_crash(
    opened: OpenGate, clock: VirtualClock, telegram: SimulatedTelegram
) -> None:
    async with opened() as gate:
        await gate.start_broadcast("sale", people(200), HELLO)
        await gate.pause_campaign("sale")
        await kill(gate)
    async with opened() as gate, gate.worker(), gate.keep_campaigns():
        await clock.sleep(60)
        assert (await gate.campaign("sale")).state == "paused"
        held = arrived(telegram).total()
        await gate.resume_campaign("sale")
        await until_ended(gate, clock)
    assert held < 200
    assert arrived(telegram) == Counter(range(1001, 1201))


async def test_of_two_keepers_one_resumes_it(
    opened: OpenGate, clock: VirtualClock, telegram: SimulatedTelegram
) -> None:
    async with opened() as gate:
        await gate.start_broadcast("sale", people(300), HELLO)
        await kill(gate)
    async with opened() as one, one.worker(), opened() as other, one.keep_campaigns(), other.keep_campaigns():
        await clock.sleep(LOOK_EVERY + 3)
        running = [gate.core.campaigns.is_running(BOT, "sale") for gate in (one, other)]
        assert sorted(running) == [False, True]
        await clock.sleep(3 * LOOK_EVERY)
        assert [gate.core.campaigns.is_running(BOT, "sale") for gate in (one, other)].count(True) <= 1
    assert arrived(telegram).total() == len(arrived(telegram))


async def test_one_that_another_process_runs_is_left_alone(opened: OpenGate, clock: VirtualClock) -> None:
    async with opened() as gate, opened() as other, other.keep_campaigns():
        await gate.start_broadcast("sale", people(300), HELLO)
        await clock.sleep(5 * LOOK_EVERY)
        assert not other.core.campaigns.is_running(BOT, "sale")


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE users (id INTEGER)")
        connection.executemany("INSERT INTO users VALUES (?)", [(1001 + n,) for n in range(90)])
    return path


async def test_a_query_is_resumed_by_a_keeper_once_its_database_is_back(
    opened: OpenGate,
    clock: VirtualClock,
    telegram: SimulatedTelegram,
    users: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with opened() as gate, gate.worker():
        await gate.broadcast(
            "sale", sql(f"sqlite:///{users}", "SELECT id AS chat_id FROM users"), "Hi", ahead=5
        )
        await clock.sleep(1)
    moved = await asyncio.to_thread(users.rename, users.with_name("moved.db"))

    async with opened() as gate, gate.worker(), gate.keep_campaigns():
        with caplog.at_level(logging.WARNING, "tidegate.broadcast"):
            await clock.sleep(5 * 60)
        assert (await gate.campaign("sale")).state == "stopped"
        refusals = [line for line in caplog.messages if "sale was not resumed" in line]
        assert len(refusals) == 1
        assert "there is no such file" in refusals[0]
        await asyncio.to_thread(moved.rename, users)
        await clock.sleep(60)
        await until_ended(gate, clock)
    assert arrived(telegram) == Counter(range(1001, 1091))


async def test_while_the_database_is_away_a_broadcast_waits_and_then_goes_on(
    opened: OpenGate, clock: VirtualClock, telegram: SimulatedTelegram, audiences: MemoryAudiences
) -> None:
    async with opened() as gate, gate.worker():
        await gate.start_broadcast("sale", people(4 * PAGE), HELLO, ahead=30)
        audiences.away = True
        await clock.sleep(120)
        assert (await gate.campaign("sale")).state == "running"
        assert PAGE <= arrived(telegram).total() < 4 * PAGE
        audiences.away = False
        assert (await until_ended(gate, clock)).state == "finished"
    assert arrived(telegram) == Counter(range(1001, 1001 + 4 * PAGE))


async def test_rows_of_a_forgotten_chat_are_not_sent_to(
    opened: OpenGate, clock: VirtualClock, telegram: SimulatedTelegram, audiences: MemoryAudiences
) -> None:
    async with opened() as gate:
        await gate.start_broadcast("sale", people(3 * PAGE), HELLO, ahead=10)
        last = 1000 + 3 * PAGE
        assert await gate.core.audiences.count(last) == 1
        assert await gate.core.audiences.forget(last, BOT, rewrite=True) == 1
        assert audiences.rewritten == 1
        async with gate.worker():
            ended = await until_ended(gate, clock)
    assert (ended.state, ended.counts["delivered"]) == ("finished", 3 * PAGE - 1)
    assert last not in arrived(telegram)


async def test_what_nobody_needs_any_more_is_deleted_after_some_time(
    opened: OpenGate, clock: VirtualClock, audiences: MemoryAudiences
) -> None:
    def terms(name: str, bot: int = 42) -> AudienceTerms:
        return AudienceTerms(bot=BotId(bot), name=name, audience="a list", letter="Hi", remember=3600.0)

    upload = await audiences.add(terms("upload"))
    for name, bot in (("lost", 42), ("of another store", 43)):
        orphan = await audiences.add(terms(name, bot))
        await audiences.complete(orphan, 0, "")
        await audiences.begin(orphan)
    ended = await audiences.add(terms("ended"))
    await audiences.end(ended)

    async def left_after(seconds: float) -> set[str]:
        await clock.sleep(seconds)
        async with opened() as gate:
            await gate.campaigns(resume=True)
        return {one.terms.name for one in await audiences.all()}

    assert await left_after(1) == {"upload", "lost", "of another store"}
    await clock.sleep(UPLOAD_GONE_AFTER - 60)
    await audiences.append(upload, [])  # it is still being uploaded
    assert await left_after(120) == {"upload", "lost", "of another store"}
    assert await left_after(UPLOAD_GONE_AFTER) == {"lost", "of another store"}
    assert await left_after(ORPHAN_KEPT) == {"of another store"}


async def test_rows_of_one_that_was_cancelled_without_its_process_are_deleted(
    opened: OpenGate, clock: VirtualClock, audiences: MemoryAudiences
) -> None:
    async with opened() as gate:
        await gate.start_broadcast("sale", people(300), HELLO)
        await kill(gate)
    await clock.sleep(GONE_AFTER + 1)
    async with opened() as gate:
        assert (await gate.cancel_campaign("sale")).state == "cancelled"
        async with gate.keep_campaigns():
            await clock.sleep(1)
    assert await audiences.all() == []


async def test_a_keeper_that_cannot_reach_the_database_says_so_and_goes_on(
    opened: OpenGate, clock: VirtualClock, telegram: SimulatedTelegram, audiences: MemoryAudiences
) -> None:
    async with opened() as gate:
        await gate.start_broadcast("sale", people(90), HELLO)
        await kill(gate)
    audiences.away = True
    async with opened() as gate, gate.worker(), gate.keep_campaigns():
        await clock.sleep(60)
        assert any("broadcasts that were left wait" in reason for reason in gate.health().reasons)
        audiences.away = False
        await clock.sleep(60)
        assert gate.health().ready
        await until_ended(gate, clock)
    assert arrived(telegram) == Counter(range(1001, 1091))


async def test_rows_that_are_in_another_database_are_not_taken_for_an_end(
    opened: OpenGate, clock: VirtualClock, audiences: MemoryAudiences
) -> None:
    async with opened() as gate:
        await gate.start_broadcast("sale", people(90), HELLO)
        await kill(gate)
        record = await gate.campaign("sale")
        await gate.core.store.campaigns.save(replace(record, stored=replace(record.stored, audience=99)))
    async with opened() as gate, gate.keep_campaigns():
        await clock.sleep(60)
        assert (await gate.campaign("sale")).state == "stopped"
        assert len(await audiences.all()) == 1


async def test_a_database_that_is_away_keeps_no_other_broadcast_from_being_resumed(
    opened: OpenGate,
    clock: VirtualClock,
    telegram: SimulatedTelegram,
    audiences: MemoryAudiences,
    users: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with opened() as gate:
        await gate.start_broadcast("a", people(1), HELLO)
        await gate.broadcast("b", sql(f"sqlite:///{users}", "SELECT id AS chat_id FROM users"), "Hi", ahead=5)
    audiences.away = True
    async with opened() as gate, gate.worker(), gate.keep_campaigns():
        with caplog.at_level(logging.WARNING, "tidegate.broadcast"):
            await until_ended(gate, clock, "b")
        assert any("broadcasts that were left wait" in reason for reason in gate.health().reasons)
    assert len([line for line in caplog.messages if "stored audiences are looked after" in line]) <= 1
    assert set(range(1002, 1091)) <= arrived(telegram).keys()


async def test_a_database_that_no_broadcast_needs_is_no_trouble(
    opened: OpenGate, clock: VirtualClock, audiences: MemoryAudiences, caplog: pytest.LogCaptureFixture
) -> None:
    audiences.away = True
    async with opened() as gate, gate.worker(), gate.keep_campaigns():
        with caplog.at_level(logging.WARNING, "tidegate.broadcast"):
            await clock.sleep(5 * TEND_EVERY)
        assert gate.health().ready
    assert [line for line in caplog.messages if "stored audiences" in line] == [
        "stored audiences are looked after when this is mended: the database is away"
    ]
