"""The samples of the how-tos on reminders, run unchanged against the simulator."""

import asyncio
import datetime as dt
import re
import shlex
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from apscheduler.schedulers.background import BackgroundScheduler  # type: ignore[import-untyped]

from system.bots.scenes import GENEROUS
from system.operators import Desk
from system.shops import FAST, TOKEN, Street
from system.snippets import HOWTOS, blocks, programs, read, run
from tidegate import Tidegate
from tidegate.clock import Clock
from tidegate.sim.telegram.http import TelegramServer

REMINDERS, APSCHEDULER, JOBQUEUE = "send-reminders.md", "from-apscheduler.md", "from-ptb-jobqueue.md"
PAGES = (REMINDERS, APSCHEDULER, JOBQUEUE)
SOON = 5  # seconds
_COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_TABLE = re.compile(r"^```csv\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, value in FAST.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def soon() -> str:
    """A time of day in UTC."""
    return f"{dt.datetime.fromtimestamp(Clock().now() + SOON, dt.UTC):%H:%M:%S}"


@pytest.mark.parametrize("library", ["aiogram", "ptb"])
async def test_who_asks_for_it_is_reminded(library: str, workplace: Path) -> None:
    program = (await asyncio.to_thread(programs, REMINDERS))[library == "ptb"]
    async with TelegramServer(limits=GENEROUS) as server:
        ann = Street(server, workplace, library).person(1001)
        async with run(program, TOKEN, server):
            ann.says("/remind 25:00 UTC")
            assert (await ann.hears(10))["text"].startswith("That did not work: '25:00' is not a time of day")
            ann.says(f"/remind {soon()} UTC")
            assert (await ann.hears(10))["text"] == "I will remind you."
            assert (await ann.hears(15))["text"] == "Drink a glass of water!"
            ann.says("/stop")
            assert (await ann.hears(10))["text"] == "No more water."


async def test_the_bot_that_had_a_job_queue_reminds(workplace: Path) -> None:
    _, after = await asyncio.to_thread(programs, JOBQUEUE)
    async with TelegramServer(limits=GENEROUS) as server:
        ann = Street(server, workplace, "ptb").person(1001)
        async with run(after, TOKEN, server):
            ann.says(f"/remind {soon()}")
            assert (await ann.hears(10))["text"] == "I will remind you."
            assert (await ann.hears(15))["text"] == "Drink a glass of water!"


class Page:
    """The samples of a how-to that are no programs, and the names that they have made so far."""

    def __init__(self, name: str, shown: list[str], **names: object) -> None:
        self._name, self._shown = name, [block for block in shown if "run_polling(" not in block]
        self.names: dict[str, Any] = names

    async def run(self, word: str) -> None:
        """Run the first that has this word."""
        block = next(block for block in self._shown if word in block)
        made = eval(read(block, self._name), self.names)  # noqa: S307  (our own docs)
        if made is not None:
            await made


@pytest.fixture
async def here() -> AsyncIterator[SimpleNamespace]:
    """A gate that delivers to a simulator, and what the simulator got."""
    async with TelegramServer(limits=GENEROUS) as server:
        gate = Tidegate("memory://")
        gate.add_bot(TOKEN, api_url=server.url)

        def told() -> list[str | None]:
            return [entry.text for entry in server.telegram.request_log.log]

        async with gate, gate.worker():
            yield SimpleNamespace(gate=gate, told=told)


async def page(name: str, here: SimpleNamespace, **names: object) -> Page:
    return Page(name, await asyncio.to_thread(blocks, name), gate=here.gate, **names)


async def fires(here: SimpleNamespace, key: str, text: str) -> None:
    """The reminder with this key is due in a moment."""
    await here.gate.reminders.snooze(key, dt.timedelta(seconds=0.2))
    await until(lambda: text in here.told())


async def until(came: Callable[[], bool]) -> None:
    clock = Clock()
    async with clock.timeout(10):
        while not came():
            await clock.sleep(0.02)


async def test_reminders_are_added_changed_and_made_by_a_handler(here: SimpleNamespace) -> None:
    async def open_tasks(_chat: int) -> int:
        return 3

    shown = await page(REMINDERS, here, open_tasks=open_tasks)

    await shown.run("timedelta")
    await shown.run("@gate.reminders.handler")

    assert [one.key for one in shown.names["mine"]] == ["stand-up-1001"]
    await fires(here, "stand-up-1001", "Stand up, and open the window!")
    await fires(here, "tasks-1001", "You have 3 open tasks.")


async def test_a_job_of_apscheduler_becomes_a_reminder(here: SimpleNamespace) -> None:
    async def forecast(_user: int) -> str:
        return "sunny"

    shown = await page(APSCHEDULER, here, forecast=forecast)

    await shown.run("async def add_user")
    await shown.names["add_user"](1001)
    await shown.run("@gate.reminders.handler")
    await shown.names["add_forecast"](1001)

    water = await here.gate.reminders.get("water-1001")
    assert (water.late, water.spread.seconds) == ("merge", 600)
    await fires(here, "water-1001", "Drink a glass of water!")
    await fires(here, "weather-1001", "Today: sunny")


async def test_reminders_become_jobs_of_apscheduler_again(here: SimpleNamespace) -> None:
    added: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    recorder = SimpleNamespace(add_job=lambda *given, **options: added.append((given, options)))
    shown = await page(APSCHEDULER, here, scheduler=recorder, send_reminder=print)
    await shown.run("async def add_user")
    await shown.names["add_user"](1001)

    await shown.run("async def go_back")
    await shown.names["go_back"]()

    assert await here.gate.reminders.list() == []
    [(given, options)] = added
    [job] = await asyncio.to_thread(jobs_of, given, options)  # which reads the zone from a file
    assert (job.id, job.args, str(job.trigger.timezone)) == ("water-1001", (1001,), "Europe/Berlin")
    assert f"{job.next_run_time:%H:%M}" == "09:00"


def jobs_of(given: tuple[Any, ...], options: dict[str, Any]) -> list[Any]:
    scheduler = BackgroundScheduler()
    scheduler.start(paused=True)
    scheduler.add_job(*given, **options)
    jobs: list[Any] = scheduler.get_jobs()
    scheduler.shutdown()
    return jobs


async def test_a_callback_of_the_job_queue_becomes_a_handler(here: SimpleNamespace) -> None:
    async def streak_of(_user: int) -> int:
        return 12

    shown = await page(JOBQUEUE, here, streak_of=streak_of)
    await shown.run("@gate.reminders.handler")
    await shown.names["add_streak"](1001)

    await fires(here, "streak-1001", "12 days in a row!")


def test_jobs_of_a_scheduler_are_exported_and_imported(tmp_path: Path) -> None:
    names: dict[str, Any] = {"scheduler": BackgroundScheduler(timezone="Europe/Berlin")}
    export = next(block for block in blocks(APSCHEDULER) if "def export" in block)
    exec(read(export, APSCHEDULER), names)  # noqa: S102  (our own docs)
    names["scheduler"].start(paused=True)
    for chat in (1001, 1002):
        names["scheduler"].add_job(print, "cron", hour=9, args=[chat], id=f"water-{chat}")
    names["export"](str(tmp_path / "jobs.csv"))
    names["scheduler"].shutdown()

    desk = begun(tmp_path)
    for command in commands(APSCHEDULER):
        assert desk.quickly(*command)[0] == 0

    found = desk.told("reminders", "list")["reminders"]
    assert [(one["chat_id"], one["key"], one["zone"]) for one in found] == [
        (1001, "water-1001", "Europe/Berlin"),
        (1002, "water-1002", "Europe/Berlin"),
    ]
    assert {one["schedule"]["at"] for one in found} == {"09:00:00"}


def test_every_command_that_the_page_shows_does_what_it_says(tmp_path: Path) -> None:
    [table] = _TABLE.findall((HOWTOS / REMINDERS).read_text("utf-8"))
    (tmp_path / "people.csv").write_text(table)
    desk = begun(tmp_path)

    for command in commands(REMINDERS):
        code, _, err = desk.quickly(*command)
        assert code == 0, (command, err)

    (tmp_path / "people.csv").write_text(table.replace("Tokyo", "Tokio"))
    code, _, err = desk.quickly("reminders", "import", "people.csv", "--text", "{name}", "--every", "day")
    assert code == 2
    assert err in (HOWTOS / REMINDERS).read_text("utf-8")


def begun(folder: Path) -> Desk:
    desk = Desk(folder, "http://127.0.0.1:1")
    desk.begin()
    return desk


def commands(name: str) -> list[list[str]]:
    """The commands of Tidegate that a page shows."""
    lines = "".join(_COMMANDS.findall((HOWTOS / name).read_text("utf-8"))).splitlines()
    return [shlex.split(line)[1:] for line in lines if line.startswith("tidegate ")]


@pytest.mark.parametrize("name", PAGES)
def test_what_the_pages_show_is_python(name: str) -> None:
    for block in blocks(name):
        read(block, name)
