"""`tidegate reminders import` from file to report, in virtual time."""

import asyncio
import io
import json
from typing import Any

import pytest

from tidegate import Tidegate
from tidegate.broadcast.audience_file import AudienceFile
from tidegate.cli.reminders import ImportOrder
from tidegate.cli.reminders.importer import ImportJob, import_reminders
from tidegate.cli.reminders.options import given_options, message_params
from tidegate.errors import BadInputError, StoreAwayError, StoreError
from tidegate.model import BotId
from tidegate.reminders.port import ADD_AT_ONCE, Addition
from tidegate.sim.telegram import SimulatedTelegram
from tidegate.sim.virtual_time import VirtualClock

BOT = BotId(42)
DAILY: dict[str, Any] = {"text": "Drink, {name}!", "at": "09:00", "every": "day", "zone": "Europe/Berlin"}
# Lines of a file with the columns chat_id, name, zone, at and cron, and what is wrong with them.
BAD_LINES = {
    "1002,Bob,Mars/Olympus,,": "'Mars/Olympus' is not a time zone: write one of the IANA database",
    "1003,Eve,Europe/Berln,,": "'Europe/Berln' is not a time zone: Europe/Berlin may be meant",
    "1004,Joe,,25:00,": "'25:00' is not a time of day: write HH:MM, such as 09:00",
    "1005,Kim,,,nonsense": "'nonsense' is not a cron expression: it has 1 fields; write five fields",
    "1006,Lee,,,0 25 * * *": "the hour cannot be '25'",
    ",Zoe,,,": "chat_id is empty",
    "12x,Tom,,,": "chat_id '12x' is no chat",
    "1007,,,,": "name is empty",
    "1001,Ann,,,": "the same reminder is in line 2: remove one of them",
    "1008,Sue,,2020-01-01 09:00,": "the reminder would never fire: 2020-01-01 09:00 in Europe/Berlin is past",
    '1009,"Max,,,': "a quote is not closed",
}
HEADER = "chat_id,name,zone,at,cron\n"
GOOD = f"{HEADER}1001,Ann,,,\n"


class Desk:
    """Where files are imported, again and again into the same gate."""

    def __init__(self, gate: Tidegate, clock: VirtualClock, out: pytest.CaptureFixture[str]) -> None:
        self.gate, self._out = gate, out
        self.job = ImportJob(gate, BOT, asyncio.Event(), clock)
        self.told = ""

    async def run(self, content: str, **written: Any) -> tuple[int, dict[str, Any]]:  # noqa: ANN401  (options)
        """The exit code, and the JSON report."""
        code = await self.show(content, as_json=True, **written)
        lines = [line for line in self.told.splitlines() if line.startswith("{")]
        return code, json.loads(lines[-1])

    async def show(self, content: str, **written: Any) -> int:  # noqa: ANN401
        order = ImportOrder(**{"file": "people.csv", "defaults": DAILY} | written)
        data = content.encode()
        source = AudienceFile(order.file, io.BytesIO(data), size=len(data))
        try:
            return await import_reminders(self.job, order, source)
        finally:
            out, err = self._out.readouterr()
            self.told = err + out

    async def stored(self) -> list[tuple[object, str, str]]:
        return [(one.chat_id, one.zone, one.fields["text"]) for one in await self.gate.reminders.list()]


@pytest.fixture
async def desk(gate: Tidegate, clock: VirtualClock, capsys: pytest.CaptureFixture[str]) -> Desk:
    return Desk(gate, clock, capsys)


def people(count: int) -> str:
    return "chat_id,name\n" + "".join(f"{1000 + i},Person {i}\n" for i in range(count))


async def test_options_are_for_all_lines_and_columns_say_otherwise(desk: Desk, clock: VirtualClock) -> None:
    code, report = await desk.run(
        "chat_id,name,zone,at,days,text\n1001,Ann,,,,\n1002,Bob,Asia/Tokyo,18:30,mon-fri,Bob's own\n"
    )

    assert (code, report["imported"], report["added"], report["passed"]) == (0, 2, 2, True)
    assert await desk.stored() == [
        (1001, "Europe/Berlin", "Drink, Ann!"),
        (1002, "Asia/Tokyo", "Bob's own"),
    ]
    times = [one.next_at for one in await desk.gate.reminders.list()]
    assert [report["first_due_at"], report["last_due_at"]] == sorted(at for at in times if at is not None)
    assert report["first_due_at"] > clock.now()


