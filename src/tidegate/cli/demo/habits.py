"""`tidegate demo habits`: the bot of examples/habit_bot, its users, and what they measured."""

import asyncio
import datetime as dt
import logging
import random
import tempfile
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tidegate.cli import loop, terminal
from tidegate.cli.demo.example_bot import find_bot
from tidegate.clock import Clock
from tidegate.errors import TidegateError
from tidegate.gate import Tidegate
from tidegate.reminders.occurrences import all_zones, time_zone
from tidegate.settings import Settings
from tidegate.sim.polling.simulation import quantile
from tidegate.sim.telegram import Faults, Latency, Limits, Person
from tidegate.sim.telegram.entities import Json
from tidegate.sim.telegram.http import TelegramServer
from tidegate.tasks import BackgroundTasks

TOKEN: Final = "42:demo"  # noqa: S105  (of a bot that exists in the simulator only)
EACH_WAY: Final = Latency(5, 40)
FIRST: Final = 1_000_001
ZONES: Final = ("Europe/Berlin", "America/New_York", "Asia/Kolkata", "Asia/Tokyo", "America/Sao_Paulo")
COMING: Final = 10.0  # people in a second: with two messages each, below Telegram's 30
HEAD_START: Final = 10.0  # seconds for the last of them
THINKS: Final = (0.5, 6.0)  # seconds from a reminder to the button
READ_SECONDS: Final = 600.0  # longer than any run
LIMIT: Final = 30.0  # messages in a second
REMNANT: Final = 1.0  # seconds after the end in which doubled messages would arrive
REPLIES_WITHIN: Final = 1_000.0  # milliseconds, for 99 of 100 replies
SPARE: Final = 10.0  # seconds for the last reminder beyond what the limit needs
FLAWS: Final = ("refused", "lost", "doubled", "dead", "parked", "waiting")
STAGES: Final = {  # each includes the later ones
    "has a habit": ("waiting", "reminded", "done"),
    "was reminded": ("reminded", "done"),
    "pressed, got the streak": ("done",),
}
WIDTH: Final = 78

UserStage = Literal["coming", "waiting", "reminded", "done"]


class HabitUser:
    """Adds a habit, and presses "done" when its reminder comes. `waits`: seconds for each reply."""

    def __init__(self, person: Person, clock: Clock, draw: random.Random) -> None:
        self.stage: UserStage = "coming"
        self.late: float | None = None  # seconds from `due` to the reminder
        self.waits: list[float] = []
        self._person = person
        self._clock = clock
        self._draw = draw

    async def live(self, begin: float, due: float) -> None:
        await self._clock.sleep(begin)
        zone = self._draw.choice(ZONES)
        local = dt.datetime.fromtimestamp(due, time_zone(zone))
        await self._says(f"/zone {zone}")
        await self._says(f"/add {local:%H:%M:%S} Read")
        self.stage = "waiting"
        while not _is_reminder(await self._person.hears(READ_SECONDS)):
            pass
        self.late = max(0.0, self._clock.now() - due)
        self.stage = "reminded"
        await self._clock.sleep(self._draw.uniform(*THINKS))
        pressed = self._clock.monotonic()
        self._person.presses()
        await self._person.hears(READ_SECONDS)
        self.waits.append(self._clock.monotonic() - pressed)
        self.stage = "done"

    def count_doubled(self) -> int:
        """Count what came beyond the one reminder and its answer."""
        return len(self._person.heard)

    async def _says(self, text: str) -> None:
        asked = self._clock.monotonic()
        self._person.says(text)
        await self._person.hears(READ_SECONDS)
        self.waits.append(self._clock.monotonic() - asked)


