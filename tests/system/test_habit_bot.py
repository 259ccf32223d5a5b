"""The habit bot of `examples/`: its real code on real databases, used by simulated people."""

import asyncio
import datetime as dt
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from rich.console import Console
from sqlalchemy import insert, text

from databases import new_database
from habit_bot.bot import build
from habit_bot.config import Config
from habit_bot.journal import Journal, habits, logs, tables
from habit_bot.texts import Phrases
from system.bots.aiogram_shop import serving
from system.bots.scenes import GENEROUS
from system.purchases import presses, says
from system.shops import FAST, TOKEN
from tidegate import BadInputError, Tidegate
from tidegate.cli.demo import habits as demo_module
from tidegate.cli.demo.example_bot import find_bot
from tidegate.cli.demo.habits import FLAWS, HabitDemo, passed, picture, report_table
from tidegate.clock import Clock
from tidegate.database.database import Database
from tidegate.sim.telegram import Person
from tidegate.sim.telegram.http import TelegramServer

SOON = 4  # seconds
clock = Clock()


class Bot:
    """The bot on a folder of its own, and its users."""

    def __init__(self, server: TelegramServer, folder: Path) -> None:
        self.folder = folder
        self._server = server
        self.gate: Tidegate

    def person(self, number: int) -> Person:
        bot = self._server.telegram.world.bot(TOKEN)
        assert bot is not None
        return Person(self._server.telegram, bot, number)

    @asynccontextmanager
    async def runs(self, texts: Path | None = None) -> AsyncIterator[None]:
        """Run while the body does; its files stay."""
        self.gate = Tidegate(self.folder / "tidegate.db")
        config = Config(TOKEN, self._server.url, texts)
        async with serving(*await asyncio.to_thread(build, config, self.gate)):
            yield


@pytest.fixture
async def bot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bot]:
    for name, value in FAST.items():
        monkeypatch.setenv(name, value)
    async with TelegramServer(limits=GENEROUS) as server:
        yield Bot(server, tmp_path)


def soon() -> str:
    """A time of day in UTC."""
    return f"{dt.datetime.fromtimestamp(clock.now() + SOON, dt.UTC):%H:%M:%S}"


async def test_a_habit_is_asked_for_and_done_and_counted(bot: Bot) -> None:
    async with bot.runs():
        ann = bot.person(1001)
        assert (await says(ann, "/start")).startswith("Hello, User 1001!")
        assert (await says(ann, "/zone UTC")).startswith("Your time zone is UTC.")
        time = soon()
        assert await says(ann, f"/add {time} Read a book") == f"Read a book: I will remind you at {time}."

        reminder = await ann.hears(15)
        assert reminder["text"] == "Read a book: done today?"
        assert ann.buttons() == ["done:1", "later:1"]
        done = await presses(ann, "done:1")
        assert done["message_id"] == reminder["message_id"]
        assert done["text"] == "Read a book: done! In a row: 1."
        assert await says(ann, "/week") == "Your last seven days:\nRead a book: 1 of 7"
        assert await says(ann, "/habits") == f"Your habits:\n1. Read a book, {time}. In a row: 1."


async def test_a_habit_can_be_put_off_paused_resumed_and_removed(bot: Bot) -> None:
    async with bot.runs():
        ann = bot.person(1001)
        await says(ann, "/zone UTC")
        await says(ann, f"/add {soon()} Run")
        await ann.hears(15)
        assert (await presses(ann, "later:1"))["text"] == "Run: I will ask again in half an hour."
        [snoozed] = [one for one in await bot.gate.reminders.list(user_id=1001) if one.key == "habit:1"]
        assert snoozed.next_at is not None
        assert 1_700 < snoozed.next_at - clock.now() <= 1_800

        await says(ann, "/habits")
        assert (await presses(ann, "pause:1"))["text"].endswith("In a row: 0. Paused.")
        assert (await presses(ann, "resume:1"))["text"].endswith("In a row: 0.")
        assert (await presses(ann, "remove:1"))["text"].startswith("You have no habits yet.")
        assert [one.key for one in await bot.gate.reminders.list(user_id=1001)] == ["week:1001"]