async def test_json_lines_have_each_their_own_fields(desk: Desk) -> None:
    lines = [
        {"chat_id": 1001, "text": "Weekly", "at": "08:00", "every": "week", "zone": "UTC", "count": 3},
        {"chat_id": "@harbour", "text": "Hourly", "cron": "0 * * * *", "zone": "UTC", "late": "merge"},
    ]
    _, report = await desk.run(
        "".join(json.dumps(line) + "\n" for line in lines), file="people.jsonl", defaults={}
    )

    assert report["imported"] == 2
    weekly, hourly = await desk.gate.reminders.list()
    assert (weekly.count, hourly.chat_id, hourly.late) == (3, "@harbour", "merge")


async def test_imported_reminders_fire(desk: Desk, clock: VirtualClock, telegram: SimulatedTelegram) -> None:
    await desk.run(people(30))
    async with desk.gate.worker():
        await clock.sleep(2 * 86_400)

    assert telegram.report()["accepted"] == 60


async def test_the_same_file_again_changes_nothing_and_resumes_nobody(desk: Desk) -> None:
    await desk.run(people(5))
    await desk.gate.reminders.pause(3)
    before = await desk.gate.reminders.list()

    _, report = await desk.run(people(5))

    assert (report["added"], report["replaced"], report["unchanged"]) == (0, 0, 5)
    assert await desk.gate.reminders.list() == before


async def test_a_corrected_file_adds_what_is_new_and_changes_what_is_the_same_reminder(desk: Desk) -> None:
    await desk.run(people(3))
    await desk.gate.reminders.pause(1)

    _, report = await desk.run(people(4), defaults=DAILY | {"zone": "Asia/Tokyo", "quiet": "22:00-07:00"})

    assert (report["added"], report["replaced"], report["unchanged"]) == (1, 3, 0)
    assert {zone for _, zone, _ in await desk.stored()} == {"Asia/Tokyo"}
    assert [one.paused for one in await desk.gate.reminders.list()] == [True, False, False, False]


async def test_every_third_day_is_the_same_reminder_on_another_day(desk: Desk, clock: VirtualClock) -> None:
    third = DAILY | {"every": "3 days"}
    await desk.run(people(2), defaults=third)
    await clock.sleep(86_400)

    _, report = await desk.run(people(2), defaults=third)

    assert report["unchanged"] == 2


async def test_another_time_or_text_is_another_reminder(desk: Desk) -> None:
    await desk.run(people(2))
    await desk.run(people(2), defaults=DAILY | {"at": "22:00"})
    await desk.run(people(2), defaults=DAILY | {"text": "Sleep, {name}!"})

    assert len(await desk.stored()) == 6


@pytest.mark.parametrize("given", ["a column", "an option"])
async def test_a_key_says_which_reminder_is_replaced(desk: Desk, given: str) -> None:
    if given == "a column":
        first, second = (f"chat_id,name,key\n1001,{name},water\n" for name in ("Ann", "Anna"))
        await desk.run(first)
        _, report = await desk.run(second, defaults=DAILY | {"at": "10:00"})
    else:
        await desk.run("chat_id,name\n1001,Ann\n", key="water-{chat_id}")
        _, report = await desk.run(
            "chat_id,name\n1001,Anna\n", key="water-{chat_id}", defaults=DAILY | {"at": "10:00"}
        )

    assert (report["added"], report["replaced"]) == (0, 1)
    assert await desk.stored() == [(1001, "Europe/Berlin", "Drink, Anna!")]


async def test_nothing_is_imported_if_lines_are_bad_and_each_is_told_with_its_reason(desk: Desk) -> None:
    content = GOOD + "".join(f"{line}\n" for line in BAD_LINES)

    with pytest.raises(BadInputError, match="11 of 12 lines are bad, and nothing was imported"):
        await desk.show(content)

    told = desk.told.splitlines()
    assert len(told) == len(BAD_LINES)
    for number, (line, reason) in enumerate(zip(told, BAD_LINES.values(), strict=True), 3):
        assert line.startswith(f"line {number}: ")
        assert reason in line
    assert await desk.stored() == []


@pytest.mark.parametrize("line", BAD_LINES)
async def test_the_rest_is_imported_if_that_is_asked_for(desk: Desk, line: str) -> None:
    code, report = await desk.run(GOOD + f"{line}\n", skip_bad=True)

    assert (code, report["imported"], report["bad_lines"], report["passed"]) == (0, 1, 1, True)
    assert report["errors"][0]["line"] == 3
    assert BAD_LINES[line] in report["errors"][0]["reason"]
    assert len(await desk.stored()) == 1


