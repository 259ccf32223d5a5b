"""`tidegate scheduler`: put reminders that are due into the outbox until a signal comes, then report."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec
import typer
from rich.console import RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tidegate.cli import loop, terminal
from tidegate.cli.listen_address import ListenAddress
from tidegate.cli.messages import amount
from tidegate.cli.options import AsJson, HealthHost, HealthPort, Store
from tidegate.cli.progress import LINE_EVERY, Meter, sparkline
from tidegate.cli.store import (
    gate_for,
    open_gate,
    public_store_name,
    record_history,
    report_to_sentry,
    store_name,
)
from tidegate.cli.times import distance
from tidegate.clock import Clock
from tidegate.errors import BadInputError, StoreError, TidegateError
from tidegate.reminders.port import ReminderCounts, Shard
from tidegate.reminders.scheduler import AHEAD, CHUNK, ReminderScheduler, SchedulerCounts

if TYPE_CHECKING:  # slow to import: `--help` does without
    from tidegate.gate import Tidegate

app = typer.Typer(add_completion=False)
log = logging.getLogger("tidegate.reminders")

OFFSETS: Final = AHEAD / 2  # seconds over which shards are spread: the last still puts half a minute ahead
COUNT_EVERY: Final = 10.0  # seconds: counting a million reminders takes a while
WIDTH: Final = 80
MARKS: Final = 50  # seconds of a sparkline
GOOD_RATE: Final = 100  # reminders a second that fill a mark, unless there were more
_SHARD: Final = re.compile(r"(\d{1,4})/(\d{1,4})", re.ASCII)

ShardOption = Annotated[
    str | None,
    typer.Option("--shard", metavar="K/N", help="Only users whose id % N is K: 0/4, 1/4, 2/4 or 3/4."),
]
Offset = Annotated[
    float | None,
    typer.Option(
        "--offset",
        metavar="SECONDS",
        min=0.0,
        help="Look this much later than others; default: shards are spread over 30 s.",
    ),
]
Chunk = Annotated[
    int, typer.Option("--chunk", min=1, max=10_000, metavar="N", help="Reminders in one transaction.")
]


@app.command(
    epilog="[b]Try it:[/b]  tidegate scheduler --health-port 8090  ·  tidegate scheduler --shard 0/2"
)
def scheduler(
    *,
    shard: ShardOption = None,
    offset: Offset = None,
    chunk: Chunk = CHUNK,
    health_port: HealthPort = None,
    health_host: HealthHost = "127.0.0.1",
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Put reminders that are due into the outbox until Ctrl-C or SIGTERM.

    It sends nothing itself: tidegate worker, or your bot, delivers. A worker fires reminders too, unless it
    is started with --no-reminders. Any number of schedulers share the work. Reminders with a handler are
    left to the bot that has it. If the database goes away, it waits; if it fails again and again, it ends
    with 1.
    """
    part = parse_shard(shard)
    wanted = SchedulerOptions(part, default_offset(part) if offset is None else offset, chunk)
    if not wanted.offset < AHEAD:
        raise BadInputError(f"--offset: give less than {AHEAD:g} s: what is due would be late")
    place = None if health_port is None else ListenAddress(health_host, health_port, "--health-")
    gate, clock = gate_for(store), Clock()
    with terminal.command_log():
        report_to_sentry(gate)
        record_history(gate)
        run = loop.run(_schedule(gate, clock, store, wanted, place, as_json=as_json))
    terminal.report(run.report(), summary(run.report()), as_json=as_json)
    if run.failure is not None:
        raise TidegateError(f"the scheduler gives up: {run.failure}")


class SchedulerOptions(NamedTuple):
    shard: Shard | None
    offset: float
    chunk: int


def parse_shard(text: str | None) -> Shard | None:
    if text is None:
        return None
    match = _SHARD.fullmatch(text.strip())
    if match is None or not int(match[1]) < int(match[2]):
        raise BadInputError(f"--shard: {text!r} is not a part: write K/N, of 4 parts 0/4, 1/4, 2/4 and 3/4")
    return Shard(int(match[1]), int(match[2]))


def default_offset(shard: Shard | None) -> float:
    """Return an offset that differs for each shard: they do not scan at the same instant."""
    return 0.0 if shard is None else OFFSETS * shard.number / shard.of