async def test_windows_and_days_are_understood_and_the_zone_can_be_changed(bot: Bot) -> None:
    async with bot.runs():
        ann = bot.person(1001)
        await says(ann, "/zone Europe/Berlin")
        assert await says(ann, "/add 08:00-10:00 mon-fri Run") == (
            "Run: I will remind you at 08:00-10:00 on mon-fri."
        )
        assert await says(ann, "/add 09:00 Monday blues") == "Monday blues: I will remind you at 09:00."
        await says(ann, "/zone Asia/Tokyo")
        assert {one.zone for one in await bot.gate.reminders.list(user_id=1001)} == {"Asia/Tokyo"}
        assert await says(ann, "/week") == "Your last seven days:\nRun: 0 of 5\nMonday blues: 0 of 7"


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("/zone", "Write your time zone"),
        ("/zone Berln", "That did not work: 'Berln' is not a time zone"),
        ("/add", "Write a time and a name"),
        ("/add Read", "Write a time and a name"),
        ("/add 25:00 Read", "That did not work: '25:00' is not a time of day"),
        (f"/add 09:00 {'x' * 101}", "Write a time and a name"),
        ("hello", "I know /add"),
    ],
)
async def test_bad_input_is_answered_and_keeps_nothing(bot: Bot, command: str, answer: str) -> None:
    async with bot.runs():
        ann = bot.person(1001)
        assert (await says(ann, "/add 09:00 Read")).startswith("First tell me your time zone")
        await says(ann, "/zone UTC")
        assert (await says(ann, command)).startswith(answer)
        assert (await says(ann, "/habits")).startswith("You have no habits yet.")


async def test_nobody_can_press_for_somebody_else(bot: Bot) -> None:
    async with bot.runs():
        ann, bob = bot.person(1001), bot.person(1002)
        for person in (ann, bob):
            await says(person, "/zone UTC")
        await says(ann, "/add 09:00 Read")
        await says(bob, "/add 09:00 Run")
        await says(bob, "/habits")
        journal = Journal(bot.gate)
        assert await journal.habit(1002, 1) is None
        assert (await journal.habit(1002, 2)) is not None


async def test_who_stops_or_blocks_the_bot_is_reminded_no_more(bot: Bot) -> None:
    async with bot.runs():
        ann, bob = bot.person(1001), bot.person(1002)
        for person in (ann, bob):
            await says(person, "/zone UTC")
        await says(ann, "/add 09:00 Read")
        assert (await says(ann, "/stop")).startswith("I have forgotten your habits")
        assert (await says(ann, "/habits")).startswith("First tell me your time zone")

        await says(bob, f"/add {soon()} Run")
        bob.blocks()
        async with clock.timeout(15):
            while await bot.gate.reminders.list():
                await clock.sleep(0.05)


async def test_a_habit_survives_a_restart(bot: Bot) -> None:
    ann = bot.person(1001)
    async with bot.runs():
        await says(ann, "/zone UTC")
        await says(ann, f"/add {soon()} Read")
    async with bot.runs():
        assert (await ann.hears(15))["text"] == "Read: done today?"


async def test_the_week_comes_by_itself(bot: Bot) -> None:
    async with bot.runs():
        ann = bot.person(1001)
        await says(ann, "/zone UTC")
        await says(ann, "/add 09:00 mon,wed Read")
        await bot.gate.reminders.change("week:1001", at=soon(), every="day", days=None)
        assert (await ann.hears(90))["text"] == "Your last seven days:\nRead: 0 of 2"


async def test_texts_can_be_translated(bot: Bot, tmp_path: Path) -> None:
    texts = tmp_path / "texts.toml"
    await asyncio.to_thread(texts.write_text, '[en]\nlost = "Eh?"\n')
    async with bot.runs(texts):
        ann = bot.person(1001)
        assert await says(ann, "what") == "Eh?"
        assert (await says(ann, "/habits")).startswith("First tell me your time zone")