@pytest.mark.parametrize(
    ("content", "written", "reason"),
    [
        ("name\nAnn\n", {}, "there is no column 'chat_id' but name"),
        (
            "chat_id,name\n1,A\n",
            {"defaults": {"text": "Hi"}},
            "no column 'zone' but chat_id, name: add it, or",
        ),
        ("chat_id\n1\n", {}, "there is no column 'name' but chat_id: the template asks for {name}"),
        ("chat_id,name\n1,A\n", {"key": "x-{id}"}, "no column 'id' but chat_id, name"),
        ("chat_id,name\n1,A\n", {"key": "x-{"}, "--key: the template has a single {"),
        ("chat_id,name\n1,A\n", {"defaults": DAILY | {"text": "}"}}, "--text: the template has a single }"),
        ("chat_id,name\n", {}, "nobody is in people.csv: nothing was imported"),
        ("", {}, "people.csv is empty"),
    ],
)
async def test_what_is_wrong_with_the_whole_file_is_one_line(
    desk: Desk, content: str, written: dict[str, Any], reason: str
) -> None:
    with pytest.raises(BadInputError) as caught:
        await desk.show(content, **written)

    assert reason in str(caught.value)
    assert desk.told == ""


async def test_a_message_that_could_not_be_sent_is_a_bad_line(desk: Desk) -> None:
    without = {name: value for name, value in DAILY.items() if name != "text"}
    with pytest.raises(BadInputError, match="2 of 2 lines are bad"):
        await desk.show(f"chat_id,text\n1,\n2,{'x' * 5_000}\n", defaults=without)

    assert desk.told.splitlines() == [
        "line 2: text is missing: add a field text, or give --text",
        "line 3: text has 5000 characters: Telegram takes at most 4096; split it",
    ]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"zone": "Europe/Berln"}, "--zone: 'Europe/Berln' is not a time zone: Europe/Berlin may be meant"),
        ({"at": "25:00"}, "--at: '25:00' is not a time of day"),
        ({"cron": "nonsense"}, "--cron: 'nonsense' is not a cron expression"),
        ({"every": "hour"}, "--every: 'hour' is not an interval"),
        ({"days": "mon,xyz"}, "--days: 'xyz' is not a day of the week"),
        ({"date": "31.12.2026"}, "--date: '31.12.2026' is not a date"),
        ({"spread": "soon"}, "--spread: "),
        ({"quiet": "22-7"}, "--quiet: '22-7' is not a range of times"),
        ({"until": "never"}, "--until: 'never' is not a time"),
        ({"expires_in": "0"}, "--expires-in: '0' is not possible"),
        ({"count": "many"}, "--count: 'many' is not a whole number"),
        ({"cron": "0 9 * * *", "at": "09:00"}, "--cron and --at exclude each other: give one"),
        ({"every": "day", "cron": "0 9 * * *"}, "--every and --cron exclude each other: give one"),
    ],
)
def test_a_bad_option_is_named_before_the_file_is_read(options: dict[str, str], reason: str) -> None:
    with pytest.raises(BadInputError) as caught:
        given_options(**options)

    assert str(caught.value).startswith(reason)


def test_good_options_are_passed_on_as_they_are_written() -> None:
    written = {"at": "2026-12-31 09:00", "zone": "UTC", "spread": "08:00-10:00", "count": "3", "late": None}
    assert given_options(**written) == {name: text for name, text in written.items() if text is not None}
    assert given_options(every="week", days="mon") == {"every": "week", "days": "mon"}


async def test_a_dry_run_shows_the_first_reminders_and_stores_nothing(desk: Desk) -> None:
    code = await desk.show(people(100), dry_run=True)

    assert code == 0
    lines = desk.told.splitlines()
    assert lines[0].startswith("to 1000, every day at 09:00 Europe/Berlin, first ")
    assert lines[1] == "  Drink, Person 0!"
    assert lines[-1] == "100 reminders would be imported; nothing was: this is a dry run"
    assert not await desk.gate.reminders.exist()