class HabitDemo:
    def __init__(self, example: ModuleType, *, users: int, seed: int, folder: str) -> None:
        self.users, self.seed = users, seed
        self.clock = Clock()
        faults = Faults(latency_in=EACH_WAY, latency_out=EACH_WAY)
        self.telegram = TelegramServer(limits=Limits(), faults=faults, seed=seed)
        # The limits of the environment are for real bots, and so is its database.
        self.gate = Tidegate(Path(folder, "habits.db"), settings=Settings.model_construct())
        self._example = example
        self._people = [self._person(number) for number in range(users)]
        self._stats: dict[str, int] = {}
        self._started = self._ended = self.due = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        """Run until everybody is done, the time is over, or `stop`."""
        async with self.telegram:
            await asyncio.to_thread(all_zones)  # it reads files, once
            config = self._example.Config(TOKEN, self.telegram.url)
            dispatcher, bot = await asyncio.to_thread(self._example.build, config, self.gate)
            tasks = BackgroundTasks()
            polling = tasks.start(
                dispatcher.start_polling(bot, handle_signals=False), "the bot", awaited=True
            )
            self._started = self.clock.monotonic()
            coming = self.users / COMING
            self.due = float(int(self.clock.now() + coming + HEAD_START))
            living = tasks.start(self._live(coming), "its users", awaited=True)
            stopping = tasks.start(stop.wait(), "Ctrl-C")
            await asyncio.wait(
                [living, stopping, polling], timeout=self.seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if polling.done():
                polling.result()  # raises if the bot failed
            if living.done():
                living.result()  # raises if a user did
                await self.clock.sleep(REMNANT)
            self._ended = self.clock.monotonic()
            await self.look()
            if not polling.done():
                await dispatcher.stop_polling()
                await polling
            await tasks.stop()

    @property
    def seconds(self) -> float:
        """The time that it may take."""
        return self.users / COMING + self.users / (LIMIT / 2) + THINKS[1] + 3 * HEAD_START + SPARE

    async def look(self) -> None:
        if self.gate.is_open:
            stats = await self.gate.stats()
            self._stats = {
                "delivered": stats.delivered,
                "waiting": stats.waiting + stats.sending,
                "dead": stats.dead,
                "parked": stats.parked,
            }

    def stages(self) -> Counter[str]:
        return Counter(user.stage for user in self._people)

    def report(self) -> dict[str, Any]:
        """Return the counts. `late_…`: of reminders, after they were due; `p50_ms` …: of replies."""
        until = self._ended or self.clock.monotonic()
        seen, stages = self.telegram.telegram.report(), self.stages()
        late = sorted(user.late for user in self._people if user.late is not None)
        waits = sorted(wait for user in self._people for wait in user.waits)
        stats = {name: self._stats.get(name, 0) for name in ("delivered", "waiting", "dead", "parked")}
        report = {
            "users": self.users,
            "seed": self.seed,
            "seconds": round(until - self._started, 1) if self._started else 0.0,
            "accepted": sum(stats.values()),
            **stats,
            "reminded": len(late),
            "done": stages["done"],
            "lost": max(0, stats["delivered"] - len(late)),
            "doubled": sum(user.count_doubled() for user in self._people) if self._ended else 0,
            "late_p50_ms": quantile(late, 0.5),
            "late_max_ms": quantile(late, 1.0),
            "p50_ms": quantile(waits, 0.5),
            "p99_ms": quantile(waits, 0.99),
            **{name: seen[name] for name in ("requests", "refused", "avg_rps", "peak_rps")},
            "peak_messages": seen["peaks"].get("bot", 0),
        }
        return report | {"passed": passed(report)}

    def _person(self, number: int) -> HabitUser:
        world = self.telegram.telegram.world
        bot = world.bot(TOKEN)
        assert bot is not None  # noqa: S101  (an open world takes any well-formed token)
        draw = random.Random(f"{self.seed} {number}")  # noqa: S311  (repeatable, not secret)
        return HabitUser(Person(self.telegram.telegram, bot, FIRST + number), self.clock, draw)

    async def _live(self, coming: float) -> None:
        async with asyncio.TaskGroup() as group:
            for number, user in enumerate(self._people):
                group.create_task(user.live(number * coming / self.users, self.due))


def _is_reminder(message: Json) -> bool:
    return "reply_markup" in message


def passed(report: Mapping[str, Any]) -> bool:
    """Check the target: everybody reminded once and answered, no 429, the reminders as fast as allowed."""
    in_time = report["late_max_ms"] <= latest_ms(report["users"]) and report["p99_ms"] <= REPLIES_WITHIN
    return report["done"] == report["users"] and in_time and not any(report[flaw] for flaw in FLAWS)


def latest_ms(users: int) -> float:
    """Return when the last reminder must have come: the limit is shared with replies to those who press."""
    return 1000 * (users / (LIMIT / 2) + SPARE)


def show(*, users: int, seed: int, as_json: bool) -> int:
    """Run the demo, then print the report. Return the exit code: 1 if the target was missed."""
    example = find_bot("habit_bot.bot")
    for name in ("tidegate", "aiogram"):  # the report says what matters
        logging.getLogger(name).setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="tidegate-demo-") as folder:
        demo = HabitDemo(example, users=users, seed=seed, folder=folder)
        loop.run(_live(demo, as_json=as_json))
    report = demo.report()
    terminal.report(report, report_table(report), as_json=as_json)
    return 0 if report["passed"] else 1


