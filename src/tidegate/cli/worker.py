"""`tidegate worker`: become the sender, deliver until a signal comes, report at the end."""

import asyncio
import logging
import re
from collections import Counter
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

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
    is_redis,
    open_gate,
    public_store_name,
    record_history,
    report_to_sentry,
    store_name,
)
from tidegate.cli.terminal import printable
from tidegate.cli.times import short_moment
from tidegate.clock import Clock
from tidegate.errors import StoreError, TidegateError
from tidegate.model import Message
from tidegate.ops.reports import WAITING
from tidegate.outbox.port import OutboxStats

if TYPE_CHECKING:  # slow to import: `--help` does without
    from tidegate.delivery.worker import Worker
    from tidegate.gate import Tidegate


app = typer.Typer(add_completion=False)
log = logging.getLogger("tidegate.worker")

Concurrency = Annotated[
    int, typer.Option(min=1, max=10_000, metavar="N", help="At most this many calls at once.")
]
Drain = Annotated[bool, typer.Option("--drain", help="Stop when nothing waits any more.")]
NoReminders = Annotated[
    bool, typer.Option("--no-reminders", help="Leave reminders to tidegate scheduler or another process.")
]

EXPLAINED: Final = 100  # messages at most of which a line says what they wait for
REASONS_SHOWN: Final = 5
_DECIMALS = re.compile(r"\.\d s\b")
COUNTED: Final = ("delivered", "parked", "expired", "refused")
WIDTH: Final = 80  # fits a terminal of 80 columns and 24 lines
MARKS: Final = 50  # seconds of a sparkline
LINES: Final = ("high", "normal", "low", "retry")
GOOD_RATE: Final = 30  # messages a second that fill a mark, unless there were more: a bot's limit