async def test_ctrl_c_says_what_is_stored_and_the_same_command_goes_on(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, store_all = people(3 * ADD_AT_ONCE), desk.gate.reminders.store_all

    async def interrupted(*args: Any, **options: Any) -> list[Addition]:  # noqa: ANN401
        desk.job.stop.set()
        return await store_all(*args, **options)

    monkeypatch.setattr(desk.gate.reminders, "store_all", interrupted)
    code = await desk.show(content)

    assert code == 130
    assert desk.told.splitlines()[-1] == (
        "Stopped: 1,000 of 3,000 reminders are stored; to go on, run the same command again."
    )
    monkeypatch.undo()
    desk.job.stop.clear()
    _, report = await desk.run(content)
    assert (report["unchanged"], report["added"], report["passed"]) == (1_000, 2_000, True)


async def test_ctrl_c_while_the_file_is_checked_imports_nothing(desk: Desk) -> None:
    desk.job.stop.set()

    assert await desk.show(people(10)) == 130
    assert desk.told == "stopped while checking: nothing was imported\n"
    assert not await desk.gate.reminders.exist()


async def test_a_database_that_goes_away_in_the_middle_is_told_with_what_is_stored(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_all = desk.gate.reminders.store_all
    chunks: list[int] = []

    async def fails_later(*args: Any, **options: Any) -> list[Addition]:  # noqa: ANN401
        chunks.append(1)
        if len(chunks) > 2:
            raise StoreAwayError("the database is away")
        return await store_all(*args, **options)

    monkeypatch.setattr(desk.gate.reminders, "store_all", fails_later)
    with pytest.raises(StoreError) as caught:
        await desk.show(people(3 * ADD_AT_ONCE))

    assert str(caught.value) == (
        "the database is away; 2,000 of 3,000 reminders are stored: to go on, run the same command again"
    )


async def test_a_person_reads_how_many_are_new_and_when_they_are_due(desk: Desk) -> None:
    await desk.show(people(2))
    err, summary, due = desk.told.splitlines()

    assert err == "tidegate: no worker runs, so nothing is sent: start tidegate worker, or your bot"
    assert summary == "Imported 2 reminders in 0.0 s: 2 new."
    assert due.startswith("The next is due ")
    await desk.show(people(2) + "12x,Bob\n", skip_bad=True)
    assert "Imported 2 reminders in 0.0 s: 2 as before." in desk.told
    assert desk.told.endswith("1 bad line was left out: correct them, and run the same command again.\n")


@pytest.mark.parametrize(
    ("column", "meant"),
    [("evry", "every"), ("quiet_hours", "quiet"), ("timezone", "zone"), ("method", "gate.reminders.add")],
)
async def test_a_misspelt_column_is_refused_and_nothing_imported(desk: Desk, column: str, meant: str) -> None:
    content = f"chat_id,name,{column}\n1001,Ann,x\n"
    with pytest.raises(BadInputError, match=f"columns not used: {column}.*{meant}"):
        await desk.show(content)
    assert await desk.stored() == []
    code, report = await desk.run(content, skip_bad=True)
    assert (code, report["imported"], report["unused_columns"]) == (0, 1, [column])


async def test_a_column_that_is_not_used_is_told_and_the_rest_imported(desk: Desk) -> None:
    code, report = await desk.run("chat_id,name,country\n1001,Ann,DE\n")
    assert (code, report["imported"], report["unused_columns"]) == (0, 1, ["country"])
    assert "columns not used: country" in desk.told


async def test_reminders_that_stay_paused_are_counted_and_have_no_due_time(desk: Desk) -> None:
    await desk.run("chat_id,name,key\n1001,Ann,a\n")
    await desk.gate.reminders.pause("a")
    assert await desk.show("chat_id,name,key\n1001,Anna,a\n") == 0
    assert "1 is paused, and stays so" in desk.told
    assert "The next is due" not in desk.told


async def test_the_report_of_a_refused_file_has_the_error(desk: Desk) -> None:
    with pytest.raises(BadInputError, match="1 of 1 lines are bad"):
        await desk.show(f"{HEADER},Zoe,,,\n", as_json=True)
    [report] = [json.loads(line) for line in desk.told.splitlines() if line.startswith("{")]
    assert report["error"].startswith("1 of 1 lines are bad")


async def test_the_command_line_is_told_in_its_own_words(desk: Desk) -> None:
    with pytest.raises(BadInputError, match="--key is empty"):
        await desk.show(GOOD, key="")
    with pytest.raises(BadInputError):
        await desk.show("chat_id,name\n1001,Ann\n", defaults={"text": "Hi", "at": "09:00", "zone": "UTC"})
    assert "give --every day, --days mon,wed" in desk.told
    with pytest.raises(BadInputError, match="method is not possible here"):
        message_params(["method=sendPhoto"])