class SchedulerRun:
    """The counts of one scheduler since its start, and of all reminders as of the last `look`."""

    def __init__(self, gate: "Tidegate", scheduler: ReminderScheduler, clock: Clock) -> None:
        self._gate, self._scheduler, self.clock = gate, scheduler, clock
        self._started, self._ended = clock.monotonic(), 0.0
        self._next_look = self._started
        self.counts = ReminderCounts(0, 0, 0, 0)
        self.next_at: float | None = None
        self.failure: str | None = None  # why it could not go on

    @property
    def done(self) -> SchedulerCounts:
        return self._scheduler.counts

    async def look(self) -> None:
        """Count the reminders now and then. A database that is away must not end it: the last counts stay."""
        if self.clock.monotonic() < self._next_look:
            return
        self._next_look = self.clock.monotonic() + COUNT_EVERY
        with suppress(StoreError):
            self.counts = await self._gate.reminders.counts()
            upcoming = await self._gate.reminders.upcoming(limit=1)
            self.next_at = upcoming[0].next_at if upcoming else None

    async def end(self) -> None:
        """Take the last counts, before the gate closes."""
        self._ended = self._next_look = self.clock.monotonic()
        await self.look()

    @property
    def seconds(self) -> float:
        return (self._ended or self.clock.monotonic()) - self._started

    def trouble(self) -> list[str]:
        return self._scheduler.problems()

    def report(self) -> dict[str, Any]:
        return {
            **msgspec.structs.asdict(self.done),
            "active": self.counts.active,
            "paused": self.counts.paused,
            "seconds": round(self.seconds, 1),
        }

    def line(self) -> str:
        report = self.report()
        flaws = [name for name in ("late", "skipped", "merged") if report[name]]
        told = ", ".join(f"{report[name]:,} {name}" for name in ("fired", *flaws))
        return f"{told}; {amount(report['active'], 'reminder')} active"


def summary(report: dict[str, Any]) -> str:
    return (
        f"Fired {amount(report['fired'], 'reminder')} in {report['seconds']:,.1f} s: {report['late']:,} late,"
        f" {report['skipped']:,} skipped, {report['merged']:,} merged; {report['active']:,} are active"
    )


class SchedulerView:
    """Draws a scheduler that runs."""

    def __init__(self, run: SchedulerRun, name: str) -> None:
        self._run, self._name = run, name
        self._fired = Meter(MARKS)

    def picture(self) -> RenderableType:
        run, report = self._run, self._run.report()
        self._fired.read(run.seconds, report["fired"])
        pulse = self._fired.history()
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", min_width=9)
        grid.add_column(no_wrap=True)
        grid.add_row("now", Text(f"{self._fired.per_second():,}/s", style="bold"))
        grid.add_row("fired", Text(sparkline(pulse, max(GOOD_RATE, *pulse)), style="green"))
        grid.add_row()
        for name in ("fired", "late", "skipped", "merged"):
            grid.add_row(name, Text(f"{report[name]:,}", style="bold green" if name == "fired" else "bold"))
        grid.add_row("active", Text(f"{report['active']:,}", "bold") + Text(self._next(), style="dim"))
        for line in run.trouble():
            grid.add_row("trouble", Text(line, style="bold red"))
        title = Text(f"Reminders beside {self._name}", style="bold")
        hint = Text(f"for {report['seconds']:,.0f} s · Ctrl-C stops it", style="dim")
        return Panel(grid, title=title, subtitle=hint, width=WIDTH, padding=(1, 2), border_style="cyan")

    def _next(self) -> str:
        at = self._run.next_at
        return "" if at is None else f"  the next is due {distance(at, self._run.clock.now())}"


async def _schedule(
    gate: "Tidegate",
    clock: Clock,
    store: str | None,
    wanted: SchedulerOptions,
    place: ListenAddress | None,
    *,
    as_json: bool,
) -> SchedulerRun:
    from tidegate.cli.health_server import serve_health  # noqa: PLC0415  (slow to import)

    stop, name = loop.stop_signal(), public_store_name(store_name(store).removeprefix("sqlite:///"))
    watched = terminal.is_watched() and not as_json
    async with (
        open_gate(gate, store),
        serve_health(gate, place, clock),
        _running(gate, clock, wanted, stop) as run,
    ):
        await run.look()
        if not watched:
            active = amount(run.counts.active, "reminder")
            line = f"Scheduling beside {name}: {active} (Ctrl-C stops it)"
            log.info("%s", line) if as_json else terminal.put_line(line)
        if watched:
            with terminal.drawing(SchedulerView(run, name).picture) as draw:
                async for _ in loop.frames(stop, clock):
                    await run.look()
                    draw()
        elif as_json:
            await stop.wait()
        else:
            await print_lines(run, stop)
    return run


@asynccontextmanager
async def _running(
    gate: "Tidegate", clock: Clock, wanted: SchedulerOptions, stop: asyncio.Event
) -> AsyncIterator[SchedulerRun]:
    """Run the scheduler until the body ends. Raises StoreAwayError if the database cannot be reached."""
    shard, offset, chunk = wanted
    async with gate.reminders.schedule(shard=shard, offset=offset, chunk=chunk) as scheduler:
        run = SchedulerRun(gate, scheduler, clock)

        async def stop_when_hopeless() -> None:
            run.failure = await scheduler.hopeless()
            stop.set()

        async with loop.beside(stop_when_hopeless()):
            yield run
        await run.end()


async def print_lines(run: SchedulerRun, stop: asyncio.Event) -> None:
    """Print the counts every 10 s, if they have changed."""
    last = run.line()
    while not stop.is_set():
        with suppress(TimeoutError):
            async with run.clock.timeout(LINE_EVERY):
                await stop.wait()
        await run.look()
        line = run.line()
        if line != last and not stop.is_set():
            terminal.put_line(line)
            last = line