@app.command(epilog="[b]Try it:[/b]  tidegate worker  ·  tidegate worker --drain --json")
def worker(
    *,
    concurrency: Concurrency = 100,
    drain: Drain = False,
    no_reminders: NoReminders = False,
    health_port: HealthPort = None,
    health_host: HealthHost = "127.0.0.1",
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Deliver the messages of the store until Ctrl-C or SIGTERM.

    Then it finishes the calls in flight; messages that wait stay in the store. A file has one worker at a
    time; in Redis any number of workers share the work and the limits. It fires reminders, too, if there are
    any, and goes on with broadcasts that another process has left. If it fails again and again, it ends with
    1, so that whatever supervises it starts it anew.
    """
    wanted = WorkerOptions(
        concurrency=concurrency,
        drain=drain,
        reminders=not no_reminders,
        health=None if health_port is None else ListenAddress(health_host, health_port, "--health-"),
    )
    run = WorkerRun(gate_for(store), Clock(), shared=is_redis(store_name(store)))
    with terminal.command_log():
        report_to_sentry(run.gate)
        record_history(run.gate)
        loop.run(_deliver(run, store, wanted, as_json=as_json))
    terminal.report(run.report(), summary(run.report()), as_json=as_json)
    if run.failure is not None:
        raise TidegateError(f"the worker gives up: {run.failure}")


class WorkerOptions(NamedTuple):
    concurrency: int
    drain: bool
    reminders: bool
    health: ListenAddress | None


class WorkerRun:
    """The counts of one worker since `start`, as of the last `look`: the store's own counts go further back.

    If other workers share the store, `delivered` and `dead` are of this worker, the other counts of all.
    """

    def __init__(self, gate: "Tidegate", clock: Clock, *, shared: bool = False) -> None:
        self.gate, self.clock = gate, clock
        self._before: OutboxStats | None = None  # None: not read yet
        self.stats = OutboxStats()
        self._started = self._ended = 0.0
        self._over = False
        self.failure: str | None = None  # why it could not go on
        self._dead = 0
        self._delivered: int | None = None
        gate.on_dead(self._note_dead)
        if shared:
            self._delivered = 0
            gate.on_delivered(self._note_delivered)

    async def start(self) -> None:
        self._started = self.clock.monotonic()
        await self.look()

    async def look(self) -> None:
        """Read the counts. A store that cannot be read now must not end the worker: the last counts stay."""
        with suppress(StoreError):
            self.stats = await self.gate.stats()
            self._before = self._before or self.stats

    async def end(self) -> None:
        """Take the last counts, before the gate closes."""
        self._ended, self._over = self.clock.monotonic(), True
        await self.look()

    async def _note_dead(self, _message: Message, _reason: str) -> None:
        # Counted one by one: dead letters may be dropped or replayed meanwhile.
        self._dead += 1

    async def _note_delivered(self, _message: Message, _result: object) -> None:
        self._delivered = (self._delivered or 0) + 1

    @property
    def seconds(self) -> float:
        return (self._ended if self._over else self.clock.monotonic()) - self._started

    def report(self) -> dict[str, Any]:
        """Return the counts under the keys that all reports share."""
        before = self._before or self.stats
        counts = {name: max(0, getattr(self.stats, name) - getattr(before, name)) for name in COUNTED}
        if self._delivered is not None:
            counts["delivered"] = self._delivered
        return {
            **counts,
            "dead": self._dead,
            "waiting": self.stats.waiting,
            "seconds": round(self.seconds, 1),
            "avg_rps": round(counts["delivered"] / self.seconds, 1) if self.seconds else 0.0,
        }

    def line(self) -> str:
        report = self.report()
        flaws = [name for name in ("dead", "parked", "expired", "refused") if report[name]]
        return ", ".join(f"{report[name]:,} {name}" for name in ("delivered", "waiting", *flaws))


def summary(report: dict[str, Any]) -> str:
    rate = f" ({report['avg_rps']:,.1f}/s)" if report["delivered"] else ""
    return (
        f"Delivered {report['delivered']:,} in {report['seconds']:,.1f} s{rate}: {report['dead']:,} dead, "
        f"{report['parked']:,} parked, {report['expired']:,} expired, {report['refused']:,} refused (429); "
        f"{amount(report['waiting'], 'still waits', 'still wait')}"
    )


class WorkerView:
    """Draws a worker that runs. It keeps what it drew, to compute rates."""

    def __init__(self, run: WorkerRun, name: str) -> None:
        self._run, self._name = run, name
        self._delivered, self._refused = Meter(MARKS), Meter(MARKS)

    def picture(self) -> RenderableType:
        report, stats = self._run.report(), self._run.stats
        self._delivered.read(self._run.seconds, report["delivered"])
        self._refused.read(self._run.seconds, report["refused"])
        pulse, refusals = self._delivered.history(), self._refused.history()
        top = max(GOOD_RATE, *pulse, *refusals)
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", min_width=9)
        grid.add_column(no_wrap=True)
        grid.add_row("now", Text(f"{self._delivered.per_second():,}/s", style="bold"))
        grid.add_row("delivered", Text(sparkline(pulse, top), style="green"))
        grid.add_row("429s", Text(sparkline(refusals, top), style="red"))
        grid.add_row()
        grid.add_row("delivered", _number(report["delivered"], "bold green"))
        grid.add_row("in flight", _number(stats.sending))
        grid.add_row("waiting", _waiting(stats))
        grid.add_row(
            "dead",
            _number(report["dead"], _alarm(report["dead"])) + _ended(report["parked"], report["expired"]),
        )
        grid.add_row("429s", _number(report["refused"], _alarm(report["refused"])))
        title = Text(f"Delivering from {self._name}", style="bold")
        hint = Text(
            f"for {report['seconds']:,.0f} s · Ctrl-C stops it after the calls in flight", style="dim"
        )
        return Panel(grid, title=title, subtitle=hint, width=WIDTH, padding=(1, 2), border_style="cyan")


def _waiting(stats: OutboxStats) -> Text:
    parts = " · ".join(f"{name} {getattr(stats, name):,}" for name in LINES)
    return _number(stats.waiting) + Text(f"  {parts}", style="dim")


def _ended(parked: int, expired: int) -> Text:
    return Text(f"  parked {parked:,} · expired {expired:,}", style="dim")


def _number(count: int, style: str = "bold") -> Text:
    return Text(f"{count:,}", style=style)


def _alarm(count: int) -> str:
    return "bold red" if count else "bold"


async def _deliver(run: WorkerRun, store: str | None, wanted: WorkerOptions, *, as_json: bool) -> None:
    from tidegate.cli.health_server import serve_health  # noqa: PLC0415  (slow to import)

    stop, gate, name = (
        loop.stop_signal(),
        run.gate,
        public_store_name(store_name(store).removeprefix("sqlite:///")),
    )
    watched = terminal.is_watched() and not as_json
    async with open_gate(gate, store), serve_health(gate, wanted.health, run.clock):
        working = gate.worker(concurrency=wanted.concurrency, reminders=wanted.reminders)
        async with working as delivering, AsyncExitStack() as beside:
            await run.start()
            await beside.enter_async_context(loop.beside(_stop_when_hopeless(run, delivering, stop)))
            if not gate.bots():
                log.warning("no bot is registered: tidegate bot add")
            if not watched:
                waiting = amount(run.stats.waiting, "message waits", "messages wait")
                line = f"Delivering from {name}: {waiting} (Ctrl-C stops it)"
                log.info("%s", line) if as_json else terminal.put_line(line)
            if wanted.drain:
                await beside.enter_async_context(loop.beside(_stop_when_drained(gate, stop)))
            else:
                await beside.enter_async_context(gate.keep_campaigns())
            if watched:
                await watch(run, name, stop)
            elif as_json:
                await stop.wait()
            else:
                await print_lines(run, stop, drain=wanted.drain)
        await run.end()


async def _stop_when_hopeless(run: WorkerRun, worker: "Worker", stop: asyncio.Event) -> None:
    run.failure = await worker.hopeless()
    stop.set()


async def _stop_when_drained(gate: "Tidegate", stop: asyncio.Event) -> None:
    await gate.drained()
    stop.set()


async def watch(run: WorkerRun, name: str, stop: asyncio.Event) -> None:
    with terminal.drawing(WorkerView(run, name).picture) as draw:
        draw()  # what waits at the start, before a first look: that takes longer than a few messages
        async for _ in loop.frames(stop, run.clock):
            await run.look()
            draw()
        await run.look()


async def print_lines(run: WorkerRun, stop: asyncio.Event, *, drain: bool = False) -> None:
    """Print the counts every 10 s, if they have changed; with `drain` also what the rest waits for."""
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
        if drain and run.stats.waiting and not stop.is_set():
            with suppress(StoreError):  # a store that cannot be read now must not end the worker
                terminal.put_line(await waits_line(run))


async def waits_line(run: WorkerRun) -> str:
    """Say what the messages wait for, grouped: those that wait for the same thing together."""
    outbox, now = run.gate.outbox, run.clock.now()
    records = await outbox.records(states=WAITING, limit=EXPLAINED)
    reasons: Counter[str] = Counter()
    for record in records:
        at, why = record.message.not_before, await outbox.why(record.message.id)
        if at is not None and at > now:
            reasons[f"until {short_moment(at, now)} (not_before)"] += 1
        elif why is not None and why.waits_for:
            reasons[_DECIMALS.sub(" s", why.waits_for[0])] += 1
    parts = [f"{count:,} {reason}" for reason, count in reasons.most_common(REASONS_SHOWN)]
    oldest = f" (the oldest {EXPLAINED})" if run.stats.waiting > EXPLAINED else ""
    return printable(f"{amount(run.stats.waiting, 'waits', 'wait')}{oldest}: {'; '.join(parts) or 'nothing'}")