async def _live(demo: HabitDemo, *, as_json: bool) -> None:
    stop = loop.stop_signal()
    if terminal.is_watched() and not as_json:
        async with loop.beside(_watch(demo, stop)):
            await demo.run(stop)
        return
    line = f"{demo.users} people add a habit; all are reminded at once; ends within {demo.seconds:.0f} s"
    terminal.announce(f"{line} (Ctrl-C stops it)", as_json=as_json)
    await demo.run(stop)


async def _watch(demo: HabitDemo, stop: asyncio.Event) -> None:
    with terminal.drawing(lambda: picture(demo)) as draw:
        async for _ in loop.frames(stop, demo.clock):
            with suppress(TidegateError):  # the gate may close meanwhile
                await demo.look()
            draw()


def picture(demo: HabitDemo) -> RenderableType:
    """Return the demo as it is now."""
    report, stages = demo.report(), demo.stages()
    grid = Table.grid(padding=(0, 1), expand=True)
    grid.add_column(min_width=24, style="dim")
    grid.add_column(justify="right", min_width=5, style="bold")
    grid.add_column(ratio=1)
    for name, parts in STAGES.items():
        here = sum(stages[part] for part in parts)
        bar = ProgressBar(total=demo.users, completed=here, complete_style="green")
        grid.add_row(name, f"{here:,}", bar)
    left = demo.due - demo.clock.now() if demo.due else 0.0
    when = f"all reminders are due in {left:.0f} s" if left > 0 else "the reminders leave"
    counts = f"{when} · {report['requests']:,} requests, {report['refused']:,} refused (429)"
    panel = Panel(grid, title=Text("people of the habit bot", style="bold"), width=WIDTH)
    return Group(panel, Text(counts, style="bold"), Text("Ctrl-C stops it", style="dim"))


def report_table(report: Mapping[str, Any]) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, title="What came of it", title_justify="left", show_header=False)
    table.add_column(style="dim")
    table.add_column(justify="right", style="bold")
    rows = {
        "people, reminded, done": f"{report['users']:,}, {report['reminded']:,}, {report['done']:,}",
        "lost, doubled": f"{report['lost']:,}, {report['doubled']:,}",
        "requests, refused (429)": f"{report['requests']:,}, {report['refused']:,}",
        "most messages in a second (30 allowed)": f"{report['peak_messages']}",
        "a reminder came after its time: median": f"{report['late_p50_ms'] / 1000:.1f} s",
        "the last reminder": f"{report['late_max_ms'] / 1000:.1f} s",
        "a reply took: median, 99 %": f"{report['p50_ms']:.0f} ms, {report['p99_ms']:.0f} ms",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return Group(table, Text(verdict(report)))


def verdict(report: Mapping[str, Any]) -> str:
    """Return the result in one sentence."""
    latest = latest_ms(report["users"]) / 1000
    target = f"everybody reminded once within {latest:.0f} s, 99 % of the replies within 1 s, no 429"
    return f"The target, {target}: {'met' if report['passed'] else 'missed'}."