@pytest.mark.parametrize(
    ("line", "reason"),
    [('bye = "x"', "no such text"), ('zone_set = "{zoen}"', "only .*zone.* can be filled")],
)
def test_a_wrong_text_is_named(line: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "texts.toml"
    path.write_text(f"[en]\n{line}\n")
    with pytest.raises(BadInputError, match=reason):
        Phrases(path)


@pytest.mark.parametrize("token", ["", "abc", "42"])
def test_a_token_that_is_none_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(BadInputError, match="set TELEGRAM_BOT_TOKEN") as refused:
        Config.read({"TELEGRAM_BOT_TOKEN": token})
    assert "abc" not in str(refused.value)


async def test_the_week_is_read_from_the_replica_and_all_else_where_it_was_written(
    bot: Bot, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    primary, replica = await new_database(postgres_url), await new_database(postgres_url)
    monkeypatch.setenv("DATABASE_URL", primary)
    monkeypatch.setenv("DATABASE_REPLICA_URL", replica)
    copy = Database(replica)
    await copy.open(upgrade=False)
    row = {"user_id": 1001, "name": "Copy", "reminder_time": "09:00", "days": "", "weekdays": "0123456"}
    async with copy.write() as transaction:
        await transaction.run(tables.create_all)
        await transaction.execute(insert(habits).values(row))
    await copy.close()
    async with bot.runs():
        ann = bot.person(1001)
        await says(ann, "/zone UTC")
        await says(ann, "/add 09:00 Read")
        assert (await says(ann, "/habits")).startswith("Your habits:\n1. Read,")
        assert await says(ann, "/week") == "Your last seven days:\nCopy: 0 of 7"


async def test_questions_about_one_user_are_answered_by_the_indexes(postgres_url: str) -> None:
    database = Database(await new_database(postgres_url))
    await database.open()
    since = dt.date(2026, 1, 1)
    try:
        async with database.write() as transaction:
            await transaction.run(tables.create_all)
            await transaction.execute(
                insert(habits),
                [
                    {"user_id": user, "name": "Read", "reminder_time": "09:00", "days": "", "weekdays": "01"}
                    for user in range(5_000)
                ],
            )
            await transaction.execute(
                insert(logs),
                [
                    {"habit_id": user + 1, "log_date": since + dt.timedelta(day), "user_id": user}
                    for user in range(5_000)
                    for day in range(4)
                ],
            )
            await transaction.execute(text("ANALYZE habits, habit_logs"))
        async with database.read() as transaction:
            for query, index in (
                ("SELECT * FROM habits WHERE user_id = 7 ORDER BY reminder_time", "ix_habits_user_time"),
                (
                    "SELECT * FROM habit_logs WHERE user_id = 7 AND log_date >= '2026-01-02'",
                    "ix_habit_logs_user_date",
                ),
            ):
                plan = str(await transaction.rows(text(f"EXPLAIN {query}")))
                assert index in plan
    finally:
        await database.close()


async def test_the_demo_reminds_everybody_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_module, "HEAD_START", 4.0)

    def prepare() -> HabitDemo:
        return HabitDemo(find_bot("habit_bot.bot"), users=5, seed=1, folder=str(tmp_path))

    demo = await asyncio.to_thread(prepare)
    await demo.run(asyncio.Event())
    report = demo.report()
    assert {name: report[name] for name in ("users", "reminded", "done", "delivered")} == {
        "users": 5,
        "reminded": 5,
        "done": 5,
        "delivered": 5,
    }
    assert [report[name] for name in FLAWS] == [0] * len(FLAWS)
    console = Console(width=80)
    with console.capture() as shown:
        console.print(picture(demo), report_table(report))
    said = " ".join(shown.get().split())
    assert f"no 429: {'met' if report['passed'] else 'missed'}." in said  # by how fast this machine is


@pytest.mark.parametrize(
    "flaw",
    [{"done": 4}, {"refused": 1}, {"doubled": 1}, {"lost": 1}, {"p99_ms": 1_001.0}, {"late_max_ms": 3e4}],
)
def test_the_demo_fails_if_somebody_was_not_served(flaw: dict[str, float]) -> None:
    good = {"users": 5, "done": 5, "p99_ms": 90.0, "late_max_ms": 900.0, **dict.fromkeys(FLAWS, 0)}
    assert passed(good)
    assert not passed(good | flaw)
